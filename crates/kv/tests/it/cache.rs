//! What every cache does, in this process and in Redis; and what a Redis that goes away costs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::{Clock, Dice, ShardId, SystemClock, Timestamp};
use mutirao_kv::cache::memory::Memory;
use mutirao_kv::cache::near::Near;
use mutirao_kv::cache::redis::{Redis, check_url};
use mutirao_kv::cache::{Cache, CacheError, LEASE, Looked, Reign, Shared, Token, nothing};
use mutirao_kv::service::AtLeast;
use mutirao_kv::store::open;
use mutirao_kv::write::{Parcel, Producer};
use mutirao_kv::{AtHand, Condition, Entry, GROUP, Kv, KvParts, Path, Place, Until, Value, Write};
use mutirao_shards::store as leases;
use mutirao_shards::{Fence, MemberId, Terms};
use mutirao_testkit::certificates::{Authority, Good};
use mutirao_testkit::services::{REDIS_VARIABLE, Service, shared};
use mutirao_tls::{Believe, Trust};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::running::{ana, text};

const PREFIX: &str = "mutirao:test:kv:";

fn dice() -> Arc<Dice> {
    Arc::new(Dice::from_os())
}

fn memory() -> Shared {
    Arc::new(Memory::new(1 << 20, SystemClock::shared()))
}

fn redis(url: &str) -> Shared {
    let prefix = format!("test-{:016x}:", dice().u64());
    Arc::new(Redis::new(url, &Trust::nobody(), &prefix, SystemClock::shared(), dice()).unwrap())
}

/// What a manager has: what it applies itself is in its own memory too.
fn near(url: &str) -> Shared {
    Arc::new(Near::new(1 << 20, SystemClock::shared(), Box::new(|_, _| true), redis(url)))
}

macro_rules! on_every_cache {
    ($($behaviour:ident),+ $(,)?) => { $(
        mod $behaviour {
            #[tokio::test]
            async fn memory() {
                super::$behaviour(super::memory()).await;
            }

            #[tokio::test]
            async fn redis() {
                let Some(url) = super::shared(super::REDIS_VARIABLE) else { return };
                super::$behaviour(super::redis(&url)).await;
            }

            #[tokio::test]
            async fn near() {
                let Some(url) = super::shared(super::REDIS_VARIABLE) else { return };
                super::$behaviour(super::near(&url)).await;
            }
        }
    )+ };
}

on_every_cache!(
    what_is_filled_in_or_offered_is_found_byte_for_byte,
    nothing_is_found_of_what_changes_and_an_old_lease_fills_in_nothing,
    only_the_last_reign_counts_and_only_its_own_values,
    an_older_value_does_not_replace_a_newer_one,
    a_lease_that_was_given_up_keeps_nobody_from_filling_in,
);

fn place() -> Place {
    Place { namespace: "default".into(), key: "a/ü".parse().unwrap() }
}

fn entry(revision: u64, bytes: &[u8]) -> Entry {
    let value = Value::new(Bytes::copy_from_slice(bytes), Some("image/x")).unwrap();
    Entry { revision, changed_at: Timestamp(7), value: Some(value), expires_at: Some(Timestamp(99)) }
}

fn reign(generation: u64) -> Reign {
    Reign { generation, epoch: dice().u64() }
}

async fn begun(cache: &Shared, generation: u64) -> Reign {
    let reign = reign(generation);
    cache.begin(place().shard(), reign, SystemClock.monotonic()).await.unwrap();
    reign
}

async fn look(cache: &Shared) -> Looked {
    cache.look(&place(), Token(dice().u64())).await
}

async fn missed(cache: &Shared) -> Token {
    match look(cache).await {
        Looked::Miss(token) => token,
        other => panic!("{other:?}"),
    }
}

async fn what_is_filled_in_or_offered_is_found_byte_for_byte(cache: Shared) {
    assert_eq!(look(&cache).await, Looked::Past, "nobody vouches");
    let reign = begun(&cache, 1).await;
    let token = missed(&cache).await;
    assert_eq!(look(&cache).await, Looked::Past, "another is about to fill it in");
    let every: Vec<u8> = (0..=255).collect();
    cache.fill(&place(), token, &entry(3, &every)).await;
    assert_eq!(look(&cache).await, Looked::Hit(entry(3, &every)));
    assert_eq!(cache.mark(place().shard(), reign, &[place()]).await, Ok(vec![0]), "something was kept of it");
    assert_eq!(cache.mark(place().shard(), reign, &[place()]).await, Ok(vec![]), "and is not any more");
    cache.offer(place().shard(), reign, &[(place(), Some(entry(4, b"")))]).await.unwrap();
    assert_eq!(look(&cache).await, Looked::Hit(entry(4, b"")), "also when it is empty");
    let deleted = Entry { revision: 5, value: None, expires_at: None, ..entry(5, b"") };
    cache.offer(place().shard(), reign, &[(place(), Some(deleted.clone()))]).await.unwrap();
    assert_eq!(look(&cache).await, Looked::Hit(deleted));
}

async fn nothing_is_found_of_what_changes_and_an_old_lease_fills_in_nothing(cache: Shared) {
    let (reign, shard) = (begun(&cache, 1).await, place().shard());
    let token = missed(&cache).await;
    cache.mark(shard, reign, &[place()]).await.unwrap();
    assert_eq!(look(&cache).await, Looked::Past, "it changes");
    cache.fill(&place(), token, &entry(1, b"before")).await;
    assert_eq!(look(&cache).await, Looked::Past);
    cache.offer(shard, reign, &[(place(), None)]).await.unwrap();
    let other = missed(&cache).await;
    cache.fill(&place(), token, &entry(1, b"before")).await;
    assert_eq!(look(&cache).await, Looked::Past, "the lease is another's now");
    cache.fill(&place(), other, &nothing()).await;
    assert_eq!(look(&cache).await, Looked::Hit(nothing()), "that there is nothing");
}

async fn only_the_last_reign_counts_and_only_its_own_values(cache: Shared) {
    let shard = place().shard();
    let first = begun(&cache, 1).await;
    cache.offer(shard, first, &[(place(), Some(entry(1, b"first")))]).await.unwrap();
    let second = begun(&cache, 2).await;
    assert!(matches!(look(&cache).await, Looked::Miss(_)), "what its predecessor kept does not count");
    for late in [
        cache.offer(shard, first, &[(place(), Some(entry(9, b"late")))]).await,
        cache.mark(shard, first, &[place()]).await.map(drop),
        cache.renew(shard, first, SystemClock.monotonic()).await,
        cache.begin(shard, reign(1), SystemClock.monotonic()).await,
    ] {
        assert_eq!(late, Err(CacheError::Lapsed));
    }
    cache.renew(shard, second, SystemClock.monotonic()).await.unwrap();
    cache.offer(shard, second, &[(place(), Some(entry(2, b"second")))]).await.unwrap();
    assert_eq!(look(&cache).await, Looked::Hit(entry(2, b"second")));
    assert_eq!(
        cache.offer(ShardId((shard.0 + 1) % 16), second, &[]).await,
        Err(CacheError::Lapsed),
        "of its own shard"
    );
}

async fn an_older_value_does_not_replace_a_newer_one(cache: Shared) {
    let (reign, shard) = (begun(&cache, 1).await, place().shard());
    for (revision, stays) in [(9, 9), (10, 10), (2, 10), (100, 100), (99, 100)] {
        cache.offer(shard, reign, &[(place(), Some(entry(revision, b"x")))]).await.unwrap();
        assert_eq!(look(&cache).await, Looked::Hit(entry(stays, b"x")), "after {revision}");
    }
}

async fn a_lease_that_was_given_up_keeps_nobody_from_filling_in(cache: Shared) {
    let (reign, shard) = (begun(&cache, 1).await, place().shard());
    let given_up = missed(&cache).await;
    let deadline = SystemClock.monotonic().plus(LEASE * 3);
    let other = loop {
        // Somebody vouches all the while. Where the machine is busy one word may be late: the next comes soon enough.
        let _ = cache.renew(shard, reign, SystemClock.monotonic()).await;
        match look(&cache).await {
            Looked::Miss(token) => break token,
            found => assert!(SystemClock.monotonic() < deadline, "{found:?}"),
        }
        SystemClock.sleep(Duration::from_millis(100)).await;
    };
    cache.fill(&place(), given_up, &entry(1, b"late")).await;
    assert_eq!(look(&cache).await, Looked::Past, "the lease is another's now");
    cache.fill(&place(), other, &entry(2, b"new")).await;
    assert_eq!(look(&cache).await, Looked::Hit(entry(2, b"new")));
}

#[test]
fn an_address_that_is_none_is_refused_without_being_shown() {
    assert!(check_url("redis://ana:s3cret@cache:6379/1").is_ok());
    assert!(check_url("rediss://ana:s3cret@cache:6379/1").is_ok());
    for bad in ["http://ana:s3cret@cache", "redis//s3cret", "s3cret"] {
        assert!(!check_url(bad).unwrap_err().contains("s3cret"), "{bad}");
    }
}

#[tokio::test]
async fn a_redis_with_tls_is_believed_by_its_authority_only() {
    if shared(REDIS_VARIABLE).is_none() {
        return;
    }
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let server = Service::redis_with_tls(folder.path(), &authority.issue(&["localhost"], Good::ForLong)).unwrap();
    let version = async |url: &str, ca: Option<std::path::PathBuf>| {
        let trust = Trust::for_url(url, &Believe { ca, pin: None }).unwrap();
        Redis::new(url, &trust, PREFIX, SystemClock::shared(), dice()).unwrap().version().await
    };
    assert!(version(server.url(), Some(authority.ca())).await.is_ok());
    let stranger = version(server.url(), None).await.unwrap_err().to_string();
    assert!(stranger.contains("certificate"), "{stranger}");
}

/// Writes and reads go on, right, while the Redis is killed and comes back; and then it is used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_makes_reading_slower_and_never_wrong() {
    if shared(REDIS_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Service::redis(folder.path()).unwrap();
    let engine = Engine::sqlite();
    let database = engine.database().await;
    let kv = Kv::start(KvParts {
        leases: leases::open(&database, None).await.unwrap(),
        store: database,
        path: Path::Commit,
        at_hand: AtHand::Redis {
            url: server.url().into(),
            trust: Trust::nobody(),
            prefix: PREFIX.into(),
            here_bytes_max: 1 << 20,
        },
        terms: Terms::alone(),
        member: MemberId::mint("test"),
        address: String::new(),
        clock: SystemClock::shared(),
        dice: dice(),
        keep: Duration::from_secs(3_600),
        keep_bytes: None,
        shutdown: CancellationToken::new(),
    })
    .await
    .unwrap();
    let mut n = 0_u64;
    let mut round = async |kv: &Kv| {
        for _ in 0..20 {
            n += 1;
            kv.write(&ana(), "a".parse().unwrap(), text(&n.to_string()), Condition::None, Until::Applied)
                .await
                .unwrap();
            for _ in 0..3 {
                let read = kv.read(&ana(), "a".parse().unwrap(), AtLeast::default(), Duration::ZERO).await.unwrap();
                assert_eq!(read.0.bytes, n.to_string());
            }
        }
    };
    round(&kv).await;
    for _ in 0..2 {
        server.kill9();
        round(&kv).await;
        server.restart().unwrap();
        round(&kv).await;
    }
    // It is told of every change again: what was applied last is found there.
    let there = Redis::new(server.url(), &Trust::nobody(), PREFIX, SystemClock::shared(), dice()).unwrap();
    let a = Place { namespace: "default".into(), key: "a".parse().unwrap() };
    let deadline = SystemClock.monotonic().plus(Duration::from_secs(30));
    loop {
        round(&kv).await;
        match there.look(&a, Token(dice().u64())).await {
            Looked::Hit(_) => break,
            other => assert!(SystemClock.monotonic() < deadline, "{other:?}"),
        }
    }
    kv.stop().await;
}

/// The store is changed behind the applier's back, as nobody may: so it shows who was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_at_hand_is_not_asked_of_the_store() {
    let engine = Engine::sqlite();
    let kv = crate::running::start(&engine).await;
    let read = async |key: &str| {
        let read = kv.read(&ana(), key.parse().unwrap(), AtLeast::default(), Duration::ZERO).await;
        read.map(|(value, _)| value.bytes)
    };
    let write = async |key: &str, value: &str| {
        kv.write(&ana(), key.parse().unwrap(), text(value), Condition::None, Until::Applied).await.unwrap();
    };
    write("a", "nobody has read it").await;
    assert_eq!(read("a").await.unwrap(), "nobody has read it");
    write("a", "at hand").await;
    let database = engine.database().await;
    let a = Place { namespace: "default".into(), key: "a".parse().unwrap() };
    let rows = leases::open(&database, None).await.unwrap().leases(GROUP).await.unwrap();
    let generation = rows.iter().find(|row| row.shard == a.shard()).unwrap().mark.generation;
    let fence = Fence { group: GROUP, shard: a.shard(), generation };
    let writes = vec![Write { place: a, change: text("in the store"), condition: Condition::None }];
    let parcel = Parcel { producer: Producer(7), number: 1, writes };
    open(&database).apply(fence, vec![parcel], Timestamp(1)).await.unwrap();
    assert_eq!(read("a").await.unwrap(), "at hand", "what was read is kept up to date");
    assert_eq!(read("b").await.unwrap_err().status, 404);
    write("b", "new").await;
    assert_eq!(read("b").await.unwrap(), "new", "that there was nothing is not believed for longer than it is so");
    kv.stop().await;
}
