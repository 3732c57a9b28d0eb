//! The strategy to compare with: a coin for each part and round, then a host by the same rule as the document's, in no order of
//! need. The order is the coin's too, or the first parts would have all the moves that a round may begin.

use mutirao_core::Dice;

use crate::adaptive::{Asked, greedily};
use crate::round::{Considered, Why};
use crate::scene::{Board, Seated};

/// The same for the same seed and number of the round.
pub fn round(asked: &Asked, board: &mut Board, seed: u64, number: u64) -> Vec<Considered> {
    let dice = Dice::seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
    let mut drawn: Vec<&Seated> = board.scene.parts.iter().filter(|_| dice.below(2) == 1).collect();
    for last in (1..drawn.len()).rev() {
        drawn.swap(last, dice.below(last as u64 + 1) as usize);
    }
    greedily(asked, board, drawn.into_iter().map(|seated| (seated, Why::Drawn)).collect())
}
