use proptest::prelude::*;

use super::*;

#[test]
fn frames_that_are_not_whole_or_not_ours_are_refused() {
    let frame = seal(7, b"what was".to_vec());
    assert_eq!(open(7, &frame), Ok(&b"what was"[..]));
    assert_eq!(open(8, &frame), Err(Unreadable::Other));
    assert_eq!(open(7, b"what"), Err(Unreadable::Foreign));
    assert_eq!(open(7, &[]), Err(Unreadable::Foreign));
    let mut newer = frame.clone();
    newer[4] = 9;
    assert_eq!(open(7, &newer), Err(Unreadable::Version(9)));
    assert_eq!(open(7, &frame[..frame.len() - 1]), Err(Unreadable::Damaged));
}

proptest! {
    #[test]
    fn a_turned_bit_is_found(body in prop::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let mut frame = seal(7, body);
        let at = at.index(frame.len());
        frame[at] ^= 1u8 << bit;
        prop_assert!(open(7, &frame).is_err());
    }

    /// A list of numbers that change while it is written down.
    #[test]
    fn a_snapshot_is_of_the_instant_at_which_it_began(
        numbers in prop::collection::vec(any::<u64>(), 0..2000),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..2usize), 0..50),
    ) {
        let mut wanted = Writer::default();
        wanted.u64(numbers.len() as u64);
        numbers.iter().for_each(|number| wanted.u64(*number));
        let mut now = numbers;
        let mut saver = Saver::of(now.len());
        for (at, value, chunks) in changes {
            if !now.is_empty() {
                let at = at.index(now.len());
                saver.before(at as u32, &|key, to| to.u64(now[key]));
                now[at] = value;
            }
            now.push(value);
            saver.advance(chunks, &|key, to| to.u64(now[key]));
        }
        let pieces = saver.finish(&|key, to| to.u64(now[key]));
        let wanted = wanted.into_bytes();
        prop_assert_eq!(&pieces.concat(), &wanted);
        // Put together a little at a time it is what it is in one go.
        let mut frame = Some(Frame::of(7, pieces));
        let framed = std::iter::from_fn(|| Some(Frame::go_on(&mut frame, 1))).flatten().next();
        prop_assert_eq!(framed, Some(seal(7, wanted)));
    }
}
