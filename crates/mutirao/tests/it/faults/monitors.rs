//! Monitors while what they stand on goes away: the database for longer than a lease, the broker for a moment. Checks go on,
//! no instant counts twice, and nobody is called silent because of it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};
use serde_json::Value;

use super::services_folder;
use crate::monitors::state;
use crate::rabbit::wait_until_queues_are_known;
use crate::said::SOON;

/// A service that counts who comes.
fn counting() -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0; 1024]);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
        }
    });
    (url, asked)
}

/// The instants of the outcomes, the latest first.
fn instants(up: &Installation, name: &str) -> Vec<i64> {
    let told = up.ok(&["--json", "monitor", "history", name, "--limit", "1000"]);
    let history: Value = serde_json::from_str(&told).unwrap();
    history["outcomes"].as_array().unwrap().iter().map(|outcome| outcome["at"].as_i64().unwrap()).collect()
}

fn each_counts_once(up: &Installation, name: &str) {
    let at = instants(up, name);
    assert!(at.windows(2).all(|pair| pair[0] > pair[1]), "{at:?}");
}

fn watched(up: &Installation, url: &str) {
    up.ok(&["monitor", "add", "shop", "--http", url, "--every", "1s", "--timeout", "900ms"]);
    wait::until("it to be up", SOON, || state(up, "shop") == "up");
}

#[test]
fn a_database_that_is_away_for_longer_than_a_lease_keeps_no_check_from_being_made() {
    if shared(POSTGRES_VARIABLE).is_none() || shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = services_folder();
    let mut database = Service::postgres(folder.path()).unwrap();
    let broker = Service::rabbitmq(folder.path()).unwrap();
    let up = Installation::setup()
        .manager_alone()
        .env("MUTIRAO_DATABASE", database.url())
        .env("MUTIRAO_BROKER", broker.url())
        .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
        .start();
    let (url, asked) = counting();
    watched(&up, &url);
    let last_before = instants(&up, "shop")[0];
    database.stop();
    // Past the lease: from here on the manager owns nothing that the database would vouch for.
    wait::holds_within(Duration::from_secs(20), || false);
    let past_the_lease = asked.load(Ordering::Relaxed);
    wait::until("checks to go on", SOON, || asked.load(Ordering::Relaxed) >= past_the_lease + 10);
    database.restart().unwrap();
    let back = |at: &[i64]| at.first().is_some_and(|last| *last > last_before + 35_000);
    wait::until("outcomes to be written again", SOON, || {
        let told = up.cli(&["--json", "monitor", "history", "shop", "--limit", "1000"]);
        told.status.success() && back(&instants(&up, "shop"))
    });
    each_counts_once(&up, "shop");
    let meanwhile = instants(&up, "shop").iter().filter(|at| (last_before..last_before + 30_000).contains(at)).count();
    assert!(meanwhile >= 20, "what was seen while the database was away is not lost: {meanwhile} of 30");
    assert_eq!(state(&up, "shop"), "up");
}

#[test]
fn a_broker_that_is_killed_and_comes_back_costs_a_few_checks_and_doubles_none() {
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = services_folder();
    let mut broker = Service::rabbitmq(folder.path()).unwrap();
    let up = Installation::setup()
        .workers(0)
        .env("MUTIRAO_BROKER", broker.url())
        .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
        .start();
    let (url, _asked) = counting();
    watched(&up, &url);
    wait_until_queues_are_known();
    for _ in 0..2 {
        let before = instants(&up, "shop")[0];
        broker.kill9();
        broker.restart().unwrap();
        wait::until("outcomes to come again", SOON, || instants(&up, "shop")[0] > before + 10_000);
    }
    each_counts_once(&up, "shop");
    assert_eq!(state(&up, "shop"), "up");
}
