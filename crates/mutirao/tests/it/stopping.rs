//! Going down: in order when asked, in pieces when killed, and nothing is lost either way.

use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use rustix::process::{Pid, Signal, kill_process};

use crate::said::{SOON, Said};

fn task_of(up: &Installation, job: &str) -> serde_json::Value {
    serde_json::from_str(&up.ok(&["--json", "task", "show", &format!("{}.1", job.trim())])).unwrap()
}

fn submit_running(up: &Installation, script: &str) -> String {
    let job = up.ok(&["submit", "--", "sh", "-c", script]).trim().to_owned();
    wait::until("the task to run", SOON, || task_of(up, &job)["state"] == "running");
    job
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn asked_to_stop_it_lets_running_tasks_finish() {
    let mut up = Installation::start();
    let job = submit_running(&up, "sleep 2; echo done");
    assert!(up.terminate().success(), "{}", up.stderr());
    assert!(up.worker_pids().is_empty(), "workers were left behind");
    assert!(!up.data().join("address").exists(), "commands would look for it");
    let stopped = Said::from(up.cli(&["job", "list"]));
    assert!(stopped.code == Some(5) && stopped.err.contains("not running"), "{stopped:?}");

    up.restart();
    let task = task_of(&up, &job);
    assert_eq!((task["state"].as_str(), task["losses"].as_u64()), (Some("ok"), Some(0)), "{task}");
    assert_eq!(up.ok(&["job", "logs", &job]), "done\n");
}

#[test]
fn asked_twice_it_stops_the_tasks_and_runs_them_again_later() {
    let mut up = Installation::start();
    let effects = tempfile::NamedTempFile::new().unwrap();
    let path = effects.path().display().to_string();
    let job = submit_running(&up, &format!("echo begun >> {path}; test $(wc -l < {path}) -gt 1 || sleep 300"));
    signal(up.pid(), Signal::INT);
    wait::until("the drain to begin", SOON, || up.stderr().contains("finish what runs"));
    signal(up.pid(), Signal::INT);
    wait::until("it to end", Duration::from_secs(25), || up.has_ended());
    assert!(up.worker_pids().is_empty(), "workers were left behind");

    up.restart();
    assert_eq!(Said::from(up.cli(&["job", "wait", &job])).code, Some(0));
    let task = task_of(&up, &job);
    assert_eq!((task["failures"].as_u64(), task["losses"].as_u64()), (Some(0), Some(0)), "nobody's fault: {task}");
    assert_eq!(std::fs::read_to_string(effects.path()).unwrap(), "begun\nbegun\n");
}

#[test]
fn a_worker_whose_parent_was_killed_finishes_reports_and_goes_home() {
    let mut up = Installation::start();
    let effects = tempfile::NamedTempFile::new().unwrap();
    let job = submit_running(&up, &format!("sleep 3; echo once | tee -a {}", effects.path().display()));
    let orphans = up.worker_pids();
    up.kill9();
    up.restart();
    assert_eq!(Said::from(up.cli(&["job", "wait", &job])).code, Some(0));
    assert_eq!(std::fs::read_to_string(effects.path()).unwrap(), "once\n", "it ran again although it was finishing");
    assert_eq!((task_of(&up, &job)["losses"].as_u64(), up.ok(&["job", "logs", &job])), (Some(0), "once\n".into()));
    wait::until("the orphans to go", SOON, || orphans.iter().all(|pid| !up.worker_pids().contains(pid)));
    assert_eq!(up.worker_pids().len(), 2, "the new ones stay");
}

#[test]
fn a_worker_that_dies_is_replaced_and_its_task_runs_again() {
    let up = Installation::setup().workers(1).set("jobs.lease", "3s").start();
    let effects = tempfile::NamedTempFile::new().unwrap();
    let path = effects.path().display().to_string();
    let job = submit_running(&up, &format!("echo begun >> {path}; test $(wc -l < {path}) -gt 1 || sleep 300"));
    let before = up.worker_pids();
    signal(before[0], Signal::KILL);
    assert_eq!(Said::from(up.cli(&["job", "wait", &job])).code, Some(0));
    assert_eq!(task_of(&up, &job)["losses"].as_u64(), Some(1));
    assert!(up.worker_pids().len() == 1 && up.worker_pids() != before);
}

#[test]
fn it_ends_when_asked_though_its_folder_is_gone_and_nobody_takes_its_lease_back() {
    let mut up = Installation::setup().arg("--drain").arg("1s").start();
    wait::until("the resource manager to act", SOON, || {
        up.ok(&["elastic", "status"]).contains("the resource manager is")
    });
    let keys: serde_json::Value = serde_json::from_str(&up.ok(&["--json", "elastic", "key", "list"])).unwrap();
    up.ok(&["elastic", "key", "revoke", keys["items"][0]["key"].as_str().unwrap()]);
    wait::until("it to be refused", SOON, || up.stderr().contains("a pass could not be finished"));
    for entry in std::fs::read_dir(up.data()).unwrap().flatten() {
        let _ = std::fs::remove_file(entry.path()).or_else(|_| std::fs::remove_dir_all(entry.path()));
    }
    signal(up.pid(), Signal::TERM);
    // Its node cannot be asked to go any more, and is given as long as each step takes.
    wait::until("it to end", 2 * SOON, || up.has_ended());
}
