//! kill -9 in the middle of a large job: a worker, both, the manager, everything. Each task ends once.

use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use rustix::process::Signal;

use super::{Effects, LEAVE, TASKS, ends_counted, ends_ok, send};
use crate::said::SOON;

/// Shorter than the default, so that what a dead worker held does not wait for long.
const LEASE: &str = "3s";

/// A task that does not end by itself, with a child that left its process group.
const ENDLESS: &str = "setsid sleep 900 & sleep 900";

#[test]
fn killed_workers_lose_no_task_and_count_none_twice() {
    let up = Installation::setup().set("jobs.lease", LEASE).start();
    let (effects, endless) = (Effects::new(), Effects::new());
    let background = endless.submit(&up, 2, "100m", ENDLESS);
    wait::until("the endless tasks to run", SOON, || endless.processes().len() >= 4);
    let job = effects.submit(&up, TASKS, "500m", LEAVE);

    effects.wait_for(800);
    let first = up.worker_pids();
    assert_eq!(first.len(), 2);
    send(first[0], Signal::KILL);
    effects.wait_for(2_000);
    // By now another has taken the first one's place; the second goes as well.
    wait::until("the first to be replaced", SOON, || up.worker_pids().iter().any(|pid| !first.contains(pid)));
    send(first[1], Signal::KILL);

    ends_ok(&up, &job, TASKS);
    effects.check(TASKS).at_most_by(2, "two workers killed in turn");
    assert_eq!(ends_counted(&up, "ok"), u64::from(TASKS), "outcomes count once");
    up.ok(&["job", "cancel", &background]);
    endless.nobody_is_left();
    effects.nobody_is_left();
    assert_eq!(up.worker_pids().len(), 2);
    super::still_works(&up);
}

#[test]
fn a_killed_manager_loses_no_task_and_its_orphans_run_none_twice() {
    let mut up = Installation::start();
    let (effects, long) = (Effects::new(), Effects::new());
    // They leave their effect first, so that a second beginning shows, and outlast the manager's absence.
    let lasting = long.submit(&up, 2, "100m", &format!("{LEAVE}; sleep 14"));
    wait::until("the long tasks to run", SOON, || long.processes().len() >= 4);
    let job = effects.submit(&up, TASKS, "500m", LEAVE);

    effects.wait_for(1_500);
    let orphans = up.worker_pids();
    up.kill9();
    let before = effects.count();
    assert!(!wait::holds_within(Duration::from_secs(1), || up.worker_pids().len() < 2), "orphans left their tasks");
    // Held back, so that the new manager has workers of its own before it hears of the tasks that still run.
    orphans.iter().for_each(|pid| send(*pid, Signal::STOP));
    up.restart();
    wait::holds_within(Duration::from_secs(2), || false);
    orphans.iter().for_each(|pid| send(*pid, Signal::CONT));
    assert!(before < TASKS as usize, "it was killed too late to prove anything");

    ends_ok(&up, &job, TASKS);
    effects.check(TASKS).at_most_by(1, "the manager killed alone");
    ends_ok(&up, &lasting, 2);
    assert_eq!(long.check(2).doubled, 0, "a task that an orphan still ran was run again");
    wait::until("the orphans to go home", SOON, || !up.worker_pids().iter().any(|pid| orphans.contains(pid)));
    effects.nobody_is_left();
    long.nobody_is_left();
    super::still_works(&up);
}

#[test]
fn everything_killed_at_once_loses_no_task_and_leaves_no_process() {
    let mut up = Installation::setup().set("jobs.lease", LEASE).start();
    let (effects, endless) = (Effects::new(), Effects::new());
    let background = endless.submit(&up, 2, "100m", ENDLESS);
    wait::until("the endless tasks to run", SOON, || endless.processes().len() >= 4);
    let job = effects.submit(&up, TASKS, "500m", LEAVE);

    effects.wait_for(1_500);
    up.kill9_everything();
    let before = effects.count();
    assert!(before < TASKS as usize, "it was killed too late to prove anything");
    endless.nobody_is_left();
    effects.nobody_is_left();

    up.restart();
    ends_ok(&up, &job, TASKS);
    effects.check(TASKS).at_most_by(1, "everything killed");
    wait::until("the endless tasks to run again", SOON, || endless.processes().len() >= 4);
    up.ok(&["job", "cancel", &background]);
    endless.nobody_is_left();
    effects.nobody_is_left();
    super::still_works(&up);
}

#[test]
fn a_manager_that_is_killed_again_and_again_gets_there_in_the_end() {
    let mut up = Installation::start();
    let effects = Effects::new();
    let job = effects.submit(&up, TASKS, "500m", LEAVE);
    for kill in 1..=3 {
        effects.wait_for(1_000 * kill);
        up.kill9();
        up.restart();
    }
    ends_ok(&up, &job, TASKS);
    effects.check(TASKS).at_most_by(3, "the manager killed three times");
    effects.nobody_is_left();
}
