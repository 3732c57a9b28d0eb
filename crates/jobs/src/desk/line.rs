//! One queue: its jobs in the order in which they are served, its retries in the order in which they are due, and how much
//! is out. Waits run on the monotonic clock: a stepped wall clock neither hurries a retry nor puts it off.

use std::collections::BTreeSet;
use std::time::Duration;

use mutirao_core::id::{JobKey, TaskKey};
use mutirao_core::{Mono, Timestamp};

use super::maps::Map;
use super::window::Window;

#[derive(Default)]
pub struct Line {
    /// Jobs that may have a task to hand out, first come first.
    jobs: BTreeSet<JobKey>,
    waits: BTreeSet<(Mono, TaskKey)>,
    until: Map<TaskKey, Mono>,
    /// Tasks of jobs just taken in, which wait for a date: how long that is, the next look at the clock will tell.
    dated: Map<TaskKey, Timestamp>,
    /// Tasks handed out and not ended.
    pub out: usize,
    /// Times that parcels were lost since one was last taken.
    pub lost_in_a_row: u32,
    /// Nothing is handed out before.
    pub rests_until: Mono,
    pub window: Window,
}

impl Line {
    pub fn enter(&mut self, job: JobKey) {
        self.jobs.insert(job);
    }

    pub fn leave(&mut self, job: JobKey) {
        self.jobs.remove(&job);
    }

    pub fn first(&self) -> Option<JobKey> {
        self.jobs.first().copied()
    }

    pub fn wait_for_date(&mut self, task: TaskKey, date: Timestamp) {
        self.dated.insert(task, date);
    }

    /// Those who wait for a date, for the desk to say how long.
    pub fn take_dated(&mut self) -> Map<TaskKey, Timestamp> {
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

    pub fn forget_waits(&mut self, job: JobKey) {
        self.dated.retain(|task, _| task.job != job);
        let tasks: Vec<TaskKey> = self.until.keys().filter(|t| t.job == job).copied().collect();
        for task in tasks {
            self.forget_wait(task);
        }
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

    pub fn next_due(&self) -> Option<Mono> {
        self.waits.first().map(|(at, _)| *at)
    }
}
