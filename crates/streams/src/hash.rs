//! A number for a value that is the same on each machine and in each version, unlike those of hash maps: for sharing keys
//! out among partitions, and for sketches, whose answers replicas must agree on. Not for guarding against whoever chooses
//! values on purpose: such a person could fill one partition, and can do so with a single key too.

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finish of SplitMix64: each bit of the input turns about half of the output.
pub fn int(value: i64) -> u64 {
    let mut z = (value as u64).wrapping_add(ODD);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub fn text(text: &str) -> u64 {
    bytes(text.as_bytes())
}

/// Eight bytes at a time, the rest with noughts; the length sees to it that noughts count.
pub fn bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = int(bytes.len() as i64);
    for word in words {
        hash = int((hash ^ u64::from_le_bytes(*word)) as i64);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    int((hash ^ u64::from_le_bytes(last)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These must never change: partitions and snapshots are by them.
    #[test]
    fn the_numbers_are_what_they_always_were() {
        assert_eq!(int(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(text(""), 0xa706_dd2f_4d19_7e6f);
        assert_eq!(text("meter-00042"), 0x9bd2_7d02_f454_7151);
        assert_ne!(text("a"), text("a\0"));
        assert_ne!(text("a"), text("b\0"));
        assert_ne!(text("12345678"), text("12345678\0"));
    }

    #[test]
    fn keys_spread_evenly() {
        for parts in [2, 7, 16] {
            let mut counts = vec![0; parts];
            (0..10_000).for_each(|n| counts[(text(&format!("meter-{n}")) % parts as u64) as usize] += 1);
            let even = 10_000 / parts;
            assert!(counts.iter().all(|count| (even * 8 / 10..even * 12 / 10).contains(count)), "{counts:?}");
        }
    }
}
