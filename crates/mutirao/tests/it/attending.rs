//! `submit --wait` and `job wait`: a job's end is the command's end.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use rustix::process::{Pid, Signal, kill_process};

use crate::said::{SOON, Said};

#[test]
fn a_single_task_ends_and_speaks_as_if_it_ran_here() {
    let up = Installation::start();
    let said = |args: &[&str]| Said::from(up.cli(args));

    let both = said(&["submit", "--wait", "--", "sh", "-c", "printf 'a\\nb'; echo oops >&2; exit 42"]);
    assert_eq!((both.code, both.out.as_str()), (Some(42), "a\nb"), "{both:?}");
    assert!(both.err.contains("oops") && both.err.contains("failed with exit code 42"), "{both:?}");

    assert_eq!(said(&["submit", "--wait", "--", "sh", "-c", "kill -9 $$"]).code, Some(137));
    assert_eq!(said(&["submit", "--wait", "--timeout", "300ms", "--", "sleep", "60"]).code, Some(124));
    let missing = said(&["submit", "--wait", "--", "no-such-program"]);
    assert!(missing.code == Some(127) && missing.err.contains("no-such-program"), "{missing:?}");

    // Output that is too long for an outcome, and output that comes late.
    let long = said(&["submit", "--wait", "--", "sh", "-c", "seq 1 200000; sleep 0.5; echo end"]);
    let lines: Vec<&str> = long.out.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[200_000]), (200_001, "1", "end"));
}

#[test]
fn a_job_of_many_ends_as_the_first_task_that_was_not_ok() {
    let up = Installation::start();
    let said = |args: &[&str]| Said::from(up.cli(args));
    let all_ok = said(&["submit", "--wait", "--array", "5-24", "--", "true"]);
    assert_eq!(all_ok.code, Some(0), "{all_ok:?}");
    assert!(all_ok.out.trim().starts_with('j') && all_ok.out.lines().count() == 1, "the id, and nothing else");

    let some_not = said(&[
        "submit",
        "--wait",
        "--array",
        "1-9",
        "--",
        "sh",
        "-c",
        "test $MUTIRAO_TASK_INDEX -lt 7 || exit $MUTIRAO_TASK_INDEX",
    ]);
    assert_eq!(some_not.code, Some(7), "{some_not:?}");
    assert!(some_not.err.contains("6 ok, 3 failed") && some_not.err.contains("--task 7"), "{some_not:?}");
}

#[test]
fn each_line_of_stdin_becomes_a_task() {
    let up = Installation::start();
    let mut command =
        up.command(&["submit", "--wait", "--each-line", "-", "--", "sh", "-c", "echo \"<$MUTIRAO_ENTRY>\""]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo  words\n$HOME").unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    let logs = up.ok(&["job", "logs", said.out.trim()]);
    assert_eq!(logs, "<one>\n<two  words>\n<$HOME>\n");
}

#[test]
fn a_list_of_tasks_runs_each_with_its_own_commands_and_variables() {
    let up = Installation::start();
    let tasks = r#"[{"command": ["sh", "-c", "echo $A"], "then": [["echo", "then"]], "env": {"A": "own"}},
                    {"entry": "x", "needs": {"cpus": "100m"}},
                    {"command": ["true"], "then": [["sh", "-c", "exit 5"], ["echo", "never"]]}]"#;
    let mut command = up.command(&["submit", "--wait", "--from-json", "-", "--", "printenv", "MUTIRAO_ENTRY"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(tasks.as_bytes()).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.err.contains("command 2 of 3: sh -c exit 5"), "{said:?}");
    assert_eq!(up.ok(&["job", "logs", said.out.trim()]), "own\nthen\nx\n");
}

#[test]
fn programs_get_one_document() {
    let up = Installation::start();
    let said = Said::from(up.cli(&["--json", "submit", "--wait", "--", "sh", "-c", "echo noise; exit 3"]));
    let job: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!((said.code, job["state"].as_str(), said.err.as_str()), (Some(3), Some("failed"), ""));
    let parts = (job["exit"].as_u64(), job["stdout"].as_str(), job["stderr"].as_str());
    assert_eq!(parts, (Some(3), Some("noise\n"), Some("")));

    let many = up.ok(&["--json", "submit", "--wait", "--array", "1-2", "--", "echo", "noise"]);
    let many: serde_json::Value = serde_json::from_str(&many).unwrap();
    assert_eq!((many["exit"].as_u64(), many.get("stdout")), (Some(0), None), "many tasks have no one output");
}

#[test]
fn a_job_is_waited_for_although_nobody_reads_its_output() {
    let up = Installation::start();
    let mut command = up.command(&["submit", "--wait", "--", "sh", "-c", "echo one; sleep 2; echo two; exit 9"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!((first.as_str(), said.code), ("one\n", Some(9)), "{said:?}");
}

#[test]
fn ctrl_c_leaves_the_job_alone_and_says_how_to_stop_it() {
    let up = Installation::start();
    let mut command = up.command(&["submit", "--wait", "--", "sleep", "300"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = wait::some("the job to run", SOON, || {
        let jobs: serde_json::Value =
            serde_json::from_str(&up.ok(&["--json", "job", "list", "--state", "running"])).ok()?;
        Some(jobs["items"][0]["id"].as_str()?.to_owned())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.err.contains(&format!("mutirao job cancel {id}")), "{said:?}");

    assert!(up.ok(&["job", "show", &id]).contains("running"));
    let waiting = up.command(&["job", "wait", &id]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    up.ok(&["job", "cancel", &id]);
    assert_eq!(Said::from(waiting.wait_with_output().unwrap()).code, Some(130));
}

#[test]
fn waiting_outlives_the_manager() {
    let mut up = Installation::start();
    let script = "echo before; sleep 3; echo after";
    let mut command = up.command(&["submit", "--wait", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait::until("the task to run", SOON, || up.ok(&["job", "list", "--state", "running"]).contains("running"));
    up.kill9();
    assert!(!wait::holds_within(Duration::from_millis(500), || child.try_wait().unwrap().is_some()), "gave up at once");
    up.restart();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(0), "before\nafter\n"), "{said:?}");
}
