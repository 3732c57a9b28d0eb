//! What was cancelled lately. Pure. A cancel travels by fanout and can overtake the parcel that holds its task, so it is
//! remembered for a while: bounded in time and number, the oldest forgotten first. It is meant for attempts up to the one
//! that it names, and not for one that comes of trying the task anew.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mutirao_core::{Attempt, JobKey, Mono, TaskKey};

use super::task::Try;

const KEPT_FOR: Duration = Duration::from_secs(300);
const KEPT_MAX: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Job(JobKey),
    Task(TaskKey),
}

#[derive(Debug, Default)]
pub(crate) struct Cancelled {
    /// Since when, and through which attempt.
    since: HashMap<What, (Mono, Attempt)>,
    order: VecDeque<(Mono, What)>,
}

impl Cancelled {
    pub fn job(&mut self, job: JobKey, now: Mono) {
        self.keep(What::Job(job), Attempt::LAST, now);
    }

    pub fn task(&mut self, task: TaskKey, through: Attempt, now: Mono) {
        self.keep(What::Task(task), through, now);
    }

    pub fn holds(&self, (task, attempt): Try) -> bool {
        let is_meant = |what: What| self.since.get(&what).is_some_and(|(_, through)| attempt <= *through);
        // Nearly always empty, and this is asked for every task.
        !self.since.is_empty() && (is_meant(What::Job(task.job)) || is_meant(What::Task(task)))
    }

    pub fn forget_old(&mut self, now: Mono) {
        while let Some((at, what)) = self.order.front().copied() {
            if self.order.len() <= KEPT_MAX && now.since(at) < KEPT_FOR {
                break;
            }
            self.order.pop_front();
            // A cancel that was repeated has a later place in the order, which is the one that counts.
            if self.since.get(&what).is_some_and(|(since, _)| *since == at) {
                self.since.remove(&what);
            }
        }
    }

    fn keep(&mut self, what: What, through: Attempt, now: Mono) {
        let known = self.since.entry(what).or_insert((now, through));
        *known = (now, known.1.max(through));
        self.order.push_back((now, what));
        self.forget_old(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(job: u64, index: u32) -> TaskKey {
        TaskKey { job: JobKey(job), index }
    }

    fn attempt(generation: u64, n: u32) -> Attempt {
        Attempt { generation, n }
    }

    fn holds(cancelled: &Cancelled, task: TaskKey) -> bool {
        cancelled.holds((task, attempt(1, 1)))
    }

    #[test]
    fn cancels_are_forgotten_after_a_while_unless_repeated() {
        let mut cancelled = Cancelled::default();
        cancelled.job(JobKey(1), Mono::default());
        cancelled.task(task(2, 7), attempt(1, 1), Mono::default());
        assert!(holds(&cancelled, task(1, 3)) && holds(&cancelled, task(2, 7)) && !holds(&cancelled, task(2, 8)));
        let half = Mono::default().plus(KEPT_FOR / 2);
        cancelled.job(JobKey(1), half);
        cancelled.forget_old(Mono::default().plus(KEPT_FOR));
        assert!(holds(&cancelled, task(1, 3)) && !holds(&cancelled, task(2, 7)));
    }

    #[test]
    fn a_cancel_is_meant_for_the_attempt_that_it_names_and_for_earlier_ones() {
        let mut cancelled = Cancelled::default();
        cancelled.task(task(1, 1), attempt(2, 3), Mono::default());
        cancelled.task(task(1, 1), attempt(2, 2), Mono::default());
        let held = [(1, 9), (2, 2), (2, 3), (2, 4), (3, 1)].map(|(g, n)| cancelled.holds((task(1, 1), attempt(g, n))));
        assert_eq!(held, [true, true, true, false, false]);
    }

    #[test]
    fn only_so_many_are_kept() {
        let mut cancelled = Cancelled::default();
        for index in 0..=KEPT_MAX as u32 {
            cancelled.task(task(1, index), attempt(1, 1), Mono::default());
        }
        assert!(!holds(&cancelled, task(1, 0)) && holds(&cancelled, task(1, 1)));
        assert_eq!(cancelled.order.len(), KEPT_MAX);
    }
}
