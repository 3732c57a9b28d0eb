//! Schedulers that come and go by a resource manager, beside a manager on PostgreSQL and RabbitMQ: each is a process that owns
//! a share of the monitors, and whatever becomes of it, no instant has two outcomes.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use mutirao_core::shard::ShardView;
use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, sweep, wait};
use rustix::process::{Pid, Signal, kill_process};

use crate::database::folder;
use crate::growing::told;
use crate::rabbit::Vhost;
use crate::said::{mutirao, refused, run};

const POOL: &str = "_schedulers";
/// Enough that every shard has one.
const MONITORS: usize = 60;
const EVERY_MS: i64 = 2_000;
/// A lease, a takeover, and a busy machine.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(120);

/// Pids of the schedulers of this installation.
fn schedulers(up: &Installation) -> Vec<u32> {
    let data = up.data().display().to_string();
    let ours = |p: &sweep::Process| p.runs("role", "scheduler") && p.command.iter().any(|word| word.starts_with(&data));
    sweep::processes().into_iter().filter(ours).map(|p| p.pid).collect()
}

/// As many are there, and each owns a share, beside the manager.
#[track_caller]
fn settles(up: &Installation, count: usize) {
    let settled = wait::holds_within(TAKEN_OVER_WITHIN, || {
        told(up, POOL) == (count as u64, count as u64)
            && schedulers(up).len() == count
            && owners(up).is_some_and(|owners| owners.len() == count + 1)
    });
    let status = up.ok(&["elastic", "status"]);
    assert!(settled, "{count} should be there, {:?} are: {:?}\n{status}\n{}", schedulers(up), owners(up), up.stderr());
}

/// Who owns the monitors; none while a shard is nobody's.
fn owners(up: &Installation) -> Option<BTreeSet<String>> {
    let all: Vec<ShardView> = serde_json::from_str(&up.ok(&["--json", "shard", "list"])).unwrap();
    all.into_iter()
        .filter(|view| view.group == "monitors")
        .map(|view| view.owner.map(|owner| owner.to_string()))
        .collect()
}

fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
        }
    });
    url
}

/// The instants of the outcomes of all monitors, of each in order.
fn instants(up: &Installation) -> Vec<Vec<i64>> {
    let of = |n: usize| {
        let told = up.ok(&["--json", "monitor", "history", &format!("shop-{n}"), "--limit", "1000"]);
        let history: serde_json::Value = serde_json::from_str(&told).unwrap();
        let outcomes = history["outcomes"].as_array().unwrap().iter().rev();
        outcomes.map(|outcome| outcome["at"].as_i64().unwrap()).collect()
    };
    (0..MONITORS).map(of).collect()
}

/// Of each the last.
fn latest(up: &Installation) -> Vec<i64> {
    instants(up).into_iter().map(|all| all.last().copied().unwrap_or(0)).collect()
}

/// Each has had outcomes since.
fn go_on(up: &Installation) {
    let before = latest(up);
    wait::until("every monitor to go on", TAKEN_OVER_WITHIN, || {
        latest(up).iter().zip(&before).all(|(now, before)| *now >= before + 3 * EVERY_MS)
    });
}

/// No instant counts twice, and since these none is missing.
#[track_caller]
fn none_is_doubled_and_none_missing_since(up: &Installation, since: &[i64]) {
    for (n, (all, since)) in instants(up).iter().zip(since).enumerate() {
        let doubled = all.windows(2).filter(|pair| pair[0] >= pair[1]).count();
        let gaps = all.windows(2).filter(|pair| pair[0] >= *since && pair[1] - pair[0] != EVERY_MS);
        let gaps: Vec<(i64, i64)> = gaps.map(|pair| (pair[0], pair[1] - pair[0])).collect();
        assert!(doubled == 0 && gaps.is_empty(), "shop-{n}: {doubled} doubled, gaps after {gaps:?}, since {since}");
    }
}

#[test]
fn schedulers_take_their_share_are_replaced_when_they_die_and_give_it_back_when_they_go() {
    let Some(vhost) = Vhost::new() else { return };
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = folder();
    let database = Service::postgres(servers.path()).unwrap();
    let home = tempfile::tempdir().unwrap();
    let keep =
        |count: &str| std::fs::write(home.path().join("mutirao.toml"), format!("monitors.schedulers = \"{count}\"\n"));
    // As many as that however busy the machine is.
    keep("2..2").unwrap();
    let mut up = Installation::setup()
        .data(home.path())
        .workers(0)
        .set("monitors.checker", "none")
        .set("monitors.checkers", "1..1")
        .set("elastic.cpus", "2")
        .env("MUTIRAO_DATABASE", database.url())
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    let url = service();
    let text: String = (0..MONITORS)
        .map(|n| format!("---\nkind: Monitor\nname: shop-{n}\nevery: 2s\ntimeout: 1s\nhttp: {{ url: '{url}' }}\n"))
        .collect();
    let file = up.data().join("shops.yaml");
    std::fs::write(&file, text).unwrap();
    settles(&up, 2);
    up.ok(&["apply", "-f", file.to_str().unwrap()]);
    go_on(&up);

    // What opens the database and the broker is nowhere where others could read it.
    for process in sweep::processes().into_iter().filter(|p| schedulers(&up).contains(&p.pid)) {
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let seen = format!("{:?} {}", process.command, String::from_utf8_lossy(&environment));
        assert!(!seen.contains("postgres://") && !seen.contains("amqp://"), "a scheduler shows too much: {seen}");
    }

    // Told to go: it gives back what it owns, no instant is missed, and another comes.
    let before = latest(&up);
    let nodes: serde_json::Value = serde_json::from_str(&up.ok(&["--json", "node", "list"])).unwrap();
    let on_it =
        nodes.as_array().or(nodes["items"].as_array()).unwrap().iter().flat_map(|n| n["workers"].as_array().unwrap());
    let worker = on_it.filter(|w| w["queue"] == POOL).find_map(|w| w["worker"].as_str().map(str::to_owned)).unwrap();
    let pids = schedulers(&up);
    up.ok(&["worker", "drain", &worker]);
    wait::until("it to go", TAKEN_OVER_WITHIN, || pids.iter().any(|pid| !schedulers(&up).contains(pid)));
    settles(&up, 2);
    go_on(&up);
    none_is_doubled_and_none_missing_since(&up, &before);

    // Killed: another takes its place, and what it owned has owners.
    let first = schedulers(&up)[0];
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::KILL).unwrap();
    wait::until("another to come", TAKEN_OVER_WITHIN, || {
        !schedulers(&up).contains(&first) && schedulers(&up).len() == 2
    });
    settles(&up, 2);
    go_on(&up);

    // The manager is killed, and comes back with room for fewer: one is sent home, and nothing is lost by that.
    let stayed = schedulers(&up);
    keep("1..1").unwrap();
    up.restart();
    settles(&up, 1);
    assert!(stayed.contains(&schedulers(&up)[0]), "those that are there stay");
    go_on(&up);
    none_is_doubled_and_none_missing_since(&up, &latest(&up));
    let history = up.ok(&["elastic", "history", "--queue", POOL]);
    assert!(history.lines().count() >= 2, "{history}");
}

#[test]
fn schedulers_without_a_database_and_a_broker_in_common_are_refused_in_one_line() {
    let up = |count: &str, env: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        let (data, set) = (dir.path().display().to_string(), format!("monitors.schedulers={count}"));
        let mut command = mutirao(&["up", "--data", &data, "--listen", "127.0.0.1:0", "--set", &set]);
        command.envs(env.iter().copied());
        run(command)
    };
    refused(&up("1..3", &[]), 2, &["PostgreSQL (MUTIRAO_DATABASE)", "RabbitMQ (MUTIRAO_BROKER)"]);
    let both = [("MUTIRAO_DATABASE", "postgres://a@127.0.0.1:1/d"), ("MUTIRAO_BROKER", "amqp://a@127.0.0.1:1/v")];
    refused(&up("0..3", &both), 2, &["keep one: 1..3"]);
    let alone = run(mutirao(&["role", "scheduler", "--dir", "/tmp/never-made"]));
    refused(&alone, 2, &["MUTIRAO_DATABASE", "MUTIRAO_BROKER"]);
}
