//! The strategy to compare with: a coin for each part and round, then a host by the same rule as the document's. Those drawn are
//! not ordered, says the document: they come as they stand in the scene.

use mutirao_core::Dice;

use crate::adaptive::{Asked, greedily};
use crate::round::{Considered, Why};
use crate::scene::Board;

/// The same for the same seed and number of the round.
pub fn round(asked: &Asked, board: &mut Board, seed: u64, number: u64) -> Vec<Considered> {
    let dice = Dice::seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
    let drawn = board.scene.parts.iter().filter(|_| dice.below(2) == 1).map(|seated| (seated, Why::Drawn)).collect();
    greedily(asked, board, drawn)
}
