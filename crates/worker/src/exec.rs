//! Running commands as child processes. Each runs under one thread of a small pool, which starts it, feeds it, reads
//! what it writes and waits for its end in a single `poll`: no runtime, no timers and no polling loops on this path,
//! because starting a process is already the most expensive thing a worker does.
//!
//! What is *not* here: which task runs when ([`crate::desk`]), and telling anybody how it ended ([`crate::report`]).

mod child;
mod environment;
mod halt;
mod judge;
mod nook;
mod output;
mod program;
mod series;
mod threads;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mutirao_core::{Clock, Dice, Outcome, SessionId, Verdict};

use crate::cgroup::{Cgroups, Group};
use crate::config::{CpuLimit, Limits};
use crate::desk::{Run, Task};
use crate::hunt;
pub(crate) use environment::{SESSION_VAR, Surroundings};
pub(crate) use halt::{Halt, HaltReason};
use nook::Nook;
use program::CannotStart;
pub(crate) use threads::{Bench, Threads};
pub(crate) use upload::{Pending, Uploads};

/// All that runs of one worker share.
pub(crate) struct Runner {
    pub session: SessionId,
    pub tasks_dir: PathBuf,
    pub spool_dir: PathBuf,
    pub limits: Limits,
    pub cpu_limit: CpuLimit,
    pub cgroups: Option<Cgroups>,
    pub uploads: Arc<Uploads>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub surroundings: Surroundings,
    /// The most memory the worker itself has held, in bytes, as last read.
    pub own_peak_bytes: AtomicU64,
    /// Task folders are numbered.
    pub nooks_made: AtomicU64,
}

/// How a run ended. `pending` output must settle before the outcome is whole.
pub(crate) struct Ending {
    pub outcome: Outcome,
    pub pending: Option<Pending>,
}

impl From<Outcome> for Ending {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, pending: None }
    }
}

impl Runner {
    /// Runs the task's command to its end. `lasting` is called once, if it runs for longer than a moment.
    pub fn run(&self, run: &Run, bench: &mut Bench, lasting: &dyn Fn()) -> Ending {
        let started_at = self.clock.now();
        let began = self.clock.monotonic();
        let task = &run.task;
        if let Some(reason) = run.halt.reason() {
            return Outcome::new(reason.verdict(), started_at).into();
        }
        let home = match self.home(task, bench) {
            Ok(home) => home,
            Err(error) => return self.cannot_start(task, &error, started_at).into(),
        };
        let group = match self.group(task) {
            Ok(group) => group,
            Err(error) => {
                tracing::warn!(task = %task.key, %error, "no cgroup for this task: it runs without limits");
                None
            }
        };
        let series = self.attend(run, &home, group.as_ref(), bench, began, lasting);
        let mut series = match series {
            Ok(series) => series,
            Err(error) => {
                home.leave(bench);
                return self.cannot_start(task, &error, started_at).into();
            }
        };
        if series.ended.halted.is_some() {
            // Stopped by force: whoever left the process group is stopped as well.
            hunt::kill_marked(&self.surroundings.marks(&self.session, task));
        }
        if let Some(group) = &group {
            group.kill_rest();
        }
        home.leave(bench);
        let (stdout, stdout_upload) = std::mem::take(&mut series.ended.stdout).finish();
        let (stderr, stderr_upload) = std::mem::take(&mut series.ended.stderr).finish();
        let wall = self.clock.monotonic().since(began);
        let mut outcome = judge::outcome(self, task, &series, group.as_ref(), wall, started_at);
        outcome.stdout = stdout;
        outcome.stderr = stderr;
        Ending { outcome, pending: Pending::of(stdout_upload, stderr_upload) }
    }

    fn home<'a>(&self, task: &'a Task, bench: &mut Bench) -> Result<Home<'a>, CannotStart> {
        if let Some(dir) = task.exec().and_then(|exec| exec.dir.as_deref()) {
            return Ok(Home::Given(Path::new(dir)));
        }
        if let Some(nook) = bench.nook.take() {
            return Ok(Home::Own(nook));
        }
        let path = self.tasks_dir.join(self.nooks_made.fetch_add(1, Ordering::Relaxed).to_string());
        match Nook::make(path.clone()) {
            Ok(nook) => Ok(Home::Own(nook)),
            Err(error) => Err(CannotStart::NoHome { dir: path.display().to_string(), error }),
        }
    }

    fn group(&self, task: &Task) -> std::io::Result<Option<Group>> {
        let Some(cgroups) = &self.cgroups else { return Ok(None) };
        let needs = task.spec.needs;
        let cpus = match self.cpu_limit {
            CpuLimit::Accounted => None,
            CpuLimit::Enforced => Some(needs.cpus),
        };
        if needs.memory.0 == 0 && cpus.is_none() {
            return Ok(None);
        }
        cgroups.make(&format!("{}.{}", task.key, task.attempt), needs.memory, cpus).map(Some)
    }

    fn cannot_start(&self, task: &Task, why: &CannotStart, started_at: mutirao_core::Timestamp) -> Outcome {
        tracing::debug!(task = %task.key, %why, "cannot start");
        let mut outcome = Outcome::new(why.verdict(), started_at).because(why.to_string());
        if outcome.verdict == Verdict::Failed {
            outcome.exit = why.exit();
        }
        outcome
    }

    /// What the worker has held itself, at least `than` if that is the truth. Reading it is dear, and it hardly grows.
    fn own_peak_above(&self, than: u64) -> u64 {
        let known = self.own_peak_bytes.load(Ordering::Relaxed);
        if known >= than {
            return known;
        }
        let read = judge::own_peak_bytes().unwrap_or(u64::MAX);
        self.own_peak_bytes.store(read, Ordering::Relaxed);
        read
    }
}

/// Where a task runs: the folder it asked for, or one that is its own while it runs.
enum Home<'a> {
    Given(&'a Path),
    Own(Nook),
}

impl Home<'_> {
    fn path(&self) -> &Path {
        match self {
            Home::Given(path) => path,
            Home::Own(nook) => nook.path(),
        }
    }

    /// Keeps a folder that can serve the next task; any other goes, with what is in it.
    fn leave(self, bench: &mut Bench) {
        if let Home::Own(nook) = self
            && nook.is_untouched()
        {
            bench.nook = Some(nook);
        }
    }
}
