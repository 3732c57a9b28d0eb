//! Whoever follows an owner that died: what that one had fired, and was told of, is not fired again.

use std::collections::BTreeSet;
use std::time::Duration;

use mutirao_broker::Broker;
use mutirao_broker::memory::{Limits, Memory};
use mutirao_core::check::{CheckKind, checks_of};
use mutirao_core::envelope::{open, seal};
use mutirao_core::shard::shard_of;
use mutirao_core::{Clock, ShardId, SystemClock, Timestamp};
use mutirao_monitors::envelope::{Checks, Outcomes, Told, outcomes_of};
use mutirao_monitors::grid::Grid;
use mutirao_monitors::health::Verdict;
use mutirao_monitors::store::{self, Expected, Newcomer, Put, Settlement};
use mutirao_monitors::{GROUP, MonitorKey, SHARDS};
use mutirao_shards::store::{self as leases, Mark};
use mutirao_shards::{Fence, MemberId};

use crate::engine::{Engine, on_both};
use crate::running::{spec, start_with};
use crate::store::by;

on_both!(what_a_predecessor_fired_and_was_told_of_is_not_fired_again);

const MONITORS: u64 = 64;
const EVERY: Duration = Duration::from_secs(20);

/// The outcomes lie in the broker, and the store knows nothing of them: their owner died in between.
async fn what_a_predecessor_fired_and_was_told_of_is_not_fired_again(engine: &Engine) {
    let (database, broker) = (engine.database().await, Memory::new(None, Limits::default()));
    let (monitors, now) = (store::open(&database), SystemClock.now());
    let done = Timestamp(now.0 - 15_000);
    let mut told = BTreeSet::new();
    for n in 0..MONITORS {
        let uuid = format!("{n:032x}");
        let shard = shard_of(&uuid, SHARDS);
        let mut spec = spec(&format!("m{n}"), "127.0.0.1:9".parse().unwrap(), "");
        spec.every = mutirao_core::quantity::Span(EVERY);
        let newcomer = Newcomer { uuid: uuid.clone(), shard, spec };
        let Put::Created(row) = monitors.put(newcomer, Expected::Absent, by(done.0 - 60_000)).await.unwrap() else {
            panic!("m{n} is there already")
        };
        let at = Grid::new(&uuid, EVERY).at_or_before(now);
        if at > done {
            tell(&broker, shard, row.key, at).await;
            told.insert((row.key, at));
        }
    }
    assert!(told.len() > 20, "or this proves nothing");
    let shards = leases::open(&database, None).await.unwrap();
    let dead = MemberId("dead".into());
    for shard in (0..SHARDS).map(ShardId) {
        let lease = Duration::from_secs(10);
        let generation = shards.claim(GROUP, shard, Mark::default(), &dead, lease).await.unwrap().unwrap();
        let fence = Fence { group: GROUP, shard, generation };
        let so_far = Settlement { fired_until: Some(done), ..Settlement::default() };
        monitors.settle(fence, so_far).await.unwrap();
        shards.release(GROUP, &dead, shard, generation).await.unwrap();
    }

    let mut checks = broker.consume(&checks_of(CheckKind::Http), 1_000).await.unwrap();
    let successor = start_with(&database, broker.clone(), "two", None).await;
    let mut fired = 0;
    while fired < MONITORS {
        for delivery in checks.next().await.unwrap() {
            let Checks { checks, .. } = open(&delivery.body).unwrap();
            for ask in checks {
                assert!(!told.contains(&(ask.monitor, ask.at)), "{:?} of {:?} is fired again", ask.at, ask.monitor);
                fired += 1;
            }
        }
    }
    successor.stop().await;
    database.close().await;
}

async fn tell(broker: &Memory, shard: ShardId, monitor: MonitorKey, at: Timestamp) {
    let one = Told { monitor, at, verdict: Verdict::Good, took_us: Some(1), detail: None, certificate_days: None };
    let body = seal(&Outcomes { outcomes: vec![one], ..Outcomes::of(None) });
    broker.publish(&outcomes_of(shard), vec![body]).await.unwrap();
}
