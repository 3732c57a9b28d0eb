//! Two managers with one Redis of their own, which is killed, frozen, full, restored from a snapshot: what is read at either is what
//! was written last, and writing goes on.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_kv::{AtHand, Until};
use mutirao_testkit::network::{Between, Network};
use mutirao_testkit::services::{REDIS_VARIABLE, Service, shared};
use mutirao_tls::Trust;

use crate::engine::Engine;
use crate::queued::{BACKLOG_MAX, Member, broker, join_with, shared_out};

const KEYS: usize = 12;
/// By then whoever could not tell the cache of a change has waited for its word to lapse, in all shards of the keys.
const WELL_AGAIN: Duration = Duration::from_secs(4);

struct House {
    members: [Member; 2],
    redis: Service,
    written: u64,
    _engine: Engine,
    _folder: tempfile::TempDir,
}

impl House {
    /// None, with a notice, when the run has no services.
    async fn start() -> Option<Self> {
        Self::start_by_way_of(|redis| redis).await
    }

    /// The second member reaches the Redis by another address.
    async fn start_by_way_of(other: impl FnOnce(SocketAddr) -> SocketAddr) -> Option<Self> {
        shared(REDIS_VARIABLE)?;
        let (engine, folder) = (Engine::sqlite(), tempfile::tempdir().unwrap());
        let redis = Service::redis_that_saves(folder.path()).unwrap();
        let (database, queue) = (engine.database().await, broker());
        let join = async |address: SocketAddr| {
            let url = redis.url().replace(&redis.address().to_string(), &address.to_string());
            let prefix = "mutirao:test:kv:".to_owned();
            let at_hand = AtHand::Redis { url, trust: Trust::nobody(), prefix, here_bytes_max: 1 << 20 };
            join_with(&database, queue.clone(), BACKLOG_MAX, at_hand, SystemClock::shared()).await
        };
        let members = [join(redis.address()).await, join(other(redis.address())).await];
        shared_out(&database, &[&members[0], &members[1]]).await;
        Some(Self { members, redis, written: 0, _engine: engine, _folder: folder })
    }

    async fn write(&mut self) {
        self.written += 1;
        for n in 0..KEYS {
            self.members[n % 2].put(&format!("k{n}"), &self.written.to_string(), Until::Applied).await;
        }
    }

    async fn read(&self) {
        for n in 0..KEYS {
            for member in &self.members {
                assert_eq!(member.get(&format!("k{n}"), None).await, Some(self.written.to_string()), "k{n}");
            }
        }
    }

    /// Each value is read at both at once, and twice, so that it is at hand.
    async fn round(&mut self) {
        self.write().await;
        self.read().await;
        self.read().await;
    }

    /// What the Redis says to a command.
    fn told(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(self.redis.address()).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn end(self) {
        self.members.into_iter().for_each(Member::kill);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_restored_from_a_snapshot_serves_nothing_of_it() {
    let Some(mut house) = House::start().await else { return };
    for _ in 0..2 {
        house.round().await;
        assert_eq!(house.told("SAVE"), "+OK");
        house.write().await;
        house.redis.kill9();
        house.redis.restart().unwrap();
        let until = SystemClock.monotonic().plus(WELL_AGAIN);
        while SystemClock.monotonic() < until {
            house.read().await;
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
        house.round().await;
    }
    house.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_frozen_or_killed_makes_nothing_wrong_at_either_of_two_managers() {
    let Some(mut house) = House::start().await else { return };
    house.round().await;
    house.redis.freeze();
    house.round().await;
    house.redis.thaw();
    house.round().await;
    house.redis.kill9();
    house.round().await;
    house.redis.restart().unwrap();
    house.round().await;
    house.end();
}

/// One of the two cannot tell the Redis what it writes, and the other goes on reading there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_managers_cut_off_from_the_redis_shows_nothing_old_at_either() {
    let Some(mut network) = Network::lay(&Dice::from_os()) else { return };
    let mut front = None;
    let way = |redis| *front.insert(network.front(redis).unwrap());
    let Some(mut house) = House::start_by_way_of(way).await else { return };
    let front = front.unwrap();
    house.round().await;
    for _ in 0..2 {
        network.cut(Between::ManagerAnd(front)).unwrap();
        house.round().await;
        house.round().await;
        network.mend(Between::ManagerAnd(front)).unwrap();
        house.round().await;
    }
    house.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_full_holds_writing_up_once_and_no_longer() {
    let Some(mut house) = House::start().await else { return };
    house.round().await;
    assert_eq!(house.told("CONFIG SET maxmemory 100000"), "+OK");
    // The first write of each shard waits for what could be believed.
    house.write().await;
    SystemClock.sleep(WELL_AGAIN).await;
    let begun = SystemClock.monotonic();
    for _ in 0..3 {
        house.round().await;
    }
    let took = SystemClock.monotonic().since(begun);
    assert!(took < Duration::from_secs(15), "{} writes took {took:?}; one that waits takes three seconds", 3 * KEYS);
    assert_eq!(house.told("CONFIG SET maxmemory 0"), "+OK");
    house.round().await;
    house.end();
}
