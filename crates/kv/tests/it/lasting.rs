//! Values that last for a while: whoever applies ends them, and from then on nobody finds them, whatever time it is elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mutirao_core::clock::Sleep;
use mutirao_core::{Clock, Dice, Mono, SystemClock, Timestamp};
use mutirao_kv::service::AtLeast;
use mutirao_kv::{AtHand, Change, Condition, Kv, KvParts, Path, Until};
use mutirao_shards::store as leases;
use mutirao_shards::{MemberId, Terms};
use mutirao_testkit::services::{REDIS_VARIABLE, shared};
use mutirao_tls::Trust;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::queued::{BACKLOG_MAX, Member, PATIENCE, broker, join_with, shared_out};
use crate::running::{ana, text};

const LASTS: Duration = Duration::from_millis(500);

/// A machine whose wall clock is set at will.
#[derive(Default)]
struct Off(AtomicI64);

impl Off {
    fn by(ms: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(ms)))
    }
}

impl Clock for Off {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Mono {
        SystemClock.monotonic()
    }

    fn sleep(&self, for_: Duration) -> Sleep<'_> {
        Box::pin(SystemClock.sleep(for_))
    }
}

fn for_a_while(value: &str) -> Change {
    match text(value) {
        Change::Put { value, .. } => Change::Put { value, lasts: Some(LASTS) },
        Change::Delete => Change::Delete,
    }
}

async fn get(kv: &Kv, key: &str) -> Option<bytes::Bytes> {
    kv.read(&ana(), key.parse().unwrap(), AtLeast::default(), Duration::ZERO).await.ok().map(|(value, _)| value.bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_whose_time_is_over_does_not_come_back_when_the_clock_is_set_back() {
    let engine = Engine::sqlite();
    let (database, clock) = (engine.database().await, Off::by(0));
    let kv = Kv::start(KvParts {
        leases: leases::open(&database, None).await.unwrap(),
        store: database,
        path: Path::Commit,
        at_hand: AtHand::Here { bytes_max: 1 << 20 },
        terms: Terms::alone(),
        member: MemberId::mint("test"),
        address: String::new(),
        clock: clock.clone(),
        dice: Arc::new(Dice::from_os()),
        keep: Duration::from_secs(3_600),
        keep_bytes: None,
        shutdown: CancellationToken::new(),
    })
    .await
    .unwrap();
    let put = async |condition| {
        kv.write(&ana(), "lock".parse().unwrap(), for_a_while("held"), condition, Until::Applied).await
    };
    put(Condition::Absent).await.unwrap();
    assert_eq!(get(&kv, "lock").await.as_deref(), Some(&b"held"[..]));
    assert_eq!(put(Condition::Absent).await.unwrap_err().status, 412, "it is held");
    let deadline = SystemClock.monotonic().plus(PATIENCE);
    while get(&kv, "lock").await.is_some() {
        assert!(SystemClock.monotonic() < deadline, "it lasts for ever");
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    clock.0.store(-10_000, Ordering::SeqCst);
    assert_eq!(get(&kv, "lock").await, None);
    assert!(kv.list(&ana(), String::new(), None, 10).await.unwrap().entries.is_empty());
    put(Condition::Absent).await.unwrap();
    kv.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_managers_whose_clocks_differ_see_the_same_of_a_value_that_lasts_a_while() {
    let Some(url) = shared(REDIS_VARIABLE) else { return };
    let engine = Engine::sqlite();
    let (database, queue) = (engine.database().await, broker());
    let prefix = format!("mutirao:{:016x}:kv:", Dice::from_os().u64());
    let join = async |off_ms| {
        let at_hand =
            AtHand::Redis { url: url.clone(), trust: Trust::nobody(), prefix: prefix.clone(), here_bytes_max: 1 << 20 };
        join_with(&database, queue.clone(), BACKLOG_MAX, at_hand, Off::by(off_ms)).await
    };
    let (right, behind) = (join(0).await, join(-30_000).await);
    shared_out(&database, &[&right, &behind]).await;
    let keys: Vec<String> = (0..16).map(|n| format!("k{n}")).collect();
    for key in &keys {
        let (change, of) = (for_a_while("held"), key.parse().unwrap());
        let write = move |kv: Kv| async move { kv.write(&ana(), of, change, Condition::None, Until::Applied).await };
        right.on(write).await.unwrap();
        for member in [&right, &behind] {
            member.get(key, None).await;
        }
    }
    let ends = SystemClock.monotonic().plus(PATIENCE);
    let mut gone = std::collections::BTreeSet::new();
    while gone.len() < keys.len() {
        assert!(SystemClock.monotonic() < ends, "they last for ever");
        for key in &keys {
            // Once it is over for one of them it is for the other, at once and for good.
            for (member, other) in [(&right, &behind), (&behind, &right)] {
                if member.get(key, None).await.is_none() {
                    assert_eq!(other.get(key, None).await, None, "{key}");
                    gone.insert(key);
                }
            }
        }
    }
    [right, behind].into_iter().for_each(Member::kill);
}
