use proptest::prelude::*;

use super::*;
use crate::batch::tests::{batch, rows as some_rows, schema};

fn origin() -> impl Strategy<Value = Origin> {
    prop_oneof![Just(Origin::Fixed), any::<u64>().prop_map(Origin::Epoch), any::<u64>().prop_map(Origin::Free)]
}

prop_compose! {
    fn written()(
        rows in some_rows(), origin in origin(), upstream in any::<u32>(), replica in 0u32..5, first in 0u64..1 << 40,
        times in any::<[i64; 4]>(), marks in prop::collection::vec((any::<prop::sample::Index>(), any::<i64>()), 0..5),
    ) -> (Header, Times, Batch) {
        let batch = batch(&rows);
        let count = batch.rows();
        let mut watermarks: Vec<(u64, i64)> =
            marks.into_iter().map(|(at, time)| (first + at.index(count + 1) as u64, time)).collect();
        watermarks.sort_by_key(|(before, _)| *before);
        let [sent_us, arrived_us, caused_us, taken_us] = times;
        let header = Header { upstream, origin, replica, first, rows: count as u32, watermarks };
        (header, Times { sent_us, arrived_us, caused_us, taken_us }, batch)
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again((header, times, batch) in written()) {
        let bytes = rows(&header, &times, &batch);
        let Record::Rows(record) = read(&bytes).unwrap() else { panic!("no rows") };
        prop_assert_eq!(&record.header, &header);
        prop_assert_eq!(record.times, times);
        prop_assert_eq!(record.events(&schema()).unwrap(), batch);
    }

    #[test]
    fn one_changed_byte_is_noticed((header, times, batch) in written(), at in any::<prop::sample::Index>(), by in 1u8..) {
        let mut bytes = rows(&header, &times, &batch);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        let read = read(&bytes).map(|record| match record {
            Record::Rows(record) => record.events(&schema()).is_ok(),
            Record::Tick(_) => true,
        });
        prop_assert!(!matches!(read, Ok(true)), "{read:?}");
    }

    #[test]
    fn rubbish_gives_an_answer(mut bytes in prop::collection::vec(any::<u8>(), 0..200), framed in any::<bool>(), length in 0u32..200) {
        if framed && bytes.len() >= FRAME_BYTES {
            bytes[..3].copy_from_slice(MAGIC);
            bytes[3] = VERSION;
            let length = length.min((bytes.len() - FRAME_BYTES) as u32);
            bytes[8..12].copy_from_slice(&length.to_le_bytes());
            let sum = crc32fast::hash(&bytes[8..FRAME_BYTES + length as usize]);
            bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        }
        if let Ok(Record::Rows(record)) = read(&bytes) {
            let _ = record.events(&schema());
        }
    }

    /// A newer program may have more to say; an older one reads what it knows.
    #[test]
    fn what_stands_behind_a_head_is_passed_over((header, times, batch) in written(), more in prop::collection::vec(any::<u8>(), 1..40)) {
        let bytes = rows(&header, &times, &batch);
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let (head, body) = bytes[FRAME_BYTES..].split_at(length);
        let mut longer = framed(&[head, &more].concat(), 0);
        longer.extend(body);
        let Record::Rows(record) = read(&longer).unwrap() else { panic!("no rows") };
        prop_assert_eq!(&record.header, &header);
        prop_assert_eq!(record.events(&schema()).unwrap(), batch);
    }

    #[test]
    fn a_tick_is_read_again(upstream in any::<u32>(), replica in any::<u32>(), time in any::<i64>(), sent_us in any::<i64>()) {
        let one = Tick { upstream, replica, time, sent_us };
        let bytes = tick(&one);
        prop_assert_eq!(read(&bytes), Ok(Record::Tick(one)));
    }
}

#[test]
fn what_only_a_newer_program_knows_is_told_apart() {
    assert_eq!(read(&framed(&[9, 1, 2], 0)), Err(RecordError::Kind(9)));
    let mut newer = framed(&[ROWS], 0);
    newer[3] = 2;
    assert_eq!(read(&newer), Err(RecordError::Version(2)));
    assert_eq!(read(b"hello, world"), Err(RecordError::NoRecord));
}
