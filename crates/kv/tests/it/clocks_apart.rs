//! A Redis whose clock is set, or runs apart from ours: a word that would count for longer than whoever gave it knows is refused, and
//! vouching goes on by the clock as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mutirao_core::clock::Sleep;
use mutirao_core::{Clock, Dice, Mono, SystemClock, Timestamp};
use mutirao_kv::Place;
use mutirao_kv::cache::redis::Redis;
use mutirao_kv::cache::{Cache, CacheError, Looked, Reign, Token};
use mutirao_testkit::services::{REDIS_VARIABLE, shared};
use mutirao_tls::Trust;

use crate::queued::PATIENCE;

const HOUR_MS: i64 = 3_600_000;
const FAR_AHEAD_MS: i64 = 24 * HOUR_MS;

/// What matters is how far the two are apart: as if the Redis had been set back when this one goes forward.
#[derive(Default)]
struct Apart(AtomicI64);

impl Apart {
    fn by(ms: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(ms)))
    }

    fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for Apart {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn monotonic(&self) -> Mono {
        SystemClock.monotonic().plus(Duration::from_millis(self.0.load(Ordering::SeqCst) as u64))
    }

    fn sleep(&self, for_: Duration) -> Sleep<'_> {
        Box::pin(SystemClock.sleep(for_))
    }
}

fn dice() -> Arc<Dice> {
    Arc::new(Dice::from_os())
}

fn reign() -> Reign {
    Reign { generation: 1, epoch: dice().u64() }
}

fn redis(url: &str, clock: Arc<Apart>) -> Redis {
    let prefix = format!("test-{:016x}:", dice().u64());
    Redis::new(url, &Trust::nobody(), &prefix, clock, dice()).unwrap()
}

async fn look(redis: &Redis, place: &Place) -> Looked {
    redis.look(place, Token(dice().u64())).await
}

#[tokio::test]
async fn a_redis_whose_clock_is_set_back_or_forward_is_gone_by_as_it_is_and_never_for_longer() {
    let Some(url) = shared(REDIS_VARIABLE) else { return };
    let place = Place { namespace: "default".into(), key: "a".parse().unwrap() };
    let (shard, clock) = (place.shard(), Apart::by(FAR_AHEAD_MS));
    let redis = redis(&url, clock.clone());
    let first = reign();
    redis.begin(shard, first, clock.monotonic()).await.unwrap();
    redis.renew(shard, first, clock.monotonic()).await.unwrap();
    assert!(matches!(look(&redis, &place).await, Looked::Miss(_)), "it counts");

    // Set back by an hour: the next word would count for an hour.
    clock.set(FAR_AHEAD_MS + HOUR_MS);
    assert_eq!(redis.renew(shard, first, clock.monotonic()).await, Err(CacheError::Lapsed));
    assert_eq!(look(&redis, &place).await, Looked::Past, "nor does what it said before count any more");
    let second = reign();
    redis.begin(shard, second, clock.monotonic()).await.unwrap();
    redis.renew(shard, second, clock.monotonic()).await.unwrap();

    // Set forward, while a word of before is there.
    clock.set(0);
    let deadline = SystemClock.monotonic().plus(PATIENCE);
    while redis.renew(shard, second, clock.monotonic()).await.is_ok() {
        assert!(SystemClock.monotonic() < deadline, "an old word counts for ever");
        SystemClock.sleep(Duration::from_millis(100)).await;
    }
    let third = reign();
    redis.begin(shard, third, clock.monotonic()).await.unwrap();
    redis.renew(shard, third, clock.monotonic()).await.unwrap();
    assert!(redis.mark(shard, third, std::slice::from_ref(&place)).await.is_ok(), "and writes wait for nothing");
}
