use std::sync::atomic::{AtomicU64, Ordering};

use mutirao_core::SystemClock;
use tokio::task::JoinSet;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);
const SHARD: ShardId = ShardId(3);

#[derive(Clone, Default)]
struct Counting {
    heard: Arc<AtomicU64>,
    revision: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    pairs_max: Arc<AtomicU64>,
}

#[async_trait]
impl Source for Counting {
    async fn heard(&self, asked: Vec<(ShardId, Producer)>) -> Result<Vec<Option<u64>>, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.pairs_max.fetch_max(asked.len() as u64, Ordering::SeqCst);
        Ok(asked.iter().map(|_| Some(self.heard.load(Ordering::SeqCst))).collect())
    }

    async fn point(&self) -> Result<Point, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(Point::of([(SHARD, self.revision.load(Ordering::SeqCst))]))
    }
}

fn start(is_here: bool) -> (Counting, Arc<Awaiting>, Arc<Vec<watch::Sender<u64>>>) {
    let (source, applied) = (Counting::default(), crate::applier::nothing_applied());
    let here = Box::new(move |_| is_here);
    let awaiting = Awaiting::new(Box::new(source.clone()), SystemClock::shared(), applied.clone(), here);
    tokio::spawn(awaiting.clone().follow());
    (source, awaiting, applied)
}

fn parcel(number: u64) -> What {
    What::Parcel { shard: SHARD, producer: Producer(7), number }
}

fn later() -> Mono {
    SystemClock.monotonic().plus(PATIENCE)
}

async fn seated(awaiting: &Awaiting, many: usize) {
    while awaiting.room.lock().waiting.len() != many {
        SystemClock.sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_thousand_who_wait_cost_the_store_as_much_as_one_does() {
    let (source, awaiting, _) = start(false);
    let mut waiting = JoinSet::new();
    for n in 0..1_000_u64 {
        let awaiting = awaiting.clone();
        let what = if n % 2 == 0 { parcel(n + 1) } else { What::Revision { shard: SHARD, revision: n } };
        waiting.spawn(async move { awaiting.until(what, later()).await.unwrap() });
    }
    seated(&awaiting, 1_000).await;
    let (begun, before) = (SystemClock.monotonic(), source.asked.load(Ordering::SeqCst));
    SystemClock.sleep(Duration::from_millis(300)).await;
    let rounds = SystemClock.monotonic().since(begun).as_millis() / LOOK.as_millis() + 2;
    let asked = u128::from(source.asked.load(Ordering::SeqCst) - before);
    assert!(asked <= 2 * rounds, "{asked} questions in {rounds} rounds");
    assert_eq!(source.pairs_max.load(Ordering::SeqCst), 1, "all want the same sender");
    source.heard.store(1_000, Ordering::SeqCst);
    source.revision.store(1_000, Ordering::SeqCst);
    while let Some(waited) = waiting.join_next().await {
        assert_eq!(waited.unwrap(), Waited::Reached);
    }
}

#[tokio::test]
async fn what_is_applied_here_needs_no_question() {
    let (source, awaiting, applied) = start(true);
    let what = What::Revision { shard: SHARD, revision: 5 };
    let waiting = tokio::spawn({
        let awaiting = awaiting.clone();
        async move { awaiting.until(what, later()).await.unwrap() }
    });
    seated(&awaiting, 1).await;
    applied[SHARD.0 as usize].send_replace(5);
    assert_eq!(waiting.await.unwrap(), Waited::Reached);
    assert_eq!(source.revision.load(Ordering::SeqCst), 0, "the store never said so");
}

#[tokio::test]
async fn so_many_may_wait_and_who_goes_makes_room() {
    let (_, awaiting, _) = start(true);
    let seats: Vec<_> = (0..WAITING_MAX).map(|_| awaiting.sit(parcel(1)).ok().unwrap()).collect();
    let refused = awaiting.until(parcel(1), later()).await.unwrap_err();
    assert!(refused.status == 429 && refused.retry_after_s.is_some(), "{refused:?}");
    drop(seats);
    assert_eq!(awaiting.until(parcel(1), SystemClock.monotonic()).await.unwrap(), Waited::Over);
}
