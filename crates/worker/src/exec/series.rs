//! The commands of a task, one after the other: each begins when the one before it has ended well, all write to the same
//! two streams, and the task's time limit is over all of them. Most tasks have one.

use std::cell::Cell;
use std::path::Path;
use std::process::Stdio;

use mutirao_core::blobs::{LogStream, log_key};
use mutirao_core::{Mono, Outcome, Verdict};

use super::child::{self, Attend, Ended, Started};
use super::environment::Variables;
use super::output::{Capture, Place};
use super::program::{self, CannotStart};
use super::threads::Bench;
use super::{Home, Runner};
use crate::cgroup::Group;
use crate::desk::{Run, Task};

/// As much of a command as a reason shows.
const SHOWN_CHARS_MAX: usize = 120;

/// How it went: how the last command that began ended, and what all of them cost.
pub(crate) struct Series {
    pub ended: Ended,
    /// The last that was tried, from 1, of so many.
    at: usize,
    of: usize,
    command: String,
    /// Why that one could not begin.
    pub stuck: Option<CannotStart>,
}

impl Series {
    /// Which of several commands it was; nothing when there is only one.
    fn place(&self) -> Option<String> {
        (self.of > 1).then(|| format!("command {} of {}", self.at, self.of))
    }

    /// The command by name, so that whoever reads the outcome knows which of several failed.
    pub fn named(&self, reason: Option<String>) -> Option<String> {
        match (self.place(), reason) {
            (None, reason) => reason,
            (Some(place), None) => Some(format!("{place}: {}", self.command)),
            (Some(place), Some(reason)) => Some(format!("{place} ({}): {reason}", self.command)),
        }
    }

    /// How a task ends whose next command cannot begin.
    pub fn stuck_outcome(&self, outcome: &mut Outcome) {
        let Some(why) = &self.stuck else { return };
        outcome.verdict = why.verdict();
        (outcome.exit, outcome.signal) = (why.exit().filter(|_| outcome.verdict == Verdict::Failed), None);
        outcome.reason = self.named(Some(why.to_string()));
    }
}

impl Runner {
    pub(super) fn attend(
        &self,
        run: &Run,
        home: &Home,
        group: Option<&Group>,
        bench: &mut Bench,
        began: Mono,
        lasting: &dyn Fn(),
    ) -> Result<Series, CannotStart> {
        let task = &run.task;
        let exec = task.exec().ok_or(CannotStart::NoCommand)?;
        let commands = task.commands(exec);
        let variables = self.surroundings.variables(&self.session, task, exec, &self.dice);
        let told = Cell::new(false);
        let attend = Attend {
            clock: &*self.clock,
            began,
            timeout: task.spec.timeout.map(|span| span.0),
            grace: task.spec.grace.0,
            halt_grace_max: self.limits.stop_grace_max,
            halt: &run.halt,
            lasting: &|| {
                if !told.replace(true) {
                    lasting();
                }
            },
        };
        let series = |ended, at: usize, stuck| {
            let (of, command) = (commands.len(), shown(commands[at]));
            Series { ended, at: at + 1, of, command, stuck }
        };
        let mut stdin = exec.stdin.as_deref();
        let child = self.start(commands[0], &variables, home.path(), group, stdin)?;
        let streams = (self.capture(task, LogStream::Stdout), self.capture(task, LogStream::Stderr));
        let mut ended = attend.see_it_out(child, stdin.take().unwrap_or_default(), streams, bench)?;
        for (at, command) in commands.iter().enumerate().skip(1) {
            if ended.halted.is_some() || !ended.status.success() {
                return Ok(series(ended, at - 1, None));
            }
            if let Some(reason) = run.halt.reason() {
                ended.halted = Some(reason);
                return Ok(series(ended, at - 1, None));
            }
            let child = match self.start(command, &variables, home.path(), group, stdin) {
                Ok(child) => child,
                Err(why) => return Ok(series(ended, at, Some(why))),
            };
            let streams = (std::mem::take(&mut ended.stdout), std::mem::take(&mut ended.stderr));
            ended = attend.see_it_out(child, "", streams, bench)?.after(&ended.usage);
        }
        Ok(series(ended, commands.len() - 1, None))
    }

    fn start(
        &self,
        command: &[String],
        variables: &Variables,
        dir: &Path,
        group: Option<&Group>,
        stdin: Option<&str>,
    ) -> Result<Started, CannotStart> {
        let mut process = program::command(command, variables, dir)?;
        if let Some(group) = group {
            group.join(&mut process);
        }
        if stdin.is_some() {
            process.stdin(Stdio::piped());
        }
        // Dropped with this function: its copies of the pipes' far ends would keep them open.
        child::spawn(&mut process).map_err(|error| program::explain(error, &command[0], dir))
    }

    fn capture(&self, task: &Task, stream: LogStream) -> Capture {
        let place = Place {
            key: log_key(task.key, task.attempt, stream),
            dir: self.spool_dir.clone(),
            uploads: self.uploads.clone(),
        };
        Capture::new(place, self.limits.output_bytes_max)
    }
}

fn shown(command: &[String]) -> String {
    let line = command.join(" ");
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
