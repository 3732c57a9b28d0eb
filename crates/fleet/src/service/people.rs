//! What people ask of the fleet: how it stands, what was decided and why, workers and nodes, and what they want of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::auth::Principal;
use mutirao_core::job::{WorkerState, WorkerView};
use mutirao_core::{Problem, QueueName, ShardId, Timestamp, WorkerId};
use mutirao_elastic::Elastic;
use mutirao_elastic::fleet::Fleet;
use mutirao_elastic::packing::{Door, Need, NoPlace, Node, NodeName, check_need};
use mutirao_elastic::protocol::{GROUP, Wish};
use mutirao_elastic::view::{
    DrainView, ElasticStatus, HistoryLine, Holder, NodeView, NodeWorker, Plan, QueueStatus, WorkerDetail, WorkerRecord,
};
use mutirao_queues::{QueueSpec, Reason};
use mutirao_store::refused;

use super::{Fleets, Offered, short, unfenced};
use crate::balance;
use crate::planner::Planner;
use crate::runners::Runners;
use crate::standing::{Acting, Standing};
use crate::store::{Draining, Kept, MemberRow, NodeRow, SHARD};

/// How long an offer that was read is believed.
const OFFER_BELIEVED_FOR: Duration = Duration::from_secs(1);

impl Fleets {
    pub async fn status(&self) -> Result<ElasticStatus, Problem> {
        let parts = self.parts();
        let (specs, kept, leases, members) = tokio::join!(
            parts.floor.queues(),
            parts.store.kept(),
            parts.leases.leases(GROUP),
            parts.leases.members(GROUP)
        );
        let (specs, kept) = (specs?, kept.map_err(refused)?);
        let (leases, members) = (leases.map_err(refused)?, members.map_err(refused)?);
        let lease = leases.into_iter().find(|row| row.shard == SHARD);
        let acting = parts.pulse.lock().feel(lease.as_ref(), parts.clock.monotonic());
        let silent_since = match acting {
            Acting::Silent(silent) => Some(Timestamp(
                parts.clock.now().0.saturating_sub(i64::try_from(silent.as_millis()).unwrap_or(i64::MAX)),
            )),
            Acting::Yes | Acting::Nobody => None,
        };
        let holder = lease.and_then(|row| Some((row.owner?, row.mark.generation))).map(|(owner, generation)| Holder {
            address: members.iter().find(|row| row.member == owner).map(|row| row.address.clone()),
            member: owner.0,
            generation,
            silent_since,
        });
        let managers = parts.floor.managers();
        Ok(ElasticStatus { holder, members: members.len() as u32, queues: statuses(&specs, kept), managers })
    }

    /// What the resource manager would do now, and why. Nothing of it is done.
    pub async fn plan(&self) -> Result<Plan, Problem> {
        let parts = self.parts();
        let Some(planner) = parts.planner.get().cloned() else {
            return Err(Problem::unavailable("this manager has nobody who could plan"));
        };
        let (status, balance, nodes) = tokio::join!(self.status(), self.balance(), parts.store.nodes());
        let (status, balance) = (status?, balance?);
        let (_, kinds) = nodes.map_err(refused)?;
        // Of thousands of workers it takes a while.
        let planned = tokio::task::spawn_blocking(move || planner.plan(balance, kinds.unwrap_or_default())).await;
        let plan = planned.map_err(|error| {
            tracing::error!(%error, "a plan could not be made");
            Problem::internal()
        })?;
        Ok(Plan { holder: status.holder, ..plan })
    }

    /// Who can say what would be done.
    pub fn plan_by(&self, planner: Arc<dyn Planner>) {
        let _ = self.parts().planner.set(planner);
    }

    /// The latest changes first, of one queue or all, with the number that the next page starts before.
    pub async fn history(
        &self,
        queue: Option<QueueName>,
        before: i64,
        rows: u32,
    ) -> Result<Vec<(i64, HistoryLine)>, Problem> {
        let found = self.parts().store.history(queue.clone(), before, rows).await.map_err(refused)?;
        // A queue that is gone keeps its history; one that never was has none.
        if let Some(queue) = queue.filter(|_| found.is_empty())
            && !self.parts().floor.queues().await?.iter().any(|spec| spec.name == queue)
        {
            return Err(Problem::not_found(format!("there is no queue \"{queue}\", and no history of one"))
                .remedy("`mutirao queue list` shows those that are there"));
        }
        Ok(found)
    }

    /// Why an elastic queue has as many workers as it has, and what would give it more, in words.
    pub async fn standing(&self, queue: &QueueName, elastic: &Elastic) -> Result<Vec<Reason>, Problem> {
        let parts = self.parts();
        let (kept, leases) = tokio::join!(parts.store.kept(), parts.leases.leases(GROUP));
        let (mut kept, leases) = (kept.map_err(refused)?, leases.map_err(refused)?);
        let lease = leases.iter().find(|row| row.shard == SHARD);
        let acting = parts.pulse.lock().feel(lease, parts.clock.monotonic());
        let members = balance::fleets(&mut kept).remove(queue).unwrap_or_default();
        let nodes: Vec<NodeView> = kept.nodes.into_iter().map(|row| node_view(row, Vec::new())).collect();
        let standing = Standing {
            queue,
            acting,
            decided: kept.decided.iter().find(|decided| decided.queue == *queue),
            max: Some(elastic.max),
            counts: Fleet::of(members, None).counts(),
            nodes: &nodes,
        };
        Ok(standing.reasons())
    }

    /// Why no node could ever hold a worker like this; none when one could, or when nobody has offered anything yet.
    pub async fn impossible(&self, need: &Need) -> Result<Option<String>, Problem> {
        let offered = self.offered().await?;
        if offered.nodes.is_empty() && offered.kinds.is_empty() {
            return Ok(None);
        }
        Ok(match check_need(need, &offered.nodes, &offered.kinds) {
            Err(NoPlace::Never(why)) => Some(why),
            Ok(()) | Err(NoPlace::NotNow) => None,
        })
    }

    /// Read at most once a second, however many jobs are submitted.
    async fn offered(&self) -> Result<Arc<Offered>, Problem> {
        let now = self.parts().clock.monotonic();
        if let Some((until, offered)) = &*self.parts().offered.lock()
            && now < *until
        {
            return Ok(offered.clone());
        }
        let (nodes, kinds) = self.parts().store.nodes().await.map_err(refused)?;
        // Of one that was never looked at nobody knows what would fit.
        let known = |row: &NodeRow| row.offered_at.is_some() && !row.node.capacity.is_nothing();
        let nodes = nodes.into_iter().filter(known).map(place).collect();
        let offered = Arc::new(Offered { nodes, kinds: kinds.unwrap_or_default() });
        *self.parts().offered.lock() = Some((now.plus(OFFER_BELIEVED_FOR), offered.clone()));
        Ok(offered)
    }

    pub async fn nodes(&self) -> Result<Vec<NodeView>, Problem> {
        let mut kept = self.parts().store.kept().await.map_err(refused)?;
        let nodes = std::mem::take(&mut kept.nodes);
        let mut workers: BTreeMap<NodeName, Vec<NodeWorker>> = BTreeMap::new();
        for (queue, members) in balance::fleets(&mut kept) {
            for (worker, member) in members {
                let Some(node) = member.node else { continue };
                let on_it = NodeWorker { worker, queue: queue.clone(), life: member.life, since: member.since };
                workers.entry(node).or_default().push(on_it);
            }
        }
        let view = |row: NodeRow| {
            let workers = workers.remove(&row.node.name).unwrap_or_default();
            node_view(row, workers)
        };
        let carriers = nodes.into_iter().map(view).collect();
        Ok(one_list(carriers, self.parts().runners.get().map(|runners| runners.nodes()).unwrap_or_default()))
    }

    /// Nodes that run actions are listed with those that carry workers.
    pub fn list_also(&self, runners: Arc<dyn Runners>) {
        let _ = self.parts().runners.set(runners);
    }

    pub async fn node(&self, name: &NodeName) -> Result<NodeView, Problem> {
        let found = self.nodes().await?.into_iter().find(|node| node.name == name.0);
        found.ok_or_else(|| no_node(name))
    }

    /// What people want of a node. A resource manager sees to it with its next pass.
    pub async fn wish(&self, name: &NodeName, wish: Wish, by: &Principal) -> Result<NodeView, Problem> {
        match self.parts().store.wish(name, wish, self.by_person(by)).await.map_err(refused)? {
            true => self.node(name).await,
            false => Err(match self.node(name).await {
                Ok(_) => carries_nobody(name),
                Err(problem) => problem,
            }),
        }
    }

    /// The worker processes that are alive, and the shards whose owners did not say.
    pub async fn workers(&self) -> Result<(Vec<WorkerView>, Vec<ShardId>), Problem> {
        let parts = self.parts();
        let ((mut workers, silent), kept) = tokio::join!(parts.floor.workers(), parts.store.kept());
        let Kept { members, draining, .. } = kept.map_err(refused)?;
        let nodes: BTreeMap<&WorkerId, &MemberRow> = members.iter().map(|row| (&row.worker, row)).collect();
        let drained: BTreeMap<&WorkerId, &Draining> = draining.iter().map(|row| (&row.worker, row)).collect();
        for view in &mut workers {
            let record = nodes.get(&view.worker);
            view.node = record.and_then(|row| row.member.node.as_ref()).map(|node| node.0.clone());
            stand(view, drained.get(&view.worker).map(|row| row.since));
        }
        Ok((workers, silent))
    }

    pub async fn worker(&self, worker: &WorkerId) -> Result<WorkerDetail, Problem> {
        let parts = self.parts();
        let (workers, record, draining, enrolled) = tokio::join!(
            self.workers(),
            parts.store.member(worker),
            parts.store.draining(),
            parts.identities.queue_of(worker)
        );
        let ((workers, silent), record, enrolled) = (workers?, record.map_err(refused)?, enrolled?);
        let draining = draining.map_err(refused)?.into_iter().find(|row| row.worker == *worker);
        let sessions: Vec<_> = workers.into_iter().filter(|view| view.worker == *worker).collect();
        let queue = record.as_ref().map(|row| row.queue.clone()).or(enrolled);
        let Some(queue) = queue.or_else(|| sessions.first().map(|view| view.queue.clone())) else {
            return Err(no_worker(worker));
        };
        Ok(WorkerDetail {
            worker: worker.clone(),
            unheard: silent.contains(&mutirao_core::envelope::shard_of(&queue)),
            queue,
            sessions,
            record: record.map(|row| WorkerRecord {
                life: row.member.life,
                since: row.member.since,
                node: row.member.node.map(|node| node.0),
            }),
            draining: draining.map(|row| DrainView { since: row.since, by: row.who }),
        })
    }

    /// Hands a worker nothing more, whoever started it.
    pub async fn drain(&self, worker: &WorkerId, by: &Principal) -> Result<WorkerDetail, Problem> {
        let queue = self.worker(worker).await?.queue;
        unfenced(self.parts().store.drain(None, worker.clone(), queue.clone(), self.by_person(by)).await)?;
        self.tell_draining(&queue).await;
        self.worker(worker).await
    }

    /// Lets a worker that people drained be handed tasks again. It begins with its next process: one that has drained stays
    /// so.
    pub async fn resume(&self, worker: &WorkerId, by: &Principal) -> Result<WorkerDetail, Problem> {
        let detail = self.worker(worker).await?;
        if detail.record.is_some() {
            return Err(Problem::conflict("a worker that a resource manager started and drained does not come back")
                .remedy("another takes its place when one is wanted"));
        }
        self.parts().store.undrain(vec![worker.clone()], self.by_person(by)).await.map_err(refused)?;
        self.tell_draining(&detail.queue).await;
        self.worker(worker).await
    }
}

/// What its heartbeats and the record together say.
fn stand(view: &mut WorkerView, drained_since: Option<Timestamp>) {
    view.state = match (view.draining || drained_since.is_some(), view.held) {
        // Drained only when it says so itself: what is on its way to it is not seen here.
        (true, 0) if view.draining => WorkerState::Drained,
        (true, _) => WorkerState::Draining,
        (false, 0) => WorkerState::Idle,
        (false, _) => WorkerState::Busy,
    };
    view.since = match view.state {
        WorkerState::Idle => view.idle_since,
        WorkerState::Busy => None,
        WorkerState::Draining | WorkerState::Drained => drained_since,
    };
}

fn statuses(specs: &[QueueSpec], mut kept: Kept) -> Vec<QueueStatus> {
    let queues = balance::elastic_queues(specs, &kept);
    let mut fleets = balance::fleets(&mut kept);
    let specs: BTreeMap<&QueueName, &QueueSpec> = specs.iter().map(|spec| (&spec.name, spec)).collect();
    let mut decided: BTreeMap<_, _> = kept.decided.into_iter().map(|kept| (kept.queue.clone(), kept)).collect();
    let status = |queue: QueueName| {
        let elastic = specs.get(&queue).and_then(|spec| spec.elastic.as_ref());
        let counts = Fleet::of(fleets.remove(&queue).unwrap_or_default(), None).counts();
        let decided = decided.remove(&queue);
        QueueStatus {
            min: elastic.map(|elastic| elastic.min),
            max: elastic.map(|elastic| elastic.max),
            wanted: decided.as_ref().map(|kept| kept.decision.wanted),
            creating: counts.creating,
            running: counts.running,
            draining: counts.draining,
            decided_at: decided.as_ref().map(|kept| kept.at),
            because: decided.as_ref().map(|kept| kept.decision.because.to_string()),
            trouble: decided.and_then(|kept| kept.trouble).map(|trouble| trouble.to_string()),
            queue,
        }
    };
    queues.into_iter().map(status).collect()
}

fn place(row: NodeRow) -> Node {
    let node = row.node;
    let used = Default::default();
    Node { name: node.name, capacity: node.capacity, used, labels: node.labels, layer: node.layer, door: Door::Open }
}

fn node_view(NodeRow { node, wish, offered_at }: NodeRow, workers: Vec<NodeWorker>) -> NodeView {
    NodeView {
        name: node.name.0,
        provider: node.provider,
        capacity: node.capacity,
        labels: node.labels,
        layer: node.layer,
        answers: node.answers,
        note: node.note,
        wish,
        offered_at,
        workers,
        runs: None,
    }
}

/// One list, by name. A machine that carries workers and runs actions is one node.
fn one_list(carriers: Vec<NodeView>, runners: Vec<NodeView>) -> Vec<NodeView> {
    let mut all: BTreeMap<String, NodeView> = carriers.into_iter().map(|node| (node.name.clone(), node)).collect();
    for runner in runners {
        match all.entry(runner.name.clone()) {
            Entry::Occupied(mut known) => known.get_mut().runs = runner.runs,
            Entry::Vacant(place) => drop(place.insert(runner)),
        }
    }
    all.into_values().collect()
}

fn no_node(name: &NodeName) -> Problem {
    Problem::not_found(format!("there is no node \"{}\"", short(&name.0)))
        .remedy("`mutirao node list` shows those that are there")
}

fn carries_nobody(name: &NodeName) -> Problem {
    Problem::conflict(format!("the node \"{}\" runs actions; no workers are put on it", short(&name.0)))
        .remedy("`mutirao node list` shows the others, with their cpus")
}

fn no_worker(worker: &WorkerId) -> Problem {
    Problem::not_found(format!("there is no worker \"{}\"", short(&worker.0)))
        .remedy("`mutirao worker list` shows those that are there")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(draining: bool, held: u64) -> WorkerView {
        let json = serde_json::json!({
            "worker": "w", "session": "s", "queue": "q", "host": "h", "pid": 1, "capacity": {}, "running": 0,
            "held": held, "draining": draining, "silent_ms": 0, "idle_since": 9
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_worker_is_drained_when_it_says_so_and_draining_from_the_first_word() {
        let states = [
            (view(false, 0), None, WorkerState::Idle, Some(9)),
            (view(false, 3), None, WorkerState::Busy, None),
            (view(false, 0), Some(5), WorkerState::Draining, Some(5)),
            (view(true, 2), Some(5), WorkerState::Draining, Some(5)),
            (view(true, 0), Some(5), WorkerState::Drained, Some(5)),
            (view(true, 0), None, WorkerState::Drained, None),
        ];
        for (mut view, drained, state, since) in states {
            stand(&mut view, drained.map(Timestamp));
            assert_eq!((view.state, view.since), (state, since.map(Timestamp)));
        }
    }
}
