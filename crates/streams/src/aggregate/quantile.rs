//! Percentiles. Exact while there are few values; beyond, values are counted in buckets, 64 between one power of two and the
//! next, so that an answer is the middle of the bucket that the exact one is in. Buckets are cut by the bits of a float and not
//! by a logarithm, which libraries of different machines round differently. A count can be taken away again, and the order of
//! values does not matter.

use std::collections::BTreeMap;

use super::{of_rank, rank};
use crate::state::{Reader, Stored, Unreadable, Writer};

/// With no more values than this the answer is exact.
pub const EXACT_MAX: usize = 256;
/// Beyond, it is off by at most this share of the value.
pub const ERROR: f64 = 1.0 / 128.0;

/// Bits of a float below those that say the bucket.
const BELOW: u32 = 46;

/// Which of so many values, in order and from nought, is the percentile.
pub fn place(share: f64, count: u64) -> u64 {
    // A share like 0.07 is not quite that as a float, and the product is rounded: what is a whole number but for that is one.
    let product = share * count as f64;
    let whole = product.round();
    let place = if (product - whole).abs() <= product * 2.0 * f64::EPSILON { whole } else { product.ceil() };
    let place = place as u64;
    place.clamp(1, count.max(1)) - 1
}

/// Of all values, which are in no order.
pub fn exact(values: &mut [i64], share: f64) -> f64 {
    match values.len() {
        0 => 0.0,
        count => of_rank(*values.select_nth_unstable(place(share, count as u64) as usize).1),
    }
}

/// How many values are in each bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets(BTreeMap<i32, u64>);

impl Buckets {
    pub fn add(&mut self, value: f64) {
        *self.0.entry(bucket_of(rank(value))).or_default() += 1;
    }

    pub fn remove(&mut self, value: f64) {
        let bucket = bucket_of(rank(value));
        if let Some(count) = self.0.get_mut(&bucket) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&bucket);
            }
        }
    }

    pub fn quantile(&self, share: f64, count: u64) -> f64 {
        let place = place(share, count);
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen > place
        });
        found.map_or(0.0, |(bucket, _)| middle_of(*bucket))
    }
}

/// What is said of a value when there are many.
pub fn coarse(value: f64) -> f64 {
    middle_of(bucket_of(rank(value)))
}

/// Ranks are in the order of floats, so buckets are too.
fn bucket_of(rank: i64) -> i32 {
    (rank >> BELOW) as i32
}

fn middle_of(bucket: i32) -> f64 {
    // Nought, and what is too small to be told from it by anybody.
    if matches!(bucket, 0 | -1) {
        return 0.0;
    }
    let first = i64::from(bucket) << BELOW;
    let last = first + ((1 << BELOW) - 1);
    let (low, high) = (of_rank(first), of_rank(last));
    // The buckets of what is no number, or beyond all numbers, hold nothing else.
    if !low.is_finite() && !high.is_finite() || low.is_nan() || high.is_nan() {
        let plain = if low.is_infinite() { low } else { high };
        return if bucket == bucket_of(rank(f64::NAN)) { f64::NAN } else { plain };
    }
    low / 2.0 + high / 2.0
}

impl Stored for Buckets {
    fn store(&self, to: &mut Writer) {
        to.count(self.0.len());
        for (bucket, count) in &self.0 {
            to.u32(*bucket as u32);
            to.u64(*count);
        }
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let count = from.count()?;
        (0..count).map(|_| Ok((from.u32()? as i32, from.u64()?))).collect::<Result<_, _>>().map(Self)
    }
}

/// Of a jumping window: values while there are few, buckets then.
#[derive(Clone, Debug)]
pub enum Quantiles {
    /// As ranks.
    Few(Vec<i64>),
    Many(Buckets),
}

impl Default for Quantiles {
    fn default() -> Self {
        Quantiles::Few(Vec::new())
    }
}

impl Quantiles {
    /// What it holds, about.
    pub fn bytes(&self) -> usize {
        match self {
            Quantiles::Few(values) => values.len() * 8,
            Quantiles::Many(buckets) => buckets.0.len() * 32,
        }
    }

    pub fn add(&mut self, value: f64) {
        match self {
            Quantiles::Many(buckets) => buckets.add(value),
            Quantiles::Few(values) if values.len() < EXACT_MAX => values.push(rank(value)),
            Quantiles::Few(values) => {
                let mut buckets = Buckets::default();
                values.drain(..).for_each(|rank| buckets.add(of_rank(rank)));
                buckets.add(value);
                *self = Quantiles::Many(buckets);
            }
        }
    }

    pub fn quantile(&self, share: f64, count: u64) -> f64 {
        match self {
            Quantiles::Few(values) => exact(&mut values.clone(), share),
            Quantiles::Many(buckets) => buckets.quantile(share, count),
        }
    }
}

impl Stored for Quantiles {
    fn store(&self, to: &mut Writer) {
        match self {
            Quantiles::Few(values) => {
                to.u8(0);
                to.count(values.len());
                let mut sorted = values.clone();
                sorted.sort_unstable();
                sorted.into_iter().for_each(|rank| to.i64(rank));
            }
            Quantiles::Many(buckets) => {
                to.u8(1);
                buckets.store(to);
            }
        }
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        match from.u8()? {
            0 => {
                let count = from.count_up_to(EXACT_MAX)?;
                (0..count).map(|_| from.i64()).collect::<Result<_, _>>().map(Quantiles::Few)
            }
            _ => Buckets::load(from).map(Quantiles::Many),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_percentile_is_the_least_that_this_share_does_not_exceed() {
        let of = |values: &[f64], share| exact(&mut values.iter().map(|v| rank(*v)).collect::<Vec<_>>(), share);
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(of(&ten, 0.0), 1.0);
        assert_eq!(of(&ten, 0.5), 5.0);
        assert_eq!(of(&ten, 0.95), 10.0);
        assert_eq!(of(&ten, 1.0), 10.0);
        assert_eq!(of(&[7.0], 0.5), 7.0);
    }

    #[test]
    fn what_is_no_number_has_a_place_too() {
        for odd in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, f64::MAX, f64::MIN, 5e-324] {
            let mut buckets = Buckets::default();
            buckets.add(odd);
            let found = buckets.quantile(0.5, 1);
            let close = (found - odd).abs() <= odd.abs() * ERROR || found == odd || odd.abs() < 1e-300;
            assert!(close || found.is_nan() && odd.is_nan(), "{found} for {odd}");
        }
    }

    proptest! {
        #[test]
        fn many_values_are_right_to_within_the_error(values in prop::collection::vec(-1e9..1e9f64, 1..600), share in 0.0..=1.0f64) {
            let mut quantiles = Quantiles::default();
            let mut buckets = Buckets::default();
            values.iter().for_each(|value| { quantiles.add(*value); buckets.add(*value) });
            let wanted = exact(&mut values.iter().map(|v| rank(*v)).collect::<Vec<_>>(), share);
            for found in [quantiles.quantile(share, values.len() as u64), buckets.quantile(share, values.len() as u64)] {
                prop_assert!((found - wanted).abs() <= wanted.abs() * ERROR, "{} for {}", found, wanted);
            }
            if values.len() <= EXACT_MAX {
                prop_assert_eq!(quantiles.quantile(share, values.len() as u64), wanted);
            }
            values.iter().for_each(|value| buckets.remove(*value));
            prop_assert_eq!(buckets, Buckets::default());
        }
    }
}
