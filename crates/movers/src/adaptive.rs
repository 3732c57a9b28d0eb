//! The document's strategy: those whose latency grew most over the window, the worst first, each to a host where no resource
//! gets worse ([`dominance`](crate::dominance)).
//!
//! Over the latencies `l_1 .. l_n` of the window, `g_i = l_i - l_(i-1)` where `l_i > l_(i-1) (1 + d)` and else nought;
//! `s = sum of g_i / l_1`. Those with `s > 0` are candidates.
//!
//! Left open there, and done here: `l_1 = 0` is passed over, the first latency above nought is `l_1`; a second without events
//! says no latency, and the next is held against the one before it; who never moved counts as moved longest ago, then the order
//! of parts decides; of a part that was moved only what it said at its new host counts; a stage's replicas never move at once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use mutirao_streams::wire::Part;

use crate::dominance::Uses;
use crate::memory::Memory;
use crate::round::{Considered, Verdict, Why};
use crate::scene::{Board, Seated};

/// By how much of the first latency they grew in all (s).
pub fn degradation(latencies_ms: &[f64], sensitivity: f64) -> f64 {
    let Some(begin) = latencies_ms.iter().position(|latency| *latency > 0.0) else { return 0.0 };
    let latencies = &latencies_ms[begin..];
    let growth = latencies.windows(2).map(|pair| {
        let (before, now) = (pair[0], pair[1]);
        if now > before * (1.0 + sensitivity) { now - before } else { 0.0 }
    });
    growth.sum::<f64>() / latencies[0]
}

pub struct Asked<'a> {
    pub memory: &'a Memory,
    pub window_ms: u64,
    pub moves_max: Option<u32>,
    pub last_moved: &'a BTreeMap<Part, u64>,
}

pub fn round(asked: &Asked, board: &mut Board, sensitivity: f64) -> Vec<Considered> {
    let scene = board.scene;
    let mut candidates: Vec<(&Seated, Vec<f64>, f64)> = Vec::new();
    for seated in &scene.parts {
        let heard = asked.memory.of(&seated.part, scene.now_ms, asked.window_ms);
        let latencies: Vec<f64> =
            heard.filter(|message| message.host == seated.host).filter_map(|message| message.latency_ms).collect();
        let degradation = degradation(&latencies, sensitivity);
        if degradation > 0.0 {
            candidates.push((seated, latencies, degradation));
        }
    }
    candidates.sort_by(|(a, _, a_grew), (b, _, b_grew)| {
        let moved = |seated: &Seated| asked.last_moved.get(&seated.part).copied();
        let by_growth = Reverse(*a_grew).partial_cmp(&Reverse(*b_grew)).unwrap_or(std::cmp::Ordering::Equal);
        by_growth.then_with(|| moved(a).cmp(&moved(b))).then_with(|| a.part.cmp(&b.part))
    });
    let candidates = candidates
        .into_iter()
        .map(|(seated, latencies_ms, degradation)| (seated, Why::Grew { latencies_ms, degradation }))
        .collect();
    greedily(asked, board, candidates)
}

/// Each in turn to the best host that fits, until as many move as may.
pub fn greedily<'a>(asked: &Asked, board: &mut Board<'a>, candidates: Vec<(&'a Seated, Why)>) -> Vec<Considered> {
    let mut uses = Uses::over(asked.memory, board, asked.window_ms);
    let mut begun = 0;
    let mut considered = Vec::new();
    for (seated, why) in candidates {
        let mut tried = Vec::new();
        let verdict = if asked.moves_max.is_some_and(|most| begun >= most) {
            Verdict::Enough
        } else if let Some(because) = &seated.fixed {
            Verdict::Fixed { because: because.clone() }
        } else if board.replica_moves(&seated.part) {
            Verdict::ReplicaMoves
        } else {
            tried = uses.look(board, seated);
            match uses.best(&tried).and_then(|best| board.scene.hosts.iter().find(|host| host.id == *best)) {
                Some(to) => {
                    uses.moves(board, seated, &to.id);
                    board.moves(&seated.part, &to.id);
                    begun += 1;
                    Verdict::Moves { to: to.id.clone() }
                }
                None => Verdict::NoTarget,
            }
        };
        considered.push(Considered { part: seated.part.clone(), from: seated.host.clone(), why, tried, verdict });
    }
    considered
}

#[cfg(test)]
mod tests;
