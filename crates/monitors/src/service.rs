//! Monitors as a capability: what people ask of it. Any process takes changes in and answers; whoever owns a monitor's shard
//! is told of a change at once, and finds it in the store within seconds should it not hear.

pub mod alerts;
pub mod declaring;
mod definitions;
pub mod history;
mod pool;
pub mod pushes;
mod sweep;
pub mod views;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared as Broker;
use mutirao_core::auth::Principal;
use mutirao_core::check::{CheckKind, Kinds};
use mutirao_core::clock::ClockExt;
use mutirao_core::shard::MemberId;
use mutirao_core::{Clock, Dice, Problem};
use mutirao_probes::{Check, Probes};
use mutirao_shards::{Shards, ShardsError, ShardsParts, Terms};
use mutirao_store::{Database, refused};
use mutirao_surface::{Capability, Ready};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::alerts::courier::Courier;
use crate::checker::{self, Bounds, CheckerParts};
use crate::crew::{self, Crew};
use crate::grid::MonitorKey;
use crate::health::{Health, State};
use crate::meters::{self, METERS};
use crate::placement::Standing;
use crate::push::door::Door;
use crate::roller::Roller;
use crate::round::{self, Bench};
use crate::series::Series;
use crate::spec::{MonitorSpec, Subject};
use crate::store::alerts::SharedAlerts;
use crate::store::pushes::SharedPushes;
use crate::store::{self, By, MonitorRow, Shared as Store};
use crate::{GROUP, SHARDS, routes};
pub use definitions::Based;
pub use history::{History, Uptime};
use views::view;
pub use views::{IncidentView, MonitorView, OutcomeView, Tried};

/// Monitors shown on one page, and outcomes.
pub const PAGE_MAX: u32 = 1_000;
const INCIDENTS_SHOWN: u32 = 20;
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
    pushes: SharedPushes,
    door: Mutex<Door>,
    /// In front of the door.
    waiting_room: Semaphore,
    series: Arc<Series>,
    crew: Arc<Mutex<Crew>>,
    courier: Arc<Courier>,
    broker: Broker,
    roller: Roller,
    clock: Arc<dyn Clock>,
    shards: Shards,
    probes: Probes,
    programs: Programs,
    tasks: Mutex<JoinSet<()>>,
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
        let (alerts, pushes) = (store::alerts::open(&store), store::pushes::open(&store));
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
        let series: Arc<Series> = Arc::default();
        let bench = Bench {
            store: store.clone(),
            pushes: pushes.clone(),
            broker: broker.clone(),
            clock: clock.clone(),
            shards: shards.clone(),
            courier: courier.clone(),
            roller: roller.clone(),
            series: series.clone(),
        };
        tasks.spawn(round::run(bench));
        if let Some(Inside { standing, bounds }) = inside {
            let (kinds, broker) = (programs.kinds(), broker.clone());
            let (probes, clock) = (probes.clone(), clock.clone());
            let parts = CheckerParts { broker, probes, clock, kinds, standing, worker: None, bounds, gauge: None };
            tasks.spawn(checker::run(parts, CancellationToken::new()));
        }
        tasks.spawn(sweep::run(store.clone(), alerts.clone(), roller.store.clone(), clock.clone(), keep));
        let crew: Arc<Mutex<Crew>> = Arc::default();
        tasks.spawn(crew::listen(crew.clone(), broker.clone(), clock.clone()));
        let tasks = Mutex::new(tasks);
        let door = Mutex::new(Door::new(clock.monotonic()));
        Ok(Self(Arc::new(Inner {
            store,
            alerts,
            pushes,
            door,
            waiting_room: Semaphore::new(pushes::WAITING_MAX),
            series,
            crew,
            courier,
            roller,
            broker,
            clock,
            shards,
            probes,
            programs,
            tasks,
        })))
    }

    /// Gives the shards back and makes no more checks.
    pub async fn stop(&self) {
        self.0.shards.leave().await;
        self.0.tasks.lock().abort_all();
    }

    pub fn capability(&self) -> Capability {
        let (series, shards) = (self.0.series.clone(), self.0.shards.clone());
        Capability::new("monitors", routes::routes().with_state(self.clone()))
            .open_to_anybody(routes::open().with_state(self.clone()))
            .measuring(METERS)
            .showing(move || series.text())
            .sharded(move || shards.views())
            .ready_when(Arc::new(self.clone()))
    }

    pub async fn monitor(&self, caller: &Principal, name: &str) -> Result<MonitorView, Problem> {
        let row = self.row(caller, name).await?;
        let spec = row.spec.clone();
        let (uptime, missed_day) = self.record(&row).await?;
        let called_at = self.called_at(&row).await?;
        let mut view = MonitorView { uptime, missed_day, called_at, ..self.view(row).await? };
        if !spec.paused && matches!(view.state, State::New | State::NoData) {
            view.note = self.nobody_for(&spec).await;
        }
        Ok(view)
    }

    /// That nobody makes checks of this monitor, if so.
    async fn nobody_for(&self, spec: &MonitorSpec) -> Option<String> {
        let route = spec.route()?;
        let counts = self.0.clock.timeout(ANSWER_MAX, self.0.broker.counts(&route)).await.ok()?.ok()?;
        (counts.consumers == 0).then(|| match &spec.on {
            Some(place) => format!("no checker for {} with {place}", spec.subject.word()),
            None => format!("no checker for {}", spec.subject.word()),
        })
    }

    /// By name, those after this one.
    pub async fn page(&self, caller: &Principal, after: &str, rows: u32) -> Result<Vec<MonitorView>, Problem> {
        let rows =
            self.0.store.page(caller.namespace.clone(), after.into(), rows.min(PAGE_MAX)).await.map_err(refused)?;
        Ok(self.views(rows).await?.into_iter().map(|(_, view)| view).collect())
    }

    async fn views(&self, rows: Vec<MonitorRow>) -> Result<Vec<(MonitorKey, MonitorView)>, Problem> {
        let keys: Vec<MonitorKey> = rows.iter().map(|row| row.key).collect();
        let mut attentions = self.attentions(keys.clone()).await?;
        let now = self.0.clock.now();
        let known: std::collections::HashMap<_, Health> =
            self.0.store.health(keys).await.map_err(refused)?.into_iter().collect();
        let view = |row: MonitorRow| {
            let attention = attentions.remove(&row.key).unwrap_or_default();
            (row.key, view(known.get(&row.key).cloned(), attention, row, now))
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// Makes one check now, from here. Nothing of it is written.
    pub async fn try_now(&self, caller: &Principal, name: &str) -> Result<Tried, Problem> {
        let spec = self.row(caller, name).await?.spec;
        self.allow(&spec)?;
        let MonitorSpec { subject, when, timeout, .. } = spec;
        let Subject::Check(check) = subject else {
            return Err(Problem::conflict(format!("{name} is not asked, it calls"))
                .remedy("call its address to see what comes of it"));
        };
        let (mut seen, verdict, detail) = checker::once(&self.0.probes, &check, &when, timeout.0).await;
        // For people, who want to know that there was one.
        seen.seen.body.truncate(1_024);
        Ok(Tried { verdict, detail, seen })
    }

    fn allow(&self, spec: &MonitorSpec) -> Result<(), Problem> {
        match spec.subject {
            Subject::Check(Check::Exec(_)) if self.0.programs == Programs::Refused => {
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

fn missing(name: &str) -> Problem {
    let name: String = name.chars().take(100).collect();
    Problem::not_found(format!("there is no monitor \"{name}\""))
        .remedy("`mutirao monitor list` shows those that are there")
}
