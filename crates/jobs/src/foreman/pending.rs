//! What waits to be written, to be said, or to be answered, and which jobs are over.

use std::collections::{BTreeMap, HashSet, VecDeque};

use mutirao_core::Timestamp;
use mutirao_core::envelope::Control;
use mutirao_core::id::{JobKey, QueueName};
use tokio::sync::oneshot;

use crate::desk::Effects;
use crate::dispatch::Outgoing;
use crate::question::Answer;
use crate::recall::Round;
use crate::reports::Mark;
use crate::settler::Batch;
use crate::store::Settlement;

/// Jobs remembered that are over: a word of their coming may be slower than they were.
const GRAVES_MAX: usize = 4_096;

#[derive(Default)]
pub struct Pending {
    pub settlement: Settlement,
    /// Answered when what is in `settlement` is written.
    pub answers: Vec<oneshot::Sender<Answer>>,
    pub outgoing: VecDeque<Outgoing>,
    /// The comparison with the store that is under way.
    pub round: Option<Round>,
    /// Somebody says that there is a job which we do not know.
    pub compare_soon: bool,
    /// Jobs that are over, with ends in `settlement`, and with ends in what is being written.
    closed: Vec<JobKey>,
    closed_in_batch: Vec<JobKey>,
    graves: HashSet<JobKey>,
    graves_order: VecDeque<JobKey>,
}

impl Pending {
    /// Moves what the desk decided to where it is written or said.
    pub fn absorb(&mut self, effects: Effects) {
        let Effects { ended, late, again, stop, sessions, closed } = effects;
        self.settlement.ended.extend(ended);
        self.settlement.late.extend(late);
        self.settlement.again.extend(again);
        self.settlement.sessions.extend(sessions);
        for job in &closed {
            self.bury(*job);
        }
        self.closed.extend(closed);
        let mut controls: BTreeMap<QueueName, Control> = BTreeMap::new();
        for (queue, task) in stop {
            controls.entry(queue).or_default().cancel_tasks.push(task);
        }
        self.outgoing.extend(controls.into_iter().map(|(queue, control)| Outgoing::Control(queue, control)));
    }

    /// Has a queue looked at, once: while the broker is away nobody looks, and what is wanted does not pile up.
    pub fn look_at(&mut self, queue: QueueName) {
        let is_wanted = |waiting: &Outgoing| matches!(waiting, Outgoing::Look(other) if *other == queue);
        if !self.outgoing.iter().any(is_wanted) {
            self.outgoing.push_back(Outgoing::Look(queue));
        }
    }

    pub fn is_settled(&self) -> bool {
        self.settlement.is_empty() && self.answers.is_empty()
    }

    pub fn batch(&mut self, at: Timestamp, through: Mark) -> Batch {
        self.settlement.at = at;
        self.closed_in_batch = std::mem::take(&mut self.closed);
        let settlement = std::mem::take(&mut self.settlement);
        Batch { settlement, through, answers: std::mem::take(&mut self.answers) }
    }

    /// The last batch is written.
    pub fn written(&mut self) {
        self.closed_in_batch.clear();
    }

    /// Jobs that are over and that the store may not know to be.
    pub fn unwritten(&self) -> impl Iterator<Item = JobKey> + '_ {
        self.closed.iter().chain(&self.closed_in_batch).copied()
    }

    /// A job is over: whoever speaks of it as new is late.
    pub fn bury(&mut self, job: JobKey) {
        if let Some(round) = &mut self.round {
            round.is_over(job);
        }
        if self.graves.insert(job) {
            self.graves_order.push_back(job);
        }
        if self.graves_order.len() > GRAVES_MAX
            && let Some(oldest) = self.graves_order.pop_front()
        {
            self.graves.remove(&oldest);
        }
    }

    pub fn is_buried(&self, job: JobKey) -> bool {
        self.graves.contains(&job)
    }
}
