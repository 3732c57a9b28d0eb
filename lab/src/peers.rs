//! Bytewax, Celery, Dramatiq and HyperQueue, measured beside us in the same run, two of them on the same broker. Installed
//! once from PyPI into a folder of their own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use mutirao_core::{Clock, SystemClock};

use crate::span::pause;

const PACKAGES: [&str; 10] = [
    "bytewax==0.21.1",
    "celery==5.7.0",
    "dramatiq[rabbitmq]==2.2.1",
    "fastapi==0.162.4",
    "hyperqueue==0.27.0",
    "pika==1.4.4",
    "psycopg2-binary==2.9.13",
    "redis==8.1.0",
    "requests==2.34.2",
    "uvicorn[standard]==0.54.0",
];
pub const FOLDER: &str = "target/lab-peers";
/// Long enough for the slowest peer on a slow machine; then it is an error, not a figure.
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where the peers are installed, and their programs.
pub struct Peers {
    environment: PathBuf,
    programs: PathBuf,
}

/// One of them.
#[derive(Clone, Copy)]
pub enum Peer {
    Celery,
    Dramatiq,
}

impl Peer {
    pub const ALL: [Peer; 2] = [Peer::Celery, Peer::Dramatiq];

    pub fn name(self) -> &'static str {
        match self {
            Peer::Celery => "Celery",
            Peer::Dramatiq => "Dramatiq",
        }
    }

    /// With `processes` worker processes, as quiet as it can be.
    fn worker(self, processes: usize) -> Vec<String> {
        let processes = processes.to_string();
        let words: &[&str] = match self {
            Peer::Celery => &[
                "celery",
                "-A",
                "celery_noop",
                "worker",
                "--pool",
                "prefork",
                "--concurrency",
                &processes,
                "--loglevel",
                "ERROR",
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
            ],
            Peer::Dramatiq => &["dramatiq", "dramatiq_noop", "--processes", &processes, "--threads", "8"],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn producer(self) -> &'static str {
        match self {
            Peer::Celery => "celery_noop.py",
            Peer::Dramatiq => "dramatiq_noop.py",
        }
    }
}

impl Peers {
    /// Installs what is missing.
    pub fn prepare(environment: &Path) -> anyhow::Result<Self> {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        // Names what was installed, so that a longer list is installed anew.
        let (ready, wanted) = (environment.join("ready"), PACKAGES.join("\n"));
        if std::fs::read_to_string(&ready).ok().as_ref() != Some(&wanted) {
            eprintln!("installing {} into {}", PACKAGES.join(" and "), environment.display());
            done(Command::new("python3").args(["-m", "venv"]).arg(environment))
                .context("python3 -m venv (Debian: apt-get install python3-venv)")?;
            done(Command::new(environment.join("bin/pip")).args(["install", "--quiet"]).args(PACKAGES))?;
            std::fs::write(ready, wanted)?;
        }
        // Their programs run in a folder of their own.
        Ok(Self { environment: std::path::absolute(environment)?, programs })
    }

    /// A program of the lab's, in the interpreter that has the packages.
    pub fn python(&self, program: &str) -> Command {
        let mut command = Command::new(self.environment.join("bin/python"));
        command.arg(self.programs.join(program)).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// A program that is a module of Python's, in the folder of the lab's.
    pub fn module(&self, module: &str) -> Command {
        let mut command = Command::new(self.environment.join("bin/python"));
        command.args(["-m", module]).current_dir(&self.programs).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Tasks per second, from before the first is sent until the effect of the last is there. Workers are up before.
    pub fn rate(&self, peer: Peer, amqp: &str, tasks: u32, processes: usize) -> anyhow::Result<f64> {
        let folder = tempfile::tempdir()?;
        let effects = folder.path().join("effects");
        let log = std::fs::File::create(folder.path().join("log"))?;
        let words = peer.worker(processes);
        let command = |program: &str| {
            let mut command = Command::new(self.environment.join("bin").join(program));
            command.current_dir(&self.programs).env("AMQP", amqp).env("EFFECTS", &effects);
            command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
            command
        };
        let mut worker = command(&words[0]);
        worker.args(&words[1..]).stdout(log.try_clone()?).stderr(log);
        let worker = Worker(worker.spawn()?);
        let produce = |tasks: u32| done(command("python").arg(peer.producer()).arg(tasks.to_string()));
        // One task says that the workers are there.
        produce(1)?;
        wait_for(&effects, 1)?;
        let begin = SystemClock.monotonic();
        produce(tasks)?;
        wait_for(&effects, u64::from(tasks) + 1)?;
        let rate = f64::from(tasks) / SystemClock.monotonic().since(begin).as_secs_f64();
        drop(worker);
        Ok(rate)
    }
}

impl Peers {
    /// Processes per second of `/bin/true` as one job of HyperQueue.
    pub fn hyperqueue_rate(&self, tasks: u32, cores: usize) -> anyhow::Result<f64> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(self.environment.join("bin/python"));
        command.arg(self.programs.join("hyperqueue_true.py")).args([tasks.to_string(), cores.to_string()]);
        let out = command.current_dir(folder.path()).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&out.stdout);
        let took = said.lines().find_map(|line| line.strip_prefix("seconds ")?.parse::<f64>().ok());
        let took = took.with_context(|| format!("HyperQueue failed: {}", String::from_utf8_lossy(&out.stderr)))?;
        Ok(f64::from(tasks) / took)
    }
}

fn wait_for(effects: &Path, bytes: u64) -> anyhow::Result<()> {
    let begin = SystemClock.monotonic();
    while std::fs::metadata(effects).map_or(0, |data| data.len()) < bytes {
        anyhow::ensure!(SystemClock.monotonic().since(begin) < PATIENCE, "a peer did not get its tasks done");
        pause(LOOK_EVERY);
    }
    Ok(())
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Asked to end when dropped, and waited for.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // It may be gone already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
