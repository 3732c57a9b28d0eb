//! What happens to a foreman, and what it asks to be done.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Timestamp, id::Attempt};
use mutirao_nodes::preference::Protocol;
use mutirao_nodes::routing::Place;
use mutirao_nodes::{ActionName, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reckoning::{Reckoned, Reckoning};
use super::weight::{held, held_by};
use crate::Plan;
use crate::answer::Told;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunKey(pub u64);

/// One task of a run: the step's number, and which of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepKey {
    pub run: RunKey,
    pub step: u32,
    pub item: u32,
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run.0, self.step, self.item)
    }
}

/// A run that was accepted and is written.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub key: RunKey,
    pub plan: Arc<Plan>,
    pub input: Value,
    pub started_at: Timestamp,
    pub asker: Asker,
}

/// Who is to have a run's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Whoever reads it in the store.
    Reader,
    /// A client of the wire, to whom a message has to leave.
    Client,
}

/// What a node says came of a task.
#[derive(Clone, Debug)]
pub struct Report {
    pub key: StepKey,
    pub attempt: Attempt,
    pub end: End,
    pub node: Option<NodeId>,
    /// To be acknowledged by, once what came of it is written.
    pub mark: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Ok(Arc<Value>),
    /// Why, in a line.
    Failed(String),
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Input {
    Admit(Admitted),
    /// A run that was found in the store.
    Found(Box<Stored>),
    Report(Report),
    /// A task is on its way to this node.
    Sent {
        key: StepKey,
        attempt: Attempt,
        node: NodeId,
        over: Protocol,
        /// Why that one, for people who ask.
        why: String,
    },
    /// Nobody took it, or who took it is gone.
    Lost {
        key: StepKey,
        attempt: Attempt,
    },
    NodeLost(NodeId),
    /// No node that is there has it, or all are full.
    NoRoom {
        key: StepKey,
        attempt: Attempt,
        why: String,
    },
    /// A node that has this may have room again.
    Room(ActionName),
    /// Nobody could ever take it.
    Impossible {
        key: StepKey,
        attempt: Attempt,
        why: String,
    },
    Cancel(RunKey),
    /// The batch of this number is durable.
    Written(u64),
    /// It is not, as far as is known. Writing it twice does no harm.
    Unwritten(u64),
    /// The answer of a run has left.
    Announced(RunKey),
    /// What was asked for has been worked out.
    Reckoned(Box<Reckoned>),
    /// It is [`wake_at`](super::Foreman::wake_at).
    Tick,
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// To be worked out beside: it may take a while. One at a time.
    Reckon(Box<Reckoning>),
    Dispatch(Dispatch),
    /// Whoever has it may leave it.
    Recall {
        key: StepKey,
        attempt: Attempt,
        because: Because,
    },
    /// All of it in one transaction, fenced; what is there already stays.
    Write(Arc<Batch>),
    /// A report whose meaning is written, or that has none.
    Acknowledge(u64),
    /// The run's end is durable; whoever waits for it is told, at least once.
    Announce(Box<Told>),
}

/// Why nobody waits for a task any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It was not heard of in time.
    Overdue,
    Unwanted,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    pub key: StepKey,
    pub attempt: Attempt,
    pub action: ActionName,
    pub input: Value,
    pub place: Place,
    pub timeout: Duration,
    /// Where it just failed.
    pub not: Option<NodeId>,
}

/// How a task ended for good.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub key: StepKey,
    pub end: End,
    /// Tries in vain before it.
    pub tries: u32,
    pub node: Option<NodeId>,
    /// Why that node.
    pub why: Option<String>,
    pub began_at: Timestamp,
    pub ended_at: Timestamp,
}

/// A task was tried in vain so often. Written, so that no restart gives it more tries than it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Try {
    pub key: StepKey,
    pub tries: u32,
    pub reason: String,
}

/// A task is with a node. Written once it has been there for a while, for whoever owns the run next: what a node is at, or has
/// done, it is asked for again under the same attempt, and need not do again.
#[derive(Clone, Debug, PartialEq)]
pub struct Noted {
    pub key: StepKey,
    pub attempt: Attempt,
    pub node: NodeId,
    /// When it was given it; 0: nobody wrote that down.
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    Done,
    Failed {
        /// None: it was the run's output that could not be had.
        step: Option<String>,
        reason: String,
    },
    Cancelled,
    TimedOut,
}

/// What is to be durable together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub number: u64,
    pub outcomes: Vec<Outcome>,
    pub tries: Vec<Try>,
    /// After the tries: of a task that was tried in vain, nothing before counts.
    pub noted: Vec<Noted>,
    pub ends: Vec<(RunKey, RunEnd, Timestamp)>,
    /// Answers that have left, or need not, so that they need not again.
    pub announced: Vec<RunKey>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        let said = self.outcomes.is_empty() && self.tries.is_empty() && self.noted.is_empty();
        said && self.ends.is_empty() && self.announced.is_empty()
    }
}

/// A run as the store has it, for a new owner.
#[derive(Clone, Debug)]
pub struct Stored {
    pub admitted: Admitted,
    pub outcomes: Vec<Outcome>,
    pub tries: Vec<Try>,
    pub noted: Vec<Noted>,
    /// It ended, and its answer may not have left.
    pub end: Option<(RunEnd, Timestamp)>,
}

impl Stored {
    /// About how much memory it takes.
    pub fn held(&self) -> usize {
        held(&self.admitted.input) + self.outcomes.iter().map(|one| held_by(&one.end)).sum::<usize>()
    }
}
