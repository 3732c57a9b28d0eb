//! Flows as a capability: what people, and clients of the wire, ask of it. Any process takes changes and runs in and
//! answers; whoever owns a run's shard is told at once, and finds it in the store within seconds should it not hear.

mod beginning;
mod checking;
mod clients;
pub mod following;
mod news;
mod showing;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared as Broker;
use mutirao_core::auth::Principal;
use mutirao_core::clock::ClockExt;
use mutirao_core::shard::MemberId;
use mutirao_core::{Clock, Dice, Problem, Timestamp};
use mutirao_nodes::Namespace;
use mutirao_nodes::errand::Reach;
use mutirao_shards::{Company, Shards, ShardsError, ShardsParts, Terms};
use mutirao_store::{Database, refused};
use mutirao_surface::{Capability, Ready};
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::asking::Asking;
use crate::definition::check::Catalogue;
use crate::foreman::Rules;
use crate::foreman::words::RunKey;
use crate::meters::METERS;
use crate::plan::Step;
use crate::plans::Plans;
use crate::post::{Bench, Doors, Queues, Word, follow, heads};
use crate::store::{self, By, FLOWS_AT_ONCE, Shared as Store};
use crate::view::{FlowDeclared, FlowView, RunLine};
use crate::{FlowSpec, GROUP, SHARDS, meters, routes, shard_of};

/// Flows and runs shown on one page.
pub const PAGE_MAX: u32 = 1_000;
/// A run whose owner is another process is looked at this often while somebody waits.
const GLANCE: Duration = Duration::from_millis(250);
/// And one that is looked after here, should its end not be heard.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Of a flow that is declared.
const WARNINGS_MAX: usize = 20;
const LEAVE_WITHIN: Duration = Duration::from_secs(6);
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const SWEEP_ROWS: u32 = 50;
const SWEEP_PAUSE: Duration = Duration::from_millis(50);
const ENDED_HEARD_MAX: usize = 4_096;

pub struct FlowsParts {
    /// Has had [`crate::MIGRATIONS`] or [`crate::POSTGRES_MIGRATIONS`] applied, after those of `shards`.
    pub store: Database,
    pub leases: mutirao_shards::Shared,
    pub terms: Terms,
    pub member: MemberId,
    pub address: String,
    pub broker: Broker,
    pub reach: Arc<dyn Reach>,
    pub namespace: Namespace,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    /// How long runs that ended are kept.
    pub keep: Duration,
    /// What each shard of runs is bound to.
    pub rules: Rules,
    pub shutdown: CancellationToken,
}

/// A handle on the running capability; clones share it.
#[derive(Clone)]
pub struct Flows(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    shards: Shards,
    bench: Bench,
    shutdown: CancellationToken,
    over: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

impl Flows {
    /// Joins those who own runs.
    pub async fn start(parts: FlowsParts) -> Result<Self, ShardsError> {
        let FlowsParts {
            store,
            leases,
            terms,
            member,
            address,
            broker,
            reach,
            namespace,
            clock,
            dice,
            keep,
            rules,
            shutdown,
        } = parts;
        meters::begin();
        let store = store::open(&store);
        let mut candidate = [0; 32];
        mutirao_core::dice::os_random(&mut candidate);
        let secret = store.secret(candidate).await?;
        let shards = Shards::start(ShardsParts {
            store: leases,
            clock: clock.clone(),
            dice,
            group: GROUP,
            count: SHARDS,
            member,
            address,
            terms,
        })
        .await?;
        let doors = Doors::default();
        let asking = Asking::new(broker.clone(), clock.clone(), doors.clone(), shards.member());
        let bench = Bench {
            store: store.clone(),
            broker,
            clock: clock.clone(),
            shards: shards.clone(),
            reach,
            plans: Arc::new(Plans::new(namespace)),
            secret,
            doors,
            bells: Arc::new((0..SHARDS).map(|_| Notify::new()).collect()),
            ended: broadcast::Sender::new(ENDED_HEARD_MAX),
            changed: broadcast::Sender::new(ENDED_HEARD_MAX),
            asking,
            rules,
            queues: Queues::default(),
            heads: heads(),
            company: terms.company,
        };
        let (over, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(follow(bench.clone(), over.clone()));
        tasks.spawn(news::listen(bench.clone()));
        if terms.company == Company::Others {
            tasks.spawn(bench.asking.clone().listen());
        }
        tasks.spawn(sweep(store.clone(), clock.clone(), keep));
        let tasks = Mutex::new(tasks);
        Ok(Self(Arc::new(Inner { store, clock, shards, bench, shutdown, over, tasks })))
    }

    /// Writes what is on its way, and gives the shards back.
    pub async fn stop(&self) {
        self.0.shards.leave().await;
        self.0.over.cancel();
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock());
        while !tasks.is_empty() {
            let _ = self.0.clock.timeout(LEAVE_WITHIN, tasks.join_next()).await;
            tasks.abort_all();
        }
    }

    pub fn capability(&self) -> Capability {
        let shards = self.0.shards.clone();
        Capability::new("flows", routes::routes().with_state(self.clone()))
            .measuring(METERS)
            .sharded(move || shards.views())
            .ready_when(Arc::new(self.clone()))
    }

    /// All of them or none; every flow that could not work is named.
    pub async fn declare(&self, caller: &Principal, flows: Vec<FlowSpec>) -> Result<Vec<FlowDeclared>, Problem> {
        if flows.len() > FLOWS_AT_ONCE {
            return Err(Problem::malformed(format!("{} flows at once are too many", flows.len()))
                .remedy(format!("declare at most {FLOWS_AT_ONCE} at a time")));
        }
        let (mut wrong, mut warned) = (Vec::new(), Vec::new());
        for (n, spec) in flows.iter().enumerate() {
            let place = if flows.len() > 1 { format!("[{n}]") } else { String::new() };
            match self.check(spec).await {
                Ok(warnings) => warned.push(warnings),
                Err(faults) if place.is_empty() => wrong.extend(faults),
                Err(faults) => wrong.extend(faults.into_iter().map(|fault| fault.under(&place))),
            }
        }
        match &wrong[..] {
            [] => {}
            [one] => return Err(one.clone()),
            several => {
                let lines: Vec<String> = several.iter().map(Problem::line).collect();
                return Err(Problem::malformed(lines.join("; ")));
            }
        }
        let names: Vec<String> = flows.iter().map(|spec| spec.name.clone()).collect();
        let all = self.0.store.put(flows, self.by(caller)).await.map_err(refused)?;
        let declared = names.into_iter().zip(all).zip(warned);
        Ok(declared.map(|((name, became), warnings)| FlowDeclared { name, became, warnings }).collect())
    }

    /// All that is wrong; or else what may not be meant.
    async fn check(&self, spec: &FlowSpec) -> Result<Vec<String>, Vec<Problem>> {
        let (spec, catalogue) = (spec.clone(), self.0.bench.reach.catalogue());
        let namespace = self.0.bench.plans.namespace().clone();
        let checked = tokio::task::spawn_blocking(move || spec.planned(&namespace, Catalogue::Known(&catalogue)));
        let plan = checked.await.map_err(|_| vec![Problem::internal()])??;
        let waits = |step: &Step| {
            let nobody = self.0.bench.reach.nobody(&step.action, &step.place)?;
            Some(format!("step {} waits until a node can be given it: {nobody}", step.name))
        };
        // Nodes may yet come, or come back.
        Ok(plan.steps.iter().filter_map(waits).take(WARNINGS_MAX).collect())
    }

    pub async fn flow(&self, caller: &Principal, name: &str) -> Result<FlowView, Problem> {
        let found = self.0.store.flow(caller.namespace.clone(), name.into()).await.map_err(refused)?;
        found.map(FlowView::from).ok_or_else(|| missing(name))
    }

    /// By name, those after this one.
    pub async fn flows(&self, caller: &Principal, after: &str, rows: u32) -> Result<Vec<FlowView>, Problem> {
        let page = self.0.store.flows(caller.namespace.clone(), after.into(), rows.min(PAGE_MAX)).await;
        Ok(page.map_err(refused)?.into_iter().map(FlowView::from).collect())
    }

    /// Runs of it go on: they have the flow as it was when they began.
    pub async fn remove(&self, caller: &Principal, name: &str) -> Result<(), Problem> {
        match self.0.store.remove(caller.namespace.clone(), name.into()).await.map_err(refused)? {
            true => Ok(()),
            false => Err(missing(name)),
        }
    }

    /// Who owns it hears of it now, or finds it.
    async fn tell(&self, run: RunKey, word: Word) {
        let shard = shard_of(run);
        match self.0.bench.doors.of(shard) {
            Some(door) if door.try_send(word).is_ok() => {}
            _ => news::say(&self.0.bench, run).await,
        }
    }

    /// One that has ended stays as it is.
    pub async fn cancel(&self, caller: &Principal, run: u64) -> Result<RunLine, Problem> {
        let row = self.row(caller, run).await?;
        if self.0.store.cancel(row.key).await.map_err(refused)? {
            self.tell(row.key, Word::Look(row.key)).await;
        } else {
            let state = RunLine::from(&self.row(caller, run).await?).state.as_str();
            return Err(Problem::conflict(format!("run {run} has ended already: {state}")));
        }
        Ok(RunLine::from(&row))
    }

    fn by(&self, caller: &Principal) -> By {
        By { namespace: caller.namespace.clone(), who: caller.name.clone(), at: self.0.clock.now() }
    }
}

#[async_trait]
impl Ready for Flows {
    async fn ready(&self) -> Result<(), String> {
        self.0.shards.trouble().map_or(Ok(()), Err)
    }
}

/// Forgets runs that ended long ago.
async fn sweep(store: Store, clock: Arc<dyn Clock>, keep: Duration) {
    loop {
        clock.sleep(SWEEP_EVERY).await;
        let before = Timestamp(clock.now().0.saturating_sub(keep.as_millis() as i64));
        loop {
            match store.sweep(before, SWEEP_ROWS).await {
                // Whoever has something to write comes in between.
                Ok(gone) if gone == u64::from(SWEEP_ROWS) => clock.sleep(SWEEP_PAUSE).await,
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, "old runs stay for now; the next round removes them");
                    break;
                }
            }
        }
    }
}

fn unknown(run: u64) -> Problem {
    Problem::not_found(format!("there is no run {run}")).remedy("`mutirao flow runs` shows those that are there")
}

fn missing(name: &str) -> Problem {
    let name: String = name.chars().take(100).collect();
    Problem::not_found(format!("there is no flow \"{name}\"")).remedy("`mutirao flow list` shows those that are there")
}
