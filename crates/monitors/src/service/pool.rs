//! The pool of checkers, for those who have more of them started or sent home.

use mutirao_core::WorkerId;
use mutirao_core::check::{PLACES, checks_of};
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, seal};

use super::{ANSWER_MAX, Monitors, Programs};
use crate::crew::Sight;
use crate::envelope::Places;
use crate::meters;

impl Monitors {
    /// Shards of the monitors that this process owns now.
    pub fn owned(&self) -> usize {
        self.0.shards.owned().borrow().len()
    }

    /// What checkers have to do, and who of them is there. Nothing when the broker does not say what waits there.
    pub async fn crew(&self) -> Option<Sight> {
        let counted = async {
            let mut parcels = 0u64;
            // Those of the pool run no programs.
            for kind in Programs::Refused.kinds().iter() {
                parcels = parcels.saturating_add(self.0.broker.counts(&checks_of(kind)).await.ok()?.ready);
            }
            Some(parcels)
        };
        let parcels = self.0.clock.timeout(ANSWER_MAX, counted).await.ok()??;
        let sight = self.0.crew.lock().look(parcels, self.0.clock.monotonic(), self.0.clock.now())?;
        meters::crew(&sight);
        Some(sight)
    }

    /// These are to make what they have taken, and go. Said again for as long as they are there.
    pub async fn rest(&self, checkers: Vec<WorkerId>) {
        if checkers.is_empty() {
            return;
        }
        let body = seal(&Places { v: Version::default(), places: Vec::new(), rest: checkers });
        let said = self.0.clock.timeout(ANSWER_MAX, self.0.broker.announce(PLACES, body)).await;
        if !matches!(said, Ok(Ok(()))) {
            tracing::debug!("checkers that are to go could not be told; the next round will");
        }
    }
}
