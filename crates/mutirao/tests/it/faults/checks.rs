//! Monitors while those who fire and check go away: a manager killed, a manager frozen past its lease, a checker killed with
//! checks in hand; and services that do their worst. Each instant has one outcome, and the pool never wedges.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mutirao_core::{Clock, Mono, SystemClock};
use mutirao_testkit::proxy::Proxy;
use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};
use rustix::process::Signal;
use serde_json::Value;

use super::{send, services_folder};
use crate::monitors::{service, state};
use crate::rabbit::{Vhost, wait_until_queues_are_known};
use crate::said::SOON;
use crate::workers::Worker;

const MONITORS: usize = 20;
/// A lease, a takeover, and a busy machine.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(90);

/// The outcomes of a monitor, the latest first: their instants, and why some were bad.
fn outcomes(up: &Installation, name: &str) -> Vec<(i64, Option<String>)> {
    let told = up.ok(&["--json", "monitor", "history", name, "--limit", "1000"]);
    let history: Value = serde_json::from_str(&told).unwrap();
    let one = |outcome: &Value| (outcome["at"].as_i64().unwrap(), outcome["detail"].as_str().map(str::to_owned));
    history["outcomes"].as_array().unwrap().iter().map(one).collect()
}

fn last(up: &Installation, name: &str) -> i64 {
    outcomes(up, name).first().map_or(0, |(at, _)| *at)
}

fn each_counts_once(up: &Installation, name: &str) {
    let at: Vec<i64> = outcomes(up, name).into_iter().map(|(at, _)| at).collect();
    assert!(at.windows(2).all(|pair| pair[0] > pair[1] && (pair[0] - pair[1]) % 1_000 == 0), "{name}: {at:?}");
}

fn named(n: usize) -> String {
    format!("m{n}")
}

struct Pair {
    one: Installation,
    two: Installation,
    _services: [Service; 2],
    _folder: tempfile::TempDir,
}

impl Pair {
    /// None, with a notice, when the run has no services.
    fn start(url: &str) -> Option<Self> {
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
        for n in 0..MONITORS {
            one.ok(&["monitor", "add", &named(n), "--http", url, "--every", "1s", "--timeout", "900ms"]);
        }
        wait::until("all to be up", SOON, || (0..MONITORS).all(|n| state(&one, &named(n)) == "up"));
        wait_until_queues_are_known();
        Some(Self { one, two, _services: services, _folder: folder })
    }

    fn all_go_on(&self, by: &Installation) {
        let since = (0..MONITORS).map(|n| last(by, &named(n))).max().unwrap();
        wait::until("all to go on", TAKEN_OVER_WITHIN, || (0..MONITORS).all(|n| last(by, &named(n)) > since + 20_000));
        for n in 0..MONITORS {
            each_counts_once(by, &named(n));
            assert_eq!(state(by, &named(n)), "up");
        }
    }
}

/// How many managers there should be is anybody's to say: each hears what all of them use.
#[test]
fn managers_say_what_they_use_and_any_says_how_many_there_should_be() {
    let (url, _well) = service();
    let Some(mut pair) = Pair::start(&url) else { return };
    let told = |up: &Installation| -> Value {
        let status: Value = serde_json::from_str(&up.ok(&["--json", "elastic", "status"])).unwrap();
        status["managers"].clone()
    };
    let of_two = |up: &Installation| told(up)["cpu_milli"].as_object().is_some_and(|each| each.len() == 2);
    wait::until("both to be heard by both", SOON, || of_two(&pair.one) && of_two(&pair.two));
    let said = pair.two.ok(&["elastic", "status"]);
    assert!(said.contains("managers: 2 there, ") && said.contains("cpu"), "{said}");
    pair.one.kill9();
    wait::until("the other to be alone", SOON, || told(&pair.two)["running"] == 1);
}

#[test]
fn a_manager_that_is_killed_is_followed_by_another_and_no_instant_counts_twice() {
    let (url, _well) = service();
    let Some(mut pair) = Pair::start(&url) else { return };
    pair.one.kill9();
    pair.all_go_on(&pair.two);
}

#[test]
fn a_manager_frozen_past_its_lease_and_woken_doubles_no_outcome() {
    let (url, _well) = service();
    let Some(pair) = Pair::start(&url) else { return };
    send(pair.one.pid(), Signal::STOP);
    let since = (0..MONITORS).map(|n| last(&pair.two, &named(n))).max().unwrap();
    wait::until("the other to take over", TAKEN_OVER_WITHIN, || {
        (0..MONITORS).all(|n| last(&pair.two, &named(n)) > since + 15_000)
    });
    send(pair.one.pid(), Signal::CONT);
    pair.all_go_on(&pair.two);
    for n in 0..MONITORS {
        each_counts_once(&pair.one, &named(n));
    }
}

/// Answers after a while.
fn slow(after: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                wait::holds_within(after, || false);
                let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
            });
        }
    });
    url
}

fn checker(up: &Installation, folder: &std::path::Path, name: &str) -> Worker {
    checker_at(up, &up.url(), folder, name)
}

fn checker_at(up: &Installation, url: &str, folder: &std::path::Path, name: &str) -> Worker {
    let token = up.ok(&["worker", "invite", "--checks", "http"]);
    let dir = folder.join(name).display().to_string();
    let mut command = up.command(&["role", "checker", "--url", url, "--dir", &dir]);
    command.env("MUTIRAO_ENROL_TOKEN", token.trim()).stdout(Stdio::null()).stderr(Stdio::null());
    Worker(command.spawn().unwrap())
}

/// Checks take 2 s of every 5, so that each checker has some in hand at any moment, and there is time to make them again.
fn no_instant_is_missing_though_checkers_are_killed(up: &Installation) {
    let folder = tempfile::tempdir().unwrap();
    let url = slow(Duration::from_secs(2));
    let mut one = checker(up, folder.path(), "one");
    let _two = checker(up, folder.path(), "two");
    for n in 0..MONITORS {
        up.ok(&["monitor", "add", &named(n), "--http", &url, "--every", "5s", "--timeout", "4s"]);
    }
    wait::until("all to be up", SOON, || (0..MONITORS).all(|n| state(up, &named(n)) == "up"));
    for (name, told_to_stop) in [("three", false), ("four", true), ("five", false)] {
        let next = checker(up, folder.path(), name);
        let before = last(up, &named(0));
        wait::until("the next one", SOON, || last(up, &named(0)) > before);
        if told_to_stop {
            // It answers for what it has until that is told, and does not come to it.
            send(one.0.id(), Signal::TERM);
            wait::holds_within(Duration::from_millis(300), || false);
        }
        // Dropping it kills it, and waits until it is gone.
        drop(std::mem::replace(&mut one, next));
    }
    let before = (0..MONITORS).map(|n| last(up, &named(n))).max().unwrap();
    wait::until("all to go on", SOON, || (0..MONITORS).all(|n| last(up, &named(n)) > before));
    for n in 0..MONITORS {
        let told = outcomes(up, &named(n));
        assert!(told.iter().all(|(_, why)| why.is_none()), "a killed checker is no fault of the service: {told:?}");
        assert!(told.windows(2).all(|pair| pair[0].0 - pair[1].0 == 5_000), "{}: {told:?}", named(n));
        assert_eq!(state(up, &named(n)), "up");
    }
}

#[test]
fn what_a_killed_checker_had_in_hand_is_made_by_another() {
    let up = Installation::setup().workers(0).set("monitors.checker", "none").start();
    no_instant_is_missing_though_checkers_are_killed(&up);
}

#[test]
fn on_rabbitmq_too_what_a_killed_checker_had_in_hand_is_made_by_another() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .workers(0)
        .set("monitors.checker", "none")
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    no_instant_is_missing_though_checkers_are_killed(&up);
}

type Hits = Arc<Mutex<HashMap<String, Vec<Mono>>>>;

/// Answers after a while, and remembers when it was asked for what.
fn remembering(after: Duration) -> (String, Hits) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let hits = Hits::default();
    let seen = hits.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || {
                let mut asked = [0; 1024];
                let n = stream.read(&mut asked).unwrap_or(0);
                let asked = String::from_utf8_lossy(&asked[..n]).into_owned();
                let path = asked.split_whitespace().nth(1).unwrap_or("").to_owned();
                seen.lock().unwrap().entry(path).or_default().push(SystemClock.monotonic());
                wait::holds_within(after, || false);
                let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
            });
        }
    });
    (url, hits)
}

/// Checks take 1.5 s of every 5, so that some are in hand whenever the line is cut, and would have time to be made again.
fn each_check_is_made_once_though_the_line_is_cut(up: &Installation, line: &Proxy) {
    let (url, hits) = remembering(Duration::from_millis(1_500));
    for n in 0..MONITORS {
        let url = format!("{url}/{}", named(n));
        up.ok(&["monitor", "add", &named(n), "--http", &url, "--every", "5s", "--timeout", "4s"]);
    }
    wait::until("all to be up", SOON, || (0..MONITORS).all(|n| state(up, &named(n)) == "up"));
    let begin = SystemClock.monotonic();
    for _ in 0..4 {
        let before = last(up, &named(0));
        line.break_connections();
        wait::until("it to go on", SOON, || last(up, &named(0)) >= before + 10_000);
    }
    let hits = hits.lock().unwrap();
    assert_eq!(hits.len(), MONITORS);
    for (path, at) in hits.iter() {
        let at: Vec<u128> = at.iter().filter(|at| **at >= begin).map(|at| at.since(begin).as_millis()).collect();
        assert!(at.len() >= 5, "{path} was asked at {at:?}");
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] > 2_500), "{path} was asked twice for one instant: {at:?}");
    }
    for n in 0..MONITORS {
        each_counts_once(up, &named(n));
    }
}

#[test]
fn a_checker_whose_line_to_the_manager_is_cut_makes_each_check_once() {
    let up = Installation::setup().workers(0).set("monitors.checker", "none").start();
    let line = Proxy::to(up.address()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let _checker = checker_at(&up, &format!("http://{}", line.address()), folder.path(), "one");
    each_check_is_made_once_though_the_line_is_cut(&up, &line);
}

#[test]
fn a_checker_whose_line_to_rabbitmq_is_cut_makes_each_check_once() {
    let Some(vhost) = Vhost::new() else { return };
    let (before, rest) = vhost.broker.split_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let line = Proxy::to(server.parse().unwrap()).unwrap();
    let up = Installation::setup()
        .workers(0)
        .set("monitors.checker", "none")
        .env("MUTIRAO_BROKER", &format!("{before}@{}/{name}", line.address()))
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    let folder = tempfile::tempdir().unwrap();
    let _checker = checker(&up, folder.path(), "one");
    each_check_is_made_once_though_the_line_is_cut(&up, &line);
}

/// Does with each connection what it is told to, for as long as the other side bears it.
fn nasty(with: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || with(stream));
        }
    });
    address
}

fn silent(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
}

fn endless(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    while stream.write_all(&[b'x'; 65_536]).is_ok() {}
}

fn rubbish(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
    let _ = stream.write_all(&[0xff; 4_096]);
}

fn resident_mb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
}

#[test]
fn services_at_their_worst_hold_up_no_other_and_cost_no_memory() {
    let (url, _well) = service();
    let up = Installation::setup().workers(0).start();
    let (mute, flood, noise) = (nasty(silent), nasty(endless), nasty(rubbish));
    let worst = [
        ("mute", "--http", format!("http://{mute}/")),
        ("mute-tls", "--tls", mute.clone()),
        ("flood", "--http", format!("http://{flood}/")),
        ("noise", "--http", format!("http://{noise}/")),
        ("noise-tls", "--tls", noise.clone()),
        ("noise-https", "--http", format!("https://{noise}/")),
        ("nowhere", "--http", "http://no-such-name.invalid/".into()),
    ];
    let every = ["--every", "1s", "--timeout", "900ms", "--failures", "2"];
    for copy in 0..10 {
        for (name, kind, target) in &worst {
            // What never ends is cut, and what was read is good; it is told apart by a condition that it cannot meet.
            let when: &[&str] = if *name == "flood" { &["--when", "body == 'hi'"] } else { &[] };
            let name = format!("{name}-{copy}");
            up.ok(&[&["monitor", "add", &name, kind, target], &every[..], when].concat());
        }
    }
    up.ok(&["monitor", "add", "shop", "--http", &url, "--every", "1s", "--timeout", "900ms"]);
    for (name, ..) in &worst {
        wait::until("it to be down", SOON, || state(&up, &format!("{name}-7")) == "down");
    }
    let (before, memory) = (last(&up, "shop"), resident_mb(up.pid()));
    wait::until("the good one to go on", SOON, || last(&up, "shop") > before + 20_000);
    assert_eq!(state(&up, "shop"), "up");
    for (name, ..) in &worst {
        let name = format!("{name}-3");
        each_counts_once(&up, &name);
        let told = outcomes(&up, &name);
        assert!(told.iter().all(|(_, why)| why.is_some()), "{name} says why: {told:?}");
        assert!(told.first().unwrap().0 > before, "{name} is still checked");
    }
    let now = resident_mb(up.pid());
    assert!(now < memory + 200, "{memory} MB became {now} MB");
}
