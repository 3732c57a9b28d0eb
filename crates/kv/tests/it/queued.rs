//! Writes through a queue: any manager takes any write, whoever owns its key. The queue is one in this process, which the
//! managers share; what only RabbitMQ can show is shown with real processes, in the tests of the binary.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::memory::{Limits, Memory};
use mutirao_broker::{Broker, Shared as AnyBroker};
use mutirao_core::{Clock, Dice, ShardId, SystemClock};
use mutirao_kv::outbox::queue_of;
use mutirao_kv::service::{AtLeast, WriteState, WriteView};
use mutirao_kv::store::{Extent, Past, open};
use mutirao_kv::write::{Parcel, Producer};
use mutirao_kv::{AtHand, Change, Condition, GROUP, Key, Kv, KvParts, Path, Place, SHARDS, Until, Write, wire};
use mutirao_shards::store::{self as leases, Mark};
use mutirao_shards::{MemberId, Terms};
use mutirao_store::Database;
use mutirao_testkit::services::{REDIS_VARIABLE, shared};
use mutirao_tls::Trust;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, on_both};
use crate::running::{ana, text};

on_both!(
    any_manager_takes_any_write_and_says_what_became_of_it,
    steps_by_condition_through_either_of_two_managers_are_all_counted,
    a_manager_killed_with_writes_on_their_way_loses_none_and_doubles_none,
    rubbish_in_the_queue_goes_to_the_dead_letters_and_holds_up_nobody,
    a_parcel_that_is_delivered_again_changes_nothing,
    past_the_bound_writes_are_refused_until_some_are_applied,
);

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const BACKLOG_MAX: usize = 100_000;

/// One manager, as if it were a process.
pub struct Member {
    kv: Kv,
    name: MemberId,
    runtime: Option<Runtime>,
}

pub fn broker() -> Arc<Memory> {
    Memory::new(None, Limits::default())
}

pub async fn join(database: &Database, broker: AnyBroker, backlog_max: usize) -> Member {
    // Where the run has a Redis, both keep values at hand there: whatever is read must be what is there.
    // The thread has the name of the test: both of one database, and nobody else.
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let prefix = format!("mutirao:{}-{test}:kv:", std::process::id());
    let redis = |url| AtHand::Redis { url, trust: Trust::nobody(), prefix, here_bytes_max: 1 << 20 };
    let at_hand = shared(REDIS_VARIABLE).map_or(AtHand::Nowhere, redis);
    join_with(database, broker, backlog_max, at_hand, SystemClock::shared()).await
}

pub async fn join_with(
    database: &Database,
    broker: AnyBroker,
    backlog_max: usize,
    at_hand: AtHand,
    clock: Arc<dyn Clock>,
) -> Member {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (name, database) = (MemberId::mint("manager"), database.clone());
    let member = name.clone();
    let started = runtime.spawn(async move {
        let lease = Duration::from_secs(3);
        let parts = KvParts {
            leases: leases::open(&database, None).await.unwrap(),
            store: database,
            path: Path::Queue { broker, backlog_max },
            at_hand,
            terms: Terms { look: Duration::from_millis(50), ..Terms::of(lease) },
            member,
            address: String::new(),
            clock,
            dice: Arc::new(Dice::from_os()),
            keep: Duration::from_secs(3_600),
            keep_bytes: None,
            shutdown: CancellationToken::new(),
        };
        Kv::start(parts).await.unwrap()
    });
    Member { kv: started.await.unwrap(), name, runtime: Some(runtime) }
}

impl Member {
    /// Something done by this manager, in its own runtime.
    pub async fn on<T: Send + 'static, F: Future<Output = T> + Send + 'static>(&self, act: impl FnOnce(Kv) -> F) -> T {
        self.runtime.as_ref().unwrap().spawn(act(self.kv.clone())).await.unwrap()
    }

    pub async fn put(&self, key: &str, value: &str, until: Until) -> WriteView {
        let (key, change): (Key, Change) = (key.parse().unwrap(), text(value));
        self.on(move |kv| async move { kv.write(&ana(), key, change, Condition::None, until).await }).await.unwrap()
    }

    pub async fn get(&self, key: &str, write: Option<&str>) -> Option<String> {
        let key: Key = key.parse().unwrap();
        let at_least = AtLeast { revision: None, write: write.map(|write| write.parse().unwrap()) };
        match self.on(move |kv| async move { kv.read(&ana(), key, at_least, PATIENCE).await }).await {
            Ok((value, _)) => Some(String::from_utf8(value.bytes.to_vec()).unwrap()),
            Err(problem) if problem.status == 404 => None,
            Err(problem) => panic!("{problem:?}"),
        }
    }

    pub async fn settled(&self, write: &str, wait: Duration) -> WriteView {
        let id = write.parse().unwrap();
        self.on(move |kv| async move { kv.settled(&ana(), id, wait).await }).await.unwrap()
    }

    /// As by SIGKILL: nothing is said to anybody, nothing more is written.
    pub fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Until each of them owns something, and all is owned.
pub async fn shared_out(database: &Database, members: &[&Member]) {
    let store = leases::open(database, None).await.unwrap();
    let deadline = SystemClock.monotonic().plus(PATIENCE);
    loop {
        let rows = store.leases(GROUP).await.unwrap();
        let of = |member: &Member| rows.iter().filter(|row| row.owner.as_ref() == Some(&member.name)).count();
        let shares: Vec<usize> = members.iter().map(|member| of(member)).collect();
        if shares.iter().all(|share| *share > 0) && shares.iter().sum::<usize>() == SHARDS as usize {
            return;
        }
        assert!(SystemClock.monotonic() < deadline, "not shared out: {shares:?}");
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
}

async fn any_manager_takes_any_write_and_says_what_became_of_it(engine: &Engine) {
    let (database, broker) = (engine.database().await, broker());
    let (a, b) = (join(&database, broker.clone(), BACKLOG_MAX).await, join(&database, broker, BACKLOG_MAX).await);
    shared_out(&database, &[&a, &b]).await;
    // Keys enough that each manager owns some and not others.
    for n in 0..48 {
        let (taker, other) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let (key, first, second) = (format!("k{n}"), format!("{n}"), format!("{n} again"));
        let queued = taker.put(&key, &first, Until::Durable).await;
        assert_eq!((queued.state, queued.revision), (WriteState::Queued, None), "durable is enough");
        assert_eq!(other.get(&key, Some(&queued.write)).await, Some(first), "one's own write, at any manager");
        let applied = other.put(&key, &second, Until::Applied).await;
        assert_eq!(applied.state, WriteState::Applied);
        assert_eq!(taker.get(&key, None).await, Some(second));
        for member in [&a, &b] {
            let earlier = member.settled(&queued.write, Duration::ZERO).await;
            assert_eq!(earlier.state, WriteState::Superseded);
            assert!(earlier.revision < applied.revision);
            assert_eq!(member.settled(&applied.write, Duration::ZERO).await, applied);
        }
    }
    let never = "w0-00000000000000ff-1-0".parse().unwrap();
    assert_eq!(
        a.on(move |kv| async move { kv.settled(&ana(), never, Duration::ZERO).await }).await.unwrap_err().status,
        404
    );
    a.kill();
    b.kill();
}

async fn steps_by_condition_through_either_of_two_managers_are_all_counted(engine: &Engine) {
    let (database, broker) = (engine.database().await, broker());
    let (a, b) = (join(&database, broker.clone(), BACKLOG_MAX).await, join(&database, broker, BACKLOG_MAX).await);
    shared_out(&database, &[&a, &b]).await;
    a.put("n", "0", Until::Applied).await;
    let count = |kv: Kv| async move {
        for _ in 0..10 {
            loop {
                let key = || "n".parse().unwrap();
                let (now, entry) = kv.read(&ana(), key(), AtLeast::default(), Duration::ZERO).await.unwrap();
                let n: u32 = std::str::from_utf8(&now.bytes).unwrap().parse().unwrap();
                let (step, condition) = (text(&(n + 1).to_string()), Condition::At(entry.revision));
                match kv.write(&ana(), key(), step, condition, Until::Durable).await {
                    Ok(view) => {
                        break assert_eq!(view.state, WriteState::Applied, "a condition is answered when it is held");
                    }
                    Err(problem) => assert_eq!(problem.status, 412),
                }
            }
        }
    };
    tokio::join!(a.on(count), a.on(count), b.on(count), b.on(count));
    assert_eq!(b.get("n", None).await.as_deref(), Some("40"));
    a.kill();
    b.kill();
}

/// Every value that a key has had, in order.
pub async fn history(database: &Database, key: &str) -> Vec<String> {
    let place = Place { namespace: "default".into(), key: key.parse().unwrap() };
    let Past::Events { events, .. } =
        open(database).past(place.shard(), 0, Extent { rows: 100_000, bytes: 64 << 20 }).await.unwrap()
    else {
        panic!()
    };
    let of_key = events.into_iter().filter(|event| event.place == place);
    of_key.map(|event| String::from_utf8(event.value.unwrap().bytes.to_vec()).unwrap()).collect()
}

async fn a_manager_killed_with_writes_on_their_way_loses_none_and_doubles_none(engine: &Engine) {
    let (database, broker) = (engine.database().await, broker());
    let (a, b) = (join(&database, broker.clone(), BACKLOG_MAX).await, join(&database, broker, BACKLOG_MAX).await);
    shared_out(&database, &[&a, &b]).await;
    let keys: Vec<String> = (0..32).map(|n| format!("k{n}")).collect();
    let mut answered: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for n in 0..20 {
        for key in &keys {
            let value = format!("a{n}");
            let view = a.put(key, &value, Until::Durable).await;
            answered.entry(key).or_default().push((value, view.write));
        }
    }
    // Half of what is on its way is its own to apply, and it knows best what it sent.
    a.kill();
    for key in &keys {
        let view = b.put(key, "b", Until::Durable).await;
        answered.entry(key).or_default().push(("b".into(), view.write));
    }
    for (key, writes) in answered {
        let (value, last) = writes.last().unwrap();
        assert_eq!(b.get(key, Some(last)).await.as_ref(), Some(value));
        let told: Vec<String> = writes.iter().map(|(value, _)| value.clone()).collect();
        assert_eq!(history(&database, key).await, told, "each once, in the order of the answers");
        assert_eq!(b.settled(&writes[0].1, Duration::ZERO).await.state, WriteState::Superseded);
    }
    b.kill();
}

fn put(place: &Place, value: &str) -> Write {
    Write { place: place.clone(), change: text(value), condition: Condition::None }
}

async fn rubbish_in_the_queue_goes_to_the_dead_letters_and_holds_up_nobody(engine: &Engine) {
    let (database, broker) = (engine.database().await, broker());
    let member = join(&database, broker.clone(), BACKLOG_MAX).await;
    let place = Place { namespace: "default".into(), key: "a".parse().unwrap() };
    let queue = queue_of(place.shard());
    let elsewhere = queue_of(ShardId((place.shard().0 + 1) % SHARDS));
    let parcel = wire::encode(
        &Parcel { producer: Producer(7), number: 1, writes: vec![put(&place, "strayed")] },
        Until::Durable,
    );
    broker.publish(&queue, vec!["rubbish".into(), parcel.slice(..parcel.len() - 3)]).await.unwrap();
    broker.publish(&elsewhere, vec![parcel]).await.unwrap();
    let view = member.put("a", "good", Until::Applied).await;
    assert_eq!(view.state, WriteState::Applied);
    let reasons = |letters: Vec<mutirao_broker::DeadLetter>| letters.into_iter().map(|l| l.reason).collect::<Vec<_>>();
    let here = reasons(broker.dead_letters(&queue, 10).await.unwrap());
    assert_eq!(here.len(), 2, "{here:?}");
    assert!(here.iter().all(|reason| reason.contains("not a parcel of writes")), "{here:?}");
    let deadline = SystemClock.monotonic().plus(PATIENCE);
    let strayed = loop {
        let strayed = reasons(broker.dead_letters(&elsewhere, 10).await.unwrap());
        if !strayed.is_empty() || SystemClock.monotonic() > deadline {
            break strayed;
        }
        SystemClock.sleep(Duration::from_millis(20)).await;
    };
    assert!(strayed.len() == 1 && strayed[0].contains("the key a is of shard"), "{strayed:?}");
    assert_eq!(history(&database, "a").await, ["good"]);
    member.kill();
}

async fn a_parcel_that_is_delivered_again_changes_nothing(engine: &Engine) {
    let (database, broker) = (engine.database().await, broker());
    let member = join(&database, broker.clone(), BACKLOG_MAX).await;
    let place = Place { namespace: "default".into(), key: "a".parse().unwrap() };
    let queue = queue_of(place.shard());
    let parcel = |number: u64| {
        let writes = vec![put(&place, &format!("v{number}"))];
        wire::encode(&Parcel { producer: Producer(7), number, writes }, Until::Durable)
    };
    // The third comes before the second is sent again, as after a connection that broke before the confirm.
    for again in [vec![parcel(1), parcel(1), parcel(2), parcel(3), parcel(2)], vec![parcel(1), parcel(3)]] {
        broker.publish(&queue, again).await.unwrap();
        member.put("a", "after", Until::Applied).await;
    }
    assert_eq!(history(&database, "a").await, ["v1", "v2", "v3", "after", "after"]);
    member.kill();
}

async fn past_the_bound_writes_are_refused_until_some_are_applied(engine: &Engine) {
    let (database, broker) = (engine.database().await, broker());
    let (store, other) = (leases::open(&database, None).await.unwrap(), MemberId("other".into()));
    for shard in (0..SHARDS).map(ShardId) {
        store.claim(GROUP, shard, Mark::default(), &other, Duration::from_secs(3_600)).await.unwrap();
    }
    let member = join(&database, broker, 10).await;
    let mut views = Vec::new();
    let refused = loop {
        let write = |kv: Kv| async move {
            kv.write(&ana(), "a".parse().unwrap(), text("x"), Condition::None, Until::Durable).await
        };
        match member.on(write).await {
            Ok(view) => views.push(view),
            Err(problem) => break problem,
        }
    };
    assert_eq!((refused.status, views.len()), (429, 10), "{refused:?}");
    assert!(refused.retry_after_s.is_some(), "{refused:?}");
    let waiting = member.settled(&views[0].write, Duration::ZERO).await;
    assert_eq!(waiting.state, WriteState::Queued, "nobody applies it");
    leases::bury(&store, GROUP, &other).await.unwrap();
    assert_eq!(member.settled(&views[9].write, PATIENCE).await.state, WriteState::Applied);
    let deadline = SystemClock.monotonic().plus(PATIENCE);
    let write = |kv: Kv| async move {
        kv.write(&ana(), "a".parse().unwrap(), text("y"), Condition::None, Until::Applied).await
    };
    while member.on(write).await.is_err() {
        assert!(SystemClock.monotonic() < deadline, "there is room again");
    }
    assert_eq!(history(&database, "a").await.len(), 11);
    member.kill();
}
