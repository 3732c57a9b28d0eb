//! Jobs as people write and read them: the request that submits one, and what is shown of it afterwards. The CLI, the
//! API and the SDK share these types; how a job is kept is the `jobs` crate's business.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::blobs::LogStream;
use crate::id::{Attempt, JobKey, QueueName, TaskKey};
use crate::life::Final;
use crate::limits::{NAME_CHARS_MAX, PRIORITY_MAX, RETRIES_MAX, WAITS_MAX};
use crate::outcome::Usage;
use crate::problem::Problem;
pub use crate::spread::{Spread, Variation};
use crate::task::TaskSpec;

/// Tasks submitted together to a queue. Accepted whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default)]
    #[schema(value_type = String, default = "default")]
    pub queue: QueueName,
    /// What each task does.
    pub task: TaskSpec,
    /// How many tasks there are, and in what they differ.
    #[serde(default)]
    pub spread: Spread,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Higher goes first, where the queue's policy goes by it: from -1000 to 1000.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// How often a task may lose its worker before it is given up as dead, in place of `task.retry.crashes` and of what the
    /// queue says. Zero: one loss is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_limit: Option<u32>,
    /// While a job with this key is open in the namespace, submitting another gives that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
    /// Jobs that must have ended before any task of this one begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub after: Vec<JobKey>,
    /// Jobs that must have ended ok; when one has not, this job is cancelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub after_ok: Vec<JobKey>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl JobSpec {
    pub fn new(task: TaskSpec) -> Self {
        let (spread, labels) = (Spread::Single, BTreeMap::new());
        Self {
            name: None,
            queue: QueueName::default(),
            task,
            spread,
            labels,
            priority: 0,
            crash_limit: None,
            unique: None,
            after: Vec::new(),
            after_ok: Vec::new(),
        }
    }

    /// Everything that can be said against it without looking at what else is there.
    pub fn check(&self) -> Result<(), Problem> {
        let too_long = |text: &str| text.chars().count() > NAME_CHARS_MAX || text.contains('\0');
        if self.name.as_deref().is_some_and(too_long) {
            return Err(Problem::invalid("name", format!("has more than {NAME_CHARS_MAX} characters")));
        }
        if self.labels.len() > 64 || self.labels.iter().any(|(k, v)| k.is_empty() || too_long(k) || too_long(v)) {
            return Err(Problem::invalid("labels", "at most 64, each name and value of 1 to 200 characters"));
        }
        if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&self.priority) {
            let detail = format!("{} is not between -{PRIORITY_MAX} and {PRIORITY_MAX}", self.priority);
            return Err(Problem::invalid("priority", detail));
        }
        if let Some(limit) = self.crash_limit.filter(|limit| *limit > RETRIES_MAX) {
            return Err(Problem::invalid("crash_limit", format!("{limit} is too high, the most is {RETRIES_MAX}")));
        }
        let bad_key = |key: &String| key.is_empty() || too_long(key) || key.chars().any(char::is_control);
        if self.unique.as_ref().is_some_and(bad_key) {
            let why = format!("a key has 1 to {NAME_CHARS_MAX} characters, none of them a control character");
            return Err(Problem::invalid("unique", why));
        }
        let waits = self.after.len() + self.after_ok.len();
        if waits > WAITS_MAX {
            let why = format!("{waits} jobs are too many to wait for, the most is {WAITS_MAX}");
            return Err(Problem::invalid("after", why).remedy("let a job in between wait for some of them"));
        }
        self.spread.check(&self.task)
    }

    /// The same job, in which each task says what it needs if any of them does, and the template the most of any: that is
    /// what a worker must have.
    pub fn with_needs_told(mut self) -> Self {
        self.task.needs = self.spread.tell_needs(self.task.needs);
        self
    }
}

/// How a job stands, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// No task has begun.
    Waiting,
    Running,
    /// Every task ended ok.
    Ok,
    /// Every task ended, at least one of them not ok.
    Failed,
    Cancelled,
}

impl JobState {
    pub fn is_final(self) -> bool {
        matches!(self, JobState::Ok | JobState::Failed | JobState::Cancelled)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Ok => "ok",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }
}

/// Tasks by where they stand. They add up to the job's total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Counts {
    pub ready: u64,
    pub dispatched: u64,
    pub running: u64,
    pub ok: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    pub lost: u64,
    pub dead: u64,
}

impl Counts {
    pub fn ended(&self) -> u64 {
        self.ok + self.failed + self.timed_out + self.cancelled + self.lost + self.dead
    }

    pub fn total(&self) -> u64 {
        self.ready + self.dispatched + self.running + self.ended()
    }

    pub fn of(&mut self, how: Final) -> &mut u64 {
        match how {
            Final::Ok => &mut self.ok,
            Final::Failed => &mut self.failed,
            Final::TimedOut => &mut self.timed_out,
            Final::Cancelled => &mut self.cancelled,
            Final::Lost => &mut self.lost,
            Final::Dead => &mut self.dead,
        }
    }

    pub fn state(&self) -> JobState {
        let (total, ended) = (self.total(), self.ended());
        if ended < total {
            if ended + self.running + self.dispatched > 0 { JobState::Running } else { JobState::Waiting }
        } else if self.ok == total {
            JobState::Ok
        } else if self.cancelled > 0 && self.ok + self.cancelled == total {
            JobState::Cancelled
        } else {
            JobState::Failed
        }
    }
}

/// A job as shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobView {
    #[schema(value_type = String, example = "j7f3k9q2")]
    pub id: JobKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[schema(value_type = String)]
    pub queue: QueueName,
    pub owner: String,
    pub state: JobState,
    pub tasks: u64,
    pub counts: Counts,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
    /// It was there before, and has the unique key that was asked for: nothing was submitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined: bool,
    /// Jobs that must end before it begins. Only when one job is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub waits_for: Vec<JobKey>,
    /// Why it was cancelled, when nobody did it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Follows the job's tasks through API, broker and worker.
    pub trace: String,
    /// What each task does. Only when one job is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskSpec>,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    Ready,
    Dispatched,
    Running,
    Ok,
    Failed,
    TimedOut,
    Cancelled,
    Lost,
    Dead,
}

impl From<Final> for TaskState {
    fn from(how: Final) -> Self {
        match how {
            Final::Ok => TaskState::Ok,
            Final::Failed => TaskState::Failed,
            Final::TimedOut => TaskState::TimedOut,
            Final::Cancelled => TaskState::Cancelled,
            Final::Lost => TaskState::Lost,
            Final::Dead => TaskState::Dead,
        }
    }
}

/// A task as shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskView {
    #[schema(value_type = String, example = "j7f3k9q2.17")]
    pub id: TaskKey,
    pub state: TaskState,
    /// The attempt that decided, or that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    #[serde(default)]
    pub failures: u32,
    #[serde(default)]
    pub losses: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// For a task that waits to be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A task that ended badly (failed, timed out, lost or dead), as shown among those of other jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DeadTask {
    #[serde(flatten)]
    pub task: TaskView,
    #[schema(value_type = String)]
    pub queue: QueueName,
    /// The job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How many tasks are tried anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Retried {
    pub tasks: u64,
    pub jobs: u64,
}

/// A message that somebody could not make sense of, as the broker keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Letter {
    /// By which it can be removed. The same message twice has one id.
    #[serde(default)]
    pub id: String,
    /// The broker's queue that it came by: `tasks.<queue>` or `results.jobs.<shard>`.
    pub way: String,
    pub reason: String,
    pub bytes: u64,
    /// How it begins.
    pub text: String,
}

/// How many such messages lie on one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LetterCount {
    /// The broker's queue that they came by: `tasks.<queue>` or `results.jobs.<shard>`.
    pub way: String,
    /// A queue that uses this way, if there is any; reports of several queues come by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub queue: Option<QueueName>,
    pub letters: u64,
}

/// How many of them were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LettersRemoved {
    pub letters: u64,
}

/// Some of what a task wrote to one of its streams: whole lines, unless the task has no more to say or the line is very long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LogPiece {
    #[schema(value_type = String, example = "j7f3k9q2.17")]
    pub task: TaskKey,
    pub stream: LogStream,
    /// What is not UTF-8 is shown as `�`.
    pub text: String,
}

/// A page of a list. `next` is the cursor of the following page; absent on the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A worker process as shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkerView {
    pub worker: crate::WorkerId,
    pub session: crate::SessionId,
    #[schema(value_type = String)]
    pub queue: QueueName,
    pub host: String,
    pub pid: u32,
    pub capacity: crate::task::Needs,
    pub running: u64,
    pub held: u64,
    pub draining: bool,
    /// Since the last heartbeat.
    pub silent_ms: u64,
    /// Since when it has held nothing, as seen with its heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    #[serde(default)]
    pub state: WorkerState,
    /// Since when it is idle, or takes nothing new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The node that a resource manager put it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What a worker is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    #[default]
    Idle,
    /// It has tasks.
    Busy,
    /// It takes nothing new, and finishes what it has.
    Draining,
    /// It takes nothing new, and has nothing left.
    Drained,
}
