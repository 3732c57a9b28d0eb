//! What is remembered of senders and for how long, and how much is read at once, on either engine.

use mutirao_core::{ShardId, Timestamp};
use mutirao_kv::store::{Applying, Extent, Forget, Known, Page, Past, Shared, open};
use mutirao_kv::write::{Parcel, Producer};
use mutirao_kv::{Write, WriteId};
use mutirao_shards::Fence;

use crate::engine::{Engine, on_both};
use crate::store::{SENDER, apply, everything, past, put};

on_both!(
    what_was_left_out_was_never_made_and_what_is_old_is_forgotten,
    senders_of_whom_nothing_can_come_are_forgotten_and_nobody_else,
    whoever_commits_by_hand_is_forgotten_when_another_has,
    a_page_ends_early_where_values_are_large_and_leaves_nothing_out,
    the_past_is_told_in_parts_where_values_are_large,
);

const HOUR: i64 = 3_600_000;

fn id(producer: Producer, number: u64) -> WriteId {
    WriteId { shard: ShardId(0), producer, number, index: 0 }
}

async fn heard(store: &Shared, shard: u32, producer: Producer) -> Option<u64> {
    store.heard(vec![(ShardId(shard), producer)]).await.unwrap()[0]
}

async fn of(store: &Shared, fence: &Fence, producer: Producer, number: u64, at: i64) -> u64 {
    let writes: Vec<Write> = vec![put("a", &format!("{}-{number}", producer.0))];
    let parcel = Parcel { producer, number, writes };
    match store.apply(fence.clone(), vec![parcel], Timestamp(at)).await.unwrap() {
        Applying::Done { taken, .. } => taken.len() as u64,
        Applying::Fenced => panic!("fenced"),
    }
}

async fn what_was_left_out_was_never_made_and_what_is_old_is_forgotten(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    store.introduce(SENDER, Timestamp(1), Timestamp(1)).await.unwrap();
    assert_eq!(store.known(id(SENDER, 1), None).await.unwrap(), Known::Coming);
    for number in [1, 2, 4] {
        of(&store, &fence, SENDER, number, 10 * number as i64).await;
    }
    assert_eq!(store.known(id(SENDER, 3), None).await.unwrap(), Known::Never, "a later one was applied");
    assert_eq!(store.known(id(SENDER, 5), None).await.unwrap(), Known::Coming);
    // The clock went back before the second was applied, or forth: what goes is the oldest by revision all the same.
    store.compact(fence.clone(), past(15), 100).await.unwrap();
    assert_eq!(store.known(id(SENDER, 1), None).await.unwrap(), Known::Forgotten);
    assert!(matches!(store.known(id(SENDER, 2), None).await.unwrap(), Known::Applied { .. }));
    store.compact(fence.clone(), past(100), 100).await.unwrap();
    assert_eq!(store.known(id(SENDER, 3), None).await.unwrap(), Known::Forgotten);
    assert_eq!(store.known(id(SENDER, 5), None).await.unwrap(), Known::Coming, "it is still known");
    assert_eq!(of(&store, &fence, SENDER, 4, 100).await, 0, "its last keeps what comes again from being applied");
}

async fn senders_of_whom_nothing_can_come_are_forgotten_and_nobody_else(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let [old, silent, living, newer] = [1, 2, 3, 4].map(Producer);
    for sender in [old, silent, living] {
        store.introduce(sender, Timestamp(1), Timestamp(1)).await.unwrap();
    }
    of(&store, &fence, old, 1, 10).await;
    store.introduce(living, Timestamp(1), Timestamp(30 * HOUR)).await.unwrap();
    store.introduce(newer, Timestamp(20 * HOUR), Timestamp(30 * HOUR)).await.unwrap();
    let forget = Forget { past: Timestamp(25 * HOUR), senders: Timestamp(25 * HOUR), bound: None };
    store.compact(fence.clone(), forget, 100).await.unwrap();
    // Its parcel may lie in the queue once more, since nothing of anybody later has come through yet.
    assert_eq!(of(&store, &fence, old, 1, 26 * HOUR).await, 0);
    of(&store, &fence, newer, 1, 26 * HOUR).await;
    store.compact(fence.clone(), forget, 100).await.unwrap();
    for gone in [old, silent] {
        assert_eq!(heard(&store, 0, gone).await, None, "{gone:?}");
        assert_eq!(store.known(id(gone, 1), None).await.unwrap(), Known::No);
    }
    assert_eq!(heard(&store, 0, living).await, Some(0));
    assert_eq!(heard(&store, 0, newer).await, Some(1));
    assert_eq!(heard(&store, 1, silent).await, Some(0), "each shard has a queue of its own");
    let asked = [(1, silent), (0, newer), (0, old), (5, newer)].map(|(shard, sender)| (ShardId(shard), sender));
    let told = store.heard(asked.to_vec()).await.unwrap();
    assert_eq!(told, [Some(0), Some(1), None, Some(0)], "each in its place");
}

async fn whoever_commits_by_hand_is_forgotten_when_another_has(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let [before, now] = [1, 2].map(Producer);
    of(&store, &fence, before, 1, 10).await;
    store.compact(fence.clone(), past(100), 100).await.unwrap();
    assert_eq!(of(&store, &fence, before, 1, 11).await, 0, "it may try again");
    of(&store, &fence, now, 1, 20).await;
    store.compact(fence.clone(), past(100), 100).await.unwrap();
    assert_eq!(heard(&store, 0, before).await, None);
    assert_eq!(of(&store, &fence, now, 1, 30).await, 0);
}

async fn a_page_ends_early_where_values_are_large_and_leaves_nothing_out(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let keys: Vec<String> = (0..20).map(|n| format!("k{n:02}")).collect();
    let large = "x".repeat(100);
    apply(&store, &fence, 1, keys.iter().map(|key| put(key, &large)).collect(), 1).await;
    let point = store.point().await.unwrap();
    // At the point every second is as large as before, and at once small.
    apply(&store, &fence, 2, keys.iter().step_by(2).map(|key| put(key, "")).collect(), 2).await;
    let (mut range, mut seen, mut pages) = (everything(""), Vec::new(), 0);
    loop {
        let extent = Extent { rows: 7, bytes: 250 };
        let Page::Of { found, next } = store.page(range.clone(), point.clone(), extent).await.unwrap() else {
            panic!()
        };
        let bytes: usize = found.iter().map(|one| one.entry.value.as_ref().unwrap().bytes.len()).sum();
        assert!(bytes <= 300, "{bytes} bytes, and the last that fits is of 100");
        seen.extend(found.into_iter().map(|one| one.key.to_string()));
        pages += 1;
        let Some(next) = next else { break };
        range.from = Some(next);
    }
    assert_eq!((seen, pages), (keys, 7), "three at a time");
}

async fn the_past_is_told_in_parts_where_values_are_large(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let large = "x".repeat(100);
    apply(&store, &fence, 1, (0..10).map(|n| put(&format!("k{n}"), &large)).collect(), 1).await;
    let (mut after, mut told) = (0, Vec::new());
    while after < 10 {
        let extent = Extent { rows: 100, bytes: 250 };
        let Past::Events { events, until } = store.past(ShardId(0), after, extent).await.unwrap() else { panic!() };
        assert!(events.len() <= 3 && until > after, "{} events until {until}", events.len());
        told.extend(events.iter().map(|event| event.revision));
        after = until;
    }
    assert_eq!(told, (1..=10).collect::<Vec<u64>>());
}
