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

/// What a writer does before it appends; whether it may.
fn may(pressure: &mut Pressure, bytes: u64, end: u64, now: Mono) -> bool {
    if pressure.may(bytes, now) == May::Look {
        pressure.looked(end, now);
    }
    pressure.may(bytes, now) == May::Append
}

#[test]
fn a_reader_that_stands_still_holds_the_writer_and_one_that_goes_on_lets_it_go() {
    let mut pressure = Pressure::of(4_000, 1, [part(0)], 0, 0);
    assert!(may(&mut pressure, 900, 0, at(0)));
    pressure.appends(9, 900);
    assert!(!may(&mut pressure, 101, 9, at(0)) && may(&mut pressure, 100, 9, at(0)));
    pressure.heard(&told(0, 5, 9), at(0));
    assert!(!may(&mut pressure, 601, 9, at(0)) && may(&mut pressure, 600, 9, at(0)));
}

#[test]
fn a_slow_replica_never_holds_the_quick_one_back() {
    let mut pressure = Pressure::of(4_000, 1, [part(0), part(1)], 0, 0);
    pressure.appends(9, 900);
    assert!(!may(&mut pressure, 101, 9, at(0)));
    pressure.heard(&told(0, 9, 9), at(0));
    assert!(may(&mut pressure, 1_000, 9, at(0)), "the other has said nothing, and may be dead");
    pressure.heard(&told(1, 2, 3), at(0));
    pressure.appends(10, 1_000);
    assert!(!may(&mut pressure, 1, 19, at(0)), "it is slow, and now the quick one has something to do too");
    pressure.heard(&told(1, 19, 19), at(0));
    assert!(may(&mut pressure, 1_000, 19, at(60_000)), "now the other is the quicker one");
}

#[test]
fn a_writer_that_its_reader_keeps_up_with_looks_at_the_log_once_for_many_appends() {
    let mut pressure = Pressure::of(400_000, 2, [part(0)], 0, 0);
    let (mut end, mut looks) = (0, 0);
    for ms in 0..1_000 {
        if pressure.may(1_000, at(ms)) == May::Look {
            looks += 1;
            pressure.looked(end, at(ms));
        }
        assert_eq!(pressure.may(1_000, at(ms)), May::Append);
        pressure.appends(10, 1_000);
        end += 10;
        pressure.heard(&told(0, end, end), at(ms));
    }
    assert!(looks <= 25, "{looks} looks for a megabyte");
}

#[test]
fn two_writers_together_append_no_quicker_than_their_reader_reads() {
    const KEPT: u64 = 40_000;
    let mut writers: Vec<Pressure> = (0..2).map(|_| Pressure::of(KEPT, 2, [part(0)], 0, 0)).collect();
    let (mut end, mut read) = (0u64, 0u64);
    for step in 0..10_000 {
        let writer = &mut writers[step % 2];
        if may(writer, 500, end, at(0)) {
            writer.appends(5, 500);
            end += 5;
        }
        if step % 10 == 0 {
            read = (read + 1).min(end);
            writers.iter_mut().for_each(|writer| writer.heard(&told(0, read, read), at(0)));
        }
        assert!((end - read) * 100 <= KEPT, "{} bytes are held of {KEPT}", (end - read) * 100);
    }
    assert!(read > 500);
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
    assert!(may(&mut pressure, 5_000, 7, at(0)));
    pressure.appends(1, 5_000);
    assert!(!may(&mut pressure, 1, 8, at(0)));
    pressure.heard(&told(0, 8, 8), at(0));
    assert!(may(&mut pressure, 5_000, 8, at(0)));
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
                    let end = log.len() as u64;
                    if may(&mut writers[writer], bytes, end, at(0)) {
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
            prop_assert!(may(writer, 1_000, end, at(0)));
        }
    }
}
