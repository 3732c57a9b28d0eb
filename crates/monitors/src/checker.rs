//! Makes checks: takes parcels of them from the broker, asks, judges, and tells how each ended, in parcels again. Inside a
//! manager, or as a process of its own, of which there may be any number.
//!
//! - Of each kind there is a queue of checks that may be made anywhere, and one for each place where some are wanted; those
//!   that fit are taken too ([`places`]).
//! - Many are under way at once, as many as this process can do justice to ([`limit`]), hosts in turn ([`hosts`]).
//! - What is taken up past its deadline is not made, and told as missed: a late check says nothing about then.
//! - Whoever is told to stop makes what it has taken. What a process had taken that is killed is made by another ([`taking`]).
//! - Now and then it says how it is doing ([`pulse`]).

pub mod hosts;
pub mod limit;
mod places;
pub mod pulse;
mod taking;
mod telling;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::check::{Kinds, checks_of};
use mutirao_core::envelope::Footprint;
use mutirao_core::{Clock, Mono, ShardId, WorkerId};
use mutirao_probes::{Check, Probes};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::condition::Conditions;
use crate::envelope::{Ask, Told};
use crate::health::Verdict;
use crate::judge::judge;
use crate::placement::Standing;
use hosts::Hosts;
use limit::Limit;
use pulse::Tally;
use taking::{Hands, Hold};
use telling::{Room, Tellers, Word};

/// How often it is looked how late this process wakes up.
const TEND: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(500);
/// Sets of conditions that are kept compiled.
const COMPILED_MAX: usize = 10_000;

/// Conditions as written, and the kind of check that they are about.
type Texts = (&'static str, Arc<Vec<String>>);

#[derive(Clone)]
pub struct CheckerParts {
    pub broker: Broker,
    pub probes: Probes,
    pub clock: Arc<dyn Clock>,
    pub kinds: Kinds,
    pub standing: Standing,
    /// In whose name outcomes are told; a manager's own checker needs none.
    pub worker: Option<WorkerId>,
    pub bounds: Bounds,
    pub gauge: Gauge,
}

/// What measures this process; a manager is measured as a whole, and not by its checker.
pub type Gauge = Option<Arc<dyn Fn(Mono) -> Footprint + Send + Sync>>;

/// How much a checker may do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Checks under way.
    pub under_way_max: usize,
    /// Of them, those that ask one host.
    pub host_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { under_way_max: 10_000, host_max: 100 }
    }
}

/// A check that waits for its turn.
struct Waiting {
    shard: ShardId,
    ask: Ask,
    hold: Hold,
}

struct Shop {
    parts: CheckerParts,
    tellers: Tellers,
    queue: Mutex<(Hosts<Waiting>, Limit)>,
    /// Rung when something has begun: there may be room for more to wait.
    bell: Notify,
    tally: Tally,
    hands: Hands,
    stop: CancellationToken,
    compiled: Mutex<HashMap<Texts, Arc<Conditions>>>,
}

/// Until told to stop; then what is under way ends, and is told.
pub async fn run(parts: CheckerParts, stop: CancellationToken) {
    let mut telling = JoinSet::new();
    let tellers = Tellers::start(&parts.broker, parts.worker.as_ref(), &parts.clock, &mut telling);
    let queue = Mutex::new((Hosts::new(parts.bounds.host_max), Limit::new(parts.bounds.under_way_max)));
    let shop = Arc::new(Shop {
        parts,
        tellers,
        queue,
        bell: Notify::new(),
        tally: Tally::default(),
        hands: Hands::default(),
        stop: stop.clone(),
        compiled: Mutex::default(),
    });
    let mut taking = JoinSet::new();
    for kind in shop.parts.kinds.iter() {
        taking.spawn(shop.clone().take(checks_of(kind), stop.clone()));
    }
    taking.spawn(places::follow(shop.clone()));
    let mut living = JoinSet::new();
    living.spawn(shop.clone().tend());
    living.spawn(pulse::beat(shop.clone()));
    while taking.join_next().await.is_some() {}
    shop.made_all().await;
    living.shutdown().await;
    // The tellers end with the last that has something to say.
    drop(shop);
    while telling.join_next().await.is_some() {}
}

impl Shop {
    /// Returns when what was taken has begun; what has no time left is told as missed.
    async fn made_all(self: &Arc<Self>) {
        self.pump();
        loop {
            let rung = self.bell.notified();
            if self.queue.lock().0.waiting() == 0 {
                return;
            }
            rung.await;
        }
    }

    /// Begins what may begin. Called whenever that may have become more.
    fn pump(self: &Arc<Self>) {
        loop {
            let next = {
                let mut queue = self.queue.lock();
                let (hosts, limit) = &mut *queue;
                hosts.next(limit.now())
            };
            let Some((host, Waiting { shard, ask, hold })) = next else { break };
            let room = self.tellers.room(shard);
            let Some(room) = room.filter(|_| self.parts.clock.now() <= ask.until) else {
                self.queue.lock().0.done(&host);
                self.tellers.miss(shard, hold);
                continue;
            };
            self.tally.begun(self.parts.clock.now().since(ask.at));
            let shop = self.clone();
            tokio::spawn(async move { shop.make_in_turn(host, room, ask, hold).await });
        }
        self.bell.notify_waiters();
    }

    async fn make_in_turn(self: Arc<Self>, host: Arc<str>, room: Room, ask: Ask, hold: Hold) {
        // Also when a probe breaks: a place that is never given back would be lost for good.
        struct Place(Arc<Shop>, Arc<str>);
        impl Drop for Place {
            fn drop(&mut self) {
                self.0.queue.lock().0.done(&self.1);
                // Not while the process ends.
                if tokio::runtime::Handle::try_current().is_ok() {
                    self.0.pump();
                }
            }
        }
        let place = Place(self, host);
        let told = place.0.make(ask).await;
        room.say(Word::Told(told), hold);
    }

    async fn tend(self: Arc<Self>) {
        let clock = self.parts.clock.clone();
        loop {
            let begin = clock.monotonic();
            clock.sleep(TEND).await;
            let late = clock.monotonic().since(begin).saturating_sub(TEND);
            {
                let mut queue = self.queue.lock();
                let under_way = queue.0.under_way();
                queue.1.observe(late, under_way);
            }
            self.pump();
        }
    }

    async fn make(&self, ask: Ask) -> Told {
        let told = |verdict, took_us, detail| Told {
            monitor: ask.monitor,
            at: ask.at,
            verdict,
            took_us,
            detail,
            certificate_days: None,
        };
        let conditions = match self.conditions(&ask.check, &ask.when).await {
            Ok(conditions) => conditions,
            Err(why) => return told(Verdict::Bad, None, Some(why)),
        };
        let within = Duration::from_millis(ask.timeout_ms);
        let mut tries = 0;
        loop {
            let seen = self.parts.probes.run(&ask.check, within).await;
            let (verdict, detail) = judge(&ask.check, &conditions, &seen);
            if verdict == Verdict::Good || tries >= ask.retries {
                let answered = seen.ended == mutirao_probes::Ended::Answered;
                let certificate_days = seen.seen.certificate.as_ref().map(|certificate| certificate.days_left);
                return Told { certificate_days, ..told(verdict, answered.then_some(seen.timings.total), detail) };
            }
            tries += 1;
        }
    }

    /// Compiled once for each set of conditions. They were checked when the monitor was taken in; those of a newer manager
    /// may still be beyond this program.
    async fn conditions(&self, check: &Arc<Check>, when: &Arc<Vec<String>>) -> Result<Arc<Conditions>, String> {
        let key = (check.word(), when.clone());
        if let Some(known) = self.compiled.lock().get(&key) {
            return Ok(known.clone());
        }
        let (check, when) = (check.clone(), when.clone());
        let compile = move || Conditions::compile(&when, &check).map_err(|problem| problem.line());
        let compiled = tokio::task::spawn_blocking(compile).await.map_err(|broke| broke.to_string())??;
        let compiled = Arc::new(compiled);
        let mut all = self.compiled.lock();
        if all.len() >= COMPILED_MAX {
            all.clear();
        }
        all.insert(key, compiled.clone());
        Ok(compiled)
    }
}

/// One check, now, for whoever wants to see how it ends.
pub async fn once(
    probes: &Probes,
    check: &Check,
    when: &[String],
    within: Duration,
) -> (mutirao_probes::Observation, Verdict, Option<String>) {
    let seen = probes.run(check, within).await;
    let (verdict, detail) = match Conditions::compile(when, check) {
        Ok(conditions) => judge(check, &conditions, &seen),
        Err(problem) => (Verdict::Bad, Some(problem.line())),
    };
    (seen, verdict, detail)
}
