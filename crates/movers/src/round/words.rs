//! A round in words.

use std::fmt;

use mutirao_streams::wire::{Part, What};

use super::{Considered, Fit, Resource, Round, Verdict, Why};

/// Hosts told of one part; the rest is a number.
const HOSTS_TOLD: usize = 6;
const PARTS_TOLD: usize = 6;
/// Nobody starts a host with none.
const CORES_TOLD_MIN: f64 = 0.1;

struct Name<'a>(&'a Part);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Part { stream, what, replica } = self.0;
        match what {
            What::Source(n) => write!(f, "{stream} source {n}"),
            What::Stage(n) => write!(f, "{stream} stage {n} replica {replica}"),
            What::Sink(n) => write!(f, "{stream} sink {n}"),
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {} at {} s, {}: ", self.number, self.at_ms / 1_000, self.strategy)?;
        if let Some(first) = self.waits_for.first() {
            return write!(f, "waits for {} on the way, first {}", self.waits_for.len(), Name(first));
        }
        match (self.considered.len(), self.moves().count()) {
            (0, _) => write!(f, "nobody gave cause")?,
            (considered, moves) => write!(f, "{considered} gave cause, {moves} to move")?,
        }
        for one in &self.considered {
            write!(f, "\n  {one}")?;
        }
        if let Some(asks) = &self.asks_for_host {
            write!(f, "\n  no host has room: one with {:.1} cores is missing", asks.cores.max(CORES_TOLD_MIN))?;
            for (i, part) in asks.parts.iter().take(PARTS_TOLD).enumerate() {
                write!(f, " {} {}", if i == 0 { "for" } else { "and" }, Name(part))?;
            }
            if asks.parts.len() > PARTS_TOLD {
                write!(f, " and {} more", asks.parts.len() - PARTS_TOLD)?;
            }
            f.write_str(" (start it with `mutirao role host`)")?;
        }
        Ok(())
    }
}

impl fmt::Display for Considered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}; {}", Name(&self.part), self.from, self.why, self.verdict)?;
        for (host, fit) in self.tried.iter().take(HOSTS_TOLD) {
            write!(f, "\n    {host}: {fit}")?;
        }
        match self.tried.len().saturating_sub(HOSTS_TOLD) {
            0 => Ok(()),
            more => write!(f, "\n    and {more} more"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Grew { latencies_ms, degradation } => {
                write!(f, "its latency grew by {:.0} % of what it was (", degradation * 100.0)?;
                for (i, latency) in latencies_ms.iter().enumerate() {
                    write!(f, "{}{latency:.0}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(" ms)")
            }
            Why::Drawn => f.write_str("drawn by chance"),
            Why::Foreseen { load, load_ahead, cores, latency_ms, foreseen_ms, goal_ms } => {
                write!(f, "its host's load of {load:.1} becomes {load_ahead:.1} of {cores:.0} cores; ")?;
                if let Some(latency) = latency_ms {
                    write!(f, "its latency is {latency:.0} ms, ")?;
                }
                write!(f, "{foreseen_ms:.0} ms are foreseen where {goal_ms:.0} are to be kept")
            }
            Why::Unexplained { latency_ms, expected_ms, goal_ms } => write!(
                f,
                "its latency is {latency_ms:.0} ms where its host's load explains {expected_ms:.0} and {goal_ms:.0} are to be kept"
            ),
            Why::Worse { moved_from, before_ms, latency_ms } => {
                write!(f, "moved from {moved_from} where {before_ms:.0} ms were foreseen, it has {latency_ms:.0} ms")
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Moves { to } => write!(f, "moves to {to}"),
            Verdict::NoTarget => f.write_str("stays, no host is fit for it"),
            Verdict::Enough => f.write_str("stays, as many as a round may move do"),
            Verdict::ReplicaMoves => f.write_str("stays, a replica of it is on its way"),
            Verdict::Fixed { because } => write!(f, "stays, {because}"),
            Verdict::HeldBack { share } => {
                write!(f, "stays, it waits for those after it {:.0} % of the time", share * 100.0)
            }
            Verdict::Rests { until_ms } => {
                write!(f, "stays until {} s, it was moved a short while ago", until_ms / 1_000)
            }
            Verdict::NeedsMore { cores, cores_max } => {
                write!(f, "stays, it needs {cores:.1} cores and can use {cores_max:.0} on any host")
            }
            Verdict::AnotherHelps => f.write_str("stays, another move helps its host more"),
        }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fit::Fits { resource, would_be, is } => {
                let (would_be, is) = (resource.amount(*would_be), resource.amount(*is));
                write!(f, "fits, {resource} {would_be} there instead of {is} here")
            }
            Fit::Exceeds { resource, would_be, is } => {
                let (would_be, is) = (resource.amount(*would_be), resource.amount(*is));
                write!(f, "{resource} would be {would_be} there, and is {is} here")
            }
            Fit::NothingLess => f.write_str("nothing would be better there"),
            Fit::HasReplica => f.write_str("has a replica of it"),
            Fit::TakesNone => f.write_str("takes none"),
            Fit::Barred => f.write_str("it may not run there"),
            Fit::Unknown => f.write_str("nothing is known of it"),
            Fit::Spares { wait_ms, share, .. } => {
                write!(f, "events would wait {wait_ms:.0} ms; spares {:.0} % of all waiting", share * 100.0)
            }
            Fit::Full { resource, would_be, limit } => {
                write!(f, "{resource} would be {} of {}", resource.amount(*would_be), resource.amount(*limit))
            }
            Fit::NotWorth { share } => write!(f, "not worth it, spares {:.0} % of all waiting", share * 100.0),
        }
    }
}

impl Resource {
    fn amount(self, figure: f64) -> String {
        match self {
            Resource::Cpu | Resource::IoWait => format!("{figure:.2}"),
            Resource::Memory | Resource::Disk | Resource::Network => format!("{:.1} MB", figure / 1e6),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Cpu => "CPU",
            Resource::IoWait => "I/O wait",
            Resource::Memory => "memory",
            Resource::Disk => "disk",
            Resource::Network => "network",
        })
    }
}
