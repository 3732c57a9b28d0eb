//! The fleet among the others: what it asks of jobs and of the API, what jobs ask of it, put together here so that none
//! of them knows another.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_api::{Auth, Ways};
use mutirao_core::auth::Duty;
use mutirao_core::check::{managers, pool, schedulers};
use mutirao_core::job::WorkerView;
use mutirao_core::quantity::Cpus;
use mutirao_core::{Problem, QueueName, ShardId, Timestamp, WorkerId};
use mutirao_elastic::Elastic;
use mutirao_elastic::managers::{ASKED, Pool, Seen};
use mutirao_elastic::measure::Tasks;
use mutirao_elastic::packing::{Kind, Need};
use mutirao_elastic::protocol::{Balance, Invitation};
use mutirao_elastic::view::{ManagersStatus, Plan};
use mutirao_fleet::{Fleets, Floor, Identities, Planner};
use mutirao_jobs::{Elasticity, Jobs, Roll};
use mutirao_monitors::Monitors;
use mutirao_monitors::crew::Sight;
use mutirao_monitors::service::Programs;
use mutirao_queues::{QueueSight, QueueSpec, Reason, Workers};

use crate::managers::Peers;

/// Whoever hands out work, as the fleet asks them: jobs, monitors, whose checkers and schedulers are the workers of two
/// pools, and managers, which are those of a third.
pub struct Grounds {
    pub jobs: Jobs,
    pub monitors: Monitors,
    /// None where no checkers come and go by themselves.
    pub checkers: Option<Elastic>,
    /// None where no schedulers do.
    pub schedulers: Option<Elastic>,
    /// None where no managers do.
    pub beside: Option<Elastic>,
    /// None where there can be but one.
    pub managers: Option<Peers>,
}

impl Grounds {
    /// What each uses is compared with what it was given, so that must be said.
    fn pools(&self) -> impl Iterator<Item = QueueSpec> {
        let spec = |name: QueueName, cpus: Cpus, elastic: &Option<Elastic>| {
            let workers = Workers { cpus: Some(cpus), ..Workers::default() };
            elastic.clone().map(|elastic| QueueSpec { elastic: Some(elastic), workers, ..QueueSpec::new(name) })
        };
        let checkers = spec(pool(), Cpus::ONE, &self.checkers);
        let schedulers = spec(schedulers(), ASKED, &self.schedulers);
        checkers.into_iter().chain(schedulers).chain(spec(managers(), MANAGER_ASKED, &self.beside))
    }

    fn seen(&self, queue: QueueName, pool: Pool) -> Option<QueueSight> {
        let Seen { sessions, footprints } = self.managers.as_ref()?.of_pool(pool)?;
        // Nothing waits for one of them: what a shard has to do is in the cpu that they use.
        Some(QueueSight { queue, tasks: Tasks::default(), sessions, footprints })
    }
}

/// What a manager beside the first is reckoned to take of its machine.
const MANAGER_ASKED: Cpus = Cpus { milli: 500 };

fn is_pool(queue: &QueueName) -> bool {
    [pool(), schedulers(), managers()].contains(queue)
}

#[async_trait]
impl Floor for Grounds {
    async fn queues(&self) -> Result<Vec<QueueSpec>, Problem> {
        let mut specs = self.jobs.queue_specs().await?;
        specs.retain(|spec| !is_pool(&spec.name));
        specs.extend(self.pools());
        Ok(specs)
    }

    async fn look(&self, queues: &[QueueName]) -> Vec<QueueSight> {
        let pool = pool();
        let of_jobs: Vec<QueueName> = queues.iter().filter(|queue| !is_pool(queue)).cloned().collect();
        let crew = async { if queues.contains(&pool) { self.monitors.crew().await } else { None } };
        let (mut sights, crew) = tokio::join!(self.jobs.sights(&of_jobs), crew);
        sights.extend(crew.map(|Sight { tasks, sessions, footprints }| QueueSight {
            queue: pool.clone(),
            tasks,
            sessions,
            footprints,
        }));
        if queues.contains(&schedulers()) {
            sights.extend(self.seen(schedulers(), Pool::Schedulers));
        }
        if queues.contains(&managers()) {
            sights.extend(self.seen(managers(), Pool::Managers));
        }
        sights
    }

    async fn workers(&self) -> (Vec<WorkerView>, Vec<ShardId>) {
        self.jobs.workers().await
    }

    fn managers(&self) -> Option<ManagersStatus> {
        // Where they come and go by themselves nobody needs to be told how many there should be.
        let alone = self.schedulers.is_none() && self.beside.is_none();
        self.managers.as_ref().filter(|_| alone)?.status()
    }

    async fn drain(&self, all: &[(WorkerId, QueueName)], news: Option<&QueueName>) {
        let of = |pool: &QueueName| {
            all.iter().filter(|(_, queue)| queue == pool).map(|(worker, _)| worker.clone()).collect::<Vec<_>>()
        };
        self.monitors.rest(of(&pool())).await;
        if let Some(peers) = &self.managers {
            peers.rest([of(&schedulers()), of(&managers())].concat()).await;
        }
        let workers: Vec<_> = all.iter().filter(|(_, queue)| !is_pool(queue)).cloned().collect();
        self.jobs.rest(&workers, news.filter(|queue| !is_pool(queue))).await;
    }
}

/// Who can say what a resource manager would do now.
pub struct OnPaper;

impl Planner for OnPaper {
    fn plan(&self, balance: Balance, kinds: Vec<Kind>) -> Plan {
        mutirao_resource::paper::plan(balance, kinds)
    }
}

/// Who lets workers in, as jobs ask it.
pub struct Enrolments(pub Arc<Auth>);

#[async_trait]
impl Roll for Enrolments {
    async fn serves(&self, worker: &WorkerId, queue: &QueueName) -> Result<bool, String> {
        let worker = self.0.enrolled(worker).await.map_err(|problem| problem.line())?;
        Ok(worker.is_none_or(|worker| matches!(&worker.duty, Duty::Tasks(own) if own == queue)))
    }
}

/// Who lets workers in, as the fleet asks it.
pub struct Gatekeeper {
    pub auth: Arc<Auth>,
    pub ways: Arc<dyn Ways>,
}

#[async_trait]
impl Identities for Gatekeeper {
    fn mint(&self) -> WorkerId {
        self.auth.mint_worker()
    }

    fn is_minted(&self, worker: &WorkerId) -> bool {
        mutirao_api::auth::secret::is_given_out(&worker.0)
    }

    async fn invite(&self, worker: &WorkerId, queue: &QueueName, by: &str) -> Result<Invitation, Problem> {
        // These are no clients of ours: the database and the broker let them in, with what they get from whoever starts them.
        if *queue == schedulers() || *queue == managers() {
            return Ok(Invitation { token: String::new(), expires_at: Timestamp(i64::MAX) });
        }
        // Programs are left to checkers that people start: they would run as whoever runs the nodes.
        let duty = if *queue == pool() { Duty::Checks(Programs::Refused.kinds()) } else { Duty::Tasks(queue.clone()) };
        let enrolment = self.auth.invite_worker(worker, duty, by).await?;
        Ok(Invitation { token: enrolment.token, expires_at: enrolment.expires_at })
    }

    async fn revoke(&self, worker: &WorkerId, by: &str) -> Result<(), Problem> {
        match self.auth.revoke_worker(worker, by).await {
            // It never came; the invitation is worthless now.
            Err(problem) if problem.status == 404 => return Ok(()),
            revoked => revoked?,
        }
        let open = |why| Problem::unavailable(format!("the worker's way to the broker is open: {why}"));
        self.ways.close(worker).await.map_err(open)
    }

    async fn queue_of(&self, worker: &WorkerId) -> Result<Option<QueueName>, Problem> {
        Ok(self.auth.enrolled(worker).await?.and_then(|worker| match worker.duty {
            Duty::Tasks(queue) => Some(queue),
            Duty::Checks(_) => Some(pool()),
            // Nobody starts it but people, and it takes nothing that could be kept from it.
            Duty::Streams => None,
        }))
    }
}

/// The fleet, as jobs ask it. A store that does not answer keeps nobody from being told the rest.
pub struct Advice(pub Fleets);

#[async_trait]
impl Elasticity for Advice {
    async fn impossible(&self, need: &Need) -> Option<String> {
        self.0.impossible(need).await.ok().flatten()
    }

    async fn standing(&self, queue: &QueueName, elastic: &Elastic) -> Vec<Reason> {
        self.0.standing(queue, elastic).await.unwrap_or_default()
    }
}
