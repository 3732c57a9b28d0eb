//! One job's tasks. Those that nobody has touched need no memory; those that ended need a bit; only those under way or
//! waiting to be tried again have an entry.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::id::{Attempt, QueueName};
use mutirao_core::life::{Change, Event, Life, Phase};
use mutirao_core::limits::PARCEL_TASKS_MAX;
use mutirao_core::task::{Needs, Retry};
use mutirao_core::{Dice, Mono, Timestamp};

use super::maps::Map;
use super::order::Rank;

pub struct Ledger {
    pub queue: QueueName,
    first: u32,
    total: u32,
    retry: Retry,
    pub needs: Needs,
    /// Some of its tasks may say themselves what they need.
    pub varied: bool,
    pub rank: Rank,
    /// Which of the jobs that the desk took in it is, from 1.
    pub number: u64,
    /// When the desk took it in.
    pub since: Mono,
    /// Tasks in one parcel, when they turned out to be so large that fewer must do.
    pub parcel_max: usize,
    /// Tasks that were tried anew by hand so far.
    pub revived: u64,
    ended: Bits,
    ended_count: u32,
    /// Tasks that are neither fresh nor ended.
    live: Map<u32, Live>,
    /// Offset of the first task that may be fresh.
    next: u32,
    /// Tasks that may go out again at once.
    again: VecDeque<u32>,
}

struct Live {
    life: Life,
    began: Option<Timestamp>,
    /// Times that it went out and nothing came of it.
    misses: u32,
}

impl Live {
    fn new(life: Life) -> Self {
        Self { life, began: None, misses: 0 }
    }
}

/// A task's row, as the store has it, of a job that is not over.
#[derive(Clone, Copy, Debug)]
pub enum Trace {
    Ended(u32),
    Again { index: u32, tries: u32, failures: u32, losses: u32, not_before: Timestamp },
}

impl Ledger {
    pub fn new(queue: QueueName, first: u32, total: u32, retry: Retry, needs: Needs) -> Self {
        Self {
            queue,
            first,
            total,
            retry,
            needs,
            varied: false,
            rank: Rank::default(),
            number: 0,
            since: Mono::default(),
            parcel_max: PARCEL_TASKS_MAX,
            revived: 0,
            ended: Bits::default(),
            ended_count: 0,
            live: Map::default(),
            next: 0,
            again: VecDeque::new(),
        }
    }

    /// The same job with its place among others.
    pub fn ranked(self, rank: Rank) -> Self {
        Self { rank, ..self }
    }

    /// The same job, where tasks may say themselves what they need.
    pub fn varied(self, varied: bool) -> Self {
        Self { varied, ..self }
    }

    /// The same job after a restart.
    pub fn recall(mut self, traces: impl IntoIterator<Item = Trace>) -> Self {
        for trace in traces {
            match trace {
                Trace::Ended(index) => {
                    if let Some(offset) = self.offset(index)
                        && self.ended.set(offset)
                    {
                        self.ended_count += 1;
                    }
                }
                Trace::Again { index, tries, failures, losses, not_before } => {
                    let Some(offset) = self.offset(index) else { continue };
                    let life = Life { phase: Phase::Ready { not_before }, tries, failures, losses };
                    self.live.insert(offset, Live::new(life));
                    if not_before.0 == 0 {
                        self.again.push_back(offset);
                    }
                }
            }
        }
        self
    }

    fn offset(&self, index: u32) -> Option<u32> {
        index.checked_sub(self.first).filter(|offset| *offset < self.total)
    }

    pub fn is_over(&self) -> bool {
        self.ended_count == self.total
    }

    pub fn open(&self) -> u64 {
        u64::from(self.total - self.ended_count)
    }

    /// Tasks that have not ended and are with nobody.
    pub fn waiting(&self) -> u64 {
        self.open().saturating_sub(self.out().count() as u64)
    }

    pub fn has_ended(&self, index: u32) -> bool {
        self.offset(index).is_none_or(|offset| self.ended.get(offset))
    }

    /// Where a task stands that has not ended.
    pub fn life_of(&self, index: u32) -> Option<Life> {
        let offset = self.offset(index).filter(|offset| !self.ended.get(*offset))?;
        Some(self.live.get(&offset).map_or_else(Life::fresh, |live| live.life))
    }

    pub fn attempt_of(&self, index: u32) -> Option<Attempt> {
        self.live.get(&self.offset(index)?)?.life.attempt()
    }

    pub fn began(&mut self, index: u32, at: Timestamp) {
        if let Some(live) = self.offset(index).and_then(|offset| self.live.get_mut(&offset)) {
            live.began = Some(at);
        }
    }

    /// It went out and nothing came of it; how often that has happened by now.
    pub fn missed(&mut self, index: u32) -> u32 {
        let live = self.offset(index).and_then(|offset| self.live.get_mut(&offset));
        live.map_or(0, |live| {
            live.misses = live.misses.saturating_add(1);
            live.misses
        })
    }

    pub fn began_at(&self, index: u32) -> Option<Timestamp> {
        self.live.get(&self.offset(index)?)?.began
    }

    /// Tasks that are dispatched or running.
    pub fn out(&self) -> impl Iterator<Item = (u32, &Life)> {
        self.live
            .iter()
            .filter(|(_, live)| live.life.attempt().is_some())
            .map(|(offset, live)| (self.first + offset, &live.life))
    }

    /// Tasks that wait for a date.
    pub fn waiting_until(&self) -> Vec<(u32, Timestamp)> {
        let date = |live: &Live| match live.life.phase {
            Phase::Ready { not_before } if not_before.0 > 0 => Some(not_before),
            _ => None,
        };
        self.live.iter().filter_map(|(offset, live)| Some((self.first + offset, date(live)?))).collect()
    }

    /// The longest that a task may have to wait before it is tried again.
    pub fn longest_wait(&self, index: u32) -> Duration {
        self.life_of(index).map_or(Duration::ZERO, |life| self.retry.wait(life.failures))
    }

    /// A task that had ended is tried anew. False when it had not.
    pub fn revive(&mut self, index: u32, tries: u32) -> bool {
        let Some(offset) = self.offset(index).filter(|offset| self.ended.unset(*offset)) else { return false };
        self.ended_count -= 1;
        self.revived += 1;
        self.live.insert(offset, Live::new(Life { tries, ..Life::fresh() }));
        self.again.push_back(offset);
        true
    }

    /// The task may go out now. The desk says so when its wait is over, and it is over for good: the clock may step back.
    pub fn back_in_line(&mut self, index: u32) {
        let Some(offset) = self.offset(index) else { return };
        if let Some(Live { life: Life { phase: Phase::Ready { not_before }, .. }, .. }) = self.live.get_mut(&offset) {
            *not_before = Timestamp(0);
        }
        self.again.push_back(offset);
    }

    /// Makes an entry for a task that somebody is known to run, so that it is not taken for fresh.
    pub fn adopt(&mut self, index: u32) {
        if let Some(offset) = self.offset(index).filter(|offset| !self.ended.get(*offset)) {
            self.live.entry(offset).or_insert_with(|| Live::new(Life::fresh()));
        }
    }

    /// The next task in the job's own order, as handed out. Those that come back go first.
    pub fn hand_out_next(&mut self, generation: u64, now: Timestamp, dice: &Dice) -> Option<(u32, Attempt)> {
        let offset = self.next_offset()?;
        let live = self.live.entry(offset).or_insert_with(|| Live::new(Life::fresh()));
        let attempt = live.life.next_attempt(generation);
        live.life.apply(Event::HandedOut(attempt), &self.retry, now, dice);
        Some((self.first + offset, attempt))
    }

    fn next_offset(&mut self) -> Option<u32> {
        while let Some(offset) = self.again.pop_front() {
            // An entry may be stale: the task ended, went out by another way, or failed and waits, since it was put here.
            let due = |live: &Live| matches!(live.life.phase, Phase::Ready { not_before: Timestamp(0) });
            let ready = self.live.get(&offset).is_some_and(due);
            if ready && !self.ended.get(offset) {
                return Some(offset);
            }
        }
        while self.next < self.total {
            let offset = self.next;
            self.next += 1;
            if !self.ended.get(offset) && !self.live.contains_key(&offset) {
                return Some(offset);
            }
        }
        None
    }

    /// Lets an event happen to a task.
    pub fn apply(&mut self, index: u32, event: Event, now: Timestamp, dice: &Dice) -> (Change, Life) {
        let Some(offset) = self.offset(index) else { return (Change::None, Life::default()) };
        if self.ended.get(offset) {
            return (Change::None, Life::default());
        }
        let mut life = self.live.get(&offset).map_or_else(Life::fresh, |live| live.life);
        let change = life.apply(event, &self.retry, now, dice);
        match change {
            Change::None => {}
            Change::Ended(_) => {
                self.live.remove(&offset);
                self.ended.set(offset);
                self.ended_count += 1;
            }
            Change::Moved | Change::Again { .. } => {
                self.live.entry(offset).or_insert(Live::new(life)).life = life;
            }
        }
        (change, life)
    }
}

/// A growing set of small numbers, a bit each.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn get(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// True when it was set before.
    fn unset(&mut self, at: u32) -> bool {
        let before = self.get(at);
        if before {
            self.0[at as usize / 64] &= !(1 << (at % 64));
        }
        before
    }

    /// True when it was not set before.
    fn set(&mut self, at: u32) -> bool {
        let word = at as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let before = self.0[word];
        self.0[word] |= 1 << (at % 64);
        before != self.0[word]
    }
}
