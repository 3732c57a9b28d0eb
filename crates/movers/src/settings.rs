//! What a mover is told to be.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub strategy: Strategy,
    /// Between rounds, and the window that each looks back over.
    pub every_ms: u64,
    /// Moves that a round may begin (l_mig). `None`: as many as it finds, of `mutirao` one for each three hosts.
    pub moves_max: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Nothing moves.
    None,
    /// A coin for each part and round; then a host by the document's rule.
    Random {
        seed: u64,
    },
    /// The document's: whose latency grew most; then a host by its rule.
    Adaptive {
        /// By which share a latency must grow from one message to the next to count (d).
        sensitivity: f64,
    },
    Mutirao(Terms),
}

/// What [`Strategy::Mutirao`] goes by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// The latency to keep where a stream says none.
    pub goal_ms: f64,
    /// How far ahead a load is foreseen: until the moves of the next round would help.
    pub ahead_ms: u64,
    /// Of a host's cores and memory, how much may be in use after a move to it.
    pub full: f64,
    /// A move has to spare at least this share of the waiting at both hosts.
    pub worth: f64,
    /// What a second waited by the last copy of an event weighs, beside one waited by the first.
    pub last_copy: f64,
    /// A part that was moved stays for this long, unless the move is undone.
    pub rest_ms: u64,
    /// From when to when after a move it is looked at whether things are worse than before.
    pub proof_ms: (u64, u64),
    /// A move that was undone is not made again for this long.
    pub barred_ms: u64,
    /// What a move carries in a second.
    pub bytes_per_s: f64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            goal_ms: 100.0,
            ahead_ms: 10_000,
            full: 0.96,
            worth: 0.3,
            last_copy: 0.3,
            rest_ms: 30_000,
            proof_ms: (10_000, 40_000),
            barred_ms: 600_000,
            bytes_per_s: 100e6,
        }
    }
}

impl Settings {
    pub const EVERY_MS: u64 = 10_000;

    pub fn of(strategy: Strategy) -> Self {
        let moves_max = match strategy {
            Strategy::Mutirao(_) => None,
            _ => Some(1),
        };
        Self { strategy, every_ms: Self::EVERY_MS, moves_max }
    }

    pub fn without_limit(self) -> Self {
        Self { moves_max: None, ..self }
    }
}

impl Strategy {
    pub fn adaptive(sensitivity: f64) -> Self {
        Self::Adaptive { sensitivity }
    }

    pub fn mutirao() -> Self {
        Self::Mutirao(Terms::default())
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Random { .. } => "random",
            Self::Adaptive { .. } => "adaptive",
            Self::Mutirao(_) => "mutirao",
        }
    }
}
