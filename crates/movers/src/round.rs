//! What a round found: who was looked at and why, which hosts were looked at for it, and what came of it. Data; in words by its
//! `Display`.

use mutirao_streams::wire::Part;
use serde::{Deserialize, Serialize};

use crate::scene::HostId;

mod words;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Since the mover began.
    pub number: u64,
    pub at_ms: u64,
    pub strategy: String,
    /// Why nothing was looked at, if so: these are still on their way.
    pub waits_for: Vec<Part>,
    /// Those that gave cause, the first first. Parts that did well are not here.
    pub considered: Vec<Considered>,
    /// Of which hosts there are too few, in the end.
    pub asks_for_host: Option<Asks>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Considered {
    pub part: Part,
    pub from: HostId,
    pub why: Why,
    /// Every other host, and what was found of it. Empty where it was not needed.
    pub tried: Vec<(HostId, Fit)>,
    pub verdict: Verdict,
}

/// What gave cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its latencies over the window, and by how much of the first they grew in all (s).
    Grew { latencies_ms: Vec<f64>, degradation: f64 },
    /// The coin fell so.
    Drawn,
    /// What its host will have to do, and what its events will wait for it.
    Foreseen { load: f64, load_ahead: f64, cores: f64, latency_ms: Option<f64>, foreseen_ms: f64, goal_ms: f64 },
    /// It is slower than its host's load explains, and so are the others there.
    Unexplained { latency_ms: f64, expected_ms: f64, goal_ms: f64 },
    /// It was moved, and things are worse than before.
    Worse { moved_from: HostId, before_ms: f64, latency_ms: f64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Moves {
        to: HostId,
    },
    /// No host is fit for it.
    NoTarget,
    /// As many as a round may move do already.
    Enough,
    /// A replica of it is on its way.
    ReplicaMoves,
    Fixed {
        because: String,
    },
    /// Those after it are slow, not it.
    HeldBack {
        share: f64,
    },
    /// It was moved a short while ago.
    Rests {
        until_ms: u64,
    },
    /// It needs more cores than it can use: no host would make it faster.
    NeedsMore {
        cores: f64,
        cores_max: f64,
    },
    /// Another move from its host does more.
    AnotherHelps,
}

/// What was found of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Of this resource less would be used than where the part is, and of none more.
    Fits {
        resource: Resource,
        would_be: f64,
        is: f64,
    },
    /// More of it would be used than where the part is.
    Exceeds {
        resource: Resource,
        would_be: f64,
        is: f64,
    },
    /// Nothing would be better.
    NothingLess,
    HasReplica,
    TakesNone,
    /// It may not run there, or a move to there was undone.
    Barred,
    /// Nothing was heard of it, or of the part.
    Unknown,
    /// How long events would wait there; the share that a move would spare of what all wait who have to do with either host, and how
    /// many seconds in a second that is.
    Spares {
        wait_ms: f64,
        share: f64,
        spared: f64,
    },
    /// More than may be foreseen to be used of it would be.
    Full {
        resource: Resource,
        would_be: f64,
        limit: f64,
    },
    /// A move would cost as much as it brings, or nearly.
    NotWorth {
        share: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    Cpu,
    IoWait,
    Memory,
    Disk,
    Network,
}

/// A host is missing: none has room for these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asks {
    pub parts: Vec<Part>,
    /// Cores that they will need.
    pub cores: f64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    pub part: Part,
    pub from: HostId,
    pub to: HostId,
}

impl Round {
    pub fn moves(&self) -> impl Iterator<Item = Move> + '_ {
        self.considered.iter().filter_map(|one| match &one.verdict {
            Verdict::Moves { to } => Some(Move { part: one.part.clone(), from: one.from.clone(), to: to.clone() }),
            _ => None,
        })
    }
}
