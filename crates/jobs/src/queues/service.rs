//! Making, changing and deleting queues. What is written is told to the owner at once; were nobody to hear it, the owner
//! would find it in the store.

use std::collections::BTreeSet;

use mutirao_core::auth::Principal;
use mutirao_core::declared::Wrong;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::QueueName;
use mutirao_core::{Problem, limits};
use mutirao_queues::QueueSpec;
use mutirao_store::refused;

use crate::meters::ENDED;
use crate::question::Question;
use crate::service::{Jobs, unstoppable};
use crate::store::queues::{By, Deleted, Expected, Put, QueueRow, Removed, Unfinished};

/// What whoever changes a queue believes to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    None,
    Revision(u64),
}

/// Names this far from one that does not exist are what may have been meant.
const SLIPS_MAX: usize = 2;
/// How often a change of one part is tried again when somebody else changes another at the same time.
const TRIES_MAX: u32 = 8;

impl Jobs {
    /// The queue, or a refusal that names the nearest.
    pub(crate) async fn queue_named(&self, name: &QueueName) -> Result<QueueRow, Problem> {
        match self.0.store.queue(name.clone()).await.map_err(refused)? {
            Some(row) => Ok(row),
            None => Err(self.no_queue(name).await),
        }
    }

    pub(crate) async fn no_queue(&self, name: &QueueName) -> Problem {
        // Who asks for a queue that does not exist is seldom; the names are few enough to be read then.
        let names = self.0.store.queues(0).await.unwrap_or_default();
        let distance = |row: &QueueRow| strsim::osa_distance(row.spec.name.as_str(), name.as_str());
        let nearest = names.iter().map(|row| (distance(row), &row.spec.name)).min();
        let problem = Problem::invalid("queue", format!("there is no queue \"{name}\""));
        problem.remedy(match nearest {
            Some((slips, nearest)) if slips <= SLIPS_MAX => format!("did you mean \"{nearest}\"?"),
            _ => format!("`mutirao queue create {name}` makes it, `mutirao queue list` shows those that are there"),
        })
    }

    /// Those that would be refused, and why. Nothing is written.
    pub async fn wrong_queues(&self, all: &[QueueSpec]) -> Vec<Wrong> {
        let (mut wrong, mut names) = (Vec::new(), BTreeSet::new());
        for (at, spec) in all.iter().enumerate() {
            wrong.extend(self.sound(spec).await.err().map(|problem| Wrong { at, problem }));
            if !names.insert(&spec.name) {
                wrong.push(Wrong::twice(at));
            }
        }
        wrong
    }

    async fn sound(&self, spec: &QueueSpec) -> Result<(), Problem> {
        spec.check()?;
        self.can_be_staffed(spec).await
    }

    pub async fn create_queue(&self, caller: &Principal, spec: QueueSpec) -> Result<QueueRow, Problem> {
        self.sound(&spec).await?;
        let name = spec.name.clone();
        match self.put_queue(caller, spec, Expected::Absent).await? {
            Put::Created(row) | Put::Changed(row) => Ok(row),
            Put::Unexpected(_) => Err(Problem::conflict(format!("there is a queue \"{name}\" already"))
                .remedy(format!("`mutirao queue edit {name}` changes it"))),
        }
    }

    /// Makes a queue what the definition says, whether it was there or not.
    pub async fn replace_queue(
        &self,
        caller: &Principal,
        spec: QueueSpec,
        precondition: Precondition,
    ) -> Result<Put, Problem> {
        self.sound(&spec).await?;
        let expected = match precondition {
            Precondition::None => Expected::Anything,
            Precondition::Revision(revision) => Expected::Revision(revision),
        };
        let name = spec.name.clone();
        match self.put_queue(caller, spec, expected).await? {
            Put::Unexpected(Some(there)) => Err(Problem::conflict(format!(
                "queue \"{name}\" was changed by {} since you looked (revision {})",
                there.changed_by, there.revision
            ))
            .remedy("look at it again, and make your change to what is there now")),
            Put::Unexpected(None) => Err(self.missing(&name)),
            put => Ok(put),
        }
    }

    pub async fn pause_queue(&self, caller: &Principal, name: &QueueName) -> Result<QueueRow, Problem> {
        self.amend_queue(caller, name, |spec| spec.paused = true).await
    }

    pub async fn resume_queue(&self, caller: &Principal, name: &QueueName) -> Result<QueueRow, Problem> {
        self.amend_queue(caller, name, |spec| spec.paused = false).await
    }

    async fn amend_queue(
        &self,
        caller: &Principal,
        name: &QueueName,
        change: impl Fn(&mut QueueSpec),
    ) -> Result<QueueRow, Problem> {
        for _ in 0..TRIES_MAX {
            let found = self.0.store.queue(name.clone()).await.map_err(refused)?;
            let row = found.ok_or_else(|| self.missing(name))?.readable()?;
            let mut spec = row.spec.clone();
            change(&mut spec);
            if spec == row.spec {
                return Ok(row);
            }
            if let Put::Changed(row) = self.put_queue(caller, spec, Expected::Revision(row.revision)).await? {
                return Ok(row);
            }
        }
        Err(Problem::busy(format!("queue \"{name}\" is being changed by others"), 1))
    }

    async fn put_queue(&self, caller: &Principal, spec: QueueSpec, expected: Expected) -> Result<Put, Problem> {
        let (jobs, by) = (self.clone(), self.by(caller));
        unstoppable(async move {
            let put = jobs.0.store.put_queue(spec, expected, by).await.map_err(refused)?;
            if let Put::Created(row) | Put::Changed(row) = &put {
                let shard = shard_of(&row.spec.name);
                jobs.0.asking.tell(shard, Question::Define { queue: Box::new(row.clone()) }).await;
            }
            Ok(put)
        })
        .await
    }

    pub async fn delete_queue(
        &self,
        caller: &Principal,
        name: &QueueName,
        unfinished: Unfinished,
    ) -> Result<u64, Problem> {
        if *name == QueueName::default() {
            return Err(Problem::conflict("the queue \"default\" is always there").remedy("pause it instead"));
        }
        let (jobs, by, queue) = (self.clone(), self.by(caller), name.clone());
        let deleted = unstoppable(async move {
            let deleted = jobs.0.store.delete_queue(queue.clone(), unfinished, by).await.map_err(refused)?;
            if let Deleted::Gone { revision, cancelled, .. } = &deleted {
                let removed = Removed { queue: queue.clone(), revision: *revision };
                jobs.0.asking.tell(shard_of(&queue), Question::Forget { queue: removed }).await;
                jobs.0.news.tell(cancelled.clone());
            }
            Ok(deleted)
        })
        .await?;
        match deleted {
            Deleted::Gone { cancelled, tasks, .. } => {
                metrics::counter!(ENDED, "state" => "cancelled").increment(tasks);
                Ok(cancelled.len() as u64)
            }
            Deleted::Missing => Err(self.missing(name)),
            Deleted::Busy { jobs, tasks } => Err(Problem::conflict(format!(
                "queue \"{name}\" has {jobs} jobs with {tasks} tasks that have not ended"
            ))
            .remedy("wait for them, or cancel them with it: --cancel")),
        }
    }

    /// Makes sure that a queue is there, as for workers that this installation starts by itself.
    pub async fn ensure_queue(&self, name: QueueName) -> Result<(), Problem> {
        if self.0.store.queue(name.clone()).await.map_err(refused)?.is_some() {
            return Ok(());
        }
        let by = By { who: "up".into(), name: "up".into(), at: self.0.clock.now() };
        let put = self.0.store.put_queue(QueueSpec::new(name), Expected::Absent, by).await.map_err(refused)?;
        if let Put::Created(row) = put {
            let shard = shard_of(&row.spec.name);
            self.0.asking.tell(shard, Question::Define { queue: Box::new(row) }).await;
        }
        Ok(())
    }

    pub(crate) fn missing(&self, name: &QueueName) -> Problem {
        Problem::not_found(format!("there is no queue \"{name}\"")).remedy("`mutirao queue list` shows those that are")
    }

    fn by(&self, caller: &Principal) -> By {
        let short = |text: &str| text.chars().filter(|c| *c != '\0').take(limits::NAME_CHARS_MAX).collect();
        By { who: short(&caller.id), name: short(&caller.name), at: self.0.clock.now() }
    }
}
