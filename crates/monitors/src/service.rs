//! Monitors as a capability: what people ask of it. Any process takes changes in and answers; whoever owns a monitor's shard
//! is told of a change at once, and finds it in the store within seconds should it not hear.

pub mod alerts;
pub mod history;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared as Broker;
use mutirao_core::auth::Principal;
use mutirao_core::check::{CheckKind, Kinds};
use mutirao_core::clock::ClockExt;
use mutirao_core::dice::os_random;
use mutirao_core::envelope::{Version, seal};
use mutirao_core::shard::{MemberId, shard_of};
use mutirao_core::{Clock, Dice, Problem, ShardId, Timestamp};
use mutirao_probes::{Check, Probes};
use mutirao_shards::{Shards, ShardsError, ShardsParts, Terms};
use mutirao_store::{Database, StoreError};
use mutirao_surface::{Capability, Ready};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::alerts::courier::Courier;
use crate::alerts::{Acknowledged, Attention, Silence};
use crate::checker::{self, Bounds, CheckerParts};
use crate::envelope::{CHANGES, Changed};
use crate::grid::MonitorKey;
use crate::health::{Health, State, Verdict};
use crate::maintenance;
use crate::meters::{self, METERS};
use crate::placement::Standing;
use crate::roller::Roller;
use crate::rollup::Step;
use crate::round::{self, Bench};
use crate::spec::MonitorSpec;
use crate::store::alerts::SharedAlerts;
use crate::store::rolls::SharedRolls;
use crate::store::{self, By, Expected, Incident, MonitorRow, Newcomer, Outcome, Put, Shared as Store};
use crate::{GROUP, SHARDS, routes};
pub use history::{History, Uptime};

/// Monitors shown on one page, and outcomes.
pub const PAGE_MAX: u32 = 1_000;
const INCIDENTS_SHOWN: u32 = 20;
/// How often old outcomes are looked for, and how many go at once.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const SWEEP_ROWS: u32 = 5_000;
/// How long the broker is waited for while a person waits.
const ANSWER_MAX: Duration = Duration::from_secs(2);

pub struct MonitorsParts {
    /// Has had [`crate::MIGRATIONS`] or [`crate::POSTGRES_MIGRATIONS`] applied, after those of `shards`.
    pub store: Database,
    pub leases: mutirao_shards::Shared,
    pub terms: Terms,
    pub member: MemberId,
    pub address: String,
    pub broker: Broker,
    pub probes: Probes,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    /// How long outcomes are kept.
    pub keep: Duration,
    pub programs: Programs,
    /// The checker inside this process, if it has one.
    pub inside: Option<Inside>,
}

/// A checker inside the process of owners.
#[derive(Clone, Debug)]
pub struct Inside {
    pub standing: Standing,
    pub bounds: Bounds,
}

/// Whether checks may be programs. They run as this process's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Programs {
    Refused,
    Allowed,
}

/// A handle on the running capability; clones share it.
#[derive(Clone)]
pub struct Monitors(Arc<Inner>);

struct Inner {
    store: Store,
    alerts: SharedAlerts,
    courier: Arc<Courier>,
    broker: Broker,
    roller: Roller,
    clock: Arc<dyn Clock>,
    shards: Shards,
    probes: Probes,
    programs: Programs,
    tasks: Mutex<JoinSet<()>>,
}

/// A monitor as people see it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MonitorView {
    /// As it was written; see docs/monitors.md.
    #[schema(value_type = Object)]
    pub definition: MonitorSpec,
    /// Grows with every change of any monitor.
    pub revision: u64,
    pub owner: String,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    pub changed_by: String,
    /// new, up, down or no_data.
    #[schema(value_type = String)]
    pub state: State,
    /// Whether an incident is open.
    pub incident: bool,
    pub flapping: bool,
    /// The instant of the last outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// Whether it may be away now.
    #[serde(default)]
    pub in_maintenance: bool,
    /// While nobody is told anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<Silence>,
    /// Who takes care of the incident that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
    /// Why nothing is heard of it, where that is known. Looked up for one monitor, not for a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Where one monitor was asked for.
    #[serde(flatten)]
    pub uptime: Uptime,
    /// Instants of the last day, since its last change, of which there is no outcome; where one monitor was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_day: Option<u64>,
}

/// The outcome of one instant.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OutcomeView {
    pub at: Timestamp,
    /// good or bad.
    #[schema(value_type = String)]
    pub verdict: Verdict,
    /// Microseconds; absent when there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Bad within a maintenance window: it counts neither way.
    #[serde(default)]
    pub excused: bool,
}

/// A time during which it was down.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct IncidentView {
    pub opened_at: Timestamp,
    /// The first of the bad outcomes.
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    pub evidence: String,
}

/// One check that was made just now, and not written anywhere.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Tried {
    #[schema(value_type = String)]
    pub verdict: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How it ended, the time of each phase, and what was seen.
    #[schema(value_type = Object)]
    pub seen: mutirao_probes::Observation,
}

/// What a change is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Based {
    /// There must not be one of this name.
    OnNothing,
    /// Whatever is there.
    OnAnything,
    On(u64),
}

impl Programs {
    /// The kinds of checks that may be made.
    pub fn kinds(self) -> Kinds {
        let all: BTreeSet<CheckKind> =
            CheckKind::ALL.into_iter().filter(|kind| self == Programs::Allowed || *kind != CheckKind::Exec).collect();
        Kinds::try_from(all).expect("there are kinds besides programs")
    }
}

impl Monitors {
    /// Joins those who own the monitors, and makes checks.
    pub async fn start(parts: MonitorsParts) -> Result<Self, ShardsError> {
        let MonitorsParts {
            store,
            leases,
            terms,
            member,
            address,
            broker,
            probes,
            clock,
            dice,
            keep,
            programs,
            inside,
        } = parts;
        meters::begin();
        let alerts = store::alerts::open(&store);
        let roller = Roller { store: store::rolls::open(&store) };
        let store = store::open(&store);
        let shards = Shards::start(ShardsParts {
            store: leases,
            clock: clock.clone(),
            dice: dice.clone(),
            group: GROUP,
            count: SHARDS,
            member,
            address,
            terms,
        })
        .await?;
        let mut tasks = JoinSet::new();
        let courier =
            Arc::new(Courier { store: alerts.clone(), probes: probes.clone(), programs, clock: clock.clone(), dice });
        let bench = Bench {
            store: store.clone(),
            broker: broker.clone(),
            clock: clock.clone(),
            shards: shards.clone(),
            courier: courier.clone(),
            roller: roller.clone(),
            series: Arc::default(),
        };
        tasks.spawn(round::run(bench));
        if let Some(Inside { standing, bounds }) = inside {
            let (kinds, broker) = (programs.kinds(), broker.clone());
            let (probes, clock) = (probes.clone(), clock.clone());
            let parts = CheckerParts { broker, probes, clock, kinds, standing, worker: None, bounds };
            tasks.spawn(checker::run(parts, CancellationToken::new()));
        }
        tasks.spawn(sweep(store.clone(), alerts.clone(), roller.store.clone(), clock.clone(), keep));
        let tasks = Mutex::new(tasks);
        Ok(Self(Arc::new(Inner { store, alerts, courier, roller, broker, clock, shards, probes, programs, tasks })))
    }

    /// Gives the shards back and makes no more checks.
    pub async fn stop(&self) {
        self.0.shards.leave().await;
        self.0.tasks.lock().abort_all();
    }

    pub fn capability(&self) -> Capability {
        Capability::new("monitors", routes::routes().with_state(self.clone()))
            .measuring(METERS)
            .ready_when(Arc::new(self.clone()))
    }

    pub async fn put(
        &self,
        caller: &Principal,
        spec: MonitorSpec,
        based: Based,
    ) -> Result<(MonitorView, Put), Problem> {
        let checked = spec.clone();
        // Conditions are compiled on a thread of their own, which is waited for.
        tokio::task::spawn_blocking(move || checked.check()).await.map_err(|_| Problem::internal())??;
        self.allow(&spec)?;
        self.know_channels(caller, &spec.alerts).await?;
        let uuid = new_uuid();
        let shard = shard_of(&uuid, SHARDS);
        let name = spec.name.clone();
        let expected = match based {
            Based::OnNothing => Expected::Absent,
            Based::OnAnything => Expected::Anything,
            Based::On(revision) => Expected::Revision(revision),
        };
        let put = self.0.store.put(Newcomer { uuid, shard, spec }, expected, self.by(caller)).await.map_err(refused)?;
        match &put {
            Put::Created(row) | Put::Changed(row) => {
                self.notice(row.shard).await;
                Ok((self.view(row.clone()).await?, put.clone()))
            }
            Put::Unexpected(Some(row)) if based == Based::OnNothing => {
                Err(Problem::conflict(format!("there is a monitor {name} already, at revision {}", row.revision))
                    .remedy(format!("`mutirao monitor edit {name}` changes it")))
            }
            Put::Unexpected(Some(row)) => Err(Problem::conflict(format!(
                "monitor {name} was changed by {} in the meantime and is at revision {}",
                row.changed_by, row.revision
            ))
            .remedy("look at it and try again")),
            Put::Unexpected(None) => Err(missing(&name)),
        }
    }

    pub async fn remove(&self, caller: &Principal, name: &str) -> Result<(), Problem> {
        let shard = self.row(caller, name).await?.shard;
        match self.0.store.remove(name.into(), self.by(caller)).await.map_err(refused)? {
            true => {
                self.notice(shard).await;
                Ok(())
            }
            false => Err(missing(name)),
        }
    }

    /// Says that something has changed. Whoever does not hear it finds out by itself, so nobody waits for long.
    async fn notice(&self, shard: ShardId) {
        let body = seal(&Changed { v: Version::default(), shard: shard.0 });
        let said = self.0.clock.timeout(ANSWER_MAX, self.0.broker.announce(CHANGES, body)).await;
        if !matches!(said, Ok(Ok(()))) {
            tracing::debug!(%shard, "a change of monitors could not be said; its owner finds it");
        }
    }

    pub async fn pause(&self, caller: &Principal, name: &str) -> Result<MonitorView, Problem> {
        self.amend(caller, name, |spec| spec.paused = true).await
    }

    pub async fn resume(&self, caller: &Principal, name: &str) -> Result<MonitorView, Problem> {
        self.amend(caller, name, |spec| spec.paused = false).await
    }

    /// Whoever changes it in the same moment is not undone.
    async fn amend(
        &self,
        caller: &Principal,
        name: &str,
        change: impl FnOnce(&mut MonitorSpec) + Send,
    ) -> Result<MonitorView, Problem> {
        let mut row = self.row(caller, name).await?;
        change(&mut row.spec);
        self.put(caller, row.spec, Based::On(row.revision)).await.map(|(view, _)| view)
    }

    pub async fn monitor(&self, caller: &Principal, name: &str) -> Result<MonitorView, Problem> {
        let row = self.row(caller, name).await?;
        let spec = row.spec.clone();
        let (uptime, missed_day) = self.record(&row).await?;
        let mut view = MonitorView { uptime, missed_day, ..self.view(row).await? };
        if !spec.paused && matches!(view.state, State::New | State::NoData) {
            view.note = self.nobody_for(&spec).await;
        }
        Ok(view)
    }

    /// That nobody makes checks of this monitor, if so.
    async fn nobody_for(&self, spec: &MonitorSpec) -> Option<String> {
        let counts = self.0.clock.timeout(ANSWER_MAX, self.0.broker.counts(&spec.route())).await.ok()?.ok()?;
        (counts.consumers == 0).then(|| match &spec.on {
            Some(place) => format!("no checker for {} with {place}", spec.ask.word()),
            None => format!("no checker for {}", spec.ask.word()),
        })
    }

    /// By name, those after this one.
    pub async fn page(&self, caller: &Principal, after: &str, rows: u32) -> Result<Vec<MonitorView>, Problem> {
        let rows =
            self.0.store.page(caller.namespace.clone(), after.into(), rows.min(PAGE_MAX)).await.map_err(refused)?;
        let keys: Vec<MonitorKey> = rows.iter().map(|row| row.key).collect();
        let mut attentions = self.attentions(keys.clone()).await?;
        let now = self.0.clock.now();
        let known: std::collections::HashMap<_, Health> =
            self.0.store.health(keys).await.map_err(refused)?.into_iter().collect();
        let view = |row: MonitorRow| {
            let attention = attentions.remove(&row.key).unwrap_or_default();
            view(known.get(&row.key).cloned(), attention, row, now)
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// Makes one check now, from here. Nothing of it is written.
    pub async fn try_now(&self, caller: &Principal, name: &str) -> Result<Tried, Problem> {
        let spec = self.row(caller, name).await?.spec;
        self.allow(&spec)?;
        let MonitorSpec { ask, when, timeout, .. } = spec;
        let (mut seen, verdict, detail) = checker::once(&self.0.probes, &ask, &when, timeout.0).await;
        // For people, who want to know that there was one.
        seen.seen.body.truncate(1_024);
        Ok(Tried { verdict, detail, seen })
    }

    fn allow(&self, spec: &MonitorSpec) -> Result<(), Problem> {
        match spec.ask {
            Check::Exec(_) if self.0.programs == Programs::Refused => {
                Err(Problem::invalid("exec", "programs would run as the manager's user and could read its secrets")
                    .remedy("whoever runs the manager can allow it: monitors.exec=allowed"))
            }
            _ => Ok(()),
        }
    }

    async fn row(&self, caller: &Principal, name: &str) -> Result<MonitorRow, Problem> {
        let found = self.0.store.monitor(caller.namespace.clone(), name.into()).await.map_err(refused)?;
        found.ok_or_else(|| missing(name))
    }

    async fn view(&self, row: MonitorRow) -> Result<MonitorView, Problem> {
        let known = self.0.store.health(vec![row.key]).await.map_err(refused)?;
        let attention = self.attentions(vec![row.key]).await?.remove(&row.key).unwrap_or_default();
        Ok(view(known.into_iter().next().map(|(_, health)| health), attention, row, self.0.clock.now()))
    }

    fn by(&self, caller: &Principal) -> By {
        By { namespace: caller.namespace.clone(), who: caller.name.clone(), at: self.0.clock.now() }
    }
}

#[async_trait]
impl Ready for Monitors {
    async fn ready(&self) -> Result<(), String> {
        self.0.shards.trouble().map_or(Ok(()), Err)
    }
}

fn view(health: Option<Health>, attention: Attention, row: MonitorRow, now: Timestamp) -> MonitorView {
    let health = health.unwrap_or_default();
    let in_maintenance = maintenance::covered(&row.spec.maintenance, now);
    MonitorView {
        definition: row.spec,
        revision: row.revision,
        owner: row.owner,
        created_at: row.created_at,
        changed_at: row.changed_at,
        changed_by: row.changed_by,
        state: health.state,
        incident: health.incident,
        flapping: health.flapping,
        last_at: health.last,
        in_maintenance,
        silence: attention.silence.filter(|silence| silence.covers(now)),
        acknowledged: attention.acknowledged.filter(|known| health.opened == Some(known.incident)),
        note: None,
        uptime: Uptime::default(),
        missed_day: None,
    }
}

impl From<Outcome> for OutcomeView {
    fn from(Outcome { at, verdict, took_us, detail, excused, .. }: Outcome) -> Self {
        Self { at, verdict, took_us, detail, excused }
    }
}

impl From<Incident> for IncidentView {
    fn from(Incident { opened_at, since, closed_at, evidence, .. }: Incident) -> Self {
        Self { opened_at, since, closed_at, evidence }
    }
}

/// Removes what is older than it is to be kept, a little at a time.
async fn sweep(store: Store, alerts: SharedAlerts, rolls: SharedRolls, clock: Arc<dyn Clock>, keep: Duration) {
    let ago = |span: Duration| Timestamp(clock.now().0.saturating_sub(span.as_millis() as i64));
    loop {
        clock.sleep(SWEEP_EVERY).await;
        while let Ok(true) = sweep_some(&store, &alerts, &rolls, ago(keep), &ago)
            .await
            .inspect_err(|error| tracing::debug!(%error, "what is old was not removed; the next round will"))
        {}
    }
}

/// Whether there may be more.
async fn sweep_some(
    store: &Store,
    alerts: &SharedAlerts,
    rolls: &SharedRolls,
    before: Timestamp,
    ago: &(impl Fn(Duration) -> Timestamp + Sync),
) -> Result<bool, StoreError> {
    // What is not added up yet stays, however short it is to be kept.
    let added_up = rolls.marks().await?.get(&Step::Minute).copied();
    let mut most = store.sweep(added_up.map_or(before, |mark| mark.min(before)), SWEEP_ROWS).await?;
    most = most.max(alerts.sweep_alerts(before, SWEEP_ROWS).await?);
    for step in Step::ALL {
        most = most.max(rolls.sweep_rolls(step, ago(step.kept()), SWEEP_ROWS).await?);
    }
    Ok(most >= u64::from(SWEEP_ROWS))
}

/// Random, and written as uuids are.
fn new_uuid() -> String {
    let mut bytes = [0u8; 16];
    os_random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn missing(name: &str) -> Problem {
    let name: String = name.chars().take(100).collect();
    Problem::not_found(format!("there is no monitor \"{name}\""))
        .remedy("`mutirao monitor list` shows those that are there")
}

fn refused(error: StoreError) -> Problem {
    match error {
        StoreError::DiskFull { .. } => Problem::busy("the server's disk is full, nothing was written", 10)
            .remedy("free some space there and try again"),
        StoreError::Busy { waiting } => Problem::busy(format!("{waiting} writes wait for the store"), 1),
        StoreError::Closed => Problem::unavailable("the server is stopping"),
        StoreError::Locked => Problem::unavailable(
            "somebody else has locked what this needs in the server's database; nothing was written",
        )
        .remedy("try again; pg_stat_activity in that database shows who has it"),
        StoreError::Unreachable { why } => {
            tracing::warn!(why, "the database cannot be reached");
            Problem::unavailable("the server's database cannot be reached; whether this was written is not known")
        }
        other => {
            tracing::error!(error = %other, "the store failed");
            Problem::internal()
        }
    }
}
