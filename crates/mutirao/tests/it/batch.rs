//! A batch from the command line: jobs after jobs, keys that one job has, what failed tried anew, everything watched.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use mutirao_testkit::Installation;

use crate::said::Said;

#[test]
fn what_failed_is_listed_over_all_jobs_and_tried_anew() {
    let up = Installation::start();
    let said = |args: &[&str]| Said::from(up.cli(args));
    let mark = up.data().parent().unwrap().join("mended");
    let script = format!("test $MUTIRAO_TASK_INDEX -ne 2 || test -e {}", mark.display());
    let failed = said(&["submit", "--wait", "--array", "1-3", "--", "sh", "-c", &script]);
    let id = failed.out.trim().to_owned();
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let dead = up.ok(&["task", "dead", "--queue", "default"]);
    assert!(dead.contains(&format!("{id}.2")) && !dead.contains(&format!("{id}.1")), "{dead}");
    std::fs::write(&mark, "").unwrap();
    assert_eq!(up.ok(&["job", "retry", &id]).trim(), format!("1 task of job {id} is tried anew"));
    let ended = said(&["job", "wait", &id]);
    assert!(ended.code == Some(0) && ended.err.contains("3 ok"), "{ended:?}");
    assert!(up.ok(&["task", "dead"]).contains("no such tasks"));
    for nothing in [
        vec!["job", "retry", &id],
        vec!["task", "retry", &format!("{id}.1")],
        vec!["task", "retry", "--queue", "default"],
    ] {
        let said = said(&nothing);
        assert!(said.code == Some(3) && said.err.contains("nothing is tried anew"), "{nothing:?}: {said:?}");
    }
    assert_eq!(up.ok(&["task", "letters"]).trim(), "no dead letters");
}

#[test]
fn a_job_waits_for_others_and_a_key_is_had_by_one() {
    let up = Installation::start();
    let said = |args: &[&str]| Said::from(up.cli(args));
    let gate = up.data().parent().unwrap().join("gate");
    let wait = format!("while [ ! -e {} ]; do sleep 0.1; done; exit 3", gate.display());
    let first = up.ok(&["submit", "--unique", "nightly", "--", "sh", "-c", &wait]);
    let first = first.trim();
    let again = said(&["submit", "--unique", "nightly", "--", "true"]);
    assert_eq!((again.code, again.out.trim()), (Some(0), first), "{again:?}");
    assert!(again.err.contains("nothing was submitted"), "{again:?}");
    let second = up.ok(&["submit", "--after", first, "--", "echo", "second"]);
    let never = up.ok(&["submit", "--after-ok", first, "--", "echo", "never"]);
    assert!(up.ok(&["job", "show", second.trim()]).contains(&format!("waits for  {first}")));
    assert!(up.ok(&["task", "explain", &format!("{}.1", second.trim())]).contains(first));
    std::fs::write(&gate, "").unwrap();
    assert_eq!(said(&["job", "wait", second.trim()]).code, Some(0));
    assert_eq!(said(&["job", "wait", never.trim()]).code, Some(130));
    let shown = up.ok(&["job", "show", never.trim()]);
    assert!(shown.contains("cancelled") && shown.contains(&format!("after job {first} had ended ok")), "{shown}");
    let unknown = said(&["submit", "--after", "jzzzzzzz", "--", "true"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("there is no job jzzzzzzz"), "{unknown:?}");
    let ignored = said(&["submit", "--priority", "5", "--", "true"]);
    assert!(ignored.code == Some(0) && ignored.err.contains("--priority changes nothing"), "{ignored:?}");
}

#[test]
fn everything_that_changes_is_a_line() {
    let up = Installation::start();
    let mut child = up.command(&["job", "watch"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Jobs are submitted until one of them is told of: whoever watches may come a moment later.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let submitting = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                up.ok(&["submit", "--wait", "--name", "seen", "--", "true"]);
            }
        });
        let told = lines.find(|line| line.contains("(seen) in default is ok: 1 ok"));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        submitting.join().unwrap();
        assert!(told.is_some());
    });
    child.kill().unwrap();
    child.wait().unwrap();
}
