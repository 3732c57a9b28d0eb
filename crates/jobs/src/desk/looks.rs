//! What others may know of the desk. Nothing here changes it.

use std::time::Duration;

use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::job::{WorkerState, WorkerView};
use mutirao_core::life::{Life, Phase};
use mutirao_core::task::Needs;
use mutirao_core::{Mono, Timestamp};
use serde::{Deserialize, Serialize};

use super::line::Line;
use super::sessions::Session;
use super::{Desk, Now};

/// Tasks of an open job, as the desk has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnderWay {
    pub open: u64,
    pub dispatched: u64,
    pub running: u64,
}

/// Where a task that has no final row stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    pub life: Life,
    pub worker: Option<WorkerId>,
    pub started_at: Option<Timestamp>,
}

impl Desk {
    /// When something will happen by itself: the next retry that is due.
    pub fn next_due(&self) -> Option<Mono> {
        self.lines.values().filter_map(Line::next_due).min()
    }

    pub fn standing(&self, task: TaskKey) -> Option<Standing> {
        let ledger = self.jobs.get(&task.job)?;
        let life = ledger.life_of(task.index)?;
        let worker =
            life.attempt().and_then(|a| self.sessions.holder(task, a)).and_then(|s| self.sessions.worker_of(s));
        Some(Standing { life, worker: worker.cloned(), started_at: ledger.began_at(task.index) })
    }

    /// How an open job's tasks stand, if the desk knows it.
    pub fn under_way(&self, job: JobKey) -> Option<UnderWay> {
        let ledger = self.jobs.get(&job)?;
        let mut counts = UnderWay { open: ledger.open(), ..UnderWay::default() };
        for (_, life) in ledger.out() {
            match life.phase {
                Phase::Running(_) => counts.running += 1,
                _ => counts.dispatched += 1,
            }
        }
        Some(counts)
    }

    /// Tasks of a queue that were handed out and have not come back, as its line counts them.
    pub fn out(&self, queue: &QueueName) -> usize {
        self.lines.get(queue).map_or(0, |line| line.out)
    }

    /// The same, and attempts that still stop though their task has ended.
    pub fn occupied(&self, queue: &QueueName) -> usize {
        self.lines.get(queue).map_or(0, Line::occupied)
    }

    /// Whether a worker may write the log of an attempt: it holds it, or held it until it was cancelled or given up.
    pub fn holds(&self, worker: &WorkerId, task: TaskKey, attempt: Attempt) -> bool {
        self.sessions.holds_or_held(worker, task, attempt)
    }

    pub fn sessions(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.sessions.iter()
    }

    /// Tasks that have not ended, over all jobs.
    pub fn open_tasks(&self) -> u64 {
        self.open
    }

    pub fn knows_queue(&self, queue: &QueueName) -> bool {
        *queue == QueueName::default() || self.lines.contains_key(queue) || self.sessions.serve(queue)
    }

    /// The most that one worker of a queue can give a task; none when it has no workers now.
    pub fn largest_worker(&self, queue: &QueueName) -> Option<Needs> {
        self.sessions.largest(queue)
    }

    pub fn lease(&self) -> Duration {
        self.lease
    }

    pub fn is_running(&self, task: TaskKey) -> bool {
        let life = self.jobs.get(&task.job).and_then(|l| l.life_of(task.index));
        life.is_some_and(|life| matches!(life.phase, Phase::Running(_)))
    }

    pub fn queue_of(&self, job: JobKey) -> Option<&QueueName> {
        self.jobs.get(&job).map(|l| &l.queue)
    }

    /// The worker processes that are alive.
    pub fn workers(&self, now: Now) -> Vec<WorkerView> {
        let view = |(id, session): (&SessionId, &Session)| WorkerView {
            worker: session.worker.clone(),
            session: id.clone(),
            queue: session.queue.clone(),
            host: session.host.clone(),
            pid: session.pid,
            capacity: session.capacity,
            running: session.held.iter().filter(|(task, _)| self.is_running(**task)).count() as u64,
            held: session.held.len() as u64,
            draining: session.draining,
            idle_since: session.idle_since.map(|at| now.wall_at(at)),
            state: WorkerState::default(),
            since: None,
            node: None,
            silent_ms: self.lease().saturating_sub(session.until.since(now.mono)).as_millis() as u64,
        };
        self.sessions().map(view).collect()
    }

    pub fn knows_job(&self, job: JobKey) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Jobs taken in so far: every job has a number up to this.
    pub fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Open jobs whose number is at most `number`.
    pub fn admitted_until(&self, number: u64) -> impl Iterator<Item = JobKey> + '_ {
        self.jobs.iter().filter(move |(_, ledger)| ledger.number <= number).map(|(key, _)| *key)
    }

    /// Nothing is under way and nobody is there, so that no time runs out.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.sessions.is_empty() && self.posted.is_empty()
    }
}
