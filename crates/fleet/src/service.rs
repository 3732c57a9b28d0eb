//! The fleet, as the routes and the rest of the program use it: [what a resource manager asks](Fleets::balance) and
//! [what people ask](people).

mod people;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mutirao_core::auth::Principal;
use mutirao_core::limits::NAME_CHARS_MAX;
use mutirao_core::{Clock, Mono, Problem, QueueName, Timestamp, WorkerId};
use mutirao_elastic::fleet::Member;
use mutirao_elastic::packing::{Kind, Node};
use mutirao_elastic::protocol::{
    Balance, CHANGES_MAX, CREATE_MAX, Create, Created, Fenced, Invitation, LeaseAnswer, LeaseCall, NODES_MAX, Offer,
    Record,
};
use mutirao_shards::Fence;
use mutirao_store::{Database, StoreError, refused};
use mutirao_surface::Capability;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::floor::Floor;
use crate::host::Machine;
use crate::identities::Identities;
use crate::planner::Planner;
use crate::routes::Asker;
use crate::runners::Runners;
use crate::standing::Pulse;
use crate::store::{self, By, MemberRow, Request, Shared, Written, fence};
use crate::{balance, draining, lease, routes, standing};

pub struct FleetsParts {
    /// Has had [`crate::MIGRATIONS`] or [`crate::POSTGRES_MIGRATIONS`] applied, after those of `shards`.
    pub store: Database,
    pub leases: mutirao_shards::Shared,
    pub floor: Arc<dyn Floor>,
    pub identities: Arc<dyn Identities>,
    pub clock: Arc<dyn Clock>,
    /// How long history is kept.
    pub keep: Duration,
}

/// The nodes that workers could be put on, and the sorts that could be had.
pub(crate) struct Offered {
    pub nodes: Vec<Node>,
    pub kinds: Vec<Kind>,
}

/// A handle; clones share it.
#[derive(Clone)]
pub struct Fleets(Arc<Inner>);

pub(crate) struct Inner {
    pub store: Shared,
    pub leases: mutirao_shards::Shared,
    pub floor: Arc<dyn Floor>,
    pub identities: Arc<dyn Identities>,
    pub clock: Arc<dyn Clock>,
    keep: Duration,
    machine: Machine,
    /// The last offer, and until when it is believed.
    pub offered: Mutex<Option<(Mono, Arc<Offered>)>>,
    /// Of whoever acts.
    pub pulse: Arc<Mutex<Pulse>>,
    pub runners: OnceLock<Arc<dyn Runners>>,
    pub planner: OnceLock<Arc<dyn Planner>>,
    /// Ends with the last handle.
    _tasks: Mutex<JoinSet<()>>,
}

impl Fleets {
    pub fn start(parts: FleetsParts) -> Self {
        let FleetsParts { store, leases, floor, identities, clock, keep } = parts;
        let store = store::open(&store);
        let mut tasks = JoinSet::new();
        tasks.spawn(draining::run(store.clone(), floor.clone(), identities.clone(), clock.clone()));
        let pulse = Arc::new(Mutex::new(Pulse::default()));
        tasks.spawn(standing::feel(leases.clone(), pulse.clone(), clock.clone()));
        let (machine, offered, _tasks) = (Machine::default(), Mutex::default(), Mutex::new(tasks));
        let (runners, planner) = (OnceLock::new(), OnceLock::new());
        Self(Arc::new(Inner {
            store,
            leases,
            floor,
            identities,
            clock,
            keep,
            machine,
            offered,
            pulse,
            runners,
            planner,
            _tasks,
        }))
    }

    pub fn capability(&self) -> Capability {
        Capability::new("fleet", routes::routes(self.clone()))
    }

    pub async fn lease(&self, call: LeaseCall, asker: &Asker) -> Result<LeaseAnswer, Problem> {
        lease::call(&self.0.leases, &self.0.store, call, asker).await
    }

    /// The balance check. What does not answer is left out of it.
    pub async fn balance(&self) -> Result<Balance, Problem> {
        let (specs, kept) = tokio::join!(self.0.floor.queues(), self.0.store.kept());
        let (specs, kept) = (specs?, kept.map_err(refused)?);
        let queues = balance::elastic_queues(&specs, &kept);
        let sights = self.0.floor.look(&queues).await;
        Ok(balance::assemble(queues, &specs, kept, sights, self.0.machine.look(), self.now()))
    }

    /// Creation: identities and their records, in one step.
    pub async fn create(&self, queue: QueueName, create: Create, asker: &Asker) -> Result<Created, Problem> {
        let count = create.nodes.len();
        if !(1..=CREATE_MAX as usize).contains(&count) {
            return Err(Problem::invalid("nodes", format!("{count} is not between 1 and {CREATE_MAX}")));
        }
        check_name("request", &create.request)?;
        create.nodes.iter().try_for_each(|node| check_name("nodes", &node.0))?;
        self.must_hold(create.generation, asker).await?;
        let workers = create.nodes.into_iter().map(|node| (self.0.identities.mint(), node)).collect();
        let request = Request { queue, name: create.request, workers, need: create.need };
        let created = self.0.store.create(fence(create.generation), request, self.by(&asker.key)).await;
        let workers = unfenced(created)?;
        Ok(Created { workers })
    }

    /// The one-time token to launch a worker with.
    pub async fn invitation(&self, worker: &WorkerId, fenced: Fenced, asker: &Asker) -> Result<Invitation, Problem> {
        self.must_hold(fenced.generation, asker).await?;
        let MemberRow { queue, .. } = self.recorded(worker).await?;
        self.0.identities.invite(worker, &queue, &asker.key).await
    }

    /// Removal: nothing more is handed to it.
    pub async fn drain_recorded(&self, worker: &WorkerId, fenced: Fenced, asker: &Asker) -> Result<(), Problem> {
        self.must_hold(fenced.generation, asker).await?;
        let MemberRow { queue, .. } = self.recorded(worker).await?;
        let by = self.by(&asker.key);
        let drained = self.0.store.drain(Some(fence(fenced.generation)), worker.clone(), queue.clone(), by);
        unfenced(drained.await)?;
        self.tell_draining(&queue).await;
        Ok(())
    }

    /// What was decided and done. The identities of those who are gone or dismissed are worth nothing from then on; one that
    /// cannot be revoked now is revoked later. Nothing is written of workers that no resource manager made.
    pub async fn record(&self, queue: QueueName, record: Record, asker: &Asker) -> Result<(), Problem> {
        if record.changes.len() > CHANGES_MAX {
            return Err(Problem::invalid("changes", format!("{} are more than {CHANGES_MAX}", record.changes.len())));
        }
        let keep_from = Timestamp(self.now().0.saturating_sub(self.0.keep.as_millis() as i64));
        self.must_hold(record.generation, asker).await?;
        let (fence, leavers) = (fence(record.generation), !(record.gone.is_empty() && record.dismissed.is_empty()));
        let mut members = record.members.clone();
        let recorded = self.0.store.record(fence.clone(), queue.clone(), record, keep_from, self.by(&asker.key)).await;
        let unknown = unfenced(recorded)?;
        if leavers {
            draining::revoke_owed(&self.0.store, &*self.0.identities).await;
        }
        if !unknown.is_empty() {
            members.retain(|worker, _| unknown.contains(worker));
            self.adopt(fence, queue, members, asker).await?;
        }
        Ok(())
    }

    /// Workers that run and have no record get one, if they were made for this queue by a resource manager; whoever people
    /// let in stays theirs.
    async fn adopt(
        &self,
        fence: Fence,
        queue: QueueName,
        members: BTreeMap<WorkerId, Member>,
        asker: &Asker,
    ) -> Result<(), Problem> {
        let mut ours = BTreeMap::new();
        for (worker, member) in members {
            let minted = self.0.identities.is_minted(&worker);
            if minted && self.0.identities.queue_of(&worker).await?.as_ref() == Some(&queue) {
                ours.insert(worker, member);
            } else {
                tracing::warn!(%worker, key = asker.key, "a resource manager records a worker that none made");
            }
        }
        if ours.is_empty() {
            return Ok(());
        }
        unfenced(self.0.store.adopt(fence, queue, ours, self.by(&asker.key)).await)
    }

    pub async fn offer(&self, offer: Offer, asker: &Asker) -> Result<(), Problem> {
        if offer.nodes.len() > NODES_MAX {
            return Err(Problem::invalid("nodes", format!("{} are more than {NODES_MAX}", offer.nodes.len())));
        }
        offer.nodes.iter().try_for_each(|node| check_name("nodes", &node.name.0))?;
        self.must_hold(offer.generation, asker).await?;
        unfenced(self.0.store.offer(fence(offer.generation), offer, self.by(&asker.key)).await)?;
        *self.0.offered.lock() = None;
        Ok(())
    }

    async fn recorded(&self, worker: &WorkerId) -> Result<MemberRow, Problem> {
        let found = self.0.store.member(worker).await.map_err(refused)?;
        found.ok_or_else(|| Problem::not_found(format!("there is no record of a worker \"{}\"", short(&worker.0))))
    }

    async fn must_hold(&self, generation: u64, asker: &Asker) -> Result<(), Problem> {
        lease::must_hold(&self.0.leases, &self.0.store, generation, asker).await
    }

    /// The owner of a queue hears at once who is drained; whoever does not, within seconds.
    pub(crate) async fn tell_draining(&self, queue: &QueueName) {
        match self.0.store.draining().await {
            Ok(all) => {
                let named: Vec<_> = all.into_iter().map(|row| (row.worker, row.queue)).collect();
                self.0.floor.drain(&named, Some(queue)).await;
            }
            Err(error) => tracing::debug!(%error, "who is drained could not be read; the next round will"),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub(crate) fn by(&self, who: &str) -> By {
        By { who: kept(who), name: kept(who), at: self.now() }
    }

    pub(crate) fn by_person(&self, caller: &Principal) -> By {
        By { name: kept(&caller.name), ..self.by(&caller.id) }
    }

    pub(crate) fn parts(&self) -> &Inner {
        &self.0
    }
}

fn unfenced<T>(written: Result<Written<T>, StoreError>) -> Result<T, Problem> {
    match written.map_err(refused)? {
        Written::Done(done) => Ok(done),
        Written::Fenced => Err(not_the_owner()),
    }
}

pub(crate) fn not_the_owner() -> Problem {
    Problem::new(409, "not_the_owner", "not the owner")
        .detail("another resource manager has taken over since this was decided; nothing was changed")
        .remedy("claim the lease, and begin again from a balance check")
}

fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    let chars = name.chars().count();
    if (1..=NAME_CHARS_MAX).contains(&chars) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Problem::invalid(
        field,
        format!("a name has 1 to {NAME_CHARS_MAX} characters, none of them control characters"),
    ))
}

/// Of what somebody sent, as much as belongs into an answer.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

/// As much of an id or a name as is kept.
fn kept(name: &str) -> String {
    name.chars().filter(|c| *c != '\0').take(NAME_CHARS_MAX).collect()
}
