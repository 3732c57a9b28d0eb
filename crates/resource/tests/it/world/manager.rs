//! The manager's part: fenced, idempotent, and now and then unheard.

use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::quantity::Span;
use mutirao_core::{QueueName, WorkerId};
use mutirao_elastic::Fleet;
use mutirao_elastic::Load;
use mutirao_elastic::fleet::{Activity, Life, Member};
use mutirao_elastic::measure::Tasks;
use mutirao_elastic::protocol::{
    Balance, Create, Created, Invitation, LeaseAnswer, LeaseCall, NodeRecord, Offer, OfferedNode, QueueBalance, Record,
};
use mutirao_resource::{Manager, ManagerError};

use super::{Fate, Inner, Line, World, need};

fn away<T>() -> Result<T, ManagerError> {
    Err(ManagerError::Away("no answer".into()))
}

impl Inner {
    fn fate(&mut self) -> Fate {
        self.calls += 1;
        self.manager_calls += 1;
        if self.dead {
            Fate::Dies
        } else if self.faults.dies_at.contains(&self.calls) {
            self.dead = true;
            Fate::Dies
        } else if self.faults.answers_lost_each.is_some_and(|each| self.manager_calls.is_multiple_of(each)) {
            self.errors += 1;
            Fate::Lost
        } else {
            Fate::Works
        }
    }

    /// The change is made unless its author is not the one that acts, or died before.
    fn change<T>(&mut self, generation: u64, change: impl FnOnce(&mut Inner) -> T) -> Result<T, ManagerError> {
        let was_dead = self.dead;
        let fate = self.fate();
        if was_dead {
            return away();
        }
        if generation != self.generation {
            return Err(ManagerError::NotTheOwner("an old lease".into()));
        }
        match fate {
            Fate::Works => Ok(change(self)),
            Fate::Dies if !self.faults.lands => away(),
            Fate::Dies | Fate::Lost => {
                change(self);
                away()
            }
        }
    }

    fn balance(&self) -> Balance {
        let now = self.now();
        let record = |(name, there): (&mutirao_elastic::packing::NodeName, &super::NodeThere)| NodeRecord {
            node: OfferedNode {
                name: name.clone(),
                provider: "world".into(),
                kind: None,
                capacity: there.capacity.clone(),
                labels: Default::default(),
                layer: mutirao_elastic::packing::Layer::Cloud,
                answers: true,
                note: None,
                stands: None,
            },
            wish: there.wish,
        };
        Balance {
            at: now,
            nodes: self.nodes.iter().map(record).collect(),
            queues: self.lines.iter().map(|(name, line)| self.balance_of(name, line)).collect(),
        }
    }

    fn balance_of(&self, name: &QueueName, line: &Line) -> QueueBalance {
        let now = self.now();
        let own = || self.processes.iter().filter(|(_, process)| process.queue == *name);
        let known = |worker: &WorkerId| line.members.get(worker).is_none_or(|member| member.life < Life::Ending);
        let speaking = own().filter(|(worker, p)| p.reports_at.is_some_and(|at| now >= at) && known(worker));
        let sessions = speaking.map(|(worker, process)| {
            let activity = match process.task_left_s {
                Some(_) => Activity::Busy { tasks: 1, since: None },
                None => Activity::Idle { since: process.idle_since },
            };
            (worker.clone(), activity)
        });
        let running = own().filter(|(_, process)| process.task_left_s.is_some()).count() as u64;
        let oldest_wait = Span(line.waits_since.map_or(Duration::ZERO, |at| now.since(at)));
        let tasks = Tasks {
            ready: line.ready.len() as u64,
            running,
            unacknowledged: running,
            oldest_wait,
            ended: Some(line.done),
        };
        QueueBalance {
            queue: name.clone(),
            elastic: line.elastic.clone(),
            need: need(),
            load: Load { at: now, tasks: Some(tasks), ..Load::default() },
            sessions: Some(sessions.collect()),
            state: line.state.clone(),
            fleet: Fleet::of(line.members.clone(), line.trouble.clone()),
        }
    }

    fn line(&mut self, queue: &QueueName) -> &mut Line {
        self.lines.get_mut(queue).expect("a queue of this world")
    }
}

/// As it is read back from where it was written.
fn written(member: &Member) -> Member {
    Member::new(member.life, member.since, member.node.clone()).needing(member.need.clone())
}

#[async_trait]
impl Manager for World {
    async fn lease(&self, _: &LeaseCall) -> Result<LeaseAnswer, ManagerError> {
        away()
    }

    async fn balance(&self) -> Result<Balance, ManagerError> {
        let mut inner = self.0.lock();
        match inner.fate() {
            Fate::Works => Ok(inner.balance()),
            Fate::Lost | Fate::Dies => away(),
        }
    }

    async fn create(&self, queue: &QueueName, create: &Create) -> Result<Created, ManagerError> {
        self.0.lock().change(create.generation, |inner| {
            let key = (create.generation, create.request.clone());
            if !inner.requests.contains_key(&key) {
                let now = inner.now();
                let mut made = Vec::new();
                for node in &create.nodes {
                    inner.issued += 1;
                    let worker = WorkerId(format!("w{:04}", inner.issued));
                    inner.line(queue).members.insert(
                        worker.clone(),
                        Member::new(Life::Asked, now, Some(node.clone())).needing(create.need.clone()),
                    );
                    made.push(worker);
                }
                inner.requests.insert(key.clone(), made);
            }
            Created { workers: inner.requests[&key].clone() }
        })
    }

    async fn invitation(&self, worker: &WorkerId, generation: u64) -> Result<Invitation, ManagerError> {
        let token = format!("for {worker}");
        self.0.lock().change(generation, |inner| Invitation { token, expires_at: inner.now() })
    }

    async fn drain(&self, worker: &WorkerId, generation: u64) -> Result<(), ManagerError> {
        self.0.lock().change(generation, |inner| {
            inner.told.insert(worker.clone());
        })
    }

    async fn record(&self, queue: &QueueName, record: &Record) -> Result<(), ManagerError> {
        self.0.lock().change(record.generation, |inner| {
            inner.records += 1;
            let line = inner.line(queue);
            line.state = record.state.clone();
            line.trouble = record.trouble.clone();
            line.decision = Some(record.decision.clone());
            line.members.extend(record.members.iter().map(|(worker, member)| (worker.clone(), written(member))));
            for worker in &record.gone {
                line.members.remove(worker);
            }
        })
    }

    async fn offer(&self, offer: &Offer) -> Result<(), ManagerError> {
        self.0.lock().change(offer.generation, |inner| inner.offer = Some(offer.clone()))
    }
}
