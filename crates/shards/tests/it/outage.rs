//! PostgreSQL killed and started again under its members.

#![allow(clippy::disallowed_methods, reason = "waits for a real server in real time")]

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_shards::store::{PostgresShards, postgres};
use mutirao_shards::{MemberId, Shards, ShardsParts, Terms};
use mutirao_store::Postgres;
use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::wait;

const COUNT: u32 = 8;
const SOON: Duration = Duration::from_secs(60);

async fn member(url: &str, name: &str) -> Shards {
    let db = Postgres::open(url, postgres::MIGRATIONS).await.unwrap();
    let parts = ShardsParts {
        store: Arc::new(PostgresShards(db)),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::from_os()),
        group: "g",
        count: COUNT,
        member: MemberId::mint(name),
        address: name.into(),
        terms: Terms::of(Duration::from_secs(2)),
    };
    Shards::start(parts).await.unwrap()
}

fn held_now(members: &[Shards]) -> Vec<(u32, u64)> {
    let now = SystemClock.monotonic();
    let board = |member: &Shards| member.owned().borrow().clone();
    let held = members.iter().flat_map(board).filter(|(_, tenure)| tenure.holds(now));
    let mut held: Vec<(u32, u64)> = held.map(|(shard, tenure)| (shard.0, tenure.generation)).collect();
    held.sort_unstable();
    held
}

fn all_owned(members: &[Shards]) -> bool {
    held_now(members).into_iter().map(|(shard, _)| shard).eq(0..COUNT)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_postgres_is_dead_nobody_believes_in_anything_and_afterwards_all_is_owned_again() {
    // A server of its own is started only where the run has servers at all.
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Service::postgres(folder.path()).unwrap();
    let members = [member(server.url(), "a").await, member(server.url(), "b").await];
    assert!(wait::holds_within(SOON, || all_owned(&members)), "{:?}", held_now(&members));
    let before = held_now(&members);

    server.kill9();
    assert!(wait::holds_within(SOON, || held_now(&members).is_empty()), "{:?}", held_now(&members));
    server.restart().unwrap();
    assert!(wait::holds_within(SOON, || all_owned(&members)), "{:?}", held_now(&members));
    for ((shard, old), (_, new)) in before.iter().zip(held_now(&members)) {
        assert!(new > *old, "shard {shard} went back from generation {old} to {new}");
    }
}
