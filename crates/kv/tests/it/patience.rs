//! How long a caller waits, by a clock that moves when it is told to.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::{Clock, ManualClock};
use mutirao_core::{Dice, ShardId, SystemClock, Timestamp};
use mutirao_kv::service::{WriteState, WriteView};
use mutirao_kv::{AtHand, Change, Condition, GROUP, Key, Kv, KvParts, Path, SHARDS, Until};
use mutirao_shards::store::{self as leases, Mark};
use mutirao_shards::{MemberId, Terms};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, on_both};
use crate::queued::broker;
use crate::running::{ana, text};

on_both!(a_batch_waits_no_longer_than_one_write);

const OPERATIONS: usize = 20;
const STEP: Duration = Duration::from_millis(500);

/// A manager that owns nothing, and never will.
async fn start(engine: &Engine, path: Path, clock: &Arc<ManualClock>) -> Kv {
    let database = engine.database().await;
    let (store, other) = (leases::open(&database, None).await.unwrap(), MemberId("other".into()));
    for shard in (0..SHARDS).map(ShardId) {
        let _ = store.claim(GROUP, shard, Mark::default(), &other, Duration::from_secs(3_600)).await.unwrap();
    }
    let parts = KvParts {
        leases: store,
        store: database,
        path,
        at_hand: AtHand::Nowhere,
        terms: Terms::of(Duration::from_secs(3_000)),
        member: MemberId::mint("test"),
        address: String::new(),
        clock: clock.clone(),
        dice: Arc::new(Dice::from_os()),
        keep: Duration::from_secs(3_600),
        keep_bytes: None,
        shutdown: CancellationToken::new(),
    };
    Kv::start(parts).await.unwrap()
}

/// What came of a batch, and how long it took by its own clock.
async fn batch(kv: &Kv, clock: &Arc<ManualClock>, until: Until) -> (Vec<Option<WriteView>>, Duration) {
    let operation =
        |n: usize| -> (Key, Change, Condition) { (format!("k{n}").parse().unwrap(), text("x"), Condition::None) };
    let operations = (0..OPERATIONS).map(operation).collect();
    let begun = clock.monotonic();
    let kv = kv.clone();
    let asked = tokio::spawn(async move { kv.batch(&ana(), operations, until).await });
    while !asked.is_finished() {
        // The store works by the real clock.
        SystemClock.sleep(Duration::from_millis(20)).await;
        clock.advance(STEP);
    }
    let answers = asked.await.unwrap().into_iter().map(Result::ok).collect();
    (answers, clock.monotonic().since(begun))
}

async fn a_batch_waits_no_longer_than_one_write(engine: &Engine) {
    let clock = ManualClock::starting_at(Timestamp(1_000_000));
    let kv = start(engine, Path::Commit, &clock).await;
    let (answers, waited) = batch(&kv, &clock, Until::Durable).await;
    assert!(answers.iter().all(Option::is_none) && answers.len() == OPERATIONS, "nobody is there to apply them");
    assert!(waited < Duration::from_secs(10), "{waited:?} for all of them; one waits five seconds");

    let kv = start(engine, Path::Queue { broker: broker(), backlog_max: 1_000 }, &clock).await;
    let (answers, waited) = batch(&kv, &clock, Until::Applied).await;
    let queued = |view: &Option<WriteView>| view.as_ref().is_some_and(|view| view.state == WriteState::Queued);
    assert!(answers.len() == OPERATIONS && answers.iter().all(queued), "they are durable: {answers:?}");
    assert!(waited < Duration::from_secs(30), "{waited:?} for all of them; one waits ten seconds");
}
