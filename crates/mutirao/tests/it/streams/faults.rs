//! Streams while processes die: what comes out is what would have come out.

use std::time::Duration;

use mutirao_testkit::{Installation, wait};

use super::running::{SOON, counted, counting, deploy, health, lines, written};

/// A restart, and a lease of what was there before it.
const LATER: Duration = Duration::from_secs(60);

#[test]
fn an_installation_that_is_killed_in_the_middle_writes_what_it_would_have_written() {
    let mut up = Installation::setup().workers(0).start();
    let file = written(&up, "killed.yaml", &counting("killed", "killed.jsonl", 50, ""));
    assert_eq!(deploy(&up, &[], &file).code, Some(0));
    for windows in [1, 3] {
        wait::until("some windows", LATER, || lines(&up, "killed.jsonl").len() >= windows);
        up.kill9_everything();
        up.restart();
    }
    wait::until("all windows", LATER, || lines(&up, "killed.jsonl").len() >= 6);
    wait::until("its end", SOON, || health(&up, "killed") == "ended");
    let window = |(n, line): (usize, serde_json::Value)| {
        let (events, sum) = (&line["events"], &line["sum"]);
        format!(
            "{{\"start\":\"1970-01-01T00:00:0{n}Z\",\"end\":\"1970-01-01T00:00:0{}Z\",\"events\":{events},\"sum\":{sum}}}\n",
            n + 1
        )
    };
    let expected: String = counted().into_iter().enumerate().map(window).collect();
    let written = std::fs::read_to_string(up.data().join("files/killed.jsonl")).unwrap();
    assert_eq!(written, expected);
}

#[test]
fn an_installation_that_is_stopped_goes_on_where_it_was() {
    let mut up = Installation::setup().workers(0).start();
    let file = written(&up, "stopped.yaml", &counting("stopped", "stopped.jsonl", 50, ""));
    assert_eq!(deploy(&up, &[], &file).code, Some(0));
    wait::until("some windows", SOON, || lines(&up, "stopped.jsonl").len() >= 2);
    assert!(up.terminate().success());
    let before = lines(&up, "stopped.jsonl");
    up.restart();
    wait::until("all windows", LATER, || lines(&up, "stopped.jsonl").len() >= 6);
    assert_eq!(lines(&up, "stopped.jsonl")[..before.len()], before);
    assert_eq!(lines(&up, "stopped.jsonl"), counted());
}
