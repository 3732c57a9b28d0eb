//! Workers that come with tasks and go after them: the resource manager under `up` and alone, with real nodes and workers.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::{Installation, sweep, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::said::{SOON, Said};

/// Short, so that an owner has soon heard everybody.
pub const LEASE: &str = "3s";
/// What the provider has is what the store says within this.
pub const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// Twice the time after which another one takes over.
pub const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(40);

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A queue with a worker for each task, between floor and ceiling.
pub fn queue(up: &Installation, name: &str, min: u32, max: u32, rest: &str) {
    let body = format!(
        r#"{{"name": "{name}", "elastic": {{"min": {min}, "max": {max}, "policy": {{"kind": "n_for_n", "idle_wait": "2s"}}}}{rest}}}"#
    );
    let answer = up.request("POST /v1/queues", body.as_bytes());
    assert!(answer.status < 300, "{}", answer.text());
}

/// How the store sees the queue: wanted, and all of its workers in any stage of life.
pub fn told(up: &Installation, queue: &str) -> (u64, u64) {
    let status = json(&up.ok(&["--json", "elastic", "status"]));
    let queues = status["queues"].as_array().expect("queues");
    let found = queues.iter().find(|q| q["queue"] == queue).unwrap_or_else(|| panic!("{status}"));
    let count = |field: &str| found[field].as_u64().unwrap_or(0);
    (count("wanted"), count("creating") + count("running") + count("draining"))
}

/// Pids of the nodes of this installation.
pub fn nodes(up: &Installation) -> Vec<u32> {
    let data = up.data().display().to_string();
    let ours = |p: &sweep::Process| p.runs("role", "node") && p.command.iter().any(|word| word.starts_with(&data));
    sweep::processes().into_iter().filter(ours).map(|p| p.pid).collect()
}

/// Processes and records agree, and are as many as wanted.
#[track_caller]
pub fn settles(up: &Installation, queue: &str, count: usize) {
    settles_with(up, queue, count, 0);
}

/// The same, beside as many workers that no resource manager started.
#[track_caller]
pub fn settles_with(up: &Installation, queue: &str, count: usize, others: usize) {
    let mut last = String::new();
    let settled = wait::holds_within(SETTLED_WITHIN, || {
        let (wanted, recorded) = told(up, queue);
        let processes = up.worker_pids().len().saturating_sub(others);
        last = format!("{wanted} wanted, {recorded} recorded, {processes} processes");
        (wanted, recorded, processes) == (count as u64, count as u64, count)
    });
    let status = up.ok(&["elastic", "status"]);
    assert!(settled, "{count} should be left: {last}\n{status}\n{}", up.ok(&["worker", "list"]));
}

/// A resource manager as a process of its own, that ends with the test.
pub struct ResourceManager {
    pub child: Child,
    dir: PathBuf,
}

impl ResourceManager {
    /// Its nodes are in the folder that all of them share.
    pub fn start(up: &Installation, name: &str, flags: &[&str]) -> Self {
        Self::start_over(up, name, "nodes", flags)
    }

    /// Its nodes are in a folder of this name.
    pub fn start_over(up: &Installation, name: &str, nodes: &str, flags: &[&str]) -> Self {
        let dir = up.data().join(name);
        let (shown, nodes) = (dir.display().to_string(), up.data().join(nodes).display().to_string());
        let fixed = ["role", "elastic", "--dir", &shown, "--nodes", &nodes, "--name", "lab"];
        let mut command = up.command(&[&fixed[..], flags].concat());
        if !dir.join("identity").exists() {
            command.env("MUTIRAO_ENROL_TOKEN", up.ok(&["elastic", "invite"]).trim());
        }
        let log = std::fs::File::options().create(true).append(true).open(up.data().join(format!("{name}.log")));
        let child = command.stdout(Stdio::null()).stderr(log.expect("a log")).spawn().expect("it starts");
        Self { child, dir }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default()
    }

    /// Whether this is the one of that name.
    pub fn is(&self, member: &str) -> bool {
        std::fs::read_to_string(self.dir.join("member")).is_ok_and(|own| own.trim() == member)
    }

    pub fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    pub fn kill9(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ResourceManager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.dir.display(), self.log());
        }
    }
}

#[test]
fn workers_of_an_elastic_queue_come_with_its_tasks_and_go_after_them() {
    let mut up = Installation::setup()
        .workers(0)
        .set("jobs.lease", LEASE)
        .set("elastic.cpus", "3")
        .set("elastic.nodes", "2")
        .start();
    queue(&up, "work", 0, 4, "");
    let said = Said::from(up.cli(&["submit", "--queue", "work", "--wait", "--array", "1-12", "--", "sleep", "0.3"]));
    assert_eq!(said.code, Some(0), "{said:?}");
    let most = up.worker_pids().len();
    assert!((1..=4).contains(&most), "{most} workers");
    assert_eq!(nodes(&up).len(), 2);
    settles(&up, "work", 0);
    let folders = up.data().join("nodes");
    let left = |node: &str| std::fs::read_dir(folders.join(node).join("workers")).map_or(0, Iterator::count);
    let hosts: Vec<_> = std::fs::read_dir(&folders).unwrap().map(|e| e.unwrap().file_name()).collect();
    wait::until("their folders to go", SOON, || hosts.iter().all(|node| left(&node.to_string_lossy()) == 0));

    queue(&up, "floor", 2, 3, "");
    wait::until("the floor to be there", SOON, || up.worker_pids().len() == 2);
    assert!(up.terminate().success());
    assert_eq!((up.worker_pids().len(), nodes(&up).len()), (0, 0), "everybody went home with it");
}

#[test]
fn what_outlives_a_killed_resource_manager_is_adopted() {
    let mut up = Installation::setup().workers(0).set("jobs.lease", LEASE).set("elastic.cpus", "3").start();
    queue(&up, "work", 2, 3, "");
    wait::until("the floor to be there", SOON, || told(&up, "work") == (2, 2) && up.worker_pids().len() == 2);
    let (workers, agents) = (up.worker_pids(), nodes(&up));
    let job = up.ok(&["submit", "--queue", "work", "--", "sleep", "5"]).trim().to_owned();
    up.kill9();
    up.restart();
    assert_eq!(Said::from(up.cli(&["job", "wait", &job])).code, Some(0));
    settles(&up, "work", 2);
    assert_eq!((up.worker_pids(), nodes(&up)), (workers, agents), "the same processes");
}

#[test]
fn a_resource_manager_alone_is_let_in_once_and_changes_its_key_without_a_pause() {
    let up = Installation::setup().manager_alone().set("jobs.lease", LEASE).start();
    let stranger = Said::from(up.cli(&["role", "elastic", "--dir", &up.data().join("x").display().to_string()]));
    assert!(stranger.code == Some(4) && stranger.err.contains("mutirao elastic invite"), "{stranger:?}");
    queue(&up, "work", 1, 2, "");
    let first = ResourceManager::start(&up, "rm", &["--set", "elastic.cpus=2"]);
    settles(&up, "work", 1);
    let before = std::fs::read_to_string(up.data().join("rm/identity")).unwrap();
    first.kill9();

    let second = ResourceManager::start(&up, "rm", &["--set", "elastic.cpus=2", "--rotate-key"]);
    wait::until("a new key", SOON, || {
        std::fs::read_to_string(up.data().join("rm/identity"))
            .is_ok_and(|now| now != before && now.contains("\"former\":null"))
    });
    let id = json(&before)["id"].as_str().expect("an id").to_owned();
    wait::until("the old one to be revoked", SOON, || {
        let keys = json(&up.ok(&["--json", "elastic", "key", "list"]));
        let items = keys.as_array().cloned().or_else(|| keys["items"].as_array().cloned()).expect("keys");
        items.iter().any(|key| key["key"] == id.as_str() && !key["revoked_at"].is_null())
    });
    let said = Said::from(up.cli(&["submit", "--queue", "work", "--wait", "--", "echo", "hi"]));
    assert_eq!(said.out, "hi\n", "{said:?}");
    // Its key may change before it has taken over from the one that was killed.
    wait::until("it to act", SOON, || {
        let status = json(&up.ok(&["--json", "elastic", "status"]));
        status["holder"]["member"].as_str().is_some_and(|member| second.is(member))
    });
    second.send(Signal::TERM);
    wait::until("it leaves, its nodes stay", SOON, || up.ok(&["elastic", "status"]).contains("no resource manager"));
    assert_eq!((nodes(&up).len(), up.worker_pids().len()), (1, 1));
}

#[test]
fn a_resource_manager_with_other_nodes_takes_over_and_the_queue_goes_on() {
    let up = Installation::setup().manager_alone().set("jobs.lease", LEASE).start();
    queue(&up, "work", 0, 1, "");
    let first = ResourceManager::start_over(&up, "rm-a", "nodes-a", &["--set", "elastic.cpus=1"]);
    let run = || Said::from(up.cli(&["submit", "--queue", "work", "--wait", "--", "echo", "hi"]));
    assert_eq!(run().out, "hi\n");
    first.kill9();
    let before = up.worker_pids();
    assert_eq!(before.len(), 1, "its worker is there and can be ended by nobody else");
    let _second = ResourceManager::start_over(&up, "rm-b", "nodes-b", &["--set", "elastic.cpus=1"]);
    wait::until("the one that is left over to go", TAKEN_OVER_WITHIN + SETTLED_WITHIN, || {
        told(&up, "work").1 == 0 && up.worker_pids().is_empty()
    });
    assert_eq!(run().out, "hi\n", "the ceiling has room again");
}

#[test]
fn what_a_killed_installation_leaves_behind_goes_when_it_is_asked_to() {
    let mut up = Installation::setup().workers(1).set("jobs.lease", LEASE).set("elastic.cpus", "2").start();
    queue(&up, "work", 1, 2, "");
    settles_with(&up, "work", 1, 1);
    up.ok(&["submit", "--queue", "work", "--", "sleep", "3600"]);
    wait::until("it to run", SOON, || up.ok(&["worker", "list"]).contains("busy"));
    up.kill9();
    let left = [nodes(&up), up.worker_pids()].concat();
    assert_eq!(left.len(), 3, "a node, its worker, and the fixed one");
    for pid in &left {
        let _ = kill_process(Pid::from_raw(*pid as i32).expect("a pid"), Signal::TERM);
    }
    wait::until("all of them to go", SETTLED_WITHIN, || nodes(&up).is_empty() && up.worker_pids().is_empty());
}

#[test]
fn a_worker_that_is_killed_is_replaced() {
    let up = Installation::setup().workers(0).set("elastic.cpus", "2").start();
    queue(&up, "work", 1, 1, "");
    settles(&up, "work", 1);
    let killed = up.worker_pids()[0];
    let at = SystemClock.monotonic();
    kill_process(Pid::from_raw(killed as i32).expect("a pid"), Signal::KILL).expect("it is there");
    wait::until("another to come", SETTLED_WITHIN, || up.worker_pids().iter().any(|pid| *pid != killed));
    // Said, so that a run's figure can be seen.
    eprintln!("replaced after {:?}", SystemClock.monotonic().since(at));
    settles(&up, "work", 1);
}

#[test]
fn a_drained_node_is_emptied_and_its_workers_are_replaced_on_another() {
    let up = Installation::setup()
        .workers(0)
        .set("jobs.lease", LEASE)
        .set("elastic.cpus", "3")
        .set("elastic.nodes", "2")
        .start();
    queue(&up, "work", 2, 4, "");
    settles(&up, "work", 2);
    let on = |up: &Installation| -> Vec<String> {
        let workers = json(&up.ok(&["--json", "worker", "list"]));
        let nodes = workers.as_array().expect("workers").iter().filter_map(|w| Some(w["node"].as_str()?.to_owned()));
        nodes.collect()
    };
    wait::until("both to report", SOON, || on(&up).len() == 2);
    let full = on(&up)[0].clone();
    up.ok(&["node", "drain", &full]);
    wait::until("the node to be empty", SETTLED_WITHIN, || {
        let all = on(&up);
        all.len() == 2 && !all.contains(&full)
    });
    settles(&up, "work", 2);
}

#[test]
fn what_keeps_workers_from_coming_is_said_to_whoever_waits_and_whoever_asks() {
    let up = Installation::setup().workers(0).set("jobs.lease", LEASE).start();
    wait::until("a node to be offered", SOON, || up.ok(&["node", "list"]).contains("open"));
    let nodes = json(&up.ok(&["--json", "node", "list"]));
    let carries = |node: &&serde_json::Value| !node["offered_at"].is_null();
    let node = nodes.as_array().unwrap().iter().find(carries).unwrap()["name"].as_str().unwrap();
    let said = Said::from(up.cli(&["node", "cordon", "manager"]));
    assert!(said.code == Some(1) && said.err.contains("runs actions; no workers are put on it"), "{said:?}");
    up.ok(&["node", "cordon", node]);
    queue(&up, "wave", 0, 2, "");
    let mut waiting = up.command(&["submit", "--wait", "--queue", "wave", "--", "echo", "done"]);
    let notes = up.data().join("notes");
    let waiting = waiting.stdout(Stdio::piped()).stderr(std::fs::File::create(&notes).unwrap()).spawn().unwrap();
    let uncordon = format!("mutirao node uncordon {node}");
    let submitted = || Some(json(&up.ok(&["--json", "job", "list"]))["items"][0]["id"].as_str()?.to_owned());
    let id = wait::some("the job", SOON, submitted);
    let explained = || up.ok(&["task", "explain", &format!("{id}.1")]);
    wait::until("the cordoned node to be named", SOON, || explained().contains(&uncordon));
    assert!(up.ok(&["queue", "explain", "wave"]).contains(&uncordon));
    let last = explained();
    assert!(last.contains("elastic history --queue wave") && !last.contains("worker invite"), "{last}");
    let noted = || std::fs::read_to_string(&notes).unwrap().contains("no worker takes tasks of queue wave");
    wait::until("who waits to be told", SOON, noted);
    up.ok(&["node", "uncordon", node]);
    let said: Said = waiting.wait_with_output().unwrap().into();
    assert_eq!((said.code, said.out.as_str()), (Some(0), "done\n"));

    let unknown = Said::from(up.cli(&["elastic", "history", "--queue", "nowhere"]));
    assert!(unknown.code == Some(3) && unknown.err.contains("there is no queue \"nowhere\""), "{unknown:?}");
}
