//! History by its size: the oldest goes first, whoever is behind is told, and what is young stays.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::ManualClock;
use mutirao_core::{Clock, Dice, ShardId, SystemClock, Timestamp};
use mutirao_kv::service::AtLeast;
use mutirao_kv::store::{Bound, Forget, Forgot, Past, Shared, open};
use mutirao_kv::{AtHand, Condition, Key, Kv, KvParts, Path, Place, SHARDS, Until};
use mutirao_shards::store as leases;
use mutirao_shards::{Fence, MemberId, Terms};
use mutirao_store::Database;
use mutirao_store::postgres::Ask;
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, on_both};
use crate::queued::PATIENCE;
use crate::running::{ana, text as a_value};
use crate::store::{apply, past, put, text, up_to};

on_both!(
    history_has_a_bound_in_bytes_and_the_oldest_goes_first,
    what_is_young_stays_whatever_its_size,
    history_from_before_it_was_counted_goes_by_its_age_and_then_the_bound_holds,
    a_manager_forgets_what_is_more_than_may_stay,
);

const VALUE_BYTES: u64 = 1_000;
/// A value, with what it takes to keep it.
const LINE_BYTES_MAX: u64 = VALUE_BYTES + 200;
const LONG_AGO: Timestamp = Timestamp(0);
const LATELY: Timestamp = Timestamp(1_000_000);

fn bound(bytes_max: u64, past: Timestamp) -> Forget {
    Forget { past: LONG_AGO, senders: LONG_AGO, bound: Some(Bound { bytes_max, past }) }
}

/// One after the other, each over the one before, a millisecond each.
async fn written(store: &Shared, fence: &Fence, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let value = format!("{number:0>width$}", width = VALUE_BYTES as usize);
        apply(store, fence, number, vec![put("a", &value)], number as i64).await;
    }
}

/// The revisions that are told from here on; none: they are not known any more.
async fn told(store: &Shared, after: u64) -> Option<Vec<u64>> {
    match store.past(ShardId(0), after, up_to(1_000)).await.unwrap() {
        Past::Events { events, .. } => Some(events.iter().map(|event| event.revision).collect()),
        Past::Compacted => None,
    }
}

async fn forgotten(store: &Shared, fence: &Fence, forget: Forget, rows: u32) -> Forgot {
    store.compact(fence.clone(), forget, rows).await.unwrap()
}

async fn history_has_a_bound_in_bytes_and_the_oldest_goes_first(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    written(&store, &fence, 1..=20).await;
    let all = forgotten(&store, &fence, bound(u64::MAX, LATELY), 100).await;
    assert_eq!(all.rows, 0);
    assert!((20 * VALUE_BYTES..20 * LINE_BYTES_MAX).contains(&all.bytes_left), "{all:?}");
    let most = 5 * LINE_BYTES_MAX;
    let bite = forgotten(&store, &fence, bound(most, LATELY), 4).await;
    assert!(bite.rows >= 4 && told(&store, 4).await.unwrap() == (5..=20).collect::<Vec<_>>(), "a bite: {bite:?}");
    let rest = forgotten(&store, &fence, bound(most, LATELY), 100).await;
    assert!(rest.bytes_left <= most && rest.bytes_left > most - LINE_BYTES_MAX, "no more than must: {rest:?}");
    let kept = told(&store, 15).await.unwrap();
    assert_eq!(kept.last(), Some(&20), "the newest stays");
    assert_eq!(told(&store, 4).await, None, "whoever is behind is told");
    assert_eq!(text(&store, "a").await.unwrap().len() as u64, VALUE_BYTES, "what is there now is no history");
    assert_eq!(forgotten(&store, &fence, bound(most, LATELY), 100).await, Forgot { rows: 0, ..rest });
    written(&store, &fence, 21..=30).await;
    let again = forgotten(&store, &fence, bound(most, LATELY), 100).await;
    assert!(again.rows > 0 && again.bytes_left <= most, "{again:?}");
    let aged = forgotten(&store, &fence, past(i64::MAX), 100).await;
    assert_eq!((aged.bytes_left, told(&store, 30).await), (0, Some(vec![])), "by its age all of it goes");
}

async fn what_is_young_stays_whatever_its_size(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    written(&store, &fence, 1..=10).await;
    assert_eq!(forgotten(&store, &fence, bound(1, Timestamp(1)), 100).await.rows, 0);
    forgotten(&store, &fence, bound(1, Timestamp(6)), 100).await;
    assert_eq!((told(&store, 4).await, told(&store, 5).await), (None, Some((6..=10).collect())));
}

/// As an older program leaves it.
async fn uncount(database: &Database) {
    let steps = ["UPDATE kv_shards SET written = 0", "UPDATE kv_parcels SET older = NULL"];
    match database {
        Database::Sqlite(sqlite) => sqlite.write(move |db| db.execute_batch(&steps.join(";"))).await.unwrap(),
        Database::Postgres(postgres) => {
            for step in steps {
                postgres.connection().await.unwrap().run(step, &[]).await.unwrap();
            }
        }
    }
}

async fn history_from_before_it_was_counted_goes_by_its_age_and_then_the_bound_holds(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    written(&store, &fence, 1..=10).await;
    uncount(&database).await;
    assert_eq!(forgotten(&store, &fence, bound(1, LATELY), 100).await, Forgot { rows: 0, bytes_left: 0 });
    written(&store, &fence, 11..=20).await;
    let counted = forgotten(&store, &fence, bound(u64::MAX, LATELY), 100).await;
    assert!((10 * VALUE_BYTES..10 * LINE_BYTES_MAX).contains(&counted.bytes_left), "{counted:?}");
    let most = 5 * LINE_BYTES_MAX;
    let rest = forgotten(&store, &fence, bound(most, LATELY), 100).await;
    assert!(rest.bytes_left <= most, "what is older goes first: {rest:?}");
    assert_eq!((told(&store, 10).await, told(&store, 20).await), (None, Some(vec![])));
}

/// The clock goes as the real one does while this is done.
async fn meanwhile<T>(clock: &ManualClock, done: impl Future<Output = T>) -> T {
    let mut done = std::pin::pin!(done);
    let step = Duration::from_millis(10);
    loop {
        tokio::select! {
            done = &mut done => return done,
            () = SystemClock.sleep(step) => clock.advance(step),
        }
    }
}

async fn a_manager_forgets_what_is_more_than_may_stay(engine: &Engine) {
    let clock = ManualClock::starting_at(Timestamp(1_000_000_000));
    let database = engine.database().await;
    let kv = Kv::start(KvParts {
        leases: leases::open(&database, None).await.unwrap(),
        store: database.clone(),
        path: Path::Commit,
        at_hand: AtHand::Nowhere,
        terms: Terms::alone(),
        member: MemberId::mint("test"),
        address: String::new(),
        clock: clock.clone(),
        dice: Arc::new(Dice::from_os()),
        keep: Duration::from_secs(86_400),
        keep_bytes: Some(u64::from(SHARDS) * 10 * LINE_BYTES_MAX),
        shutdown: CancellationToken::new(),
    })
    .await
    .unwrap();
    let (key, ana): (Key, _) = ("a".parse().unwrap(), ana());
    for n in 0..30 {
        let value = a_value(&format!("{n:0>width$}", width = VALUE_BYTES as usize));
        let write = kv.write(&ana, key.clone(), value, Condition::None, Until::Applied);
        meanwhile(&clock, write).await.unwrap();
    }
    let (store, shard) = (open(&database), Place { namespace: "default".into(), key: key.clone() }.shard());
    let left = async || match store.past(shard, 0, up_to(1_000)).await.unwrap() {
        Past::Events { events, .. } => Some(events.len()),
        Past::Compacted => None,
    };
    assert_eq!(left().await, Some(30), "it is young");
    let deadline = SystemClock.monotonic().plus(PATIENCE);
    while left().await.is_some() {
        assert!(SystemClock.monotonic() < deadline, "it was not forgotten");
        clock.advance(Duration::from_secs(5));
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    let Past::Events { events, .. } = store.past(shard, 20, up_to(1_000)).await.unwrap() else { panic!() };
    assert!((9..=10).contains(&events.len()), "as much as may stay stays: {}", events.len());
    let read = kv.read(&ana, key, AtLeast::default(), Duration::ZERO).await.unwrap();
    assert!(read.0.bytes.ends_with(b"29"));
    meanwhile(&clock, kv.stop()).await;
}
