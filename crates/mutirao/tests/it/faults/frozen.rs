//! A worker that stands still for longer than its lease, and then goes on as if nothing had happened.

use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use rustix::process::Signal;

use super::{Effects, LEAVE, TASKS, ends_counted, ends_ok, send, stays_ok};
use crate::said::SOON;

#[test]
fn a_frozen_worker_is_done_without_and_changes_nothing_when_it_wakes() {
    let up = Installation::setup().set("jobs.lease", "3s").start();
    let effects = Effects::new();
    let job = effects.submit(&up, TASKS, "500m", LEAVE);
    effects.wait_for(800);
    let workers = up.worker_pids();
    send(workers[0], Signal::STOP);

    // All of it ends while that worker still stands: what it held ran elsewhere.
    ends_ok(&up, &job, TASKS);
    send(workers[0], Signal::CONT);
    let heard = || up.ok(&["worker", "list"]).lines().count() == 3;
    wait::until("the worker to be heard of again", SOON, heard);
    // What it still had to say has been said by then; it beats every two seconds.
    assert!(
        !wait::holds_within(Duration::from_secs(3), || ends_counted(&up, "ok") > u64::from(TASKS)),
        "counted twice"
    );
    stays_ok(&up, &job, TASKS);
    effects.check(TASKS).at_most_by(1, "a worker frozen past its lease");

    let (again, more) = (Effects::new(), 200);
    let job = again.submit(&up, more, "500m", LEAVE);
    ends_ok(&up, &job, more);
    assert_eq!(again.check(more).doubled, 0);
    assert_eq!(up.worker_pids(), workers, "nobody was replaced");
    effects.nobody_is_left();
}
