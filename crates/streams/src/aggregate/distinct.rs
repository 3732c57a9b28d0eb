//! How many different values there are, by the least of their hashes: exact while no more than [`KEPT`] are there; then the
//! greatest of the least tells how thick they lie. Seeing a value again changes nothing, nor does the order of values.

use std::collections::BTreeSet;

use crate::state::{Reader, Stored, Unreadable, Writer};

/// So many hashes are kept; the standard error beyond is one over the root of this, 2.2 %.
pub const KEPT: usize = 2048;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distinct {
    least: BTreeSet<u64>,
    /// One was left out.
    many: bool,
}

impl Distinct {
    pub fn add(&mut self, hash: u64) {
        if self.least.len() < KEPT {
            self.least.insert(hash);
            return;
        }
        let Some(greatest) = self.least.last().copied() else { return };
        if hash > greatest {
            self.many = true;
        } else if self.least.insert(hash) {
            self.least.pop_last();
            self.many = true;
        }
    }

    /// What it holds, about.
    pub fn bytes(&self) -> usize {
        self.least.len() * 16
    }

    pub fn count(&self) -> i64 {
        match self.least.last() {
            // KEPT − 1 of them lie below the greatest, evenly among all that there could be.
            Some(greatest) if self.many => {
                ((KEPT as u128 - 1) * (1 << 64) / (u128::from(*greatest) + 1)).min(i64::MAX as u128) as i64
            }
            _ => self.least.len() as i64,
        }
    }
}

impl Stored for Distinct {
    fn store(&self, to: &mut Writer) {
        to.u8(u8::from(self.many));
        to.count(self.least.len());
        self.least.iter().for_each(|hash| to.u64(*hash));
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let many = from.u8()? != 0;
        let count = from.count_up_to(KEPT)?;
        let least = (0..count).map(|_| from.u64()).collect::<Result<BTreeSet<_>, _>>()?;
        Ok(Self { least, many })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;

    fn of(values: impl IntoIterator<Item = i64>) -> Distinct {
        let mut distinct = Distinct::default();
        values.into_iter().for_each(|value| distinct.add(hash::int(value)));
        distinct
    }

    #[test]
    fn few_are_counted_exactly_and_order_and_repetition_do_not_matter() {
        let most = KEPT as i64;
        assert_eq!(of(0..most).count(), most);
        assert_eq!(of((0..most).chain(0..most).rev()), of(0..most));
        assert_eq!(of((0..9000).rev()), of((0..9000).chain(0..50)));
        assert_eq!(of([]).count(), 0);
    }

    #[test]
    fn many_are_counted_to_within_a_few_parts_in_a_hundred() {
        for count in [3_000i64, 10_000, 100_000, 1_000_000] {
            let found = of(count..2 * count).count();
            // Three standard errors; the hashes are fixed, so this never changes.
            assert!((found - count).abs() * 1000 < count * 67, "{found} for {count}");
        }
    }
}
