//! Starting a process so that it cannot outlive us: the kernel signals it when this process dies, however it dies.
//!
//! That promise of the kernel hangs on the *thread* that started the child, so all children are started by one thread
//! which lives as long as the process. `setpriv` (util-linux) makes the request and changes the user, then becomes the
//! program, so the pid is the program's own.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// Marks every process of one test run, so that the run can find what its tests left behind.
pub const RUN_MARK: &str = "MUTIRAO_TEST_RUN";

/// All that a launched process sees of our environment: the rest differs from machine to machine.
const INHERITED: [&str; 8] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "RUST_BACKTRACE", "LLVM_PROFILE_FILE", RUN_MARK];

type Order = (Command, SyncSender<io::Result<Child>>);

/// A user of this machine to run a service as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    /// Who a service that refuses to run as root runs as; `None` when we are not root and it may simply be us.
    pub fn instead_of_root() -> anyhow::Result<Option<User>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = std::fs::read_to_string("/etc/passwd")?;
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| User::find(&passwd, name))
            .map(Some)
            .ok_or_else(|| anyhow::anyhow!("this machine has neither a user postgres nor a user nobody"))
    }

    fn find(passwd: &str, name: &str) -> Option<User> {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2);
        Some(User { uid: ids.next()?.parse().ok()?, gid: ids.next()?.parse().ok()? })
    }
}

/// What to start and how.
#[derive(Debug)]
pub struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(String, OsString)>,
    user: Option<User>,
    /// What the kernel sends it when we die.
    at_our_death: &'static str,
}

impl Launch {
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new(), user: None, at_our_death: "KILL" }
    }

    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn user(mut self, user: Option<User>) -> Self {
        self.user = user;
        self
    }

    /// A signal's name without SIG, for programs that have something to clear away.
    pub fn at_our_death(mut self, signal: &'static str) -> Self {
        self.at_our_death = signal;
        self
    }

    /// The command, in a process group of its own: a Ctrl-C on the terminal is for us, and we stop it in order.
    pub fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", self.at_our_death]);
        if let Some(User { uid, gid }) = &self.user {
            command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()]);
        }
        command.arg("--").arg(&self.program).args(&self.args);
        self.surround(&mut command);
        command.process_group(0);
        command
    }

    /// Another program in the same surroundings, such as a tool that speaks with this one.
    pub fn beside(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.env_clear().envs(inherited).envs(self.env.iter().map(|(k, v)| (k, v))).stdin(Stdio::null());
    }

    /// Starts it in `folder`, with both outputs appended to `log`.
    pub fn spawn(&self, folder: &Path, log: &Path) -> io::Result<Child> {
        let out = File::options().create(true).append(true).open(log)?;
        let mut command = self.command();
        command.current_dir(folder).stdout(out.try_clone()?).stderr(out);
        spawn(command)
    }

    /// Runs it to its end; an error holds what it wrote.
    pub fn run(&self, folder: &Path) -> anyhow::Result<()> {
        let output = self.command().current_dir(folder).output()?;
        anyhow::ensure!(
            output.status.success(),
            "{} failed ({}): {}{}",
            self.program.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// Has the long-lived thread start a command.
pub fn spawn(command: Command) -> io::Result<Child> {
    static LAUNCHER: OnceLock<SyncSender<Order>> = OnceLock::new();
    let launcher = LAUNCHER.get_or_init(|| {
        let (orders, inbox) = sync_channel::<Order>(16);
        std::thread::Builder::new()
            .name("launcher".into())
            .spawn(move || {
                for (mut command, answer) in inbox {
                    // Whoever ordered it may be gone; then the child is dropped and its caller's sweep ends it.
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        orders
    });
    let (answer, child) = sync_channel(1);
    launcher.send((command, answer)).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

/// Sends a signal to a child that has not been waited for, so the pid is still its own.
pub fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Asks a child to stop, and insists once `patience` is over.
pub fn stop(child: &mut Child, asking: Signal, patience: Duration) -> ExitStatus {
    signal(child, asking);
    // A frozen process hears nothing else.
    signal(child, Signal::CONT);
    if !wait::holds_within(patience, || !matches!(child.try_wait(), Ok(None))) {
        signal(child, Signal::KILL);
    }
    child.wait().unwrap_or(ExitStatus::from_raw(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_read_by_its_whole_name() {
        let passwd = "nobody2:x:1:2::/:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";
        assert_eq!(User::find(passwd, "nobody"), Some(User { uid: 65534, gid: 65533 }));
        assert_eq!(User::find(passwd, "postgres"), None);
    }

    #[test]
    fn one_that_will_not_stop_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let launch = Launch::new("sh").args(["-c", "trap '' TERM; touch ready; while :; do sleep 0.1; done"]);
        let mut child = launch.spawn(folder.path(), &folder.path().join("log")).unwrap();
        wait::until("the trap to be set", Duration::from_secs(5), || ready.exists());
        let status = stop(&mut child, Signal::TERM, Duration::from_millis(100));
        assert_eq!(status.signal(), Some(9));
    }
}
