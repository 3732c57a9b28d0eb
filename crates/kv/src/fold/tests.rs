//! Single cases, and what holds for every history: the same as applying one by one, whatever is repeated and however it is
//! cut into batches.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn place(key: &str) -> Place {
    Place { namespace: "default".into(), key: key.parse().unwrap() }
}

fn put(key: &str, value: &str, condition: Condition) -> Write {
    let value = Value::new(Bytes::copy_from_slice(value.as_bytes()), None).unwrap();
    Write { place: place(key), change: Change::Put { value, lasts: None }, condition }
}

fn delete(key: &str) -> Write {
    Write { place: place(key), change: Change::Delete, condition: Condition::None }
}

fn parcel(number: u64, writes: Vec<Write>) -> Parcel {
    Parcel { producer: Producer(7), number, writes }
}

fn one(before: Before, write: Write, now: Timestamp) -> (Fate, Folded) {
    let folded = fold(before, vec![parcel(1, vec![write])], now);
    (folded.taken[0].fates[0], folded)
}

fn after(folded: &Folded) -> Before {
    let entries = folded.entries.iter().map(|(place, entry)| (place.clone(), entry.clone())).collect();
    Before { revision: folded.revision, entries, heard: HashMap::new() }
}

#[test]
fn every_write_takes_a_revision_and_the_last_of_a_key_stays() {
    let writes = vec![
        put("a", "1", Condition::None),
        put("a", "2", Condition::Absent),
        put("b", "3", Condition::Absent),
        delete("c"),
        delete("a"),
        put("a", "4", Condition::At(5)),
    ];
    let folded = fold(Before { revision: 10, ..Before::default() }, vec![parcel(1, writes)], NOW);
    assert_eq!(folded.revision, 16);
    let kinds: Vec<Kind> = folded.history.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Kind::Put, Kind::Conflict, Kind::Put, Kind::Nothing, Kind::Delete, Kind::Conflict]);
    let Taken { first, fates, .. } = &folded.taken[0];
    assert_eq!(*first, 11);
    assert_eq!(fates[1], Fate::Conflict { there: Some(11) });
    assert_eq!(fates[3], Fate::Applied { revision: 14 });
    assert_eq!(fates[5], Fate::Conflict { there: None }, "it is deleted");
    assert_eq!(folded.entries.len(), 2, "what was not there leaves nothing");
    assert_eq!((folded.entries[&place("a")].revision, &folded.entries[&place("a")].value), (15, &None));
}

#[test]
fn a_condition_is_about_what_is_there_when_it_is_applied() {
    let (fate, first) = one(Before::default(), put("a", "1", Condition::Absent), NOW);
    assert_eq!(fate, Fate::Applied { revision: 1 });
    assert_eq!(one(after(&first), put("a", "2", Condition::Absent), NOW).0, Fate::Conflict { there: Some(1) });
    assert_eq!(one(after(&first), put("a", "2", Condition::At(1)), NOW).0, Fate::Applied { revision: 2 });
    assert_eq!(one(after(&first), put("b", "2", Condition::At(1)), NOW).0, Fate::Conflict { there: None });
}

#[test]
fn what_has_lasted_its_time_is_not_there_and_expires_once() {
    let value = Value::new(Bytes::from_static(b"1"), None).unwrap();
    let lasts = Some(Duration::from_secs(10));
    let write = Write { place: place("a"), change: Change::Put { value, lasts }, condition: Condition::None };
    let (_, first) = one(Before::default(), write, NOW);
    let later = NOW.plus(Duration::from_secs(10));
    let early = expire(after(&first), vec![place("a")], NOW.plus(Duration::from_secs(9)));
    assert!(early.history.is_empty() && early.revision == 1);
    let (fate, replaced) = one(after(&first), put("a", "2", Condition::Absent), later);
    assert_eq!(fate, Fate::Applied { revision: 3 }, "it is over, though nobody has swept it");
    assert!(expire(after(&replaced), vec![place("a")], later).history.is_empty(), "another one is there now");
    let over = expire(after(&first), vec![place("a"), place("b")], later);
    assert_eq!(over.history.iter().map(|event| event.kind).collect::<Vec<_>>(), [Kind::Expire]);
    assert!(expire(after(&over), vec![place("a")], later).history.is_empty());
}

/// Whoever was told that it is not there may count on it, though the next batch is applied by a machine whose clock is behind.
#[test]
fn what_is_over_ends_before_anybody_is_told_that_it_is_not_there() {
    let value = Value::new(Bytes::from_static(b"1"), None).unwrap();
    let lasts = Some(Duration::from_secs(10));
    let write = |condition, change| Write { place: place("a"), change, condition };
    let (_, first) = one(Before::default(), write(Condition::None, Change::Put { value, lasts }), NOW);
    let later = NOW.plus(Duration::from_secs(10));
    for (asked, told) in [
        (delete("a"), Fate::Applied { revision: 3 }),
        (put("a", "2", Condition::At(1)), Fate::Conflict { there: None }),
        (write(Condition::At(1), Change::Delete), Fate::Conflict { there: None }),
    ] {
        let (fate, folded) = one(after(&first), asked, later);
        assert_eq!((fate, folded.taken[0].first), (told, 3));
        assert_eq!(folded.history[0].kind, Kind::Expire);
        assert_eq!(folded.entries[&place("a")].value, None, "nobody finds it by another clock either");
    }
    let again =
        fold(Before { heard: [(Producer(7), 1)].into(), ..after(&first) }, vec![parcel(1, vec![delete("a")])], later);
    assert!(again.history.is_empty(), "what comes again changes nothing");
}

fn any_write() -> impl Strategy<Value = Write> {
    let condition = prop_oneof![
        3 => Just(Condition::None),
        1 => Just(Condition::Absent),
        1 => (0..30u64).prop_map(Condition::At),
    ];
    (prop::sample::select(vec!["a", "b", "c"]), any::<bool>(), 0..100u32, condition).prop_map(
        |(key, is_put, value, condition)| {
            let write = if is_put { put(key, &value.to_string(), condition) } else { delete(key) };
            Write { condition, ..write }
        },
    )
}

proptest! {
    /// However the parcels are cut into batches, and whichever come again, later: what is there, the history and every fate
    /// are those of applying each once, in order.
    #[test]
    fn batches_and_repetitions_change_nothing(
        parcels in prop::collection::vec(prop::collection::vec(any_write(), 1..4), 1..12),
        cuts in prop::collection::vec(1..4usize, 12),
        again in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let parcels: Vec<Parcel> =
            parcels.into_iter().enumerate().map(|(n, writes)| parcel(n as u64 + 1, writes)).collect();
        let whole = fold(Before::default(), parcels.clone(), NOW);

        let (mut state, mut history, mut taken) = (Before::default(), Vec::new(), Vec::new());
        let mut rest = parcels.as_slice();
        for (n, cut) in cuts.into_iter().enumerate() {
            let (batch, behind) = rest.split_at(cut.min(rest.len()));
            rest = behind;
            let mut batch = batch.to_vec();
            // What was heard before comes again.
            let heard = parcels.len() - rest.len();
            if let Some(index) = again.get(n).filter(|_| heard > 0) {
                batch.push(parcels[index.index(heard)].clone());
            }
            let folded = fold(state.clone(), batch, NOW);
            state.revision = folded.revision;
            state.entries.extend(folded.entries);
            state.heard.extend(folded.taken.iter().map(|taken| (taken.producer, taken.number)));
            history.extend(folded.history);
            taken.extend(folded.taken);
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(&state.entries.into_iter().collect::<BTreeMap<_, _>>(), &whole.entries);
        prop_assert_eq!(&history, &whole.history);
        prop_assert_eq!(&taken, &whole.taken);
    }

    /// A key's revision only grows, and each revision of the shard is taken once.
    #[test]
    fn revisions_only_grow(writes in prop::collection::vec(any_write(), 1..40)) {
        let folded = fold(Before::default(), vec![parcel(1, writes)], NOW);
        for (n, event) in folded.history.iter().enumerate() {
            prop_assert_eq!(event.revision, n as u64 + 1);
        }
        for (place, entry) in &folded.entries {
            let last = folded.history.iter().rev().find(|event| event.place == *place && event.kind.changes()).unwrap();
            prop_assert_eq!((last.revision, &last.value), (entry.revision, &entry.value));
        }
    }
}
