//! What a target's load looks like at an instant. A figure that could not be had is missing, never zero: policies treat the
//! two very differently. Only the counts of workers are always there, because they are our own.
//!
//! Not here: where figures come from, and what follows from them.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::quantity::Span;
use serde::{Deserialize, Serialize};

/// The figures of one target, taken together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// When the figures were taken.
    pub at: Timestamp,
    pub workers: Workers,
    /// The summary of the queue.
    pub tasks: Option<Tasks>,
    /// How long new workers take to come, from wanting them to their first word, as the resource manager has seen it.
    #[serde(default)]
    pub boot: Option<Span>,
    #[serde(default)]
    pub host: Host,
    /// One for each worker that was asked for and is not gone.
    #[serde(default)]
    pub samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workers {
    /// Asked for, and not yet reported.
    pub creating: u32,
    /// Reported, idle or busy.
    pub running: u32,
    /// Finishing what they have.
    pub draining: u32,
}

impl Workers {
    /// Those that are there to stay.
    pub fn standing(&self) -> u32 {
        self.running.saturating_add(self.creating)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    /// Waiting, and allowed to start now.
    pub ready: u64,
    pub running: u64,
    /// Handed to a worker and not yet answered, running or not.
    pub unacknowledged: u64,
    /// How long the first in line has waited; zero when nobody does.
    #[serde(default)]
    pub oldest_wait: Span,
    /// Runs of tasks that have ended, whatever came of them, since the owner of the queue began to count. None of an owner
    /// that does not count them.
    #[serde(default)]
    pub ended: Option<u64>,
}

/// The machine that the target shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub cpu_percent: Option<f64>,
    pub memory_percent: Option<f64>,
}

/// What one worker uses, beside what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub stage: Stage,
    pub cpu: Use,
    pub memory: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Creating,
    /// Reported this long ago.
    Running(Span),
    Draining,
}

/// Millicores, or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    pub asked: u64,
    pub used: Option<u64>,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Tasks waiting.
    Ready,
    /// Tasks running.
    Running,
    /// Tasks with the workers.
    Unacknowledged,
    /// How long the first in line has waited.
    OldestWait,
    /// Of each worker, beside what it asked for.
    Cpu,
    Memory,
    /// Of the whole machine.
    HostCpu,
    HostMemory,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Source::Ready => "ready",
            Source::Running => "running",
            Source::Unacknowledged => "unacknowledged",
            Source::OldestWait => "oldest_wait",
            Source::Cpu => "cpu",
            Source::Memory => "memory",
            Source::HostCpu => "host_cpu",
            Source::HostMemory => "host_memory",
        }
    }

    /// Known also while there is no worker at all.
    pub fn needs_no_worker(self) -> bool {
        !matches!(self, Source::Cpu | Source::Memory)
    }
}

impl Load {
    /// Old figures say nothing about now. One that seems to come from the future is as good as new.
    pub fn is_stale(&self, now: Timestamp, stale_after: Duration) -> bool {
        now.since(self.at) > stale_after
    }

    /// The same workers, nothing known about their load.
    pub fn without_figures(&self) -> Self {
        let blank =
            |s: &Sample| Sample { cpu: Use { used: None, ..s.cpu }, memory: Use { used: None, ..s.memory }, ..*s };
        Self {
            at: self.at,
            workers: self.workers,
            tasks: None,
            boot: self.boot,
            host: Host::default(),
            samples: self.samples.iter().map(blank).collect(),
        }
    }

    /// One number for a source: a count, seconds, or percent.
    pub fn gauge(&self, source: Source) -> Option<f64> {
        let figure = match source {
            Source::Ready => self.tasks?.ready as f64,
            Source::Running => self.tasks?.running as f64,
            Source::Unacknowledged => self.tasks?.unacknowledged as f64,
            Source::OldestWait => self.tasks?.oldest_wait.0.as_secs_f64(),
            Source::Cpu => self.mean_percent(|s| s.cpu)?,
            Source::Memory => self.mean_percent(|s| s.memory)?,
            Source::HostCpu => self.host.cpu_percent?,
            Source::HostMemory => self.host.memory_percent?,
        };
        figure.is_finite().then_some(figure)
    }

    fn mean_percent(&self, of: impl Fn(&Sample) -> Use) -> Option<f64> {
        let running = self.samples.iter().filter(|s| matches!(s.stage, Stage::Running(_)));
        let (mut used, mut asked) = (0u128, 0u128);
        for each in running.map(of) {
            if let Some(figure) = each.used {
                used += u128::from(figure);
                asked += u128::from(each.asked);
            }
        }
        (asked > 0).then(|| used as f64 * 100.0 / asked as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_figure_is_not_a_zero() {
        let load = Load::default();
        for source in [Source::Ready, Source::OldestWait, Source::Cpu, Source::HostMemory] {
            assert_eq!(load.gauge(source), None);
        }
        let idle = Load { tasks: Some(Tasks::default()), ..Load::default() };
        assert_eq!(idle.gauge(Source::Ready), Some(0.0));
        let broken = Load { host: Host { memory_percent: Some(f64::NAN), ..Host::default() }, ..Load::default() };
        assert_eq!(broken.gauge(Source::HostMemory), None);
    }

    #[test]
    fn old_figures_are_stale_and_those_of_the_future_are_not() {
        let load = Load { at: Timestamp(10_000), ..Load::default() };
        assert!(load.is_stale(Timestamp(71_000), Duration::from_secs(60)));
        assert!(!load.is_stale(Timestamp(69_000), Duration::from_secs(60)));
        assert!(!load.is_stale(Timestamp(0), Duration::from_secs(60)));
    }
}
