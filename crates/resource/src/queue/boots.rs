//! How long workers take to come: each from when it was wanted (a node for it may have to be made first) to its first word.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use mutirao_core::quantity::Span;
use mutirao_core::{Timestamp, WorkerId};
use mutirao_elastic::Fleet;
use mutirao_elastic::fleet::Life;

/// Longer is not how long they take, but trouble.
const BOOT_MAX: Duration = Duration::from_secs(3_600);
/// The weight of the newest, as a part.
const NEWEST_PART: u32 = 8;
/// Of those that are missing, so many are timed.
const TIMED_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub struct Boots {
    /// Since when each of those that are missing is, the longest first.
    missing: VecDeque<Timestamp>,
    /// Those that were there at the last look; none before the first.
    there: Option<BTreeSet<WorkerId>>,
    mean: Option<Duration>,
}

impl Boots {
    /// So many are wanted and not there.
    pub fn lacking(&mut self, many: usize, now: Timestamp) {
        // Whoever is wanted no more was wanted last.
        self.missing.truncate(many);
        let more = many.min(TIMED_MAX).saturating_sub(self.missing.len());
        self.missing.extend(std::iter::repeat_n(now, more));
    }

    /// After a look at who is there.
    pub fn look(&mut self, fleet: &Fleet, now: Timestamp) {
        let here = fleet.members.iter().filter(|(_, member)| member.life == Life::Reported);
        let here: BTreeSet<WorkerId> = here.map(|(worker, _)| worker.clone()).collect();
        let before = self.there.replace(here);
        let (Some(here), Some(before)) = (&self.there, before) else { return };
        for _ in here.difference(&before) {
            let Some(since) = self.missing.pop_front() else { break };
            let took = now.since(since).min(BOOT_MAX);
            self.mean = Some(self.mean.map_or(took, |mean| mean - mean / NEWEST_PART + took / NEWEST_PART));
        }
    }

    /// To the second: it is said in decisions.
    pub fn mean(&self) -> Option<Span> {
        self.mean.map(|mean| Span::secs(mean.as_secs().max(1)))
    }
}

#[cfg(test)]
mod tests {
    use mutirao_elastic::fleet::Member;

    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp(0).plus(Duration::from_secs(s))
    }

    fn fleet(all: &[(&str, Life)]) -> Fleet {
        let member = |(name, life): &(&str, Life)| (WorkerId((*name).into()), Member::new(*life, at(0), None));
        Fleet::of(all.iter().map(member).collect(), None)
    }

    #[test]
    fn a_boot_is_from_wanting_one_to_its_first_word_the_node_included_and_each_counts() {
        let mut boots = Boots::default();
        boots.lacking(2, at(10));
        boots.lacking(3, at(50));
        boots.look(&fleet(&[("a", Life::Launching), ("b", Life::Asked)]), at(60));
        assert_eq!(boots.mean(), None);
        boots.look(&fleet(&[("a", Life::Reported), ("b", Life::Launching)]), at(90));
        assert_eq!(boots.mean(), Some(Span::secs(80)));
        boots.look(&fleet(&[("a", Life::Reported), ("b", Life::Reported)]), at(170));
        assert_eq!(boots.mean(), Some(Span::secs(90)), "the second took 160");
        boots.lacking(1, at(171));
        boots.lacking(0, at(172));
        boots.look(&fleet(&[("a", Life::Reported), ("b", Life::Reported)]), at(300));
        assert_eq!(boots.mean(), Some(Span::secs(90)), "nobody came, and nobody is wanted");
    }
}
