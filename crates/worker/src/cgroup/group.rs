//! The control group of one task: its limits, what it used, and its end.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mutirao_core::quantity::{Bytes, Cpus};
use rustix::process::{Pid, Signal, kill_process};

use super::places::Version;
use super::{join, write};

/// The kernel's usual period for sharing out cpu time.
const CPU_PERIOD_US: u64 = 100_000;
/// The least quota the kernel takes.
const CPU_QUOTA_US_MIN: u64 = 1_000;
/// Killed processes take a moment to leave a group, and only then can it be removed.
const REMOVE_TRIES: u32 = 50;
const REMOVE_EVERY: Duration = Duration::from_millis(2);

pub(crate) struct Group {
    version: Version,
    memory: PathBuf,
    /// A second folder, in version 1 only.
    cpu: Option<PathBuf>,
}

impl Group {
    pub fn new(version: Version, memory: &Path) -> io::Result<Self> {
        std::fs::create_dir(memory)?;
        Ok(Self { version, memory: memory.to_owned(), cpu: None })
    }

    /// No swap either: a task that swaps makes its neighbours wait for the disk.
    pub fn limit_memory(&mut self, most: Bytes) -> io::Result<()> {
        let most = most.0.to_string();
        match self.version {
            Version::One => {
                write(&self.memory.join("memory.limit_in_bytes"), &most)?;
                // Absent where the kernel does not count swap.
                ignore_missing(write(&self.memory.join("memory.memsw.limit_in_bytes"), &most))
            }
            Version::Two => {
                write(&self.memory.join("memory.max"), &most)?;
                ignore_missing(write(&self.memory.join("memory.swap.max"), "0"))
            }
        }
    }

    pub fn limit_cpus(&mut self, dir: &Path, most: Cpus) -> io::Result<()> {
        let quota_us = (u64::from(most.milli) * CPU_PERIOD_US / 1_000).max(CPU_QUOTA_US_MIN);
        match self.version {
            Version::One => {
                std::fs::create_dir(dir)?;
                self.cpu = Some(dir.to_owned());
                write(&dir.join("cpu.cfs_period_us"), &CPU_PERIOD_US.to_string())?;
                write(&dir.join("cpu.cfs_quota_us"), &quota_us.to_string())
            }
            Version::Two => write(&dir.join("cpu.max"), &format!("{quota_us} {CPU_PERIOD_US}")),
        }
    }

    /// The command's process enters the group before it becomes the program.
    pub fn join(&self, command: &mut Command) {
        let doors = self.dirs().map(|dir| File::options().write(true).open(dir.join("cgroup.procs")));
        match doors.collect::<io::Result<Vec<_>>>() {
            Ok(doors) => join::before_exec(command, doors),
            Err(error) => tracing::warn!(%error, "a task runs outside its control group"),
        }
    }

    pub fn oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = std::fs::read_to_string(self.memory.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    pub fn peak_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        std::fs::read_to_string(self.memory.join(file)).ok()?.trim().parse().ok()
    }

    /// Whoever is still inside, in whatever process group and with whatever environment.
    pub fn kill_rest(&self) {
        let pids = std::fs::read_to_string(self.memory.join("cgroup.procs")).unwrap_or_default();
        for pid in pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.memory).chain(&self.cpu)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in self.dirs() {
            for left in (0..REMOVE_TRIES).rev() {
                match std::fs::remove_dir(dir) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy && left > 0 => {
                        self.kill_rest();
                        pause(REMOVE_EVERY);
                    }
                    Err(error) => {
                        tracing::warn!(dir = %dir.display(), %error, "cannot remove a control group");
                        break;
                    }
                    Ok(()) => break,
                }
            }
        }
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[allow(clippy::disallowed_methods, reason = "on a thread of its own, waiting for the kernel to bury real processes")]
fn pause(for_: Duration) {
    std::thread::sleep(for_);
}
