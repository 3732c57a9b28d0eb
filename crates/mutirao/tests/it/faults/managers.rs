//! Two managers as processes of their own, on one PostgreSQL and one RabbitMQ: the one that owns the queue is killed, or
//! frozen past its lease, in the middle of a large job. The other takes over, and each task ends once.

use std::time::Duration;

use mutirao_core::QueueName;
use mutirao_core::envelope::shard_of;
use mutirao_core::shard::{JOBS_SHARDS, ShardView};
use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};
use rustix::process::Signal;

use super::distributed::worker;
use super::{Effects, LEAVE, TASKS, ends_ok, send, services_folder, still_works};
use crate::rabbit::wait_until_queues_are_known;
use crate::said::{SOON, Said};
use crate::workers::Worker;

/// A lease, a takeover, and a busy machine.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(90);

struct Pair {
    owner: Installation,
    other: Installation,
    _workers: Vec<Worker>,
    _services: [Service; 2],
    _folder: tempfile::TempDir,
}

impl Pair {
    /// None, with a notice, when the run has no services.
    fn start() -> Option<Self> {
        shared(AMQP_VARIABLE)?;
        shared(POSTGRES_VARIABLE)?;
        let folder = services_folder();
        let services = [Service::postgres(folder.path()).unwrap(), Service::rabbitmq(folder.path()).unwrap()];
        let [database, broker] = &services;
        let manager = || {
            Installation::setup()
                .manager_alone()
                .env("MUTIRAO_DATABASE", database.url())
                .env("MUTIRAO_BROKER", broker.url())
                .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
                .start()
        };
        let (one, two) = (manager(), manager());
        wait::until("both to have a share", SOON, || {
            let shards = shards(&one);
            [&one, &two].iter().all(|manager| owned(&shards, manager) > 0)
                && owned(&shards, &one) + owned(&shards, &two) == 16
        });
        let home = shard_of(&QueueName::default());
        let owns = shards(&one).iter().any(|view| view.shard == home && view.address == Some(one.url()));
        let (owner, other) = if owns { (one, two) } else { (two, one) };
        // Let in by one, and heard by whoever owns their queue.
        let workers = vec![worker(&other, folder.path(), "one").0, worker(&owner, folder.path(), "two").0];
        for manager in [&owner, &other] {
            wait::until("the workers to come", SOON, || manager.workers().len() == 2);
        }
        wait_until_queues_are_known();
        Some(Self { owner, other, _workers: workers, _services: services, _folder: folder })
    }
}

/// Those of the queues.
fn shards(manager: &Installation) -> Vec<ShardView> {
    let mut all: Vec<ShardView> = serde_json::from_str(&manager.ok(&["--json", "shard", "list"])).unwrap();
    all.retain(|view| view.group == "jobs");
    all
}

fn owned(shards: &[ShardView], manager: &Installation) -> usize {
    shards.iter().filter(|view| view.address == Some(manager.url())).count()
}

#[test]
fn one_of_two_managers_killed_loses_no_task_and_counts_none_twice() {
    let Some(mut pair) = Pair::start() else { return };
    let effects = Effects::new();
    let job = effects.submit(&pair.other, TASKS, "500m", LEAVE);
    effects.wait_for(1_000);
    pair.owner.kill9();
    assert!(effects.count() < TASKS as usize, "it was killed too late to prove anything");
    let other = &pair.other;
    wait::until("the other to own everything", TAKEN_OVER_WITHIN, || {
        owned(&shards(other), other) == JOBS_SHARDS as usize
    });
    ends_ok(other, &job, TASKS);
    effects.check(TASKS).at_most_by(1, "a manager killed");
    still_works(other);
    wait::until("the shards of the others to be looked after too", TAKEN_OVER_WITHIN, || {
        Said::from(other.cli(&["doctor"])).out.contains("all 48 are looked after, by one manager")
    });
}

#[test]
fn one_of_two_managers_frozen_past_its_lease_changes_nothing_when_it_wakes() {
    let Some(pair) = Pair::start() else { return };
    let effects = Effects::new();
    let job = effects.submit(&pair.owner, TASKS, "500m", LEAVE);
    effects.wait_for(1_000);
    send(pair.owner.pid(), Signal::STOP);
    let other = &pair.other;
    let listed = Said::from(other.cli(&["worker", "list"]));
    assert!(listed.code == Some(0) && listed.err.contains("did not answer"), "{listed:?}");
    wait::until("the other to own everything", TAKEN_OVER_WITHIN, || {
        owned(&shards(other), other) == JOBS_SHARDS as usize
    });
    send(pair.owner.pid(), Signal::CONT);
    ends_ok(other, &job, TASKS);
    effects.check(TASKS).at_most_by(1, "a manager frozen");
    wait::until("both to have a share again", SOON, || owned(&shards(other), &pair.owner) > 0);
    for manager in [&pair.owner, other] {
        still_works(manager);
    }
}

#[test]
fn a_manager_that_is_restarted_gets_its_shards_back_and_the_other_keeps_its_own() {
    let Some(mut pair) = Pair::start() else { return };
    let owners = |manager: &Installation| {
        let views = shards(manager).into_iter();
        views.map(|view| (view.shard, view.owner, view.generation)).collect::<Vec<_>>()
    };
    let before = owners(&pair.other);
    assert!(pair.owner.terminate().success());
    wait::until("the other to own everything", SOON, || {
        owned(&shards(&pair.other), &pair.other) == JOBS_SHARDS as usize
    });
    pair.owner.restart();
    let name = |(shard, owner, _): &(_, _, _)| (*shard, Option::clone(owner));
    wait::until("everybody to have what it had", SOON, || {
        owners(&pair.other).iter().map(name).eq(before.iter().map(name))
    });
    let its_own = shards(&pair.other).into_iter().find(|view| view.address == Some(pair.other.url())).unwrap().owner;
    let kept = |rows: Vec<_>| rows.into_iter().filter(|(_, owner, _)| *owner == its_own).collect::<Vec<_>>();
    assert_eq!(kept(owners(&pair.other)), kept(before), "in the same generation");
    still_works(&pair.owner);
}
