//! How long workers take to come: from wanting one that is not there (a node for it may have to be made first) to the first
//! word of one that was made since.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::quantity::Span;
use mutirao_elastic::Fleet;
use mutirao_elastic::fleet::Life;

/// Longer is not how long they take, but trouble.
const BOOT_MAX: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub struct Boots {
    wanted_since: Option<Timestamp>,
    mean: Option<Duration>,
}

impl Boots {
    /// More are wanted than there are.
    pub fn wanted(&mut self, now: Timestamp) {
        self.wanted_since.get_or_insert(now);
    }

    /// After a look at who is there.
    pub fn look(&mut self, fleet: &Fleet, now: Timestamp) {
        let Some(since) = self.wanted_since else { return };
        let came = |life: Life, at: Timestamp| life == Life::Reported && at >= since;
        if fleet.members.values().any(|member| came(member.life, member.since)) {
            let took = now.since(since).min(BOOT_MAX);
            self.mean = Some(self.mean.map_or(took, |mean| (mean + took) / 2));
            self.wanted_since = None;
        }
    }

    /// Nobody is on the way, and nobody is wanted.
    pub fn at_rest(&mut self) {
        self.wanted_since = None;
    }

    /// To the second: it is said in decisions.
    pub fn mean(&self) -> Option<Span> {
        self.mean.map(|mean| Span::secs(mean.as_secs().max(1)))
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::WorkerId;
    use mutirao_elastic::fleet::Member;

    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp(0).plus(Duration::from_secs(s))
    }

    fn fleet(life: Life, since: u64) -> Fleet {
        Fleet::of([(WorkerId("w".into()), Member::new(life, at(since), None))].into(), None)
    }

    #[test]
    fn a_boot_is_from_wanting_one_to_its_first_word_the_node_included() {
        let mut boots = Boots::default();
        boots.wanted(at(10));
        boots.wanted(at(50));
        boots.look(&fleet(Life::Launching, 60), at(60));
        assert_eq!(boots.mean(), None);
        boots.look(&fleet(Life::Reported, 90), at(90));
        assert_eq!(boots.mean(), Some(Span::secs(80)));
        boots.wanted(at(100));
        boots.look(&fleet(Life::Reported, 90), at(101));
        assert_eq!(boots.mean(), Some(Span::secs(80)), "that one was there before");
        boots.look(&fleet(Life::Reported, 140), at(140));
        assert_eq!(boots.mean(), Some(Span::secs(60)));
    }
}
