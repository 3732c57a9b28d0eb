//! Waiting a little longer after each failure: doubling, bounded, with jitter.

use std::time::Duration;

use mutirao_core::{Clock, Dice};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Patience {
    next: Duration,
}

impl Patience {
    pub fn new() -> Self {
        Self { next: FIRST }
    }

    /// It worked: the next failure is a first one again.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    pub async fn wait(&mut self, clock: &dyn Clock, dice: &Dice) {
        let wait = dice.jitter(self.next);
        self.next = (self.next * 2).min(LONGEST);
        clock.sleep(wait).await;
    }
}
