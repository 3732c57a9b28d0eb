use std::time::Duration;

use bytes::Bytes;
use mutirao_core::{ShardId, Timestamp};
use mutirao_kv::store::{Applying, Extent, Forget, Forgot, Known, Page, Past, Range, Shared, open};
use mutirao_kv::write::{Parcel, Producer};
use mutirao_kv::{Change, Condition, Entry, Fate, Key, Kind, Place, Point, Value, Write, WriteId};
use mutirao_shards::Fence;

use crate::engine::{Engine, on_both};

on_both!(
    writes_are_applied_in_order_and_read_back,
    a_parcel_that_comes_again_changes_nothing,
    whoever_lost_the_shard_writes_nothing,
    a_list_stays_at_its_point_whatever_is_written_meanwhile,
    the_past_is_told_in_order_and_forgotten_with_an_explicit_word,
    what_lasts_a_while_ends_with_an_event,
    a_write_can_be_asked_after,
    a_large_batch_is_one_transaction_and_keeps_every_byte,
);

pub const SENDER: Producer = Producer(u64::MAX);

pub fn place(key: &str) -> Place {
    Place { namespace: "default".into(), key: key.parse().unwrap() }
}

pub fn value(bytes: &[u8]) -> Value {
    Value::new(Bytes::copy_from_slice(bytes), Some("text/plain")).unwrap()
}

pub fn put(key: &str, text: &str) -> Write {
    let change = Change::Put { value: value(text.as_bytes()), lasts: None };
    Write { place: place(key), change, condition: Condition::None }
}

pub fn delete(key: &str) -> Write {
    Write { place: place(key), change: Change::Delete, condition: Condition::None }
}

pub fn parcel(number: u64, writes: Vec<Write>) -> Parcel {
    Parcel { producer: SENDER, number, writes }
}

pub async fn apply(store: &Shared, fence: &Fence, number: u64, writes: Vec<Write>, at: i64) -> (u64, Vec<Fate>) {
    match store.apply(fence.clone(), vec![parcel(number, writes)], Timestamp(at)).await.unwrap() {
        Applying::Done { revision, taken, .. } => (revision, taken.into_iter().flat_map(|taken| taken.fates).collect()),
        Applying::Fenced => panic!("fenced"),
    }
}

pub async fn text(store: &Shared, key: &str) -> Option<String> {
    let entry = store.entry(place(key)).await.unwrap()?;
    Some(String::from_utf8(entry.value?.bytes.to_vec()).unwrap())
}

pub fn everything(prefix: &str) -> Range {
    Range { namespace: "default".into(), prefix: prefix.into(), from: None }
}

/// Page after page, and how many there were.
pub async fn listed(store: &Shared, prefix: &str, point: &Point, rows: u32) -> Vec<(String, String)> {
    let mut range = everything(prefix);
    let mut all = Vec::new();
    loop {
        let Page::Of { found, next } = store.page(range.clone(), point.clone(), up_to(rows)).await.unwrap() else {
            panic!("compacted")
        };
        let shown = |entry: &Entry| String::from_utf8(entry.value.as_ref().unwrap().bytes.to_vec()).unwrap();
        all.extend(found.iter().map(|found| (found.key.to_string(), shown(&found.entry))));
        let Some(next) = next else { return all };
        range.from = Some(next);
    }
}

pub fn up_to(rows: u32) -> Extent {
    Extent { rows, bytes: 1 << 20 }
}

/// The past from before a moment, and no senders.
pub fn past(before: i64) -> Forget {
    Forget { past: Timestamp(before), senders: Timestamp(0), bound: None }
}

pub fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

async fn writes_are_applied_in_order_and_read_back(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let (revision, fates) = apply(&store, &fence, 1, vec![put("a", "1"), put("b", "2"), put("a", "3")], 10).await;
    assert_eq!((revision, fates[2]), (3, Fate::Applied { revision: 3 }));
    assert_eq!(text(&store, "a").await.as_deref(), Some("3"));
    let guarded = Write { condition: Condition::At(1), ..put("a", "4") };
    let (_, fates) = apply(&store, &fence, 2, vec![guarded, delete("b"), delete("b")], 20).await;
    assert_eq!(fates[0], Fate::Conflict { there: Some(3) });
    assert_eq!((fates[1], fates[2]), (Fate::Applied { revision: 5 }, Fate::Applied { revision: 6 }));
    assert_eq!((text(&store, "a").await.as_deref(), text(&store, "b").await), (Some("3"), None));
    let (_, fates) = apply(&store, &fence, 3, vec![Write { condition: Condition::Absent, ..put("b", "5") }], 30).await;
    assert_eq!(fates, [Fate::Applied { revision: 7 }], "what was deleted is not there");
    let entry = store.entry(place("a")).await.unwrap().unwrap();
    assert_eq!((entry.revision, entry.changed_at, entry.expires_at), (3, Timestamp(10), None));
    assert_eq!(entry.value.unwrap().content_type.as_ref(), "text/plain");
    assert_eq!(store.entry(Place { namespace: "other".into(), ..place("a") }).await.unwrap(), None);
    assert_eq!(store.point().await.unwrap(), Point::of([(ShardId(0), 7)]));
}

async fn a_parcel_that_comes_again_changes_nothing(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let old = parcel(1, vec![put("a", "old"), put("b", "old")]);
    store.apply(fence.clone(), vec![old.clone()], Timestamp(1)).await.unwrap();
    apply(&store, &fence, 2, vec![put("a", "new"), delete("b")], 2).await;
    let again = vec![old.clone(), parcel(2, vec![put("a", "wrong")]), parcel(3, vec![put("c", "fresh")]), old];
    let Applying::Done { revision, taken, .. } = store.apply(fence.clone(), again, Timestamp(3)).await.unwrap() else {
        panic!("fenced")
    };
    assert_eq!((revision, taken.len(), taken[0].number, taken[0].first), (5, 1, 3, 5));
    assert_eq!((text(&store, "a").await.as_deref(), text(&store, "b").await), (Some("new"), None));
    // Another sender's numbers are its own.
    let other = Parcel { producer: Producer(7), number: 1, writes: vec![put("a", "other")] };
    store.apply(fence, vec![other], Timestamp(4)).await.unwrap();
    assert_eq!(text(&store, "a").await.as_deref(), Some("other"));
}

async fn whoever_lost_the_shard_writes_nothing(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    apply(&store, &fence, 1, vec![put("a", "mine")], 1).await;
    let stale = Fence { generation: fence.generation + 1, ..fence.clone() };
    let late = store.apply(stale.clone(), vec![parcel(2, vec![put("a", "late")])], Timestamp(2)).await.unwrap();
    assert_eq!(late, Applying::Fenced);
    assert_eq!(store.expire(stale.clone(), vec![place("a")], Timestamp(i64::MAX)).await.unwrap(), Applying::Fenced);
    assert_eq!(store.compact(stale, past(i64::MAX), 10).await.unwrap(), Forgot::default());
    assert_eq!((text(&store, "a").await.as_deref(), store.point().await.unwrap().at(ShardId(0))), (Some("mine"), 1));
}

async fn a_list_stays_at_its_point_whatever_is_written_meanwhile(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    // By bytes: the capital comes first, what has more than ASCII last.
    let writes = ["k/b", "k/B", "k/é", "k/a", "l/z", "j"].map(|key| put(key, "1"));
    apply(&store, &fence, 1, writes.into(), 1).await;
    apply(&store, &fence, 2, vec![delete("k/a"), put("k/a", "2"), delete("k/B"), put("k/B", "1")], 2).await;
    let point = store.point().await.unwrap();
    let then = pairs(&[("k/B", "1"), ("k/a", "2"), ("k/b", "1"), ("k/é", "1")]);
    assert_eq!(listed(&store, "k/", &point, 100).await, then);
    apply(&store, &fence, 3, vec![put("k/a", "3"), delete("k/b"), put("k/c", "new"), put("k/0", "new")], 3).await;
    for rows in [1, 2, 3, 100] {
        assert_eq!(listed(&store, "k/", &point, rows).await, then, "{rows} at a time");
    }
    let now = store.point().await.unwrap();
    let after = pairs(&[("k/0", "new"), ("k/B", "1"), ("k/a", "3"), ("k/c", "new"), ("k/é", "1")]);
    assert_eq!(listed(&store, "k/", &now, 2).await, after);
    assert_eq!(listed(&store, "", &Point::start(), 2).await, []);
    assert_eq!(listed(&store, "", &now, 100).await.len(), 7);
}

async fn the_past_is_told_in_order_and_forgotten_with_an_explicit_word(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let first = store.point().await.unwrap();
    apply(&store, &fence, 1, vec![put("a", "1"), delete("nothing"), delete("a")], 100).await;
    apply(&store, &fence, 2, vec![put("b", "2")], 200).await;
    let Past::Events { events, until } = store.past(ShardId(0), 0, up_to(100)).await.unwrap() else { panic!() };
    let kinds: Vec<(u64, Kind)> = events.iter().map(|event| (event.revision, event.kind)).collect();
    assert_eq!((kinds, until), (vec![(1, Kind::Put), (3, Kind::Delete), (4, Kind::Put)], 4));
    let Past::Events { events, until } = store.past(ShardId(0), 1, up_to(1)).await.unwrap() else { panic!() };
    assert_eq!((events.len(), until), (0, 2), "what changed nothing is passed, and not waited at");
    assert_eq!(store.past(ShardId(5), 0, up_to(1)).await.unwrap(), Past::Events { events: vec![], until: 0 });

    assert_eq!(store.compact(fence.clone(), past(150), 2).await.unwrap().rows, 2, "a little at a time");
    assert_eq!(
        store.compact(fence.clone(), past(150), 100).await.unwrap().rows,
        1 + 1,
        "and the parcel with the last of it"
    );
    assert_eq!(store.past(ShardId(0), 2, up_to(100)).await.unwrap(), Past::Compacted);
    assert!(matches!(store.past(ShardId(0), 3, up_to(100)).await.unwrap(), Past::Events { until: 4, .. }));
    assert_eq!(store.page(everything(""), first, up_to(10)).await.unwrap(), Page::Compacted);
    assert_eq!(store.entry(place("a")).await.unwrap(), None, "what was deleted goes with its past");
    assert_eq!(listed(&store, "", &store.point().await.unwrap(), 10).await, pairs(&[("b", "2")]));
    let (revision, _) = apply(&store, &fence, 2, vec![put("b", "again")], 300).await;
    assert_eq!(revision, 4, "the last parcel of a sender is not forgotten");
}

async fn what_lasts_a_while_ends_with_an_event(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let lasting = |key: &str, ms: u64| Write {
        change: Change::Put { value: value(b"x"), lasts: Some(Duration::from_millis(ms)) },
        ..put(key, "")
    };
    apply(&store, &fence, 1, vec![lasting("a", 100), lasting("b", 50), lasting("c", 50), put("d", "stays")], 1_000)
        .await;
    assert_eq!(store.soonest(ShardId(0)).await.unwrap(), Some(Timestamp(1_050)));
    apply(&store, &fence, 2, vec![put("c", "for good")], 1_010).await;
    assert_eq!(store.over(ShardId(0), Timestamp(1_049), 10).await.unwrap(), []);
    // Whoever is named and is not over stays.
    let named = ["a", "b", "c", "d"].map(place).to_vec();
    let Applying::Done { revision, .. } = store.expire(fence.clone(), named, Timestamp(1_049)).await.unwrap() else {
        panic!()
    };
    assert_eq!(revision, 5);
    assert_eq!(store.over(ShardId(0), Timestamp(1_099), 10).await.unwrap(), [place("b")]);
    store.expire(fence.clone(), vec![place("b")], Timestamp(1_099)).await.unwrap();
    let Past::Events { events, .. } = store.past(ShardId(0), 5, up_to(10)).await.unwrap() else { panic!() };
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].kind, events[0].place.key.as_str()), (Kind::Expire, "b"));
    assert_eq!(store.soonest(ShardId(0)).await.unwrap(), Some(Timestamp(1_100)));
    store.expire(fence, vec![place("a")], Timestamp(2_000)).await.unwrap();
    assert_eq!(store.soonest(ShardId(0)).await.unwrap(), None);
    assert_eq!((text(&store, "a").await, text(&store, "c").await.as_deref()), (None, Some("for good")));
}

async fn a_write_can_be_asked_after(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let guarded = Write { condition: Condition::Absent, ..put("a", "2") };
    apply(&store, &fence, 1, vec![put("a", "1"), guarded, put("b", "3")], 1).await;
    apply(&store, &fence, 2, vec![put("a", "4")], 2).await;
    let id = |number, index| WriteId { shard: ShardId(0), producer: SENDER, number, index };
    assert_eq!(store.known(id(1, 0), None).await.unwrap(), Known::Applied { revision: 1, latest: 4 });
    assert_eq!(store.known(id(1, 1), None).await.unwrap(), Known::Conflict);
    assert_eq!(store.known(id(1, 2), None).await.unwrap(), Known::Applied { revision: 3, latest: 3 });
    for unknown in [id(1, 3), id(3, 0), WriteId { shard: ShardId(3), ..id(1, 0) }] {
        assert_eq!(store.known(unknown, None).await.unwrap(), Known::No, "{unknown}");
    }
    // The past goes, the parcel that is its sender's last stays.
    apply(&store, &fence, 3, vec![put("a", "5")], 3).await;
    store.compact(fence, past(100), 100).await.unwrap();
    assert_eq!(store.known(id(3, 0), None).await.unwrap(), Known::LongAgo);
}

async fn a_large_batch_is_one_transaction_and_keeps_every_byte(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let every: Vec<u8> = (0..=255).collect();
    let writes: Vec<Write> = (0..500)
        .map(|n| {
            let change = Change::Put { value: value(&every.repeat(n % 5)), lasts: None };
            Write { place: place(&format!("key {n:03} ü")), change, condition: Condition::None }
        })
        .collect();
    let (revision, fates) = apply(&store, &fence, 1, writes, 1).await;
    assert_eq!((revision, fates.len()), (500, 500));
    for n in [0, 1, 257, 499] {
        let entry = store.entry(place(&format!("key {n:03} ü"))).await.unwrap().unwrap();
        assert_eq!(entry.value.unwrap().bytes, every.repeat(n % 5), "also when there are none");
    }
    let key: Key = "key 499 ü".parse().unwrap();
    let range = Range { from: Some(key), ..everything("key ") };
    let Page::Of { found, next } = store.page(range, store.point().await.unwrap(), up_to(10)).await.unwrap() else {
        panic!()
    };
    assert_eq!((found.len(), next), (1, None));
}
