//! What a probe saw, and how long each phase of it took.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::Mono;
use mutirao_core::{Clock, Timestamp};
use serde::{Deserialize, Serialize};

/// Where a probe is. Each follows the one before; a redirect begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Finding the address.
    #[default]
    Dns,
    Connect,
    Tls,
    /// Until the answer begins.
    FirstByte,
    /// Until it is whole.
    Body,
}

impl Phase {
    pub const ALL: [Phase; 5] = [Phase::Dns, Phase::Connect, Phase::Tls, Phase::FirstByte, Phase::Body];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Dns => "finding the address",
            Phase::Connect => "connecting",
            Phase::Tls => "the TLS handshake",
            Phase::FirstByte => "waiting for the answer",
            Phase::Body => "reading the answer",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "snake_case")]
pub enum Ended {
    /// Whatever the answer says.
    Answered,
    Failed {
        phase: Phase,
        why: String,
    },
    TimedOut {
        phase: Phase,
    },
}

/// Microseconds of each phase; a phase that was not entered has none. Those of redirects are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    phases: [Option<u64>; Phase::ALL.len()],
    pub total: u64,
}

impl Timings {
    pub fn of(&self, phase: Phase) -> Option<u64> {
        self.phases[phase as usize]
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    #[serde(flatten)]
    pub ended: Ended,
    pub timings: Timings,
    #[serde(flatten)]
    pub seen: Seen,
}

/// What there was to see; of what there was not, nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Where it connected to at last.
    pub address: Option<std::net::SocketAddr>,
    pub status: Option<u16>,
    /// Names in lower case; of several of one name the last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<u8>,
    /// The body was longer than what was to be read.
    #[serde(default)]
    pub body_cut: bool,
    pub certificate: Option<Certificate>,
    /// What a name server answered, in order of the alphabet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    /// How a program of one's own ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// Redirects that were followed.
    #[serde(default)]
    pub redirects: u8,
    /// The connection was there already: no address was looked for, and no handshake made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// When it ends.
    pub until: Timestamp,
    pub days_left: i64,
    /// How many the server showed, its own included.
    pub chain: usize,
}

/// Keeps the time of the phases while a probe goes through them.
pub struct Watch {
    clock: Arc<dyn Clock>,
    phase: Phase,
    since: Option<Mono>,
    spent: [Option<Duration>; Phase::ALL.len()],
    pub seen: Seen,
}

impl Watch {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, phase: Phase::default(), since: None, spent: Default::default(), seen: Seen::default() }
    }

    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Where it is, or where it ended.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The one before has ended.
    pub fn enter(&mut self, phase: Phase) {
        let now = self.clock.monotonic();
        self.close(now);
        (self.phase, self.since) = (phase, Some(now));
    }

    fn close(&mut self, now: Mono) {
        if let Some(since) = self.since.take() {
            let spent = self.spent[self.phase as usize].get_or_insert_default();
            *spent += now.since(since);
        }
    }

    pub fn finish(mut self, ended: Ended, total: Duration) -> Observation {
        let now = self.clock.monotonic();
        self.close(now);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let timings = Timings { phases: self.spent.map(|spent| spent.map(micros)), total: micros(total) };
        Observation { ended, timings, seen: self.seen }
    }
}
