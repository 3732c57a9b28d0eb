//! Queues that share a small node, with real workers.

use mutirao_testkit::{Installation, wait};

use crate::growing::{LEASE, SETTLED_WITHIN, json, settles, told};
use crate::said::Said;

/// Workers of an idle queue are kept for an hour.
fn queue(up: &Installation, name: &str, min: u32, max: u32) {
    let policy = r#"{"kind": "n_for_n", "idle_wait": "1h"}"#;
    let body = format!(r#"{{"name": "{name}", "elastic": {{"min": {min}, "max": {max}, "policy": {policy}}}}}"#);
    let answer = up.request("POST /v1/queues", body.as_bytes());
    assert!(answer.status < 300, "{}", answer.text());
}

fn run(up: &Installation, queue: &str) -> Said {
    Said::from(up.cli(&["submit", "--queue", queue, "--wait", "--", "echo", "done"]))
}

/// One worker fits on the node. It is a floor's, and then one that is kept in case.
#[test]
fn a_queue_with_work_gets_the_room_of_a_queue_that_has_none() {
    let up = Installation::setup().workers(0).set("jobs.lease", LEASE).set("elastic.cpus", "1").start();
    queue(&up, "floor", 1, 1);
    settles(&up, "floor", 1);
    queue(&up, "work", 0, 1);
    assert_eq!(run(&up, "work").out, "done\n", "a floor makes room");
    assert_eq!(told(&up, "work").1, 1);
    queue(&up, "other", 0, 1);
    assert_eq!(run(&up, "other").out, "done\n", "one that is kept in case makes room");
    assert_eq!(run(&up, "floor").out, "done\n", "and so it goes on");
    wait::until("one to be left", SETTLED_WITHIN, || up.worker_pids().len() == 1);
    let status = json(&up.ok(&["--json", "elastic", "status"])).to_string();
    assert!(status.contains("have no place now"), "who has none is told why: {status}");
}
