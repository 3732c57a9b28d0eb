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

/// What no worker can hold is refused where that is known, told apart where it is found out later, and keeps nobody from
/// going home or making room.
#[test]
fn a_task_that_fits_no_worker_is_refused_or_explained_and_in_nobodys_way() {
    let setup = Installation::setup().workers(0).set("jobs.lease", LEASE);
    let up = setup.set("elastic.cpus", "2").set("elastic.memory", "4GiB").start();
    let offered = || up.ok(&["--json", "node", "list"]).contains(&(4u64 << 30).to_string());
    wait::until("the node to be offered", SETTLED_WITHIN, offered);
    queue(&up, "wave", 0, 2);
    let refused = Said::from(up.cli(&["submit", "--queue", "wave", "--mem", "1T", "--", "true"]));
    let why = "--mem: needs 1TiB of memory, the largest node any provider offers has 4GiB";
    assert!(refused.code == Some(2) && refused.err.contains(why), "{refused:?}");
    // A node has it, but each of two workers gets half: that is known once one is there.
    let job = up.ok(&["submit", "--queue", "wave", "--mem", "3G", "--", "echo", "big"]).trim().to_owned();
    up.ok(&["submit", "--queue", "wave", "--array", "1-4", "--wait", "--", "true"]);
    wait::until("it to be told", SETTLED_WITHIN, || {
        let said = up.ok(&["task", "explain", &format!("{job}.1")]);
        said.contains("it fits no worker: needs 3GiB of memory, the largest worker has 2GiB")
    });
    assert!(up.ok(&["queue", "explain", "wave"]).contains("1 of those that wait fit no worker"));
    queue(&up, "other", 0, 2);
    assert_eq!(run(&up, "other").out, "done\n", "workers that could do nothing make room");
}
