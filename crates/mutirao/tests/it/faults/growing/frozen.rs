//! A node whose agent stands still for so long that another takes its place, and its workers over.

use mutirao_testkit::wait;
use rustix::process::{Pid, Signal, test_kill_process};

use super::{Effects, MAX, MIN, NODES, Work, installation, send, within_limits};
use crate::growing::{ResourceManager, SETTLED_WITHIN, nodes, told};
use crate::said::SOON;

#[test]
fn a_frozen_agent_is_replaced_and_is_there_no_more_to_wake_when_another_has_its_workers() {
    let up = installation();
    let _acting = ResourceManager::start(&up, "rm", &NODES);
    wait::until("the floor to be there", SOON, || told(&up, "work").1 == u64::from(MIN));
    let effects = Effects::new();
    within_limits(&up, &effects, || {
        let work = Work::submit(&up, &effects);
        wait::until("all to be there", SOON, || up.worker_pids().len() == MAX);
        let frozen = nodes(&up)[0];
        send(frozen, Signal::STOP);
        let replaced = || nodes(&up).len() == 2 && !nodes(&up).contains(&frozen);
        wait::until("another agent in its place", SETTLED_WITHIN, replaced);
        // Two of one folder cannot be: what would wake now was ended before its successor began.
        assert!(
            test_kill_process(Pid::from_raw(frozen as i32).expect("a pid")).is_err(),
            "the former agent is still there"
        );
        work.all_is_well(&up, 1);
    });
    assert_eq!(nodes(&up).len(), 2, "no node too many");
}
