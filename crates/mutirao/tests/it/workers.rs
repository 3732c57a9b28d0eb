//! Workers that people start themselves.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use rustix::process::{Pid, Signal, kill_process};

use crate::said::{SOON, Said, mutirao, run};

/// Ends with the test, whichever way that goes.
pub struct Worker(pub Child);

impl Worker {
    pub fn start(up: &Installation, dir: &str, queue: &str, token: Option<&str>) -> Self {
        let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", dir, "--queue", queue]);
        command.envs(token.map(|token| ("MUTIRAO_ENROL_TOKEN", token)));
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_invited_worker_serves_its_queue_and_is_known_ever_after() {
    let up = Installation::setup().workers(0).start();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("w").display().to_string();
    let unknown = Said::from(up.cli(&["worker", "invite", "--queue", "gpu"]));
    assert!(unknown.code == Some(3) && unknown.err.contains("there is no queue \"gpu\""), "{unknown:?}");
    up.ok(&["queue", "create", "gpu"]);
    let token = up.ok(&["worker", "invite", "--queue", "gpu"]);

    let worker = Worker::start(&up, &dir, "gpu", Some(token.trim()));
    wait::until("the worker to show up", SOON, || up.ok(&["worker", "list"]).contains("gpu"));
    assert_eq!(Said::from(up.cli(&["submit", "--wait", "--queue", "gpu", "--", "echo", "hi"])).out, "hi\n");
    let mode = std::fs::metadata(folder.path().join("w/identity")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let twice = run(up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir, "--queue", "gpu"]));
    assert!(twice.code == Some(1) && twice.err.contains("in use") && twice.err.contains("--dir"), "{twice:?}");
    assert_eq!(worker.stop(), Some(0));

    let again = Worker::start(&up, &dir, "gpu", None);
    assert_eq!(Said::from(up.cli(&["submit", "--wait", "--queue", "gpu", "--", "echo", "again"])).out, "again\n");
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn a_worker_finds_the_manager_of_its_own_machine() {
    let up = Installation::setup().workers(0).start();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("w").display().to_string();
    let token = up.ok(&["worker", "invite"]);
    let mut command = up.command(&["role", "worker", "--dir", &dir]);
    command.env("MUTIRAO_ENROL_TOKEN", token.trim()).stdout(Stdio::null()).stderr(Stdio::null());
    let worker = Worker(command.spawn().unwrap());
    assert_eq!(Said::from(up.cli(&["submit", "--wait", "--", "echo", "hi"])).out, "hi\n");
    assert_eq!(worker.stop(), Some(0));

    let empty = folder.path().join("empty").display().to_string();
    let nowhere = run(mutirao(&["role", "worker", "--dir", &dir, "--data", &empty]));
    assert!(nowhere.code == Some(2) && nowhere.err.contains("--url") && nowhere.err.contains(&empty), "{nowhere:?}");
}

#[test]
fn a_worker_that_nobody_invited_is_turned_away() {
    let up = Installation::setup().workers(0).start();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display().to_string();
    let role = |token: &str| {
        run({
            let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir]);
            command.env("MUTIRAO_ENROL_TOKEN", token);
            command
        })
    };
    let uninvited = role("");
    assert!(uninvited.code == Some(4) && uninvited.err.contains("mutirao worker invite"), "{uninvited:?}");
    let forged = role("enr_0000");
    assert!(forged.code == Some(4) && forged.err.contains("one-time token"), "{forged:?}");
    assert!(!folder.path().join("identity").exists());

    // An identity of another installation.
    let other = Installation::setup().workers(1).start();
    let theirs = other.data().join("workers/default-1/identity");
    wait::until("its worker to enrol", SOON, || theirs.is_file());
    std::fs::copy(theirs, folder.path().join("identity")).unwrap();
    let stranger = role("");
    assert!(stranger.code == Some(4) && stranger.err.contains("does not let this worker in"), "{stranger:?}");
    assert!(folder.path().join("identity").exists(), "a refusal may be passing; people decide");
}

#[test]
fn a_job_without_workers_says_why_it_waits() {
    let up = Installation::setup().workers(0).start();
    let job = up.ok(&["submit", "--", "true"]);
    let shown = Said::from(up.cli(&["job", "show", job.trim()]));
    assert!(
        shown.out.contains("waiting") && shown.err.contains("no worker takes tasks of the queue default"),
        "{shown:?}"
    );
    let doctor = Said::from(up.cli(&["doctor"]));
    assert!(doctor.code == Some(0) && doctor.out.contains("nothing runs"), "{doctor:?}");
}

#[test]
fn what_a_dead_worker_held_goes_out_again_without_waiting_for_its_lease() {
    let up = Installation::setup().workers(1).set("jobs.lease", "10m").start();
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let script = format!("echo $MUTIRAO_ATTEMPT >> {0}; test $MUTIRAO_ATTEMPT -ge 2 || sleep 600", begun.display());
    let job = up.ok(&["submit", "--", "sh", "-c", &script]);
    wait::until("the first try to begin", SOON, || begun.is_file());
    let pid = Pid::from_raw(up.worker_pids()[0] as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let waited = Said::from(up.cli(&["job", "wait", job.trim()]));
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "1\n2\n");
}

#[test]
fn a_frozen_manager_loses_nobody() {
    let up = Installation::setup().workers(1).set("jobs.lease", "3s").start();
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let script = format!("echo $MUTIRAO_ATTEMPT >> {}; sleep 8", begun.display());
    let job = up.ok(&["submit", "--", "sh", "-c", &script]);
    wait::until("the task to begin", SOON, || begun.is_file());
    let manager = Pid::from_raw(up.pid() as i32).unwrap();
    kill_process(manager, Signal::STOP).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the freeze itself is what takes time")]
    std::thread::sleep(Duration::from_secs(6));
    kill_process(manager, Signal::CONT).unwrap();
    let waited = Said::from(up.cli(&["job", "wait", job.trim()]));
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "1\n", "it was run twice");
    let task: serde_json::Value =
        serde_json::from_str(&up.ok(&["--json", "task", "show", &format!("{}.1", job.trim())])).unwrap();
    assert_eq!(task["losses"], 0, "{task}");
}

#[test]
fn a_worker_of_up_that_was_drained_and_resumed_takes_tasks_again() {
    let up = Installation::setup().workers(1).start();
    wait::until("the worker to show up", SOON, || up.workers().len() == 1);
    let worker = up.workers()[0].worker.0.clone();
    up.ok(&["worker", "drain", &worker]);
    wait::until("it to rest", SOON, || up.ok(&["worker", "list"]).contains("drained"));
    up.ok(&["worker", "resume", &worker]);
    assert_eq!(Said::from(up.cli(&["submit", "--wait", "--", "echo", "back"])).out, "back\n");
    assert_eq!(up.workers()[0].worker.0, worker, "it is the same one");
}
