//! What was received and cannot be worked with. The newest are kept, to be looked at; past so many in a second they are
//! only counted, for whoever sends rubbish must not fill the store with writes.

use std::time::Duration;

use mutirao_core::Mono;
use parking_lot::Mutex;

use crate::store::Tossed;

/// Kept in all.
pub const KEPT_MAX: u32 = 1_000;
/// Written in a second, at most.
const A_SECOND_MAX: usize = 20;
/// Of each, its beginning.
pub const BODY_BYTES_MAX: usize = 2_048;
pub const REASON_CHARS_MAX: usize = 300;

#[derive(Debug, Default)]
pub struct Bin(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    since: Mono,
    taken: usize,
    tossed: Vec<Tossed>,
}

impl Bin {
    pub fn toss(&self, mut tossed: Tossed, now: Mono) {
        tossed.body.truncate(BODY_BYTES_MAX);
        if let Some((at, _)) = tossed.reason.char_indices().nth(REASON_CHARS_MAX) {
            tossed.reason.truncate(at);
        }
        let mut waiting = self.0.lock();
        if now.since(waiting.since) >= Duration::from_secs(1) {
            (waiting.since, waiting.taken) = (now, 0);
        }
        if waiting.taken < A_SECOND_MAX && waiting.tossed.len() < KEPT_MAX as usize {
            waiting.taken += 1;
            waiting.tossed.push(tossed);
        }
    }

    /// To be written.
    pub fn empty(&self) -> Vec<Tossed> {
        std::mem::take(&mut self.0.lock().tossed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::Timestamp;

    #[test]
    fn a_flood_of_rubbish_is_kept_in_part_and_cut_short() {
        let bin = Bin::default();
        let at = |ms| Mono(Duration::from_millis(ms));
        let tossed = || Tossed {
            at: Timestamp(0),
            place: "p".into(),
            who: "w".into(),
            reason: "é".repeat(1_000),
            body: vec![b'x'; 1 << 20],
        };
        (0..1_000).for_each(|_| bin.toss(tossed(), at(5_000)));
        bin.toss(tossed(), at(6_000));
        let kept = bin.empty();
        assert_eq!(kept.len(), A_SECOND_MAX + 1);
        assert_eq!((kept[0].body.len(), kept[0].reason.chars().count()), (BODY_BYTES_MAX, REASON_CHARS_MAX));
        assert!(bin.empty().is_empty());
    }
}
