//! What may go wrong, made to go wrong: processes killed and frozen, a disk filled, rubbish sent. What is checked is what
//! tasks did outside the program, since that is all that a user has in the end.
//!
//! This file holds what the tests share: a large job whose every task leaves a line in a file, and what must be true of it.

mod asking;
mod checks;
mod commands;
mod disk;
pub mod distributed;
mod edge;
mod frozen;
mod full_services;
mod growing;
mod kills;
mod kv;
mod link;
mod managers;
mod monitors;
mod network;
mod pooled;
mod requests;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use mutirao_testkit::{Installation, sweep, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::said::{SOON, Said};

/// Tasks of a large job. At several hundred a second there is time to kill in the middle.
const TASKS: u32 = 5_000;
/// Effects that one kill may double: what was out at that moment, which is what the workers finish in 150 ms. This is
/// that of 2,600 tasks a second, more than two cores can start.
const DOUBLED_BY_ONE_KILL_MAX: u32 = 400;
/// How tasks are known, wherever in the process tree they went.
const MARK: &str = "EFFECTS";
/// What a task does to leave its effect.
const LEAVE: &str = "echo $MUTIRAO_TASK_INDEX >> $EFFECTS";
/// A keeper looks every 100 ms, and a machine under load is slow.
const KEPT_WITHIN: Duration = Duration::from_secs(10);

/// A file outside the installation to which each task appends its index: one short write each, so none is torn.
struct Effects {
    file: tempfile::NamedTempFile,
}

impl Effects {
    fn new() -> Self {
        Self { file: tempfile::NamedTempFile::new().expect("a temporary file") }
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    /// Submits an array whose tasks run `script`, which holds [`LEAVE`] somewhere.
    #[track_caller]
    fn submit(&self, up: &Installation, tasks: u32, cpus: &str, script: &str) -> String {
        let mark = format!("{MARK}={}", self.path().display());
        let array = format!("1-{tasks}");
        // In a folder that is not the installation's: only the product itself ends what its tasks started.
        let flags = ["submit", "--dir", "/", "--env", &mark, "--cpus", cpus, "--array", &array];
        up.ok(&[&flags[..], &["--", "sh", "-c", script]].concat()).trim().to_owned()
    }

    fn count(&self) -> usize {
        self.indexes().len()
    }

    fn indexes(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.path()).expect("the effects can be read");
        text.lines().map(|line| line.parse().unwrap_or_else(|_| panic!("a torn effect: {line:?}"))).collect()
    }

    fn wait_for(&self, count: usize) {
        wait::until(&format!("{count} effects"), SOON, || self.count() >= count);
    }

    /// Each of `tasks` left its line. Answers with how often each was repeated.
    #[track_caller]
    fn check(&self, tasks: u32) -> Repeats {
        let mut times: BTreeMap<u32, u32> = BTreeMap::new();
        for index in self.indexes() {
            *times.entry(index).or_default() += 1;
        }
        let missing: Vec<u32> = (1..=tasks).filter(|index| !times.contains_key(index)).collect();
        assert!(missing.is_empty(), "{} of {tasks} tasks left no effect: {missing:?}", missing.len());
        assert_eq!(times.len(), tasks as usize, "some effects are of no task");
        Repeats { doubled: times.values().map(|n| n - 1).sum(), most: *times.values().max().unwrap_or(&0) }
    }

    fn processes(&self) -> Vec<sweep::Process> {
        let path = self.path().display().to_string();
        sweep::processes().into_iter().filter(|p| sweep::is_marked(p.pid, MARK, &path)).collect()
    }

    #[track_caller]
    fn nobody_is_left(&self) {
        if !wait::holds_within(KEPT_WITHIN, || self.processes().is_empty()) {
            panic!("processes of tasks are left: {:?}", self.processes());
        }
    }
}

/// Only a failed test has anything left to end here.
impl Drop for Effects {
    fn drop(&mut self) {
        let path = self.path().display().to_string();
        sweep::kill_all(|p| sweep::is_marked(p.pid, MARK, &path));
    }
}

/// How often tasks ran more than once.
#[derive(Debug)]
struct Repeats {
    doubled: u32,
    /// Runs of the task that ran most often.
    most: u32,
}

impl Repeats {
    /// Said, so that a run's figure can be seen, and held to what was in flight at the kills.
    #[track_caller]
    fn at_most_by(self, kills: u32, what: &str) {
        eprintln!("{what}: {} of {TASKS} effects doubled", self.doubled);
        assert!(self.doubled <= kills * DOUBLED_BY_ONE_KILL_MAX, "{what}: {self:?}");
        assert!(self.most <= 1 + kills, "{what}: {self:?}");
    }
}

/// For services of a test's own. PostgreSQL runs as another user, who must be able to pass.
pub fn services_folder() -> tempfile::TempDir {
    let passable = std::fs::Permissions::from_mode(0o711);
    tempfile::Builder::new().permissions(passable).tempdir().expect("a temporary folder")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Every job that a query of the list finds (`&state=running`), page by page.
#[track_caller]
fn jobs_listed(up: &Installation, query: &str) -> Vec<Value> {
    let (mut jobs, mut next) = (Vec::new(), String::new());
    loop {
        let page = json(&up.request(&format!("GET /v1/jobs?limit=1000{query}{next}"), b"").text());
        jobs.extend(page["items"].as_array().expect("a page").iter().cloned());
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => return jobs,
        }
    }
}

#[track_caller]
fn nothing_was_accepted(up: &Installation) {
    assert_eq!(jobs_listed(up, ""), Vec::<Value>::new(), "something was taken in after all");
}

/// Waits for the job's end; then every task of it is ok, in the counts and one by one.
#[track_caller]
fn ends_ok(up: &Installation, job: &str, tasks: u32) {
    let waited = Said::from(up.cli(&["job", "wait", job]));
    assert_eq!(waited.code, Some(0), "{waited:?}\nup wrote:\n{}", up.stderr());
    stays_ok(up, job, tasks);
}

#[track_caller]
fn stays_ok(up: &Installation, job: &str, tasks: u32) {
    let shown = json(&up.ok(&["--json", "job", "show", job]));
    let counts = shown["counts"].as_object().expect("counts");
    for (state, n) in counts {
        let expected = if state == "ok" { u64::from(tasks) } else { 0 };
        assert_eq!(n.as_u64(), Some(expected), "{state}: {shown}");
    }
    assert_eq!((shown["state"].as_str(), shown["tasks"].as_u64()), (Some("ok"), Some(u64::from(tasks))), "{shown}");
    let (mut listed, mut next) = (0, String::new());
    loop {
        let page = json(&up.request(&format!("GET /v1/jobs/{job}/tasks?limit=1000{next}"), b"").text());
        for task in page["items"].as_array().expect("a page") {
            listed += 1;
            let (id, state) = (task["id"].as_str(), task["state"].as_str());
            assert_eq!((id, state), (Some(format!("{job}.{listed}").as_str()), Some("ok")), "{task}");
        }
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(listed, tasks, "tasks are listed once each");
}

/// Ends of tasks that the running manager has counted in all.
fn ends_counted(up: &Installation, state: &str) -> u64 {
    let metrics = up.request("GET /metrics", b"").text();
    let series = format!("mutirao_tasks_ended_total{{state=\"{state}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or(0)
}

/// After whatever happened: it answers, accepts and runs.
#[track_caller]
fn still_works(up: &Installation) {
    assert_eq!(up.request("GET /readyz", b"").status, 200);
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "fine"]), "fine\n");
}

#[track_caller]
fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).expect("a pid"), signal).expect("the process is there");
}
