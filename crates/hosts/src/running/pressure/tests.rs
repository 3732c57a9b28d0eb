use mutirao_streams::wire::{StreamId, What};
use proptest::prelude::*;

use super::*;

fn part(replica: u32) -> Part {
    Part { stream: StreamId("s".into()), what: What::Stage(0), replica }
}

fn at(ms: u64) -> Mono {
    Mono(Duration::from_millis(ms))
}

fn told(replica: u32, needed: u64, next: u64) -> Progress {
    Progress { reader: part(replica), needed, next, record_bytes: 100, latencies: vec![] }
}

#[test]
fn a_reader_that_stands_still_holds_the_writer_and_one_that_goes_on_lets_it_go() {
    let mut pressure = Pressure::of(4_000, 1, [part(0)], 0, 0);
    assert!(pressure.admits(900, at(0)));
    pressure.appends(9, 900);
    assert!(pressure.admits(100, at(0)) && !pressure.admits(101, at(0)));
    pressure.heard(&told(0, 5, 9), at(0));
    assert!(pressure.admits(600, at(0)) && !pressure.admits(601, at(0)));
}

#[test]
fn a_slow_replica_never_holds_the_quick_one_back() {
    let mut pressure = Pressure::of(4_000, 1, [part(0), part(1)], 0, 0);
    pressure.appends(9, 900);
    assert!(!pressure.admits(101, at(0)));
    pressure.heard(&told(0, 9, 9), at(0));
    assert!(pressure.admits(1_000, at(0)), "the other has said nothing, and may be dead");
    pressure.heard(&told(1, 2, 3), at(0));
    assert!(pressure.admits(1_000, at(0)) && !pressure.admits(1_001, at(0)), "it is slow");
    pressure.appends(10, 1_000);
    pressure.heard(&told(1, 19, 19), at(0));
    assert!(pressure.admits(1_000, at(60_000)), "now the other is the quicker one");
}

#[test]
fn a_reader_that_vanished_is_dropped_when_the_manager_says_so_and_not_before() {
    let mut pressure = Pressure::of(4_000, 1, [part(0)], 0, 0);
    pressure.appends(10, 1_000);
    pressure.heard(&told(0, 3, 3), at(0));
    pressure.ordered(9);
    assert_eq!(pressure.needed(at(1)), 3, "it is alive");
    assert_eq!(pressure.needed(at(60_000)), 9, "silent, and nobody needs it");
    pressure.heard(&told(0, 4, 4), at(60_000));
    assert_eq!(pressure.needed(at(60_001)), 4, "it is back");
}

#[test]
fn what_is_larger_than_the_bound_passes_when_nothing_is_held() {
    let mut pressure = Pressure::of(400, 1, [part(0)], 7, 7);
    assert!(pressure.admits(5_000, at(0)));
    pressure.appends(1, 5_000);
    assert!(!pressure.admits(1, at(0)));
    pressure.heard(&told(0, 8, 8), at(0));
    assert!(pressure.admits(5_000, at(0)));
}

proptest! {
    /// Writers and readers in any order; announcements reach each writer late, or not at all.
    #[test]
    fn a_log_never_loses_what_the_quickest_reader_needs(
        steps in prop::collection::vec((0..3usize, 0..2usize, 1..4u64, 20..200u64, 0..4u8), 1..400),
    ) {
        const KEPT: u64 = 20_000;
        let mut writers: Vec<Pressure> = (0..3).map(|_| Pressure::of(KEPT, 3, [part(0), part(1)], 0, 0)).collect();
        let mut log: Vec<u64> = Vec::new();
        let mut readers = [0u64; 2];
        for (writer, reader, records, size, what) in steps {
            match what {
                0 | 1 => {
                    let bytes = records * size;
                    if writers[writer].admits(bytes, at(0)) {
                        writers[writer].appends(records, bytes);
                        (0..records).for_each(|_| log.push(size));
                    }
                }
                2 => readers[reader] = (readers[reader] + records * 3).min(log.len() as u64),
                _ => {
                    let behind = &log[..readers[reader] as usize];
                    let record_bytes = behind.iter().rev().take(20).sum::<u64>() / behind.len().clamp(1, 20) as u64;
                    let next = readers[reader];
                    let told = Progress { reader: part(reader as u32), needed: next, next, record_bytes, latencies: vec![] };
                    writers[writer].heard(&told, at(0));
                }
            }
            let quickest = *readers.iter().max().unwrap() as usize;
            let held: u64 = log[quickest..].iter().sum();
            prop_assert!(held <= KEPT, "{held} bytes are held of {KEPT}");
        }
        // Once all have read all and said so, everybody may go on.
        let end = log.len() as u64;
        for writer in &mut writers {
            for replica in 0..2 {
                writer.heard(&told(replica, end, end), at(0));
            }
            prop_assert!(writer.admits(1_000, at(0)));
        }
    }
}
