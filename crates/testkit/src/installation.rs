//! A real installation: the `mutirao` binary run with `up` on a folder and a port of its own, driven as a user would,
//! and killed as the world would.
//!
//! Builds nothing: the binary is `$MUTIRAO_BIN`, else the one beside the running test. A failure to start or to answer
//! panics with what the process wrote.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use mutirao_core::SessionId;
use mutirao_core::job::WorkerView;
use rustix::process::Signal;

use crate::http::{self, Answer};
use crate::launch::{self, Launch};
use crate::sweep::{self, Process};
use crate::wait;

/// Which installation a process belongs to; inherited by its workers.
const MARK: &str = "MUTIRAO_TEST_INSTALLATION";
/// A debug build on two busy cores.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The drain that `up` gives its workers, and some.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
/// Keepers end what their dead worker left; only then may they be ended themselves.
const KEPT_WITHIN: Duration = Duration::from_secs(5);

/// What is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Workers(u32),
    /// `role manager`: workers come by themselves.
    Nobody,
}

/// How an installation is to be started.
#[derive(Debug)]
pub struct Setup {
    company: Company,
    data: Option<PathBuf>,
    listen: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Setup {
    pub fn workers(mut self, workers: u32) -> Self {
        self.company = Company::Workers(workers);
        self
    }

    /// Only the manager, as `role manager`.
    pub fn manager_alone(mut self) -> Self {
        self.company = Company::Nobody;
        self
    }

    /// The data folder, where the default (a fresh one, removed afterwards) will not do.
    pub fn data(mut self, data: &Path) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Where it listens, where loopback will not do.
    pub fn listen(mut self, address: std::net::IpAddr) -> Self {
        self.listen = SocketAddr::new(address, 0).to_string();
        self
    }

    /// On loopback, where any free port will not do.
    pub fn port(mut self, port: u16) -> Self {
        self.listen = SocketAddr::from(([127, 0, 0, 1], port)).to_string();
        self
    }

    /// A setting, as `--set key=value`.
    pub fn set(self, key: &str, value: &str) -> Self {
        self.arg("--set").arg(&format!("{key}={value}"))
    }

    /// A further argument of `up`.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts it and waits until it is ready, workers and all.
    #[track_caller]
    pub fn start(self) -> Installation {
        let folder = tempfile::Builder::new().prefix("mutirao-test.").tempdir().expect("a temporary folder");
        let data = self.data.clone().unwrap_or_else(|| folder.path().join("data"));
        let mut installation = Installation {
            setup: self,
            binary: binary(),
            mark: SessionId::random().0,
            data,
            address: None,
            scheme: "http",
            child: None,
            folder,
        };
        installation.restart();
        installation
    }
}

/// A running (or killed) installation. Everything it started is gone after drop.
#[derive(Debug)]
pub struct Installation {
    setup: Setup,
    binary: PathBuf,
    mark: String,
    data: PathBuf,
    address: Option<SocketAddr>,
    /// `http` or `https`: as the address file says.
    scheme: &'static str,
    child: Option<Child>,
    /// Last, so that it is removed when nobody writes to it any more.
    folder: tempfile::TempDir,
}

impl Installation {
    /// With two workers and every default.
    #[track_caller]
    pub fn start() -> Installation {
        Self::setup().start()
    }

    pub fn setup() -> Setup {
        Setup {
            company: Company::Workers(2),
            data: None,
            listen: "127.0.0.1:0".into(),
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn address(&self) -> SocketAddr {
        self.address.expect("the installation was started")
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
    }

    /// The admin token that the first start wrote.
    #[track_caller]
    pub fn token(&self) -> String {
        let file = self.data.join("admin.token");
        let token = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        token.trim().to_owned()
    }

    /// The process of `up`. Panics when it was killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the installation runs").id()
    }

    /// What it wrote to its standard error, over all its lives.
    pub fn stderr(&self) -> String {
        read_lossy(&self.folder.path().join("stderr"))
    }

    pub fn stdout(&self) -> String {
        read_lossy(&self.folder.path().join("stdout"))
    }

    /// A command of the CLI against this installation, to be adjusted before it is run.
    pub fn command(&self, args: &[&str]) -> Command {
        // Not tied to our death: a command is waited for, and reads its standard input where a test gives it one.
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MUTIRAO_")) {
            command.env_remove(name);
        }
        command.args(args).env("MUTIRAO_DATA", &self.data).env(MARK, &self.mark).stdin(Stdio::null());
        command
    }

    /// Runs `mutirao` with these arguments.
    #[track_caller]
    pub fn cli(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap_or_else(|e| panic!("{}: {e}", self.binary.display()))
    }

    /// As [`cli`](Self::cli), for commands that must succeed: their standard output.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.cli(args);
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            panic!("mutirao {} failed ({}): {stderr}\nup wrote:\n{}", args.join(" "), output.status, self.stderr());
        }
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// One plain request as admin: `request("POST /v1/jobs", b"{…}")`. With a certificate there are only commands.
    #[track_caller]
    pub fn request(&self, line: &str, json: &[u8]) -> Answer {
        let authorization = format!("Bearer {}", self.token());
        let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
        http::request(self.address(), line, &headers, json).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// The workers that the manager has heard of.
    #[track_caller]
    pub fn workers(&self) -> Vec<WorkerView> {
        if self.scheme == "https" {
            let text = self.ok(&["--json", "worker", "list"]);
            return serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        }
        let answer = self.request("GET /v1/workers", b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{e}: {}", answer.text()))
    }

    /// The worker processes that run now, by the command that `up` starts them with.
    pub fn worker_pids(&self) -> Vec<u32> {
        let workers = sweep::processes().into_iter().filter(|p| p.runs("role", "worker"));
        let workers: Vec<Process> = workers.filter(|p| self.owns(p)).collect();
        // A worker's child looks like its parent for the moment before it becomes a task's command.
        let is_child = |p: &Process| workers.iter().any(|parent| parent.pid == p.parent);
        workers.iter().filter(|p| !is_child(p)).map(|p| p.pid).collect()
    }

    /// SIGKILL to `up` alone; its workers live on for a while.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            launch::stop(&mut child, Signal::KILL, STOPPED_WITHIN);
        }
    }

    /// SIGKILL to `up` and to every worker: the machine is gone, as far as we are concerned.
    pub fn kill9_everything(&mut self) {
        self.kill9();
        assert!(sweep::kill_all(|p| !p.runs("role", "keeper") && self.owns(p)), "some processes survived SIGKILL");
    }

    /// SIGTERM, as from a service manager, and how it ended.
    pub fn terminate(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the installation runs");
        launch::stop(&mut child, Signal::TERM, STOPPED_WITHIN)
    }

    /// Starts it on the same folder and, when it ran before, the same address; waits until it is ready and as many
    /// workers as were asked for have reported.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill9();
        let listen = self.address.map_or_else(|| self.setup.listen.clone(), |address| address.to_string());
        let role = match self.setup.company {
            Company::Workers(workers) => vec!["up".into(), "--workers".into(), workers.to_string()],
            Company::Nobody => vec!["role".into(), "manager".into()],
        };
        let mut launch = Launch::new(&self.binary)
            .args(role)
            .args(["--listen", &listen, "--data"])
            .args([&self.data])
            .args(&self.setup.args)
            .env(MARK, &self.mark);
        for (name, value) in &self.setup.env {
            launch = launch.env(name, value);
        }
        let out = |name| append(&self.folder.path().join(name));
        let mut command = launch.command();
        command.stdout(out("stdout")).stderr(out("stderr")).current_dir(self.folder.path()).process_group(0);
        self.child = Some(launch::spawn(command).expect("setpriv can be started"));
        let ready = wait::holds_within(READY_WITHIN, || self.has_ended() || (self.is_ready() && self.is_staffed()));
        if !ready || self.has_ended() {
            panic!("mutirao up did not get ready; it wrote:\n{}{}", self.stdout(), self.stderr());
        }
    }

    /// Whether `up` has ended, by itself or by a signal.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn is_ready(&mut self) -> bool {
        let Ok(text) = std::fs::read_to_string(self.data.join("address")) else { return false };
        let Some((scheme, address)) = text.trim().split_once("://") else { return false };
        let Ok(address) = address.parse() else { return false };
        self.scheme = if scheme == "https" { "https" } else { "http" };
        let ready = match self.scheme {
            "https" => self.cli(&["job", "list"]).status.success(),
            _ => http::request(address, "GET /readyz", &[], b"").is_ok_and(|answer| answer.status == 200),
        };
        if ready {
            self.address = Some(address);
        }
        ready
    }

    fn is_staffed(&self) -> bool {
        match self.setup.company {
            Company::Workers(0) | Company::Nobody => true,
            Company::Workers(workers) => self.workers().len() >= workers as usize,
        }
    }

    /// By the inherited mark, or by running inside our folders: a task's environment is not ours. Managers and workers let
    /// only root look at theirs; to others their arguments name our folders.
    fn owns(&self, process: &Process) -> bool {
        let ours = [&self.data, self.folder.path()];
        if process.command.iter().any(|word| ours.iter().any(|dir| Path::new(word).starts_with(dir))) {
            return true;
        }
        let works_here = || [&self.data, self.folder.path()].iter().any(|dir| sweep::works_in(process.pid, dir));
        sweep::is_marked(process.pid, MARK, &self.mark) || works_here()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.kill9();
        sweep::kill_all(|p| !p.runs("role", "keeper") && self.owns(p));
        let keepers_left = || sweep::processes().iter().any(|p| self.owns(p));
        if !wait::holds_within(KEPT_WITHIN, || !keepers_left()) {
            sweep::kill_all(|p| self.owns(p));
        }
        if std::thread::panicking() {
            eprintln!("--- what mutirao up wrote to its standard error ---\n{}", self.stderr());
        }
    }
}

/// The program under test.
#[track_caller]
pub fn binary() -> PathBuf {
    find_binary().expect("no mutirao binary: run `cargo build -p mutirao`, or set MUTIRAO_BIN")
}

/// `$MUTIRAO_BIN`, else the one beside the running test: target/debug/deps/it-0123 → target/debug/mutirao.
pub fn find_binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("MUTIRAO_BIN") {
        return Some(named.into());
    }
    let own = std::env::current_exe().ok()?;
    own.ancestors().skip(1).take(2).map(|dir| dir.join("mutirao")).find(|file| file.is_file())
}

fn append(file: &Path) -> std::fs::File {
    std::fs::File::options().create(true).append(true).open(file).expect("a file in a temporary folder")
}

fn read_lossy(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}
