//! Which snapshots are kept, and how much of a log: pure functions of what hosts say and of what is kept already.
//!
//! Two snapshots of a stage are kept, of whichever replica: should the newest not read well, the one before does, and a log is
//! not shortened past that one. A snapshot that is not needed any more is retired first and removed later, since a host may be
//! reading it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_streams::wire::{Part, Report, Snapshot, StreamId, What};

use crate::store::Kept;

/// Snapshots of a stage, a source or a sink.
const KEPT: usize = 2;
/// For so long a host may be reading one that it was told of, and longer by what it has to read.
const READ_WITHIN: Duration = Duration::from_secs(10);
const BYTES_A_SECOND: u64 = 1 << 20;

/// What is to be kept together.
pub type Group = (StreamId, What);

/// What to write down.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    pub add: Vec<Kept>,
    pub retire: Vec<(String, Timestamp)>,
}

/// Which hosts were given which parts: while one moves, there are two.
pub type Given<'a> = BTreeSet<(&'a str, &'a Part)>;

/// What hosts have said anew, each with who said it: `epochs` are those of parts as they are placed. Nobody is believed about a part
/// that is not his.
pub fn fold(
    kept: &[Kept],
    reports: &[(&str, &Report)],
    given: &Given<'_>,
    epochs: &BTreeMap<Part, u64>,
    now: Timestamp,
) -> Changes {
    let known: BTreeSet<&str> = kept.iter().map(|kept| kept.snapshot.key.as_str()).collect();
    let mut add: BTreeMap<String, Kept> = BTreeMap::new();
    for (host, report) in reports {
        let Some(snapshot) = &report.snapshot else { continue };
        if !given.contains(&(*host, &report.part)) {
            continue;
        }
        let Some(current) = epochs.get(&report.part) else { continue };
        // Replicas of a stage agree, whoever told them to run. Of what has one place only the newest knows.
        let counts = matches!(report.part.what, What::Stage(_)) || report.epoch == *current;
        if counts && !known.contains(snapshot.key.as_str()) && is_of(&report.part, snapshot) {
            let (part, epoch, snapshot) = (report.part.clone(), report.epoch, snapshot.clone());
            add.insert(snapshot.key.clone(), Kept { part, epoch, snapshot, retired_at: None });
        }
    }
    let mut groups: BTreeMap<Group, Vec<&Kept>> = BTreeMap::new();
    for one in kept.iter().filter(|one| one.retired_at.is_none()).chain(add.values()) {
        groups.entry((one.part.stream.clone(), one.part.what)).or_default().push(one);
    }
    let mut retire = Vec::new();
    for all in groups.values_mut() {
        all.sort_by(|a, b| rank(b).cmp(&rank(a)));
        retire.extend(all.iter().skip(KEPT).map(|one| (one.snapshot.key.clone(), now)));
    }
    Changes { add: add.into_values().collect(), retire }
}

/// A host names what it wrote; no other part's, and nothing else.
fn is_of(part: &Part, snapshot: &Snapshot) -> bool {
    mutirao_streams::wire::part_of_snapshot(&snapshot.key).as_ref() == Some(part)
}

/// By how far it is. Of a source or sink, that of a later epoch is the later one.
fn rank(kept: &Kept) -> (u64, u64, Timestamp, &str) {
    let epoch = if matches!(kept.part.what, What::Stage(_)) { 0 } else { kept.epoch };
    (epoch, kept.snapshot.offset, kept.snapshot.taken_at, &kept.snapshot.key)
}

/// To begin from, the newest first.
pub fn newest_first(kept: &[Kept], stream: &StreamId, what: What) -> Vec<Snapshot> {
    let mut all: Vec<&Kept> = kept
        .iter()
        .filter(|kept| kept.part.stream == *stream && kept.part.what == what && kept.retired_at.is_none())
        .collect();
    all.sort_by(|a, b| rank(b).cmp(&rank(a)));
    all.into_iter().take(KEPT).map(|kept| kept.snapshot.clone()).collect()
}

/// Those that nobody can be reading any more.
pub fn removable(kept: &[Kept], now: Timestamp) -> Vec<&Kept> {
    let over = |kept: &&Kept| {
        let within = READ_WITHIN + Duration::from_secs(kept.snapshot.bytes / BYTES_A_SECOND);
        kept.retired_at.is_some_and(|retired_at| now.since(retired_at) > within)
    };
    kept.iter().filter(over).collect()
}

/// The first offset of its log that a reader may have to read again: of the older of two snapshots, so that either will do.
pub fn needed(kept: &[Kept], stream: &StreamId, what: What) -> u64 {
    let snapshots = newest_first(kept, stream, what);
    if snapshots.len() < KEPT { 0 } else { snapshots.iter().map(|snapshot| snapshot.offset).min().unwrap_or(0) }
}

/// How much of a log is needed by nobody: what comes before it may go. `next` is where its readers are who can be heard.
pub fn trim(kept: &[Kept], stream: &StreamId, what: What, next: impl IntoIterator<Item = u64>) -> u64 {
    next.into_iter().fold(needed(kept, stream, what), u64::min)
}

#[cfg(test)]
mod tests {
    use mutirao_streams::wire::{Measures, State, snapshot_key};
    use proptest::prelude::*;

    use super::*;

    fn part(what: What, replica: u32) -> Part {
        Part { stream: StreamId("s".into()), what, replica }
    }

    fn report(part: Part, epoch: u64, offset: u64) -> Report {
        let key = snapshot_key(&part, epoch, offset, 1);
        let snapshot = Some(Snapshot { offset, key, bytes: 10, taken_at: Timestamp(offset as i64) });
        Report { part, epoch, state: State::Running, next: offset + 5, snapshot, measures: Measures::default() }
    }

    fn apply(kept: &mut Vec<Kept>, changes: Changes) {
        kept.extend(changes.add);
        for (key, at) in changes.retire {
            kept.iter_mut().find(|kept| kept.snapshot.key == key).unwrap().retired_at = Some(at);
        }
    }

    fn told(kept: &mut Vec<Kept>, reports: &[Report], current: u64) {
        let reports: Vec<(&str, &Report)> = reports.iter().map(|report| ("h", report)).collect();
        let epochs = reports.iter().map(|(_, report)| (report.part.clone(), current)).collect();
        let given = reports.iter().map(|(host, report)| (*host, &report.part)).collect();
        let changes = fold(kept, &reports, &given, &epochs, Timestamp(1_000));
        apply(kept, changes);
    }

    #[test]
    fn two_of_a_stage_are_kept_whoever_took_them_and_the_log_from_the_older_on() {
        let (what, id) = (What::Stage(0), StreamId("s".into()));
        let mut kept = Vec::new();
        told(&mut kept, &[report(part(what, 0), 1, 100)], 1);
        assert_eq!(needed(&kept, &id, what), 0, "one may not read well");
        told(&mut kept, &[report(part(what, 0), 1, 200), report(part(what, 1), 7, 150)], 1);
        let offsets = |kept: &[Kept]| newest_first(kept, &id, what).iter().map(|one| one.offset).collect::<Vec<_>>();
        assert_eq!((offsets(&kept), needed(&kept, &id, what)), (vec![200, 150], 150));
        assert_eq!(trim(&kept, &id, what, [205, 120]), 120, "a slow reader is waited for");
        assert_eq!(removable(&kept, Timestamp(5_000)).len(), 0);
        let gone = removable(&kept, Timestamp(20_000));
        assert_eq!((gone.len(), gone[0].snapshot.offset), (1, 100));
        let before = kept.clone();
        told(&mut kept, &[report(part(what, 0), 1, 200)], 1);
        assert_eq!(kept, before, "what is known changes nothing");
    }

    #[test]
    fn of_what_has_one_place_only_the_newest_epoch_counts() {
        let (what, id) = (What::Source(0), StreamId("s".into()));
        let mut kept = Vec::new();
        told(&mut kept, &[report(part(what, 0), 1, 900)], 1);
        told(&mut kept, &[report(part(what, 0), 2, 20)], 2);
        told(&mut kept, &[report(part(what, 0), 1, 950)], 2);
        let offsets: Vec<u64> = newest_first(&kept, &id, what).iter().map(|one| one.offset).collect();
        assert_eq!(offsets, [20, 900]);
    }

    #[test]
    fn a_host_names_no_blob_but_its_parts_own() {
        let mut kept = Vec::new();
        let mut foreign = report(part(What::Stage(0), 0), 1, 10);
        foreign.snapshot.as_mut().unwrap().key = snapshot_key(&part(What::Stage(1), 0), 1, 10, 1);
        told(&mut kept, &[foreign], 1);
        assert_eq!(kept, []);
    }

    #[test]
    fn a_host_is_believed_about_no_part_that_it_was_not_given() {
        let part = part(What::Stage(0), 0);
        let far = report(part.clone(), 1, 1 << 40);
        let epochs = BTreeMap::from([(part.clone(), 1)]);
        let given = BTreeSet::from([("its", &part), ("where it moves to", &part)]);
        let add = |host: &str| fold(&[], &[(host, &far)], &given, &epochs, Timestamp(1)).add.len();
        assert_eq!((add("another"), add("its"), add("where it moves to")), (0, 1, 1));
    }

    proptest! {
        #[test]
        fn whatever_is_said_the_two_furthest_are_kept(offsets in prop::collection::vec((0..3_u32, 0..50_u64), 1..40)) {
            let (what, id) = (What::Stage(0), StreamId("s".into()));
            let mut kept = Vec::new();
            for (replica, offset) in &offsets {
                told(&mut kept, &[report(part(what, *replica), 1, *offset)], 1);
            }
            let mut wanted: Vec<(u64, u32)> = offsets.iter().map(|(replica, offset)| (*offset, *replica)).collect();
            wanted.sort_unstable();
            wanted.dedup();
            let wanted: Vec<u64> = wanted.iter().rev().take(2).map(|(offset, _)| *offset).collect();
            let found: Vec<u64> = newest_first(&kept, &id, what).iter().map(|one| one.offset).collect();
            prop_assert_eq!(&found, &wanted);
            prop_assert!(needed(&kept, &id, what) <= *wanted.last().unwrap());
        }
    }
}
