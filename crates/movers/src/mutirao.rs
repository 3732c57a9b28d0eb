//! Our strategy: keep the latency that was asked for, with as few moves as do it.
//!
//! A round foresees what each host will have to do ([`forecast`]), and from it how long events will wait there
//! ([`wait`](crate::wait)). A host gives cause if that is more than a part's goal, or if its parts are slower than its load
//! explains. Of all moves from such hosts the one is taken that spares most waiting at both hosts together ([`choosing`]), then
//! the next, as many as a round may begin. What was moved is looked at for a while; if things are worse than before and would be
//! better where it was, it goes back ([`proof`]).
//!
//! What it does otherwise than the document's, and why:
//! - *Level and trend*: latency grows last. How many events come, and what one costs, tell ten seconds earlier; both are medians,
//!   so a second gone wrong says nothing.
//! - *Cause*: who waits for those after it is not slow, and moving it helps nobody.
//! - *The bottleneck* decides: a host with idle cores may have more memory in use, as long as there is room.
//! - *The slower replica* first: readers take the first copy, so it is missed least.

use std::collections::BTreeMap;

use crate::adaptive::Asked;
use crate::round::{Considered, Round, Verdict};
use crate::scene::Board;
use crate::settings::Terms;

pub mod choosing;
pub mod forecast;
pub mod peaks;
pub mod proof;

pub use proof::Trials;

use peaks::Peaks;

use forecast::Forecast;

/// What is remembered from round to round.
#[derive(Clone, Debug, Default)]
pub struct Past {
    peaks: Peaks,
    trials: Trials,
    /// Whether there was too little room in the round before.
    cramped: bool,
}

/// What moves is a load on its way, and what is foreseen is less sure with each of them.
const HOSTS_PER_MOVE: u32 = 3;
/// Parts told of in a round that did not move.
const TOLD_MAX: usize = 20;

pub fn round(asked: &Asked, board: &mut Board, terms: &Terms, past: &mut Past, round: &mut Round) {
    let now_ms = board.scene.now_ms;
    past.peaks.tidy(board.scene);
    let Past { peaks, trials, cramped } = past;
    let mut forecast = Forecast::new(asked, board, terms, peaks);
    let mut considered: BTreeMap<_, Considered> = BTreeMap::new();
    let mut moved = Vec::new();
    let most = asked.moves_max.unwrap_or((board.scene.hosts.len() as u32).div_ceil(HOSTS_PER_MOVE));
    for undone in proof::look(trials, &forecast, board, terms, most) {
        forecast.moves(board, &undone.part, &undone.to);
        let verdict = Verdict::Moves { to: undone.to };
        moved.push(Considered { part: undone.part, from: undone.from, why: undone.why, tried: Vec::new(), verdict });
    }
    loop {
        let full = moved.len() as u32 >= most;
        let found = choosing::look(asked, board, terms, trials, &forecast);
        for one in found.considered {
            considered.insert(one.part.clone(), one);
        }
        let Some(best) = found.best.filter(|_| !full) else {
            // Twice in a row: one that lasts ten seconds is over before a host has come.
            let was = std::mem::replace(cramped, !full && !found.nowhere.is_empty());
            round.asks_for_host = (was && *cramped).then(|| forecast.asks(found.nowhere));
            break;
        };
        let Some(mut one) = considered.remove(&best.part) else { break };
        trials.begin(&best, &one.from, now_ms);
        forecast.moves(board, &best.part, &best.to);
        one.verdict = Verdict::Moves { to: best.to };
        moved.push(one);
    }
    for one in &moved {
        considered.remove(&one.part);
    }
    round.considered = moved.into_iter().chain(considered.into_values().take(TOLD_MAX)).collect();
}

#[cfg(test)]
mod tests;
