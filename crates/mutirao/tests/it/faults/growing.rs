//! Autoscaling in the middle of which things die, freeze, fail and lie, with 20,000 tasks each time: all of them end once,
//! the ceiling holds at every look, and what the provider has is what the store says within a minute.

mod failing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use rustix::process::Signal;
use serde_json::Value;

use super::{ends_counted, ends_ok, send};
use crate::growing::{LEASE, ResourceManager, json, nodes, queue, settles, told};
use crate::said::SOON;

const TASKS: u32 = 20_000;
const MIN: u32 = 1;
const MAX: usize = 4;
/// Slow enough that there is time for things to go wrong.
const LIMITS: &str = r#", "limits": {"starts_per_second": 800}"#;
const NODES: [&str; 4] = ["--set", "elastic.nodes=2", "--set", "elastic.cpus=3"];
/// Twice the time after which another one takes over.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(40);

fn installation() -> Installation {
    let up = Installation::setup().manager_alone().set("jobs.lease", LEASE).start();
    queue(&up, "work", MIN, MAX as u32, LIMITS);
    up
}

fn submit(up: &Installation) -> String {
    let spread = format!(r#"{{"array": {{"first": 1, "last": {TASKS}}}}}"#);
    let body = format!(r#"{{"queue": "work", "task": {{"action": {{"noop": {{}}}}}}, "spread": {spread}}}"#);
    let answer = up.request("POST /v1/jobs", body.as_bytes());
    json(&answer.text())["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

/// Runs `story` while it is looked again and again how many workers there are.
fn under_the_ceiling(up: &Installation, story: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(up.worker_pids().len());
                wait::holds_within(Duration::from_millis(50), || false);
            }
            most
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(story));
        over.store(true, Ordering::Relaxed);
        let most = watching.join().expect("it watches");
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
        assert_eq!(most, MAX, "as many as there may be, and never more");
    });
}

/// Everything was done once, and nothing is left over.
#[track_caller]
fn all_is_well(up: &Installation, job: &str) {
    ends_ok(up, job, TASKS);
    assert_eq!(ends_counted(up, "ok"), u64::from(TASKS), "outcomes count once");
    settles(up, "work", MIN as usize);
}

#[test]
fn nodes_and_resource_managers_killed_in_the_middle_lose_no_task_and_leak_no_worker() {
    let up = installation();
    let first = ResourceManager::start(&up, "rm", &NODES);
    wait::until("the floor to be there", SOON, || told(&up, "work").1 == u64::from(MIN));
    under_the_ceiling(&up, || {
        let job = submit(&up);
        wait::until("more to be created", SOON, || up.worker_pids().len() > MIN as usize);
        first.kill9();
        let second = ResourceManager::start(&up, "rm", &NODES);
        wait::until("all to be there", SOON, || up.worker_pids().len() == MAX);
        for node in nodes(&up) {
            send(node, Signal::KILL);
            wait::until("the node to be back", SOON, || nodes(&up).len() == 2 && !nodes(&up).contains(&node));
        }
        ends_ok(&up, &job, TASKS);
        wait::until("some to go", SOON, || up.worker_pids().len() < MAX);
        second.kill9();
        let _third = ResourceManager::start(&up, "rm", &NODES);
        all_is_well(&up, &job);
    });
    assert_eq!(nodes(&up).len(), 2, "no node too many");
}

fn holder(up: &Installation) -> Value {
    json(&up.ok(&["--json", "elastic", "status"]))["holder"].clone()
}

fn generation(up: &Installation) -> u64 {
    holder(up)["generation"].as_u64().unwrap_or(0)
}

#[test]
fn of_two_resource_managers_one_acts_also_when_it_is_frozen_or_killed() {
    let up = installation();
    let (a, b) = (ResourceManager::start(&up, "rm-a", &NODES), ResourceManager::start(&up, "rm-b", &NODES));
    wait::until("both to be there", SOON, || json(&up.ok(&["--json", "elastic", "status"]))["members"] == 2);
    settles(&up, "work", MIN as usize);
    under_the_ceiling(&up, || {
        let job = submit(&up);
        wait::until("all to be there", SOON, || up.worker_pids().len() == MAX);
        let acts = |rm: &ResourceManager| holder(&up)["member"].as_str().is_some_and(|member| rm.is(member));
        let (active, other) = if acts(&a) { (a, b) } else { (b, a) };

        let before = generation(&up);
        active.send(Signal::STOP);
        wait::until("the other to act", TAKEN_OVER_WITHIN, || acts(&other));
        assert!(generation(&up) > before, "under another lease");
        active.send(Signal::CONT);
        ends_ok(&up, &job, TASKS);

        let (active, other) = if acts(&other) { (other, active) } else { (active, other) };
        let before = generation(&up);
        active.kill9();
        wait::until("the one that is left to act", TAKEN_OVER_WITHIN, || acts(&other) && generation(&up) > before);
        all_is_well(&up, &job);
    });
}
