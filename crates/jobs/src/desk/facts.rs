//! What the desk knows about what holds a queue, or one task of it, back. Nothing here changes it.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::id::{QueueName, TaskKey};
use mutirao_queues::{QueueFacts, QueueLoad, TaskFacts};

use super::line::Line;
use super::too_big::TooBig;
use super::{Desk, Ledger, Now};

/// Jobs that are counted before somebody is told how many go first. Past it the number is a lower bound.
const AHEAD_JOBS_MAX: usize = 10_000;

/// Two beats of a worker that is left at its defaults, and a little.
const SILENT_AFTER: Duration = Duration::from_millis(4_500);

impl Desk {
    /// How the queues stand that have ever had a task here, or have a worker.
    pub fn loads(&self) -> Vec<(QueueName, QueueLoad)> {
        let mut loads: std::collections::BTreeMap<QueueName, QueueLoad> = Default::default();
        for (queue, line) in &self.lines {
            let (waiting, out) = (line.waiting(), line.occupied() as u64);
            loads.insert(queue.clone(), QueueLoad { waiting, out, workers: 0 });
        }
        for (_, session) in self.sessions.iter() {
            loads.entry(session.queue.clone()).or_default().workers += 1;
        }
        loads.into_iter().collect()
    }

    /// Tasks of a queue that no worker has.
    pub fn waiting(&self, queue: &QueueName) -> u64 {
        self.lines.get(queue).map_or(0, Line::waiting)
    }

    pub fn facts(&self, queue: &QueueName, now: Now) -> QueueFacts {
        let needs = self.lines.get(queue).and_then(|line| line.first()).and_then(|job| self.jobs.get(&job));
        let needs = needs.map(|ledger| ledger.needs);
        let seats = self.sessions.seats(queue, needs.unwrap_or_default());
        let parked = self.lines.get(queue).map(|line| &line.too_big);
        let known_before = || parked.and_then(TooBig::largest);
        let mut facts = QueueFacts {
            largest: self.sessions.largest(queue).or_else(known_before),
            slots: seats.slots as u64,
            needs,
            expected: self.sessions.expected(queue),
            ..QueueFacts::default()
        };
        for (_, session) in self.sessions.iter().filter(|(_, session)| session.queue == *queue) {
            facts.workers += 1;
            facts.leaving += u64::from(session.draining || session.resting);
            let left = session.until.since(now.mono);
            if self.lease().saturating_sub(left) > SILENT_AFTER {
                facts.silent += 1;
                facts.silent_held += session.held.len() as u64;
                let left = left.as_millis() as u64;
                facts.given_up_ms = Some(facts.given_up_ms.map_or(left, |first| first.min(left)));
            }
        }
        let Some(line) = self.lines.get(queue) else { return facts };
        let until = |at: Mono| at.since(now.mono).as_millis() as u64;
        facts.out = line.occupied() as u64;
        facts.waiting = line.waiting();
        facts.too_big = line.too_big_count(&self.jobs);
        let one = line.too_big.jobs().find_map(|job| self.jobs.get(&job));
        facts.too_big_needs = one.map(|ledger| ledger.needs);
        facts.retrying = line.retrying() as u64;
        facts.next_retry_ms = line.next_retry().map(until);
        facts.next_start_ms = line.next_start().map(until);
        facts.rests_ms = Some(line.rests_until.since(now.mono)).filter(|rest| *rest > Duration::ZERO).map(|rest| {
            let ms = rest.as_millis() as u64;
            ms.max(1)
        });
        facts
    }

    /// What goes before a task that waits.
    pub fn place(&self, task: TaskKey) -> Option<TaskFacts> {
        let ledger = self.jobs.get(&task.job)?;
        let line = self.lines.get(&ledger.queue)?;
        let needs = Some(ledger.needs).filter(|_| !ledger.varied);
        let ahead = line.order().ahead(task.job).take(AHEAD_JOBS_MAX);
        let waiting = |job| self.jobs.get(&job).map_or(0, Ledger::waiting);
        Some(TaskFacts { ahead: ahead.map(waiting).sum(), too_big: line.too_big.has(task), needs })
    }
}
