//! The same two managers under what else befalls machines: the database killed at any moment, an owner that stands still past
//! its lease, a stop in the middle of an outage, clocks that are minutes apart and jump, one of them cut off, and whatever is killed
//! at random, several at once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use mutirao_core::Dice;
use mutirao_testkit::network::{Between, Network};
use mutirao_testkit::services::Service;
use mutirao_testkit::wait;
use rustix::process::Signal;

use super::super::send;
use super::queued::{Pair, Unanswered, outlives};

/// Longer than a lease.
const PAST_A_LEASE: Duration = Duration::from_secs(14);
/// Both ends of a connection to RabbitMQ have given it up by then: they wait 20 seconds.
const SILENCE_THAT_RABBITMQ_NOTICES: Duration = Duration::from_secs(26);
const MINUTE_MS: i64 = 60_000;

fn for_(span: Duration) {
    wait::holds_within(span, || false);
}

fn plain() -> Option<Pair> {
    Pair::start(|_, setup, _, _| setup)
}

/// What befalls goes by a seed, which is printed; `MUTIRAO_KV_SEED` has the same befall again.
fn dice() -> Dice {
    let given = std::env::var("MUTIRAO_KV_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| Dice::from_os().u64());
    println!("MUTIRAO_KV_SEED={seed} has the same befall again");
    Dice::seeded(seed)
}

/// Whatever of them is struck, a manager is brought back when it has something to come back to.
const SERVICES: [fn(&mut Pair) -> &mut Service; 3] =
    [|pair| &mut pair.database, |pair| &mut pair.broker, |pair| &mut pair.cache];
const VICTIMS: u64 = 5;

/// Kills one to three of the five, one after the other, and brings them back after a while.
fn strike(pair: &mut Pair, dice: &Dice) {
    let victims: BTreeSet<u64> = (0..=dice.below(3)).map(|_| dice.below(VICTIMS)).collect();
    println!("struck: {victims:?} (0 and 1 are managers, then PostgreSQL, RabbitMQ, Redis)");
    for victim in &victims {
        for_(Duration::from_millis(dice.below(700)));
        match *victim as usize {
            manager @ 0..2 => pair.managers[manager].kill9(),
            service => SERVICES[service - 2](pair).kill9(),
        }
    }
    for_(Duration::from_millis(dice.below(4_000)));
    // Services first.
    for victim in victims.iter().rev() {
        match *victim as usize {
            manager @ 0..2 => pair.managers[manager].restart(),
            service => SERVICES[service - 2](pair).restart().unwrap(),
        }
    }
}

#[test]
fn whatever_is_killed_at_random_no_answered_write_is_lost_doubled_or_comes_back() {
    let Some(pair) = plain() else { return };
    let dice = dice();
    outlives(pair, Unanswered::BeforeTheNext, 5, |pair, _| strike(pair, &dice));
}

#[test]
fn a_postgresql_killed_at_any_moment_loses_no_write_and_brings_none_back() {
    let Some(pair) = plain() else { return };
    let dice = dice();
    outlives(pair, Unanswered::BeforeTheNext, 4, |pair, _| {
        for_(Duration::from_millis(dice.below(700)));
        pair.database.kill9();
        // For a moment, or for so long that what is written meanwhile waits in its queues.
        for_(Duration::from_millis(dice.below(4_000)));
        pair.database.restart().unwrap();
    });
}

/// What is read back goes by it, whenever there is something at hand.
#[test]
fn a_redis_frozen_restored_and_killed_while_both_managers_are_written_to_shows_nothing_old() {
    let Some(pair) = plain() else { return };
    outlives(pair, Unanswered::BeforeTheNext, 4, |pair, n| {
        if n == 0 {
            pair.cache.freeze();
            for_(Duration::from_secs(2));
            return pair.cache.thaw();
        }
        if n % 2 == 1 {
            save(&pair.cache);
            for_(Duration::from_millis(200));
        }
        pair.cache.kill9();
        pair.cache.restart().unwrap();
    });
}

/// Has it write a snapshot, as it does by itself now and then.
fn save(redis: &Service) {
    let mut stream = TcpStream::connect(redis.address()).unwrap();
    stream.write_all(b"SAVE\r\n").unwrap();
    let mut said = [0; 3];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"+OK");
}

#[test]
fn an_owner_that_stands_still_past_its_lease_applies_nothing_when_it_wakes_and_brings_nothing_back() {
    let Some(pair) = plain() else { return };
    outlives(pair, Unanswered::BeforeTheNext, 2, |pair, _| {
        let owner = pair.managers[1].pid();
        send(owner, Signal::STOP);
        for_(PAST_A_LEASE);
        send(owner, Signal::CONT);
    });
}

#[test]
fn clocks_that_are_minutes_apart_and_jump_change_no_order_and_bring_nothing_back() {
    let folder = tempfile::tempdir().unwrap();
    let walls = ["first", "second"].map(|name| folder.path().join(name));
    let set = |wall: &Path, off_ms: i64| std::fs::write(wall, off_ms.to_string()).unwrap();
    set(&walls[0], 7 * MINUTE_MS);
    set(&walls[1], -5 * MINUTE_MS);
    let wall = |n: usize| walls[n].to_str().unwrap().to_owned();
    let Some(pair) = Pair::start(|n, setup, _, _| setup.env("MUTIRAO_TEST_WALL_OFF_MS", &wall(n))) else { return };
    let jumps = [(-7, 5), (60, -60), (0, 0)];
    outlives(pair, Unanswered::BeforeTheNext, jumps.len() as u64 + 1, |pair, n| match jumps.get(n as usize) {
        Some((first, second)) => {
            set(&walls[0], first * MINUTE_MS);
            set(&walls[1], second * MINUTE_MS);
        }
        // The shards of one go to the other, whose clock is another.
        None => {
            set(&walls[1], -9 * MINUTE_MS);
            pair.managers[0].kill9();
            pair.managers[0].restart();
        }
    });
}

#[test]
fn a_manager_cut_off_from_the_others_loses_no_answered_write_and_doubles_none() {
    let Some(network) = Network::lay(&Dice::from_os()) else { return };
    let network = RefCell::new(network);
    let fronts = RefCell::new(Vec::new());
    let started = Pair::start(|n, setup, database, broker| {
        if n == 0 {
            return setup;
        }
        let through = |url: &str, address: std::net::SocketAddr| {
            let front = network.borrow_mut().front(address).unwrap();
            fronts.borrow_mut().push(front);
            url.replace(&address.to_string(), &front.to_string())
        };
        setup
            .env("MUTIRAO_DATABASE", &through(database.url(), database.address()))
            .env("MUTIRAO_BROKER", &through(broker.url(), broker.address()))
    });
    let Some(pair) = started else { return };
    let (network, fronts) = (network.into_inner(), fronts.into_inner());
    outlives(pair, Unanswered::AnyTime, 1, |_, _| {
        for front in &fronts {
            network.cut(Between::ManagerAnd(*front)).unwrap();
        }
        for_(SILENCE_THAT_RABBITMQ_NOTICES);
        for front in &fronts {
            network.mend(Between::ManagerAnd(*front)).unwrap();
        }
    });
}

/// Takes minutes, mostly of waiting.
mod long {
    use super::*;

    #[test]
    fn a_manager_stopped_while_the_database_is_away_gives_back_what_it_held_in_order() {
        let Some(pair) = plain() else { return };
        outlives(pair, Unanswered::BeforeTheNext, 2, |pair, _| {
            pair.database.kill9();
            // What is written meanwhile is with whoever owns its key, and not acknowledged.
            for_(Duration::from_secs(1));
            pair.managers[1].terminate();
            pair.database.restart().unwrap();
            pair.managers[1].restart();
        });
    }
}
