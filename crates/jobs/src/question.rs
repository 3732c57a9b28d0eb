//! What may be asked of the owner of a shard, and what it answers. Plain data, because the owner may be another process.
//!
//! Every question may be asked again: an answer can get lost.

use std::collections::BTreeSet;

use mutirao_core::envelope::Version;
use mutirao_core::id::{Attempt, JobKey, QueueName, TaskKey, WorkerId};
use mutirao_core::job::{TaskState, WorkerView};
use mutirao_core::life::Phase;
use mutirao_core::task::Needs;
use mutirao_core::{ShardId, Timestamp};
use mutirao_queues::{QueueFacts, QueueLoad, QueueSight, TaskFacts};
use serde::{Deserialize, Serialize};

use crate::desk::{Desk, Now, Standing, UnderWay};
use crate::store::dead::Tried;
use crate::store::queues::{QueueRow, Removed};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Would a job find somebody to run it in this queue?
    Fit { queue: QueueName },
    /// How do the tasks of these jobs stand?
    UnderWay { jobs: Vec<JobKey> },
    /// How do the tasks with indexes in [`from`, `from + size`) stand?
    Standing { job: JobKey, from: u32, size: u32 },
    /// Who is there?
    Workers,
    /// May this worker write the log of this attempt?
    Holds { worker: WorkerId, task: TaskKey, attempt: Attempt },
    /// There is a new job in the store.
    Admit { job: JobKey },
    /// A job was cancelled, which the store has written.
    CancelJob { job: JobKey, queue: QueueName },
    /// Cancel one task. Answered once it is written.
    CancelTask { task: TaskKey },
    /// Tasks of a job that had ended are to be tried anew, which the store has written.
    Revive { job: JobKey, tasks: Vec<Tried> },
    /// A queue was made or changed, which the store has written.
    Define { queue: Box<QueueRow> },
    /// A queue was deleted, which the store has written.
    Forget { queue: Removed },
    /// How do the queues stand?
    Loads,
    /// What holds this queue back?
    Facts { queue: QueueName },
    /// What goes before this task?
    Place { task: TaskKey },
    /// How do these queues stand, for whoever decides how many workers they get?
    Sights { queues: Vec<QueueName> },
    /// These workers of the shard, and no others, are to be handed nothing.
    Rest { workers: BTreeSet<WorkerId> },
    /// This process of a worker has died, its tasks with it.
    Bury {
        /// Not said by a version that named the host instead: then the lease says it.
        #[serde(default)]
        worker: Option<WorkerId>,
        /// For that version to read.
        host: String,
        pid: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Fit(Fit),
    /// Those of the jobs that the owner knows.
    UnderWay(Vec<(JobKey, UnderWay)>),
    /// Those of the tasks that have not ended.
    Standing(Vec<Stand>),
    Workers(Vec<WorkerView>),
    Holds(bool),
    /// False when there was nothing to cancel.
    CancelTask(bool),
    /// Of the queues that the owner has heard of.
    Loads(Vec<(QueueName, QueueLoad)>),
    Facts(Box<QueueFacts>),
    Place(Option<TaskFacts>),
    Sights(Vec<QueueSight>),
    Noted,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub known: bool,
    /// The most that one worker can give a task; none when there are no workers now.
    #[serde(default)]
    pub largest: Option<Needs>,
    /// Tasks of the whole shard that have not ended.
    pub open_tasks: u64,
    /// Tasks of the queue that no worker has.
    #[serde(default)]
    pub waiting: u64,
}

/// Where a task stands that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stand {
    pub index: u32,
    pub state: TaskState,
    #[serde(default)]
    pub attempt: Option<Attempt>,
    pub failures: u32,
    pub losses: u32,
    #[serde(default)]
    pub worker: Option<WorkerId>,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
}

impl Stand {
    fn of(index: u32, Standing { life, worker, started_at }: Standing) -> Self {
        let state = match life.phase {
            Phase::Dispatched(_) => TaskState::Dispatched,
            Phase::Running(_) => TaskState::Running,
            Phase::Accepted | Phase::Ready { .. } => TaskState::Ready,
            Phase::Ended(how) => how.into(),
        };
        let (attempt, failures, losses) = (life.attempt(), life.failures, life.losses);
        Self { index, state, attempt, failures, losses, worker, started_at }
    }
}

impl Question {
    /// Changes nothing.
    pub fn only_looks(&self) -> bool {
        match self {
            Self::Fit { .. }
            | Self::UnderWay { .. }
            | Self::Standing { .. }
            | Self::Workers
            | Self::Holds { .. }
            | Self::Loads
            | Self::Facts { .. }
            | Self::Place { .. }
            | Self::Sights { .. } => true,
            Self::Admit { .. }
            | Self::Rest { .. }
            | Self::Define { .. }
            | Self::Forget { .. }
            | Self::CancelJob { .. }
            | Self::CancelTask { .. }
            | Self::Revive { .. }
            | Self::Bury { .. } => false,
        }
    }

    /// The answer to a question that changes nothing; none to one that does.
    pub fn look(&self, desk: &Desk, now: Now) -> Option<Answer> {
        Some(match self {
            Question::Fit { queue } => Answer::Fit(Fit {
                known: desk.knows_queue(queue),
                largest: desk.largest_worker(queue),
                open_tasks: desk.open_tasks(),
                waiting: desk.waiting(queue),
            }),
            Question::UnderWay { jobs } => {
                Answer::UnderWay(jobs.iter().filter_map(|job| Some((*job, desk.under_way(*job)?))).collect())
            }
            Question::Standing { job, from, size } => {
                let at = |index| Some(Stand::of(index, desk.standing(TaskKey { job: *job, index })?));
                Answer::Standing((*from..from.saturating_add(*size)).filter_map(at).collect())
            }
            Question::Workers => Answer::Workers(desk.workers(now)),
            Question::Holds { worker, task, attempt } => Answer::Holds(desk.holds(worker, *task, *attempt)),
            Question::Loads => Answer::Loads(desk.loads()),
            Question::Facts { queue } => Answer::Facts(Box::new(desk.facts(queue, now))),
            Question::Place { task } => Answer::Place(desk.place(*task)),
            Question::Sights { queues } => Answer::Sights(queues.iter().map(|queue| desk.sight(queue, now)).collect()),
            change => {
                debug_assert!(!change.only_looks());
                return None;
            }
        })
    }
}

/// Manager → the owner of a shard, by fanout [`asks_of`] the shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    #[serde(default)]
    pub v: Version,
    /// The topic on which the asker listens.
    pub answer_to: String,
    /// The asker's own; it comes back with the answer.
    pub number: u64,
    pub question: Question,
}

/// The owner → whoever asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    #[serde(default)]
    pub v: Version,
    pub number: u64,
    pub answer: Answer,
}

/// An owner → every manager, by fanout [`CHANGES`]: jobs whose written state changed, a settlement at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    #[serde(default)]
    pub v: Version,
    /// Who says so: it has told those in its own process already.
    pub from: String,
    pub jobs: Vec<JobKey>,
}

pub const CHANGES: &str = "changes.jobs";

pub fn asks_of(shard: ShardId) -> String {
    format!("asks.jobs.{shard}")
}

/// The topic of one member. Names of hosts may have what names of topics may not; what tells members apart is plain.
pub fn answers_to(member: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    let tail: Vec<char> = member.chars().rev().take(MEMBER_CHARS_MAX).collect();
    format!("answers.{}", tail.into_iter().rev().map(plain).collect::<String>())
}

/// What is unique about a member is at its end.
const MEMBER_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use mutirao_core::envelope::{open, seal};

    use super::*;

    #[test]
    fn questions_and_answers_survive_the_journey() {
        let task = TaskKey { job: JobKey(7), index: 3 };
        let questions = [
            Question::Fit { queue: QueueName::default() },
            Question::UnderWay { jobs: vec![JobKey(1), JobKey(2)] },
            Question::Workers,
            Question::CancelTask { task },
            Question::Bury { worker: Some(WorkerId("w".into())), host: "h".into(), pid: 7 },
        ];
        for question in questions {
            let asked = Asked { v: Version::default(), answer_to: "answers.m".into(), number: 9, question };
            assert_eq!(open::<Asked>(&seal(&asked)).unwrap(), asked);
        }
        let under_way = UnderWay { open: 3, dispatched: 2, running: 1 };
        for answer in [Answer::UnderWay(vec![(JobKey(1), under_way)]), Answer::Holds(true), Answer::Noted] {
            let answered = Answered { v: Version::default(), number: 9, answer };
            assert_eq!(open::<Answered>(&seal(&answered)).unwrap(), answered);
        }
    }

    #[test]
    fn a_members_topic_is_plain_and_its_own() {
        assert_eq!(answers_to("host.example:7-00ff"), "answers.host-example-7-00ff");
        assert_ne!(answers_to(&format!("{}1", "h".repeat(300))), answers_to(&format!("{}2", "h".repeat(300))));
    }
}
