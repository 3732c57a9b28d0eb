//! How long something has not changed, by one's own clock. What others write is a counter; a counter that stands still is
//! a process that is silent. Nobody's clock is compared with anybody's.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::Mono;

/// The last value seen under each key, and when it was first seen.
#[derive(Debug)]
pub struct Silence<K, V>(BTreeMap<K, (V, Mono)>);

impl<K, V> Default for Silence<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V: PartialEq> Silence<K, V> {
    /// Takes in all there is to see. `received_at` is when the answer had come: a value first seen now was written
    /// before, so counting from now on can only make the silence look shorter than it is.
    pub fn hear(&mut self, all: impl IntoIterator<Item = (K, V)>, received_at: Mono) {
        let mut before = std::mem::take(&mut self.0);
        for (key, value) in all {
            let since = match before.remove(&key) {
                Some((old, since)) if old == value => since,
                _ => received_at,
            };
            self.0.insert(key, (value, since));
        }
    }

    /// Zero for what was never seen.
    pub fn of(&self, key: &K, now: Mono) -> Duration {
        self.0.get(key).map_or(Duration::ZERO, |(_, since)| now.since(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    #[test]
    fn silence_counts_from_the_first_sight_of_the_last_value() {
        let mut silence = Silence::default();
        silence.hear([("a", 1), ("b", 1)], at(10));
        silence.hear([("a", 1), ("b", 2)], at(15));
        assert_eq!(silence.of(&"a", at(20)).as_secs(), 10);
        assert_eq!(silence.of(&"b", at(20)).as_secs(), 5);
    }

    #[test]
    fn what_goes_away_and_returns_is_new() {
        let mut silence = Silence::default();
        silence.hear([("a", 1)], at(10));
        silence.hear([], at(15));
        assert_eq!(silence.of(&"a", at(16)).as_secs(), 0);
        silence.hear([("a", 1)], at(20));
        assert_eq!(silence.of(&"a", at(23)).as_secs(), 3);
    }
}
