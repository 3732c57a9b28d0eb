//! The values that come most often.
//!
//! - [`Frequent`], for jumping windows, keeps [`KEPT`] values. When another comes, one is taken off every count, its own
//!   included, and values at nought are forgotten (Misra and Gries). So a count is never too high, and too low by at most one in
//!   [`KEPT`] events of the window; what came more often than that is surely there. Taking one off everything costs as much as
//!   adding what is taken off did, so an event costs the same on average.
//! - [`Tally`], for sliding windows, counts everything that the window holds, and keeps it in order.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;

use super::item::Item;
use crate::state::{Reader, Stored, Unreadable, Writer};

/// Up to so many different values are counted exactly.
pub const KEPT: usize = 1024;

#[derive(Clone, Debug, Default)]
pub struct Frequent {
    counts: HashMap<Item, u64, FixedState>,
    bytes: usize,
}

/// What a value takes that is counted, beside itself.
const COUNT_BYTES: usize = 48;

impl Frequent {
    pub fn add(&mut self, item: Item) {
        let Self { counts, bytes } = self;
        if let Some(count) = counts.get_mut(&item) {
            *count += 1;
        } else if counts.len() < KEPT {
            *bytes += COUNT_BYTES + item.bytes();
            counts.insert(item, 1);
        } else {
            counts.retain(|item, count| {
                *count -= 1;
                if *count == 0 {
                    *bytes -= COUNT_BYTES + item.bytes();
                }
                *count > 0
            });
        }
    }

    /// What it holds, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn write_top(&self, top: usize, to: &mut String) {
        let all: BTreeSet<Ranked> = self.counts.iter().map(|(item, count)| ranked(item, *count)).collect();
        write_top(&all, top, to);
    }
}

impl Stored for Frequent {
    fn store(&self, to: &mut Writer) {
        let mut all: Vec<_> = self.counts.iter().collect();
        all.sort_unstable();
        to.count(all.len());
        for (item, count) in all {
            item.store(to);
            to.u64(*count);
        }
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let count = from.count_up_to(KEPT)?;
        let counts =
            (0..count).map(|_| Ok((Item::load(from)?, from.u64()?))).collect::<Result<HashMap<_, _, _>, _>>()?;
        let bytes = counts.keys().map(|item: &Item| COUNT_BYTES + item.bytes()).sum();
        Ok(Self { counts, bytes })
    }
}

/// How often, the other way round so that the most frequent comes first; then the value.
type Ranked = (std::cmp::Reverse<u64>, Item);

fn ranked(item: &Item, count: u64) -> Ranked {
    (std::cmp::Reverse(count), item.clone())
}

fn write_top(all: &BTreeSet<Ranked>, top: usize, to: &mut String) {
    to.push('[');
    for (n, (count, item)) in all.iter().take(top).enumerate() {
        to.push_str(if n == 0 { "[" } else { ",[" });
        item.write_json(to);
        to.push_str(&format!(",{}]", count.0));
    }
    to.push(']');
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: HashMap<Item, u64, FixedState>,
    order: BTreeSet<Ranked>,
}

impl Tally {
    pub fn add(&mut self, item: &Item) {
        let count = self.counts.entry(item.clone()).or_default();
        self.order.remove(&ranked(item, *count));
        *count += 1;
        self.order.insert(ranked(item, *count));
    }

    pub fn remove(&mut self, item: &Item) {
        let Some(count) = self.counts.get_mut(item) else { return };
        self.order.remove(&ranked(item, *count));
        *count -= 1;
        if *count > 0 {
            self.order.insert(ranked(item, *count));
        } else {
            self.counts.remove(item);
        }
    }

    pub fn write_top(&self, top: usize, to: &mut String) {
        write_top(&self.order, top, to);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn top(frequent: &Frequent, count: usize) -> String {
        let mut text = String::new();
        frequent.write_top(count, &mut text);
        text
    }

    #[test]
    fn the_most_frequent_come_first_and_the_lesser_value_of_two_alike() {
        let mut frequent = Frequent::default();
        ["b", "a", "c\"", "c\"", "c\""].into_iter().for_each(|text| frequent.add(Item::Text(text.into())));
        assert_eq!(top(&frequent, 2), r#"[["c\"",3],["a",1]]"#);
    }

    #[test]
    fn what_comes_often_is_found_among_many() {
        let mut frequent = Frequent::default();
        for n in 0..100_000i64 {
            frequent.add(Item::Whole(if n % 10 == 0 { -1 } else { n }));
        }
        let Some(found) = frequent.counts.get(&Item::Whole(-1)) else { panic!("forgotten") };
        assert!((10_000 - 100_000 / KEPT as u64..=10_000).contains(found), "{found}");
        assert!(frequent.counts.len() <= KEPT);
    }

    proptest! {
        #[test]
        fn a_tally_counts_what_is_there(values in prop::collection::vec(0i64..10, 0..200), width in 1..50usize) {
            let (mut tally, mut wanted) = (Tally::default(), String::new());
            for (n, value) in values.iter().enumerate() {
                tally.add(&Item::Whole(*value));
                if n >= width {
                    tally.remove(&Item::Whole(values[n - width]));
                }
                let mut frequent = Frequent::default();
                values[(n + 1).saturating_sub(width)..=n].iter().for_each(|value| frequent.add(Item::Whole(*value)));
                let mut found = String::new();
                tally.write_top(3, &mut found);
                wanted = top(&frequent, 3);
                prop_assert_eq!(&found, &wanted);
            }
            prop_assert!(values.is_empty() || !wanted.is_empty());
        }
    }
}
