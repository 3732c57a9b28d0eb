//! Checkers that come and go by a resource manager, as the workers of a queue do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use mutirao_testkit::{Installation, sweep, wait};
use rustix::process::{Pid, Signal, kill_process};

use crate::growing::told;
use crate::monitors::{service, state};
use crate::rabbit::Vhost;
use crate::said::{SOON, Said};

const POOL: &str = "_checkers";

/// Pids of the checkers of this installation.
fn checkers(up: &Installation) -> Vec<u32> {
    let data = up.data().display().to_string();
    let ours = |p: &sweep::Process| p.runs("role", "checker") && p.command.iter().any(|word| word.starts_with(&data));
    sweep::processes().into_iter().filter(ours).map(|p| p.pid).collect()
}

fn settles(up: &Installation, count: usize) {
    let settled = wait::holds_within(Duration::from_secs(90), || {
        told(up, POOL) == (count as u64, count as u64) && checkers(up).len() == count
    });
    let status = up.ok(&["elastic", "status"]);
    assert!(settled, "{count} should be there, {:?} are\n{status}\n{}", checkers(up), up.stderr());
}

/// Answers after 0.8 s, so that checks are under way at any moment.
fn slow() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                wait::holds_within(Duration::from_millis(800), || false);
                let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
            });
        }
    });
    url
}

#[test]
fn checkers_come_with_checks_are_replaced_when_they_die_and_go_when_they_are_told() {
    let up = Installation::setup()
        .workers(0)
        .set("monitors.checker", "none")
        .set("monitors.checkers", "1..2")
        .set("monitors.under_way_max", "64")
        .set("elastic.cpus", "2")
        .start();
    let (url, _well) = service();
    up.ok(&["monitor", "add", "shop", "--http", &url, "--every", "1s", "--timeout", "900ms"]);
    wait::until("it to be up", SOON, || state(&up, "shop") == "up");
    settles(&up, 1);
    let refused = Said::from(up.cli(&["queue", "create", POOL]));
    assert!(refused.code != Some(0) && refused.err.contains("pool of checkers"), "{refused:?}");

    // Killed: another takes its place.
    let first = checkers(&up)[0];
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::KILL).unwrap();
    wait::until("another to come", SOON, || checkers(&up).first().is_some_and(|pid| *pid != first));
    settles(&up, 1);

    // More than 0.7 of the slots of one are in use: there are two.
    let slow = slow();
    let text: String = (0..80)
        .map(|n| format!("---\nkind: Monitor\nname: slow-{n}\nevery: 1s\ntimeout: 1s\nhttp: {{ url: '{slow}' }}\n"))
        .collect();
    let file = up.data().join("slow.yaml");
    std::fs::write(&file, text).unwrap();
    up.ok(&["apply", "-f", file.to_str().unwrap()]);
    settles(&up, 2);
    let history = up.ok(&["elastic", "history", "--queue", POOL]);
    assert!(history.contains("unacknowledged") || history.contains("ready") || history.contains("wait"), "{history}");
    wait::until("the slow ones to be up", SOON, || state(&up, "slow-7") == "up" && state(&up, "slow-70") == "up");

    // Told to go: it makes what it has, goes by itself, and another comes.
    let keys: serde_json::Value = serde_json::from_str(&up.ok(&["--json", "worker", "keys"])).unwrap();
    let worker = keys["items"].as_array().unwrap().iter().find_map(|key| {
        let live = key["revoked_at"].is_null();
        live.then(|| key["worker"].as_str().unwrap().to_owned())
    });
    let before = checkers(&up);
    up.ok(&["worker", "drain", &worker.unwrap()]);
    wait::until("one of them to go", SOON, || before.iter().any(|pid| !checkers(&up).contains(pid)));
    settles(&up, 2);
    assert_eq!(state(&up, "shop"), "up");
}

/// Checkers are users of their own there, and say how they are doing by the same way as their outcomes.
#[test]
fn on_rabbitmq_too_checkers_of_the_pool_come_and_are_replaced_when_they_die() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .workers(0)
        .set("monitors.checker", "none")
        .set("monitors.checkers", "1..2")
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    let (url, _well) = service();
    up.ok(&["monitor", "add", "shop", "--http", &url, "--every", "1s", "--timeout", "900ms"]);
    wait::until("it to be up", SOON, || state(&up, "shop") == "up");
    settles(&up, 1);
    let first = checkers(&up)[0];
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::KILL).unwrap();
    wait::until("another to come", SOON, || checkers(&up).first().is_some_and(|pid| *pid != first));
    settles(&up, 1);
    wait::until("it to be up again", SOON, || state(&up, "shop") == "up");
}
