//! Who acts in a world: operators, their copies, hosts.

use std::collections::VecDeque;

use mutirao_core::Dice;

use super::world::Nanos;

pub(super) struct Operator {
    /// When each event was sent.
    pub log: Vec<Nanos>,
    /// Whether its first copy is done.
    pub first: Vec<bool>,
    /// The copy that is each replica.
    pub replicas: Vec<usize>,
    pub quiet_until: Nanos,
    pub arrivals: Dice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// Up to this row, then it stops.
    Until(usize),
    Stopped,
    /// It catches up with the one whose place it is to take, and is not heard.
    Replaying,
    Gone,
}

/// A replica at one host.
pub(super) struct Copy {
    pub operator: usize,
    pub replica: usize,
    pub host: usize,
    /// The row that it takes next, and the one from which on it is heard.
    pub next: usize,
    pub heard_from: usize,
    pub snapshot: usize,
    pub running: u32,
    pub phase: Phase,
    pub waiting: bool,
    pub second: Second,
}

/// What a copy counted in this second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Second {
    pub busy_ns: u64,
    pub began: u32,
    pub ended: u32,
    pub latency_ns: u64,
}

pub(super) struct Node {
    pub free: u32,
    pub alive: bool,
    pub turn: VecDeque<usize>,
}

impl Copy {
    pub fn new(operator: usize, replica: usize, host: usize, next: usize, phase: Phase) -> Self {
        let heard_from = if phase == Phase::Replaying { usize::MAX } else { next };
        Self {
            operator,
            replica,
            host,
            next,
            heard_from,
            snapshot: next,
            running: 0,
            phase,
            waiting: false,
            second: Second::default(),
        }
    }
}
