//! One queue: its jobs in the order in which they are served, its retries in the order in which they are due, how much is
//! out, and what its definition lets out. Waits run on the monotonic clock: a stepped wall clock neither hurries a retry nor puts it off.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use mutirao_core::id::{JobKey, TaskKey};
use mutirao_core::quantity::Cpus;
use mutirao_core::{Mono, Timestamp};
use mutirao_queues::QueueSpec;

use super::order::{Order, Rank};
use super::pace::Pace;
use super::too_big::TooBig;
use super::usage::Spent;
use super::window::{Seats, Window};

/// What a queue's definition lets out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    #[default]
    Open,
    /// Nothing goes out; what is out goes on.
    Paused,
}

#[derive(Default)]
pub struct Line {
    order: Order,
    gate: Gate,
    /// The most that may be out.
    out_max: Option<usize>,
    pace: Option<Pace>,
    waits: BTreeSet<(Mono, TaskKey)>,
    /// The same by task: those of one job lie together.
    until: BTreeMap<TaskKey, Mono>,
    /// Tasks of jobs just taken in, which wait for a date: how long that is, the next look at the clock will tell.
    dated: BTreeMap<TaskKey, Timestamp>,
    /// Tasks handed out and not ended.
    pub out: usize,
    /// Attempts that are still with a worker though their task has ended.
    pub dying: usize,
    /// Tasks that have not ended.
    pub open: u64,
    /// Attempts that ended at a worker, whatever came of them.
    pub ended: u64,
    /// Times that parcels were lost since one was last taken.
    pub lost_in_a_row: u32,
    /// Nothing is handed out before.
    pub rests_until: Mono,
    pub window: Window,
    /// Tasks that no worker can hold. They are not in line.
    pub too_big: TooBig,
}

impl Line {
    pub fn new(gate: Gate) -> Self {
        Self { gate, ..Self::default() }
    }

    /// Takes up a definition; its jobs stay.
    pub fn define<'a>(&mut self, spec: &QueueSpec, now: Mono, rank_of: impl Fn(JobKey) -> Option<&'a Rank>) {
        self.order.pass(now);
        self.order.change(spec.policy.clone(), rank_of);
        self.gate = if spec.paused { Gate::Paused } else { Gate::Open };
        self.out_max = spec.limits.running.map(|most| most as usize);
        let paced = |rate| self.pace.map_or_else(|| Pace::new(rate, now), |pace| pace.at_rate(rate));
        self.pace = spec.limits.starts_per_second.map(paced);
    }

    /// The queue is no more: nothing goes out.
    pub fn close(&mut self) {
        self.gate = Gate::Paused;
    }

    /// Time passes; to be told before anything is asked.
    pub fn pass(&mut self, now: Mono) {
        self.order.pass(now);
        if let Some(pace) = &mut self.pace {
            pace.room(now);
        }
    }

    pub fn enter(&mut self, job: JobKey, rank: &Rank) {
        self.order.enter(job, rank);
    }

    pub fn leave(&mut self, job: JobKey) {
        self.order.leave(job);
    }

    pub fn first(&self) -> Option<JobKey> {
        self.order.first()
    }

    pub fn order(&self) -> &Order {
        &self.order
    }

    #[cfg(test)]
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// Places that are taken, by tasks that are wanted or by what still stops.
    pub fn occupied(&self) -> usize {
        self.out + self.dying
    }

    /// Tasks that no worker has.
    pub fn waiting(&self) -> u64 {
        self.open.saturating_sub(self.out as u64)
    }

    /// Of tasks that could start, those that the definition would let start beside what workers hold, had they the room.
    /// Not more: workers for the rest would stand idle.
    pub fn allowed(&self, startable: u64, held: u64) -> u64 {
        match (self.gate, self.out_max) {
            (Gate::Paused, _) => 0,
            (Gate::Open, None) => startable,
            (Gate::Open, Some(most)) => startable.min((most as u64).saturating_sub(held)),
        }
    }

    /// What each worker may have beyond what it can run at once.
    pub fn share(&mut self, seats: Seats, now: Mono) -> usize {
        self.window.share(seats, now)
    }

    /// How many more may go out now to these workers. Some have more than their share; what is over is `hoarded`.
    pub fn room(&mut self, seats: Seats, hoarded: usize, now: Mono) -> usize {
        if self.gate == Gate::Paused || now < self.rests_until {
            return 0;
        }
        let room = self.window.room(seats, self.occupied(), hoarded, now);
        let room = self.out_max.map_or(room, |most| room.min(most.saturating_sub(self.occupied())));
        self.pace.as_mut().map_or(room, |pace| room.min(pace.room(now)))
    }

    /// Tasks in one turn of a job: all that there is room for, unless others have an equal right to it.
    pub fn turn(&self, room: usize, parcel: usize) -> usize {
        if self.order.is_shared() { parcel.min(room) } else { room }
    }

    /// Tasks of a job in line go out together.
    pub fn handed_out(&mut self, job: JobKey, tasks: usize, cpus: Cpus) {
        self.out += tasks;
        if let Some(pace) = &mut self.pace {
            pace.went(tasks);
        }
        self.order.handed_out(job, tasks, cpus);
    }

    /// A task turns out to be with a worker since the days of an earlier owner.
    pub fn adopted(&mut self, task: TaskKey, rank: &Rank, cpus: Cpus) {
        self.out += 1;
        self.order.adopted(rank, cpus);
        self.forget_wait(task);
    }

    /// A task is not out any more.
    pub fn came_back(&mut self, rank: &Rank, cpus: Cpus, spent: Spent) {
        self.out = self.out.saturating_sub(1);
        self.order.came_back(rank, cpus, spent);
    }

    /// When the limit on starts lets the next task go, if there is one that only waits for that.
    pub fn next_start(&self) -> Option<Mono> {
        let may_go = self.gate == Gate::Open && self.out_max.is_none_or(|most| self.occupied() < most);
        self.pace.and_then(|pace| pace.next()).filter(|_| may_go && !self.order.is_empty())
    }

    /// Tasks that wait for the date of their retry.
    pub fn retrying(&self) -> usize {
        self.waits.len() + self.dated.len()
    }

    pub fn wait_for_date(&mut self, task: TaskKey, date: Timestamp) {
        self.dated.insert(task, date);
    }

    /// Those who wait for a date, for the desk to say how long.
    pub fn take_dated(&mut self) -> BTreeMap<TaskKey, Timestamp> {
        std::mem::take(&mut self.dated)
    }

    pub fn wait(&mut self, task: TaskKey, until: Mono) {
        self.forget_wait(task);
        self.until.insert(task, until);
        self.waits.insert((until, task));
    }

    pub fn forget_wait(&mut self, task: TaskKey) {
        self.dated.remove(&task);
        if let Some(until) = self.until.remove(&task) {
            self.waits.remove(&(until, task));
        }
    }

    /// Of a whole job, at the price of those that it has.
    pub fn forget_waits(&mut self, job: JobKey) {
        let dated: Vec<TaskKey> = self.dated.range(all_of(job)).map(|(task, _)| *task).collect();
        let until: Vec<TaskKey> = self.until.range(all_of(job)).map(|(task, _)| *task).collect();
        for task in dated.into_iter().chain(until) {
            self.forget_wait(task);
        }
    }

    /// Tasks of a job that wait for the date of their retry.
    pub fn waits_of(&self, job: JobKey) -> u64 {
        (self.dated.range(all_of(job)).count() + self.until.range(all_of(job)).count()) as u64
    }

    /// Tasks whose wait is over; they wait no longer.
    pub fn due(&mut self, now: Mono) -> Vec<TaskKey> {
        let tomorrow = (now.plus(Duration::from_nanos(1)), TaskKey { job: JobKey(0), index: 0 });
        let later = self.waits.split_off(&tomorrow);
        let due = std::mem::replace(&mut self.waits, later);
        let due: Vec<TaskKey> = due.into_iter().map(|(_, task)| task).collect();
        for task in &due {
            self.until.remove(task);
        }
        due
    }

    pub fn next_retry(&self) -> Option<Mono> {
        self.waits.first().map(|(at, _)| *at)
    }

    /// When something will happen by itself.
    pub fn next_due(&self) -> Option<Mono> {
        self.next_retry().into_iter().chain(self.next_start()).min()
    }
}

fn all_of(job: JobKey) -> RangeInclusive<TaskKey> {
    TaskKey { job, index: 0 }..=TaskKey { job, index: u32::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_dropped_takes_its_own_waits_along_and_no_others() {
        let mut line = Line::default();
        let task = |job, index| TaskKey { job: JobKey(job), index };
        let at = |s| Mono(Duration::from_secs(s));
        for job in 1..=3 {
            line.wait(task(job, 1), at(job));
            line.wait(task(job, u32::MAX), at(10 + job));
            line.wait_for_date(task(job, 2), Timestamp(1));
        }
        line.forget_waits(JobKey(2));
        assert_eq!(line.retrying(), 6);
        assert_eq!(line.due(at(100)), [task(1, 1), task(3, 1), task(1, u32::MAX), task(3, u32::MAX)]);
        assert_eq!(line.take_dated().into_keys().collect::<Vec<_>>(), [task(1, 2), task(3, 2)]);
    }
}
