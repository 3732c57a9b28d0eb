//! Autoscaling in the middle of which things die, freeze, fail and lie, with 20,000 tasks each time: all of them end once,
//! the ceiling and the queue's limits hold at every look, and what the provider has is what the store says within a minute. A
//! quarter of them are processes that leave lines outside, so that nobody has to believe the program's own counts; and whoever
//! is let in is a process that runs. The others do nothing: they are handed out, reported, counted and given up as any, and two
//! cores start some hundred processes a second, not thousands.

mod failing;
mod frozen;
mod jumping;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mutirao_core::{Clock, Mono, SystemClock};
use mutirao_testkit::{Installation, sweep, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Effects, LEAVE, MARK, ends_counted, ends_ok, send};
use crate::growing::{LEASE, ResourceManager, SETTLED_WITHIN, TAKEN_OVER_WITHIN, json, nodes, queue, settles, told};
use crate::said::SOON;

const TASKS: u32 = 20_000;
const MIN: u32 = 1;
const MAX: usize = 4;
/// Tasks at once. The workers together have room for 40 of those that are seen.
const RUNNING: usize = 24;
/// Slow enough that there is time for things to go wrong.
const STARTS_PER_SECOND: u32 = 800;
const NODES: [&str; 4] = ["--set", "elastic.nodes=2", "--set", "elastic.cpus=3"];

/// Of all tasks, those whose effects are looked at from outside.
const SEEN: u32 = 5_000;
/// A tenth of these take a while, so that it can be seen how many run at once.
const LINGER: &str = "; case $MUTIRAO_TASK_INDEX in *0) exec sleep 0.3;; esac";

/// Two jobs of one queue: tasks that leave a line each, and many that do nothing.
struct Work<'a> {
    effects: &'a Effects,
    seen: String,
    many: String,
    since: Mono,
}

impl<'a> Work<'a> {
    fn submit(up: &Installation, effects: &'a Effects) -> Self {
        let since = SystemClock.monotonic();
        let mark = format!("{MARK}={}", effects.path().display());
        let array = format!("1-{SEEN}");
        let flags = ["submit", "--queue", "work", "--dir", "/", "--env", &mark, "--cpus", "0.1", "--array", &array];
        let seen = up.ok(&[&flags[..], &["--", "sh", "-c", &format!("{LEAVE}{LINGER}")]].concat());
        Self { effects, seen: seen.trim().to_owned(), many: submit(up), since }
    }

    #[track_caller]
    fn ends_ok(&self, up: &Installation) {
        ends_ok(up, &self.seen, SEEN);
        ends_ok(up, &self.many, TASKS - SEEN);
        let took = SystemClock.monotonic().since(self.since);
        // A second's starts may come at once.
        let least = Duration::from_secs(u64::from(TASKS / STARTS_PER_SECOND - 1));
        assert!(took >= least, "{took:?} for {TASKS} tasks: more starts in a second than the queue allows");
    }

    /// Everything was done, once but for what ran where something was killed, and nothing is left over.
    #[track_caller]
    fn all_is_well(&self, up: &Installation, kills: u32) {
        self.ends_ok(up);
        assert_eq!(ends_counted(up, "ok"), u64::from(TASKS), "outcomes count once");
        let repeats = self.effects.check(SEEN);
        eprintln!("{} of {SEEN} effects doubled by {kills} kills", repeats.doubled);
        assert!(repeats.most <= 1 + kills, "{repeats:?}");
        self.effects.nobody_is_left();
        settles(up, "work", MIN as usize);
        nobody_else_is_let_in(up);
    }
}

/// As many keys of workers are good as there are processes.
#[track_caller]
fn nobody_else_is_let_in(up: &Installation) {
    let mut last = String::new();
    let same = wait::holds_within(SETTLED_WITHIN, || {
        let page = up.request("GET /v1/workers/keys?limit=1000", b"").text();
        let keys = json(&page)["items"].as_array().cloned().expect("a page");
        let good = keys.iter().filter(|key| key["revoked_at"].is_null()).count();
        last = format!("{good} of {} keys are good, {} processes", keys.len(), up.worker_pids().len());
        good == up.worker_pids().len()
    });
    assert!(same, "{last}");
}

/// A node with all that it started, as when its machine is switched off.
fn switch_off(node: u32) {
    let all = sweep::processes();
    let (mut tree, mut at) = (vec![node], 0);
    while at < tree.len() {
        let parent = tree[at];
        tree.extend(all.iter().filter(|p| p.parent == parent).map(|p| p.pid));
        at += 1;
    }
    for pid in tree {
        // Some of it may have ended by itself meanwhile.
        let _ = kill_process(Pid::from_raw(pid as i32).expect("a pid"), Signal::KILL);
    }
}

fn installation() -> Installation {
    let up = Installation::setup().manager_alone().set("jobs.lease", LEASE).start();
    limited_queue(&up);
    up
}

fn limited_queue(up: &Installation) {
    let limits = format!(r#", "limits": {{"running": {RUNNING}, "starts_per_second": {STARTS_PER_SECOND}}}"#);
    queue(up, "work", MIN, MAX as u32, &limits);
}

fn submit(up: &Installation) -> String {
    let spread = format!(r#"{{"array": {{"first": 1, "last": {}}}}}"#, TASKS - SEEN);
    let body = format!(r#"{{"queue": "work", "task": {{"action": {{"noop": {{}}}}}}, "spread": {spread}}}"#);
    let answer = up.request("POST /v1/jobs", body.as_bytes());
    json(&answer.text())["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

/// Runs `story` while it is looked again and again how many workers there are, and how many tasks.
fn within_limits(up: &Installation, effects: &Effects, story: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let (mut workers, mut tasks) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                workers = workers.max(up.worker_pids().len());
                tasks = tasks.max(effects.processes().len());
                wait::holds_within(Duration::from_millis(50), || false);
            }
            (workers, tasks)
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(story));
        over.store(true, Ordering::Relaxed);
        let (workers, tasks) = watching.join().expect("it watches");
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
        assert_eq!(workers, MAX, "as many as there may be, and never more");
        assert!((2..=RUNNING).contains(&tasks), "{tasks} tasks at once");
    });
}

#[test]
fn nodes_and_resource_managers_killed_in_the_middle_lose_no_task_and_leak_no_worker() {
    let up = installation();
    let first = ResourceManager::start(&up, "rm", &NODES);
    wait::until("the floor to be there", SOON, || told(&up, "work").1 == u64::from(MIN));
    let effects = Effects::new();
    within_limits(&up, &effects, || {
        let work = Work::submit(&up, &effects);
        wait::until("more to be created", SOON, || up.worker_pids().len() > MIN as usize);
        first.kill9();
        let second = ResourceManager::start(&up, "rm", &NODES);
        wait::until("all to be there", SOON, || up.worker_pids().len() == MAX);
        let [agent_alone, whole] = nodes(&up)[..] else { panic!("two nodes") };
        send(agent_alone, Signal::KILL);
        wait::until("the node to be back", SOON, || nodes(&up).len() == 2 && !nodes(&up).contains(&agent_alone));
        switch_off(whole);
        wait::until("the other to be back", SOON, || nodes(&up).len() == 2 && !nodes(&up).contains(&whole));
        work.ends_ok(&up);
        wait::until("some to go", SOON, || up.worker_pids().len() < MAX);
        second.kill9();
        let _third = ResourceManager::start(&up, "rm", &NODES);
        // One switched off; one whose agent died, so that its workers were sent home.
        work.all_is_well(&up, 2);
    });
    assert_eq!(nodes(&up).len(), 2, "no node too many");
}

fn holder(up: &Installation) -> Value {
    json(&up.ok(&["--json", "elastic", "status"]))["holder"].clone()
}

fn generation(up: &Installation) -> u64 {
    holder(up)["generation"].as_u64().unwrap_or(0)
}

/// Takes minutes, mostly of waiting.
mod long {
    use super::*;

    #[test]
    fn of_two_resource_managers_one_acts_also_when_it_is_frozen_or_killed() {
        let up = installation();
        let (a, b) = (ResourceManager::start(&up, "rm-a", &NODES), ResourceManager::start(&up, "rm-b", &NODES));
        wait::until("both to be there", SOON, || json(&up.ok(&["--json", "elastic", "status"]))["members"] == 2);
        settles(&up, "work", MIN as usize);
        let effects = Effects::new();
        within_limits(&up, &effects, || {
            let work = Work::submit(&up, &effects);
            wait::until("all to be there", SOON, || up.worker_pids().len() == MAX);
            let acts = |rm: &ResourceManager| holder(&up)["member"].as_str().is_some_and(|member| rm.is(member));
            let (active, other) = if acts(&a) { (a, b) } else { (b, a) };

            let before = generation(&up);
            active.send(Signal::STOP);
            wait::until("the other to act", TAKEN_OVER_WITHIN, || acts(&other));
            assert!(generation(&up) > before, "under another lease");
            active.send(Signal::CONT);
            work.ends_ok(&up);

            let (active, other) = if acts(&other) { (other, active) } else { (active, other) };
            let before = generation(&up);
            active.kill9();
            wait::until("the one that is left to act", TAKEN_OVER_WITHIN, || acts(&other) && generation(&up) > before);
            // Nobody who ran tasks was killed; on a machine under load one may have been silent for too long.
            work.all_is_well(&up, 1);
        });
    }
}
