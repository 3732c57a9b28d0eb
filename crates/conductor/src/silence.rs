//! How long hosts have given no sign of life, by the clock of whoever looks alone: beats are counted in the store, and no two
//! clocks are ever compared. Time in which nobody looked counts against nobody: what froze or could not read its store for a
//! while knows nothing of the others.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_streams::wire::LEASE_MS;

use crate::placing::{HostId, Life};

const LEASE: Duration = Duration::from_millis(LEASE_MS);
/// Whoever looks less often than this did not look in between.
const LOOK_GAP_MAX: Duration = Duration::from_secs(2);

/// What was heard of each, and when.
#[derive(Debug, Default)]
pub struct Ears {
    heard: BTreeMap<HostId, Heard>,
    looked: Option<Mono>,
}

#[derive(Debug)]
struct Heard {
    boot: u64,
    beats: u64,
    at: Mono,
}

impl Ears {
    /// What the store says now of all hosts: their boots, and how often they were heard.
    pub fn look<'a>(&mut self, now: Mono, rows: impl IntoIterator<Item = (&'a str, u64, u64)>) {
        let gap = self.looked.map_or(Duration::ZERO, |looked| now.since(looked));
        let unseen = if gap > LOOK_GAP_MAX { gap } else { Duration::ZERO };
        self.looked = Some(now);
        let mut heard = BTreeMap::new();
        for (id, boot, beats) in rows {
            let at = match self.heard.get(id) {
                Some(before) if (before.boot, before.beats) == (boot, beats) => before.at.plus(unseen),
                // One that is met for the first time may have been gone for long, or have beaten just now.
                _ => now,
            };
            heard.insert(id.to_owned(), Heard { boot, beats, at });
        }
        self.heard = heard;
    }

    /// Whether it was met in this life of it.
    pub fn knows(&self, id: &str, boot: u64) -> bool {
        self.heard.get(id).is_some_and(|heard| heard.boot == boot)
    }

    /// Whether somebody who began later speaks for this host, and is heard.
    pub fn is_followed(&self, id: &str, boot: u64, now: Mono) -> bool {
        self.heard.get(id).is_some_and(|heard| heard.boot > boot && now.since(heard.at) < LEASE)
    }

    pub fn life(&self, id: &str, now: Mono) -> Life {
        match self.heard.get(id) {
            Some(heard) if now.since(heard.at) < LEASE => Life::Alive,
            _ => Life::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono::default().plus(Duration::from_millis(ms))
    }

    #[test]
    fn who_does_not_beat_for_a_lease_is_gone_and_who_beats_again_is_back() {
        let mut ears = Ears::default();
        for second in 0..5 {
            ears.look(at(second * 1_000), [("a", 1, second), ("b", 1, 7)]);
        }
        assert_eq!(ears.life("b", at(4_900)), Life::Alive);
        ears.look(at(5_000), [("a", 1, 5), ("b", 1, 7)]);
        assert_eq!((ears.life("a", at(5_000)), ears.life("b", at(5_000))), (Life::Alive, Life::Gone));
        ears.look(at(6_000), [("a", 1, 6), ("b", 1, 8)]);
        assert_eq!(ears.life("b", at(6_000)), Life::Alive);
        assert_eq!(ears.life("nobody", at(6_000)), Life::Gone);
    }

    #[test]
    fn who_began_later_follows_whoever_speaks_for_the_same_host_for_as_long_as_it_is_heard() {
        let mut ears = Ears::default();
        ears.look(at(0), [("a", 7, 1)]);
        assert!(ears.is_followed("a", 6, at(1_000)));
        assert!(!ears.is_followed("a", 7, at(1_000)), "that is itself");
        assert!(!ears.is_followed("a", 8, at(1_000)), "it began later");
        assert!(!ears.is_followed("a", 6, at(5_000)), "the other is silent: a clock may have been set back");
        assert!(!ears.is_followed("b", 1, at(1_000)));
    }

    #[test]
    fn a_freeze_of_who_looks_is_held_against_nobody() {
        let mut ears = Ears::default();
        ears.look(at(0), [("a", 1, 1)]);
        ears.look(at(60_000), [("a", 1, 1)]);
        assert_eq!(ears.life("a", at(60_000)), Life::Alive);
        for second in 61..65 {
            ears.look(at(second * 1_000), [("a", 1, 1)]);
            assert_eq!(ears.life("a", at(second * 1_000)), Life::Alive, "{second}");
        }
        ears.look(at(65_000), [("a", 1, 1)]);
        assert_eq!(ears.life("a", at(65_000)), Life::Gone);
    }

    #[test]
    fn another_boot_is_a_sign_of_life() {
        let mut ears = Ears::default();
        ears.look(at(0), [("a", 1, 100)]);
        for second in 1..5 {
            ears.look(at(second * 1_000), [("a", 1, 100)]);
        }
        ears.look(at(5_000), [("a", 2, 1)]);
        assert_eq!(ears.life("a", at(5_000)), Life::Alive);
    }
}
