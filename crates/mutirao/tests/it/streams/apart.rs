//! Hosts as processes of their own: `mutirao role host`.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::running::{SOON, below, deploy, read, show, written};
use crate::faults::services_folder;
use crate::said::Said;
use crate::workers::Worker;

/// What takes its time on a busy machine: a lease, a takeover, and what was left to do.
const LATER: Duration = Duration::from_secs(90);

/// A host beside a manager, let in by a one-time token. Killed when it is dropped.
pub struct Apart {
    process: Worker,
    folder: tempfile::TempDir,
    log: PathBuf,
}

impl Apart {
    /// Waits until the manager hears it.
    #[track_caller]
    pub fn start(up: &Installation, name: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (dir, log) = (folder.path().join("host"), folder.path().join("log"));
        let token = up.ok(&["worker", "invite", "--streams"]);
        let dir = dir.to_str().unwrap();
        let args = ["role", "host", "--url", &up.url(), "--dir", dir, "--name", name, "--threads", "1"];
        let mut command = up.command(&[&args[..], more].concat());
        command.env("MUTIRAO_ENROL_TOKEN", token.trim()).stdout(Stdio::null());
        let process = Worker(command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap());
        let apart = Self { process, folder, log };
        let is_heard = || {
            let hosts = read(&up.ok(&["--json", "stream", "hosts"]));
            hosts.as_array().unwrap().iter().any(|host| host["name"] == name && host["alive"] == true)
        };
        if !wait::holds_within(SOON, is_heard) {
            panic!("the host {name} does not come; it wrote:\n{}", apart.said());
        }
        apart
    }

    /// SIGKILL; its folder stays.
    pub fn kill9(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.0), signal).unwrap();
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What a sink of kind file has written there.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("host/files").join(name)
    }
}

/// Windows of [`noted`].
const WINDOWS: i64 = 30;

/// 3,000 events in 15 seconds, 10 ms of their own time apart. Each window of a second is kept under a key, starts a flow and,
/// where a host is named for it, becomes a line.
fn noted(replicas: u32, file_on: Option<&str>) -> String {
    let file = file_on.map_or(String::new(), |host| {
        format!("  - {{ name: out, from: counts, file: {{ path: out.jsonl }}, host: {host} }}\n")
    });
    format!(
        "\
kind: Stream
name: noted
replicas: {replicas}
snapshot: 1s
sources:
  - name: made
    generator:
      rate: [ {{ for: 15s, rate: 200 }} ]
      fields: {{ n: n, at: time(n * 10000) }}
    time: at
operators:
  - {{ name: even, from: made, filter: n % 2 == 0 }}
  - name: counts
    from: even
    window: {{ jump: 1s, by: at }}
    aggregate: {{ events: count(), sum: sum(n) }}
  - {{ name: second, from: counts, map: {{ w: 'div(int(start), 1000000)', events: events, sum: sum }} }}
sinks:
  - {{ name: kept, from: second, kv: {{ key: 'w/{{w}}' }} }}
  - {{ name: told, from: second, flow: {{ name: note }} }}
{file}"
    )
}

const NOTE: &str = "\
kind: Flow
name: note
steps:
  - { name: keep, action: builtin.kv_put, input: { key: \"'noted/' + string(input.w)\", value: input.sum } }
";

fn sum(w: i64) -> i64 {
    (w * 100..(w + 1) * 100).filter(|n| n % 2 == 0).sum()
}

fn expected_lines() -> String {
    let at = |w: i64| mutirao_streams::time::format(w * 1_000_000).unwrap();
    let line = |w: i64| {
        let (start, end, sum) = (at(w), at(w + 1), sum(w));
        format!("{{\"start\":\"{start}\",\"end\":\"{end}\",\"events\":50,\"sum\":{sum}}}\n")
    };
    (0..WINDOWS).map(line).collect()
}

fn start(up: &Installation, definition: &str) {
    let (flow, stream) = (written(up, "note.yaml", NOTE), written(up, "noted.yaml", definition));
    up.ok(&["flow", "apply", "-f", flow.to_str().unwrap()]);
    let said = deploy(up, &[], &stream);
    assert_eq!(said.code, Some(0), "{said:?}");
}

fn kept(up: &Installation, key: &str) -> Option<Value> {
    let said = Said::from(up.cli(&["kv", "get", key]));
    (said.code == Some(0)).then(|| read(&said.out))
}

/// Each window is kept, and started its flow once.
fn all_of_it_came_once(up: &Installation) {
    let last = format!("noted/{}", WINDOWS - 1);
    wait::until("the last window", LATER, || kept(up, &last).is_some());
    // A replica whose host is gone, and that no other may run, does not end, and says so.
    let silent = |part: &Value| {
        part["state"]["why"].as_str().is_some_and(|why| why.starts_with("nothing was heard of its host"))
    };
    let ends = |part: &Value| part["state"]["is"] == "ended" || silent(part);
    wait::until("its end", LATER, || show(up, "noted")["parts"].as_array().unwrap().iter().all(ends));
    for w in 0..WINDOWS {
        let view = json!({"w": w, "events": 50, "sum": sum(w)});
        assert_eq!(kept(up, &format!("w/{w}")), Some(view));
        wait::until("what its flow keeps", LATER, || kept(up, &format!("noted/{w}")) == Some(json!(sum(w))));
    }
    let runs = read(&up.ok(&["--json", "flow", "runs", "note", "--limit", "1000"]));
    assert_eq!(runs.as_array().unwrap().len() as i64, WINDOWS, "each window starts it once");
}

/// The name of each part's host, with the part's kind.
fn places(up: &Installation) -> Vec<(String, String)> {
    let parts = show(up, "noted")["parts"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    parts.iter().map(|part| (text(&part["kind"]), text(&part["host"]))).collect()
}

#[test]
fn a_host_killed_under_a_stream_is_followed_by_another_and_nothing_is_lost_or_doubled() {
    let up = Installation::setup().workers(0).set("streams.host", "none").start();
    let lines = Apart::start(&up, "lines", &[]);
    let mut others = ["one", "two"].map(|name| Apart::start(&up, name, &[]));
    start(&up, &noted(1, Some("lines")));
    wait::until("the middle of it", LATER, || kept(&up, "w/8").is_some());
    let placed = places(&up);
    let load = |name: &str| placed.iter().filter(|(_, host)| host == name).count();
    let victim = if load("one") >= load("two") { 0 } else { 1 };
    let name = ["one", "two"][victim];
    assert!(load(name) > 0 && placed.contains(&("sink".into(), "lines".into())), "{placed:?}");
    assert!(kept(&up, "w/28").is_none(), "it was killed too late to prove anything");
    others[victim].kill9();
    wait::until("its parts to be elsewhere", LATER, || places(&up).iter().all(|(_, host)| host != name));
    let explained = up.ok(&["stream", "explain", "noted"]);
    assert!(explained.contains(&format!("{name} was not heard of")) || explained.contains(name), "{explained}");
    all_of_it_came_once(&up);
    assert_eq!(std::fs::read_to_string(lines.file("out.jsonl")).unwrap(), expected_lines());
}

#[test]
fn with_two_replicas_a_killed_host_costs_nothing_that_can_be_seen() {
    let up = Installation::setup().workers(0).start();
    let inside = read(&up.ok(&["--json", "stream", "hosts"]))[0]["name"].as_str().unwrap().to_owned();
    let mut one = Apart::start(&up, "one", &[]);
    start(&up, &noted(2, Some(&inside)));
    wait::until("the middle of it", LATER, || kept(&up, "w/8").is_some());
    assert!(places(&up).contains(&("stage".into(), "one".into())));
    one.kill9();
    all_of_it_came_once(&up);
    assert_eq!(std::fs::read_to_string(up.data().join("files/out.jsonl")).unwrap(), expected_lines());
}

#[test]
fn one_of_two_managers_killed_on_rabbitmq_and_postgresql_loses_and_doubles_no_event() {
    if shared(AMQP_VARIABLE).is_none() || shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
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
    let (one, mut two) = (manager(), manager());
    wait::until("both hosts", SOON, || {
        let hosts = read(&one.ok(&["--json", "stream", "hosts"]));
        hosts.as_array().unwrap().iter().filter(|host| host["alive"] == true).count() == 2
    });
    // Beside them one that lives on.
    let lines = Apart::start(&one, "lines", &[]);
    start(&one, &noted(2, Some("lines")));
    wait::until("the middle of it", LATER, || kept(&one, "w/8").is_some());
    assert!(kept(&one, "w/28").is_none(), "it is too late to prove anything");
    two.kill9();
    all_of_it_came_once(&one);
    assert_eq!(std::fs::read_to_string(lines.file("out.jsonl")).unwrap(), expected_lines());
}

#[test]
fn of_two_processes_that_are_one_host_the_later_one_stays_and_the_other_says_why_it_ends() {
    let up = Installation::setup().workers(0).set("streams.host", "none").start();
    let mut first = Apart::start(&up, "one", &[]);
    start(&up, &noted(1, None));
    wait::until("the middle of it", LATER, || kept(&up, "w/4").is_some());
    // A copy of its folder, as of a machine's image.
    let copy = first.folder.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(first.folder.path().join("host/identity"), copy.join("identity")).unwrap();
    let args = ["role", "host", "--url", &up.url(), "--dir", copy.to_str().unwrap(), "--name", "one", "--threads", "1"];
    let mut command = up.command(&args);
    let mut second = Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait::until("the first to end", LATER, || first.process.0.try_wait().unwrap().is_some());
    let said = first.said();
    assert_eq!(first.process.0.wait().unwrap().code(), Some(1), "{said}");
    assert_eq!(said.matches("another process was started as the host one").count(), 1, "{said}");
    all_of_it_came_once(&up);
    assert!(second.0.try_wait().unwrap().is_none(), "the second goes on");
}

#[test]
fn a_host_that_was_frozen_while_its_stream_was_deleted_leaves_no_log_behind() {
    let up = Installation::setup().workers(0).set("streams.host", "none").start();
    let one = Apart::start(&up, "one", &[]);
    start(&up, &noted(1, None).replace("for: 15s", "for: 600s"));
    let id = show(&up, "noted")["id"].as_str().unwrap().to_owned();
    let traces = || {
        let all = below(up.data()).into_iter();
        all.filter(|path| path.strip_prefix(up.data()).unwrap().to_string_lossy().contains(&id)).count()
    };
    let host = || read(&up.ok(&["--json", "stream", "hosts"]))[0].clone();
    wait::until("its logs", LATER, || traces() > 0 && kept(&up, "w/2").is_some());
    one.send(Signal::STOP);
    wait::until("it to be silent", LATER, || host()["alive"] == false);
    up.ok(&["stream", "delete", "noted"]);
    wait::until("nothing to be left", LATER, || traces() == 0);
    one.send(Signal::CONT);
    wait::until("it to be back, with nothing to do", LATER, || host()["alive"] == true && host()["parts"] == 0);
    wait::until("nothing to be left again", LATER, || traces() == 0);
    assert!(!wait::holds_within(Duration::from_secs(5), || traces() > 0), "nothing is made again");
}
