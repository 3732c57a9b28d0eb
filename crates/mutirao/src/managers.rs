//! What those who own monitors use, said by each to all of them, so that any manager can say how many there should be
//! ([`mutirao_elastic::managers`]); and who of those that a resource manager started is to go. Where there can be several: with
//! PostgreSQL and RabbitMQ. How managers are started beside the first is [`pool`]'s.

pub mod pool;

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Clock, Mono, WorkerId, meminfo};
use mutirao_elastic::managers::{Managers, Pool, Pooled, SAID_EVERY, Seen, Voice};
use mutirao_elastic::view::ManagersStatus;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

const USE: &str = "crew.managers";
/// Named after those who were the first to hear of it.
const REST: &str = "crew.schedulers.rest";
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Serialize, Deserialize)]
struct Said {
    #[serde(default)]
    v: Version,
    member: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_milli: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_memory_percent: Option<u8>,
    /// Of one that a resource manager started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerId>,
    #[serde(default)]
    pool: Pool,
    /// Shards of the monitors that it owns.
    #[serde(default)]
    owned: u32,
}

/// Schedulers and managers that are to give back what they own, and go.
#[derive(Serialize, Deserialize)]
struct Rest {
    #[serde(default)]
    v: Version,
    schedulers: Vec<WorkerId>,
}

/// What a manager knows of all of them.
#[derive(Clone)]
pub struct Peers {
    seen: Arc<Mutex<Managers>>,
    broker: Broker,
    clock: Arc<dyn Clock>,
}

impl Peers {
    /// Says and hears until the manager stops. `own`: who it is to the resource manager that started it, if one did.
    pub fn meet(
        member: String,
        own: Option<WorkerId>,
        broker: Broker,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        let peers = Self { seen: Arc::default(), broker, clock };
        let both = peers.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = both.say(member, own) => {}
                () = both.listen() => {}
                () = stop.cancelled() => {}
            }
        });
        peers
    }

    pub fn status(&self) -> Option<ManagersStatus> {
        self.seen.lock().status()
    }

    pub fn of_pool(&self, pool: Pool) -> Option<Seen> {
        self.seen.lock().of_pool(pool, self.clock.monotonic())
    }

    /// These are to give back what they own, and go. Said again for as long as they are there.
    pub async fn rest(&self, schedulers: Vec<WorkerId>) {
        if schedulers.is_empty() {
            return;
        }
        let body = seal(&Rest { v: Version::default(), schedulers });
        if !matches!(self.clock.timeout(SAID_EVERY, self.broker.announce(REST, body)).await, Ok(Ok(()))) {
            tracing::debug!("schedulers that are to go could not be told; the next round will");
        }
    }

    async fn say(&self, member: String, own: Option<WorkerId>) {
        let mut used = Used::default();
        // Each owns a share of everything there is, so none of them is ever idle.
        let pooled = own.map(|worker| Pooled { pool: Pool::Managers, worker, owned: 1 });
        loop {
            let voice = used.voice(self.clock.monotonic(), pooled.clone());
            announce(&self.broker, &self.clock, &member, voice).await;
            self.clock.sleep(SAID_EVERY).await;
            self.seen.lock().decide(self.clock.monotonic());
        }
    }

    async fn listen(&self) {
        loop {
            match self.hear().await {
                Err(BrokerError::Closed) => return std::future::pending().await,
                Err(error) => tracing::debug!(%error, "managers are not heard; trying again"),
                Ok(()) => {}
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn hear(&self) -> Result<(), BrokerError> {
        let mut ear = self.broker.subscribe(USE).await?;
        self.seen.lock().listening(self.clock.monotonic());
        loop {
            if let Heard::Message(body) = ear.next().await?
                && let Ok(Said { member, cpu_milli, host_memory_percent, worker, pool, owned, .. }) = open(&body)
            {
                let pooled = worker.map(|worker| Pooled { pool, worker, owned });
                let voice = Voice { cpu_milli, host_memory_percent, pooled };
                self.seen.lock().hear(member, voice, self.clock.monotonic());
            }
        }
    }
}

/// A scheduler of a resource manager says how it is doing, for as long as this is not dropped. `owned`: shards of monitors.
pub async fn say_as_scheduler(
    member: String,
    worker: WorkerId,
    owned: impl Fn() -> u32,
    broker: &Broker,
    clock: &Arc<dyn Clock>,
) {
    let mut used = Used::default();
    loop {
        let pooled = Pooled { pool: Pool::Schedulers, worker: worker.clone(), owned: owned() };
        let voice = used.voice(clock.monotonic(), Some(pooled));
        announce(broker, clock, &member, voice).await;
        clock.sleep(SAID_EVERY).await;
    }
}

/// Returns when this one is to go.
pub async fn told_to_rest(worker: &WorkerId, broker: &Broker, clock: &Arc<dyn Clock>) {
    loop {
        match hear_of_rest(worker, broker).await {
            Ok(()) => return,
            Err(BrokerError::Closed) => return std::future::pending().await,
            Err(error) => tracing::debug!(%error, "managers are not heard; trying again"),
        }
        clock.sleep(PAUSE).await;
    }
}

async fn hear_of_rest(worker: &WorkerId, broker: &Broker) -> Result<(), BrokerError> {
    let mut ear = broker.subscribe(REST).await?;
    loop {
        if let Heard::Message(body) = ear.next().await?
            && let Ok(Rest { schedulers, .. }) = open(&body)
            && schedulers.contains(worker)
        {
            return Ok(());
        }
    }
}

async fn announce(broker: &Broker, clock: &Arc<dyn Clock>, member: &str, voice: Voice) {
    let Voice { cpu_milli, host_memory_percent, pooled } = voice;
    let (worker, pool, owned) = match pooled {
        Some(Pooled { pool, worker, owned }) => (Some(worker), pool, owned),
        None => (None, Pool::default(), 0),
    };
    let member = member.to_owned();
    let said = Said { v: Version::default(), member, cpu_milli, host_memory_percent, worker, pool, owned };
    if !matches!(clock.timeout(SAID_EVERY, broker.announce(USE, seal(&said))).await, Ok(Ok(()))) {
        tracing::debug!("what this process uses could not be said; the next round will");
    }
}

/// The cpu of this process, from one look to the next.
#[derive(Default)]
struct Used {
    before: Option<(Mono, Duration)>,
}

impl Used {
    fn voice(&mut self, now: Mono, pooled: Option<Pooled>) -> Voice {
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
        let host_memory_percent = meminfo.and_then(|text| meminfo::used_percent(&text)).map(|used| used.round() as u8);
        Voice { cpu_milli: self.since_last(now), host_memory_percent, pooled }
    }

    /// None at the first look.
    fn since_last(&mut self, now: Mono) -> Option<u32> {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        let spent = Duration::new(spent.tv_sec.try_into().unwrap_or(0), spent.tv_nsec.try_into().unwrap_or(0));
        let (at, until_then) = self.before.replace((now, spent))?;
        let milli = spent.saturating_sub(until_then).as_millis() * 1_000 / now.since(at).as_millis().max(1);
        u32::try_from(milli).ok()
    }
}
