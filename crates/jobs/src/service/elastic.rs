//! What the manager's side of elasticity asks of jobs, and what jobs ask of it. Neither knows the other: the second is
//! [given](Jobs::consult) by whoever puts the program together.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use futures_util::future::join_all;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{QueueName, WorkerId};
use mutirao_core::job::JobSpec;
use mutirao_core::quantity::Bytes;
use mutirao_core::{Problem, ShardId};
use mutirao_elastic::Elastic;
use mutirao_elastic::packing::Need;
use mutirao_queues::{QueueSight, QueueSpec, Reason, Workers};
use mutirao_store::refused;
use tokio::sync::oneshot;

use super::Jobs;
use super::looks::LOOK_PATIENCE;
use super::submit::hungriest;
use crate::doors::Ask;
use crate::question::{Answer, Question};

/// Rounds after which owners are told who rests although nothing changed: a word of another manager may have come late.
const TELL_ANYWAY_ROUNDS: u32 = 16;

/// What the owners in this process were last told about who rests, with their generations.
#[derive(Default)]
pub(crate) struct Told {
    rounds: u32,
    owners: BTreeMap<ShardId, (u64, BTreeSet<WorkerId>)>,
}

/// What jobs ask of whoever keeps the fleet.
#[async_trait]
pub trait Elasticity: Send + Sync + 'static {
    /// Why no node could ever hold a worker like this; none when one could, or when that is not known.
    async fn impossible(&self, need: &Need) -> Option<String>;

    /// What was last decided about a queue's workers, and what keeps it from happening.
    async fn standing(&self, queue: &QueueName, elastic: &Elastic) -> Vec<Reason>;
}

impl Jobs {
    /// From here on this is asked about workers that come and go. The first one given stays.
    pub fn consult(&self, elasticity: std::sync::Arc<dyn Elasticity>) {
        let _ = self.0.elasticity.set(elasticity);
    }

    /// Refuses a queue whose workers would fit no node that anybody offers.
    pub(crate) async fn can_be_staffed(&self, spec: &QueueSpec) -> Result<(), Problem> {
        let Some(elasticity) = self.0.elasticity.get().filter(|_| spec.elastic.is_some()) else { return Ok(()) };
        match elasticity.impossible(&spec.workers.need()).await {
            None => Ok(()),
            Some(why) => Err(Problem::invalid(
                "workers",
                format!("no worker of queue {} can ever be had: {why}", spec.name),
            )
            .remedy(
                "ask for less under `workers:`, or offer such a node (elastic.cpus, elastic.memory, elastic.labels, \
                     elastic.layer)",
            )),
        }
    }

    /// Refuses a job with a task for which no node has the memory, where there is no worker yet that would tell. A queue
    /// that says how much its workers get is beyond that question.
    pub(super) async fn can_be_had(&self, queue: &QueueSpec, job: &JobSpec) -> Result<(), Problem> {
        let unsaid = queue.elastic.is_some() && queue.workers.memory.is_none();
        let Some(elasticity) = self.0.elasticity.get().filter(|_| unsaid) else { return Ok(()) };
        let (place, memory) = hungriest(job);
        if memory == Bytes(0) {
            return Ok(());
        }
        let workers = Workers { memory: Some(memory), ..queue.workers.clone() };
        match elasticity.impossible(&workers.need()).await {
            None => Ok(()),
            Some(why) => {
                Err(Problem::invalid(&place, why).remedy("ask for less, or offer a larger node (elastic.memory)"))
            }
        }
    }

    /// Why an elastic queue has as many workers as it has.
    pub(crate) async fn staffing(&self, spec: &QueueSpec) -> Vec<Reason> {
        match (self.0.elasticity.get(), &spec.elastic) {
            (Some(elasticity), Some(elastic)) => elasticity.standing(&spec.name, elastic).await,
            _ => Vec::new(),
        }
    }

    /// The definitions of all queues, by name.
    pub async fn queue_specs(&self) -> Result<Vec<QueueSpec>, Problem> {
        let rows = self.0.store.queues(0).await.map_err(refused)?;
        Ok(rows.into_iter().map(|row| row.spec).collect())
    }

    /// How these queues stand, as far as their owners answer. One question for each owner.
    pub async fn sights(&self, queues: &[QueueName]) -> Vec<QueueSight> {
        let mut by_shard: BTreeMap<ShardId, Vec<QueueName>> = BTreeMap::new();
        for queue in queues {
            by_shard.entry(shard_of(queue)).or_default().push(queue.clone());
        }
        let ask = |(shard, queues)| self.0.asking.ask(shard, Question::Sights { queues }, LOOK_PATIENCE);
        let answers = join_all(by_shard.into_iter().map(ask)).await;
        let sights = |answer| match answer {
            Ok(Answer::Sights(sights)) => sights,
            _ => Vec::new(),
        };
        answers.into_iter().flat_map(sights).collect()
    }

    /// These workers, and no others, are to be handed nothing: said to all owners in this process, and to the owner of the
    /// queue that this is news for. Whoever does not hear it is told again.
    pub async fn rest(&self, all: &[(WorkerId, QueueName)], news: Option<&QueueName>) {
        self.tell_here(all, news);
        if let Some(shard) = news.map(shard_of)
            && self.0.doors.of(shard).is_none()
        {
            self.0.asking.tell(shard, Question::Rest { workers: of(shard, all) }).await;
        }
    }

    fn tell_here(&self, all: &[(WorkerId, QueueName)], news: Option<&QueueName>) {
        let mut told = self.0.told.lock();
        told.rounds = told.rounds.wrapping_add(u32::from(news.is_none()));
        let anyway = news.is_none() && told.rounds.is_multiple_of(TELL_ANYWAY_ROUNDS);
        for (shard, door) in self.0.doors.all() {
            let saying = (door.generation, of(shard, all));
            let before = told.owners.get(&shard);
            let known = before == Some(&saying) || (before.is_none() && saying.1.is_empty());
            if known && !anyway {
                continue;
            }
            let (unheard, _) = oneshot::channel();
            let word = Question::Rest { workers: saying.1.clone() };
            // A post that is busy or has just ended is told the next time.
            if door.asks.try_send(Ask::Question(word, unheard)).is_ok() {
                told.owners.insert(shard, saying);
            }
        }
    }
}

/// Those whose queues are of this shard.
fn of(shard: ShardId, all: &[(WorkerId, QueueName)]) -> BTreeSet<WorkerId> {
    let mine = all.iter().filter(|(_, queue)| shard_of(queue) == shard);
    mine.map(|(worker, _)| worker.clone()).collect()
}
