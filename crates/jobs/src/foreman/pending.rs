//! What waits to be written, to be acknowledged, to be said or to be answered, and which jobs are over.
//!
//! At most one settlement is being written; what is decided meanwhile gathers for the next. A report is acknowledged with
//! the settlement that has what came of it, or at once when nothing is left to write.
//!
//! Whatever gathers here is counted against one [`Budget`]. Past it nothing is taken in that could add to it: reports stay
//! with the broker, questions with whoever asks, and nothing goes out whose outcome would have to be kept.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::id::JobKey;

use super::words::{Word, Words};
use crate::desk::{Desk, Effects, Ended, Now, SessionChange};
use crate::question::Answer;
use crate::reports::Mark;
use crate::store::Settlement;

/// How much may gather in one shard while what was decided before is written. A shard holds about twice as much, with what
/// is being written, and at most one report more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Ends, retries, sessions that came and went, callers who wait for them, and words to workers.
    pub items_max: usize,
    /// Bytes of output in them.
    pub output_bytes_max: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { items_max: 50_000, output_bytes_max: 64 << 20 }
    }
}

/// Jobs remembered that are over: a word of their coming may be slower than they were.
const GRAVES_MAX: usize = 4_096;
/// Between two tries at writing when the store refuses.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Pending<A> {
    budget: Budget,
    pub settlement: Settlement,
    /// Bytes of output in it.
    tail_bytes: usize,
    /// Answered when what is in `settlement` is written.
    askers: Vec<(A, Answer)>,
    /// Jobs that are over, with ends in `settlement`.
    closed: Vec<JobKey>,
    writing: Option<Writing<A>>,
    /// Answers that may be given now.
    pub answers: VecDeque<(A, Answer)>,
    pub words: Words,
    /// The last report heard, the last of which everything is written, and the last acknowledged.
    pub seen: Mark,
    durable: Mark,
    acknowledged: Mark,
    graves: HashSet<JobKey>,
    graves_order: VecDeque<JobKey>,
}

/// A settlement on its way to the store, and who waits for it.
struct Writing<A> {
    settlement: Arc<Settlement>,
    /// The reports that are settled with it.
    through: Mark,
    askers: Vec<(A, Answer)>,
    closed: Vec<JobKey>,
    since: Mono,
    /// After a failure: when it is tried again.
    again_at: Option<Mono>,
    failures: u32,
}

impl<A> Pending<A> {
    pub fn within(budget: Budget) -> Self {
        Self {
            budget,
            settlement: Settlement::default(),
            tail_bytes: 0,
            askers: Vec::new(),
            closed: Vec::new(),
            writing: None,
            answers: VecDeque::new(),
            words: Words::default(),
            seen: Mark::default(),
            durable: Mark::default(),
            acknowledged: Mark::default(),
            graves: HashSet::new(),
            graves_order: VecDeque::new(),
        }
    }

    pub fn absorb(&mut self, effects: Effects) {
        let Effects { ended, late, again, stop, rest, sessions, closed } = effects;
        self.tail_bytes += ended.iter().chain(&late).map(tail_bytes).sum::<usize>();
        self.settlement.ended.extend(ended);
        self.settlement.late.extend(late);
        self.settlement.again.extend(again);
        self.settlement.sessions.extend(sessions);
        self.closed.extend(closed);
        stop.into_iter().for_each(|(queue, pick)| self.words.tell(&queue, Word::Stop(pick)));
        rest.into_iter().for_each(|(queue, worker)| self.words.tell(&queue, Word::Rest(worker)));
    }

    pub fn answer(&mut self, asker: A, answer: Answer) {
        self.answers.push_back((asker, answer));
    }

    pub fn answer_when_written(&mut self, asker: A, answer: Answer) {
        self.askers.push((asker, answer));
    }

    // ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    fn is_decided(&self) -> bool {
        !self.settlement.is_empty() || !self.askers.is_empty()
    }

    pub fn is_settled(&self) -> bool {
        self.writing.is_none() && !self.is_decided()
    }

    /// What the last try to write came to nothing.
    pub fn is_in_trouble(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.failures > 0)
    }

    /// How much waits to be written or said.
    pub fn items(&self) -> usize {
        let Settlement { ended, late, again, sessions, .. } = &self.settlement;
        ended.len() + late.len() + again.len() + sessions.len() + self.askers.len() + self.words.count()
    }

    /// So much waits that nothing may be added. Never without a write under way, or a broker that takes no words.
    pub fn is_full(&self) -> bool {
        self.items() >= self.budget.items_max || self.tail_bytes >= self.budget.output_bytes_max
    }

    pub fn writing_since(&self) -> Option<Mono> {
        self.writing.as_ref().map(|writing| writing.since)
    }

    pub fn again_at(&self) -> Option<Mono> {
        self.writing.as_ref()?.again_at
    }

    /// What is to be written now: the next settlement, or the one that failed.
    pub fn settle(&mut self, now: Now) -> Option<Arc<Settlement>> {
        if let Some(writing) = &mut self.writing {
            writing.again_at.take_if(|again_at| *again_at <= now.mono)?;
            return Some(writing.settlement.clone());
        }
        if !self.is_decided() {
            return None;
        }
        self.settlement.at = now.wall;
        let settlement = Arc::new(std::mem::take(&mut self.settlement));
        self.tail_bytes = 0;
        self.writing = Some(Writing {
            settlement: settlement.clone(),
            through: self.seen,
            askers: std::mem::take(&mut self.askers),
            closed: std::mem::take(&mut self.closed),
            since: now.mono,
            again_at: None,
            failures: 0,
        });
        Some(settlement)
    }

    pub fn written(&mut self, desk: &mut Desk) {
        let Some(writing) = self.writing.take() else { return };
        self.durable = writing.through;
        self.answers.extend(writing.askers);
        for change in &writing.settlement.sessions {
            if let SessionChange::Came(session, ..) = change {
                desk.written(session);
            }
        }
    }

    pub fn failed(&mut self, now: Mono) {
        if let Some(writing) = &mut self.writing {
            writing.failures = writing.failures.saturating_add(1);
            writing.again_at = Some(now.plus(PAUSE));
        }
    }

    /// The mark up to which reports may be acknowledged, when it has moved.
    pub fn acknowledge(&mut self) -> Option<Mark> {
        if self.is_settled() {
            self.durable = self.seen;
        }
        if self.durable == self.acknowledged {
            return None;
        }
        self.acknowledged = self.durable;
        Some(self.durable)
    }

    // ── jobs that are over ───────────────────────────────────────────────────────────────────────────────────────

    /// Jobs that are over and that the store may not know to be.
    pub fn unwritten(&self) -> impl Iterator<Item = JobKey> + '_ {
        let in_writing = self.writing.iter().flat_map(|writing| &writing.closed);
        self.closed.iter().chain(in_writing).copied()
    }

    pub fn bury(&mut self, job: JobKey) {
        if self.graves.insert(job) {
            self.graves_order.push_back(job);
        }
        if self.graves_order.len() > GRAVES_MAX
            && let Some(oldest) = self.graves_order.pop_front()
        {
            self.graves.remove(&oldest);
        }
    }

    pub fn exhume(&mut self, job: JobKey) {
        if self.graves.remove(&job) {
            self.graves_order.retain(|buried| *buried != job);
        }
    }

    pub fn is_buried(&self, job: JobKey) -> bool {
        self.graves.contains(&job)
    }
}

fn tail_bytes(end: &Ended) -> usize {
    end.outcome.as_ref().map_or(0, |outcome| outcome.stdout.tail.len() + outcome.stderr.tail.len())
}
