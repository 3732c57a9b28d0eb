//! `job logs --follow` of a job of many tasks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use mutirao_testkit::Installation;

use crate::said::Said;

#[test]
fn a_whole_job_is_followed_live_line_by_line_through_a_restart_and_nothing_is_missed() {
    let mut up = Installation::start();
    // Each waits until it was followed, so what comes before the end came live.
    let gate = up.data().parent().unwrap().join("gate");
    let script = format!(
        "echo first $MUTIRAO_TASK_INDEX; echo err >&2; while [ ! -e {} ]; do sleep 0.1; done; printf last",
        gate.display()
    );
    let id = up.ok(&["submit", "--cpus", "0", "--array", "1-20", "--", "sh", "-c", &script]);
    let id = id.trim();
    let mut command = up.command(&["job", "logs", id, "--follow"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut firsts: Vec<String> = lines.by_ref().take(20).collect();
    firsts.sort();
    let mut expected: Vec<String> = (1..=20).map(|n| format!("{n:>2}| first {n}")).collect();
    expected.sort();
    assert_eq!(firsts, expected);
    up.kill9();
    up.restart();
    std::fs::write(&gate, "").unwrap();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    lines.for_each(|line| *counts.entry(line).or_default() += 1);
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    for n in 1..=20 {
        assert_eq!(counts.get(&format!("{n:>2}| last")), Some(&1), "{counts:?}");
    }
    assert_eq!(said.err.lines().filter(|line| line.ends_with("| err")).count(), 20, "{said:?}");
}

#[test]
fn what_has_ended_is_printed_by_the_same_words() {
    let up = Installation::start();
    let id = up.ok(&["submit", "--wait", "--array", "1-300", "--", "sh", "-c", "echo $MUTIRAO_TASK_INDEX; seq 3 >&2"]);
    let followed = Said::from(up.cli(&["job", "logs", "-f", id.trim(), "--stream", "stdout"]));
    let expected: String = (1..=300).map(|n| format!("{n:>3}| {n}\n")).collect();
    assert_eq!((followed.code, followed.out), (Some(0), expected));
}
