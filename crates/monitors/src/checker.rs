//! Makes checks: takes parcels of them from the broker, asks, judges, and tells how each ended, in parcels again.
//!
//! Many are under way at once, so that slow services hold up nobody; past [`UNDER_WAY_MAX`] no more are taken, and what waits
//! then waits in the broker, until it is too late to be worth anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Shared as Broker};
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Clock, ShardId};
use mutirao_probes::{Check, Probes};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::condition::Conditions;
use crate::envelope::{Ask, Checks, OUTCOMES_MAX, Outcomes, Told, checks_of, outcomes_of};
use crate::health::Verdict;
use crate::judge::judge;
use crate::service::Programs;

/// The kinds of check that this program can make.
pub const KINDS: [&str; 6] = ["http", "tcp", "tls", "dns", "icmp", "exec"];
/// Checks under way at once.
pub const UNDER_WAY_MAX: usize = 1_000;
/// Parcels taken and not yet begun, of each kind.
const CREDIT: u32 = 4;
/// Outcomes that wait to be told. Whoever cannot tell begins nothing more.
const UNTOLD_MAX: usize = 10_000;
/// How long an outcome waits for company.
const GATHER: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(500);
/// Sets of conditions that are kept compiled.
const COMPILED_MAX: usize = 10_000;

/// Conditions as written, and the kind of check that they are about.
type Texts = (&'static str, Arc<Vec<String>>);

pub struct Checker {
    broker: Broker,
    probes: Probes,
    programs: Programs,
    clock: Arc<dyn Clock>,
    places: Arc<Semaphore>,
    compiled: Mutex<HashMap<Texts, Arc<Conditions>>>,
}

impl Checker {
    pub fn new(broker: Broker, probes: Probes, programs: Programs, clock: Arc<dyn Clock>) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        Arc::new(Self { broker, probes, programs, clock, places, compiled: Mutex::default() })
    }

    /// For as long as it is not dropped.
    pub async fn run(self: Arc<Self>) {
        let (tell, told) = mpsc::channel(UNTOLD_MAX);
        let mut tasks = JoinSet::new();
        let allowed = |kind: &&str| *kind != "exec" || self.programs == Programs::Allowed;
        for kind in KINDS.into_iter().filter(allowed) {
            tasks.spawn(self.clone().take(kind, tell.clone()));
        }
        drop(tell);
        tasks.spawn(self.clone().tell(told));
        while tasks.join_next().await.is_some() {}
    }

    async fn take(self: Arc<Self>, kind: &'static str, tell: mpsc::Sender<(ShardId, Told)>) {
        loop {
            match self.take_while_it_lasts(kind, &tell).await {
                Err(BrokerError::Closed) => return,
                Err(error) => tracing::debug!(kind, %error, "no checks can be taken; trying again"),
                Ok(()) => {}
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn take_while_it_lasts(
        self: &Arc<Self>,
        kind: &'static str,
        tell: &mpsc::Sender<(ShardId, Told)>,
    ) -> Result<(), BrokerError> {
        let mut consumer = self.broker.consume(&checks_of(kind), CREDIT).await?;
        loop {
            for delivery in consumer.next().await? {
                let parcel: Checks = match open(&delivery.body) {
                    Ok(parcel) => parcel,
                    Err(unreadable) => {
                        consumer.reject(delivery.tag, &unreadable.to_string()).await?;
                        continue;
                    }
                };
                for ask in parcel.checks {
                    self.begin(ShardId(parcel.shard), ask, tell).await;
                }
                consumer.ack_through(delivery.tag).await?;
            }
        }
    }

    /// Returns once it is under way, or too late.
    async fn begin(self: &Arc<Self>, shard: ShardId, ask: Ask, tell: &mpsc::Sender<(ShardId, Told)>) {
        let (Ok(place), Ok(room)) = (self.places.clone().acquire_owned().await, tell.clone().reserve_owned().await)
        else {
            return;
        };
        if self.clock.now() > ask.until {
            return;
        }
        let checker = self.clone();
        tokio::spawn(async move {
            let told = checker.make(ask).await;
            room.send((shard, told));
            drop(place);
        });
    }

    async fn make(&self, ask: Ask) -> Told {
        let told = |verdict, took_us, detail| Told { monitor: ask.monitor, at: ask.at, verdict, took_us, detail };
        let conditions = match self.conditions(&ask.check, &ask.when).await {
            Ok(conditions) => conditions,
            Err(why) => return told(Verdict::Bad, None, Some(why)),
        };
        let within = Duration::from_millis(ask.timeout_ms);
        let mut tries = 0;
        loop {
            let seen = self.probes.run(&ask.check, within).await;
            let (verdict, detail) = judge(&ask.check, &conditions, &seen);
            if verdict == Verdict::Good || tries >= ask.retries {
                let answered = seen.ended == mutirao_probes::Ended::Answered;
                return told(verdict, answered.then_some(seen.timings.total), detail);
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

    /// Tells the owners, in parcels, until nobody has anything more to tell. What cannot be told is tried again, in order.
    async fn tell(self: Arc<Self>, mut told: mpsc::Receiver<(ShardId, Told)>) {
        let mut some = Vec::new();
        while told.recv_many(&mut some, OUTCOMES_MAX).await > 0 {
            if some.len() < OUTCOMES_MAX {
                self.clock.sleep(GATHER).await;
                while some.len() < OUTCOMES_MAX
                    && let Ok(one) = told.try_recv()
                {
                    some.push(one);
                }
            }
            let mut by_shard: HashMap<ShardId, Vec<Told>> = HashMap::new();
            for (shard, one) in some.drain(..) {
                by_shard.entry(shard).or_default().push(one);
            }
            for (shard, outcomes) in by_shard {
                let body = seal(&Outcomes { v: Version::default(), outcomes });
                loop {
                    match self.broker.publish(&outcomes_of(shard), vec![body.clone()]).await {
                        Ok(()) => break,
                        Err(BrokerError::Closed) => return,
                        Err(error) => tracing::debug!(%shard, %error, "outcomes cannot be told; trying again"),
                    }
                    self.clock.sleep(PAUSE).await;
                }
            }
        }
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
