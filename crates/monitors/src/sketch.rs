//! How long things took, in a few dozen bytes: counts in buckets whose bounds grow by a constant factor, so that every
//! percentile is right to within [`ERROR`]. Two sketches of the same thing add up, so minutes make hours and hours make days,
//! in any order and with nothing lost.
//!
//! Buckets that were never used cost nothing: what is written is pairs of (how many buckets further, how many).

use std::collections::BTreeMap;

/// A percentile is off by at most this share.
pub const ERROR: f64 = 0.02;
/// Times above this (11 days) count as this.
const MICROS_MAX: u64 = 1_000_000_000_000;

/// Microseconds, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    buckets: BTreeMap<u16, u64>,
    count: u64,
}

/// Bytes that are no sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl Sketch {
    pub fn add(&mut self, micros: u64) {
        *self.buckets.entry(bucket_of(micros)).or_default() += 1;
        self.count += 1;
    }

    pub fn merge(&mut self, other: &Sketch) {
        for (bucket, count) in &other.buckets {
            let sum = self.buckets.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.count = self.count.saturating_add(other.count);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that this share (0 to 1) of all took at most; none of nothing.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = (share.clamp(0.0, 1.0) * self.count.saturating_sub(1) as f64).round() as u64;
        let mut seen = 0;
        self.buckets.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen > rank).then(|| middle_of(*bucket))
        })
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let (mut bytes, mut before) = (Vec::new(), 0);
        for (bucket, count) in &self.buckets {
            put(&mut bytes, u64::from(bucket - before));
            put(&mut bytes, *count);
            before = *bucket;
        }
        bytes
    }

    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, Unreadable> {
        let (mut sketch, mut bucket) = (Sketch::default(), 0u64);
        let top = u64::from(bucket_of(MICROS_MAX));
        while !bytes.is_empty() {
            bucket = bucket.checked_add(get(&mut bytes)?).filter(|bucket| *bucket <= top).ok_or(Unreadable)?;
            let count = get(&mut bytes)?;
            if sketch.buckets.insert(bucket as u16, count).is_some() || count == 0 {
                return Err(Unreadable);
            }
            sketch.count = sketch.count.checked_add(count).ok_or(Unreadable)?;
        }
        Ok(sketch)
    }
}

/// How much wider each bucket is than the one before.
fn factor() -> f64 {
    (1.0 + ERROR) / (1.0 - ERROR)
}

fn bucket_of(micros: u64) -> u16 {
    match micros {
        0 | 1 => 0,
        _ => ((micros.min(MICROS_MAX) as f64).ln() / factor().ln()).ceil() as u16,
    }
}

/// As far, by share, from the one bound as from the other.
fn middle_of(bucket: u16) -> u64 {
    let upper = factor().powi(i32::from(bucket));
    (upper * 2.0 / (1.0 + factor())).round() as u64
}

/// Seven bits a byte, the lowest first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn get(bytes: &mut &[u8]) -> Result<u64, Unreadable> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(Unreadable)?;
        *bytes = rest;
        let bits = u64::from(first & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(Unreadable);
        }
        number |= bits << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Unreadable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: &[u64]) -> Sketch {
        let mut sketch = Sketch::default();
        times.iter().for_each(|micros| sketch.add(*micros));
        sketch
    }

    proptest! {
        #[test]
        fn a_percentile_is_right_to_within_its_error(mut times in prop::collection::vec(1..100_000_000u64, 1..300), share in 0.0..=1.0f64) {
            let found = of(&times).quantile(share).unwrap() as f64;
            times.sort_unstable();
            let exact = times[(share * (times.len() - 1) as f64).round() as usize] as f64;
            // The half is for rounding to whole microseconds.
            prop_assert!((found - exact).abs() <= exact * ERROR + 0.5 + 1e-6 * exact, "{found} for {exact}");
        }

        #[test]
        fn parts_add_up_to_the_whole(times in prop::collection::vec(0..u64::MAX, 0..200), cut in 0..200usize) {
            let (one, other) = times.split_at(cut.min(times.len()));
            let (mut there, mut back) = (of(one), of(other));
            there.merge(&of(other));
            back.merge(&of(one));
            prop_assert_eq!(&there, &of(&times));
            prop_assert_eq!(there, back);
        }

        #[test]
        fn what_is_written_is_read_and_rubbish_is_refused(times in prop::collection::vec(0..u64::MAX, 0..200), rubbish in prop::collection::vec(any::<u8>(), 0..40)) {
            let sketch = of(&times);
            prop_assert_eq!(Sketch::from_bytes(&sketch.to_bytes()), Ok(sketch));
            if let Ok(read) = Sketch::from_bytes(&rubbish) {
                prop_assert_eq!(Sketch::from_bytes(&read.to_bytes()), Ok(read));
            }
        }
    }

    #[test]
    fn a_minute_of_checks_is_a_few_dozen_bytes() {
        let times: Vec<u64> = (0..600).map(|n| 20_000 + n * 37 % 9_000).collect();
        assert!(of(&times).to_bytes().len() < 60, "{}", of(&times).to_bytes().len());
    }
}
