//! Who can read the secrets of a manager and its workers: not the tasks that they run, though they run as the same user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use mutirao_testkit::wait;
use rustix::process::{Pid, Signal, kill_process};

use crate::said::{SOON, Said, mutirao, run};
use crate::workers::Worker;

const NOBODY: u32 = 65_534;
/// In the environment of `up`, as a password would be.
const SECRET: &str = "s3cret-of-the-manager";
/// Reads whatever can be read of anybody's environment.
const PRY: &str = "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null; echo looked";

/// Root may look at everybody, so as root it is all done as nobody.
fn as_nobody(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/").stdin(Stdio::null());
    if rustix::process::getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn a_task_cannot_read_the_environment_of_the_manager_or_of_its_worker() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (program, data) = (folder.path().join("mutirao"), folder.path().join("data"));
    std::fs::copy(env!("CARGO_BIN_EXE_mutirao"), &program).unwrap();
    std::fs::create_dir(&data).unwrap();
    if rustix::process::getuid().is_root() {
        chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let shown = data.display().to_string();
    let mut up = as_nobody(&program, &["up", "--workers", "1", "--listen", "127.0.0.1:0", "--data", &shown]);
    let up = up.env("MUTIRAO_TOKEN", SECRET).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut up = Worker(up);
    wait::until("it to be up", SOON, || data.join("address").is_file());
    let seen = as_nobody(&program, &["submit", "--data", &shown, "--wait", "--", "sh", "-c", PRY]).output().unwrap();
    let seen = Said::from(seen);
    assert!(seen.code == Some(0) && seen.out.ends_with("looked\n"), "{seen:?}");
    assert!(seen.out.contains("MUTIRAO_TASK_ID="), "a task sees at least itself: {seen:?}");
    assert!(!seen.out.contains(SECRET), "a task has read the manager's secret");
    kill_process(Pid::from_child(&up.0), Signal::TERM).unwrap();
    assert!(up.0.wait().unwrap().success());
}

#[test]
fn a_password_in_the_arguments_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    let url = "postgres://ana:s3cret@127.0.0.1:1/lab";
    let said = run(mutirao(&["up", "--data", &data, "--listen", "127.0.0.1:0", "--database", url]));
    assert!(said.err.contains("--database") && said.err.contains("MUTIRAO_DATABASE"), "{said:?}");
    assert!(said.err.contains("can read the arguments") && !said.err.contains("s3cret"), "{said:?}");
    let mut command = mutirao(&["up", "--data", &data, "--listen", "127.0.0.1:0"]);
    command.env("MUTIRAO_DATABASE", url);
    assert!(!run(command).err.contains("can read the arguments"));
}
