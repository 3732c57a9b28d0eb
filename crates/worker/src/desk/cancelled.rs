//! What was cancelled lately. Pure. A cancel travels by fanout and can overtake the parcel that holds its task, so it is
//! remembered for a while: bounded in time and number, the oldest forgotten first.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mutirao_core::{JobKey, Mono, TaskKey};

const KEPT_FOR: Duration = Duration::from_secs(300);
const KEPT_MAX: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Job(JobKey),
    Task(TaskKey),
}

#[derive(Debug, Default)]
pub(crate) struct Cancelled {
    since: HashMap<What, Mono>,
    order: VecDeque<(Mono, What)>,
}

impl Cancelled {
    pub fn job(&mut self, job: JobKey, now: Mono) {
        self.keep(What::Job(job), now);
    }

    pub fn task(&mut self, task: TaskKey, now: Mono) {
        self.keep(What::Task(task), now);
    }

    pub fn holds(&self, task: TaskKey) -> bool {
        // Nearly always empty, and this is asked for every task.
        !self.since.is_empty()
            && (self.since.contains_key(&What::Job(task.job)) || self.since.contains_key(&What::Task(task)))
    }

    pub fn forget_old(&mut self, now: Mono) {
        while let Some((at, what)) = self.order.front().copied() {
            if self.order.len() <= KEPT_MAX && now.since(at) < KEPT_FOR {
                break;
            }
            self.order.pop_front();
            // A cancel that was repeated has a later place in the order, which is the one that counts.
            if self.since.get(&what) == Some(&at) {
                self.since.remove(&what);
            }
        }
    }

    fn keep(&mut self, what: What, now: Mono) {
        self.since.insert(what, now);
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

    #[test]
    fn cancels_are_forgotten_after_a_while_unless_repeated() {
        let mut cancelled = Cancelled::default();
        cancelled.job(JobKey(1), Mono::default());
        cancelled.task(task(2, 7), Mono::default());
        assert!(cancelled.holds(task(1, 3)) && cancelled.holds(task(2, 7)) && !cancelled.holds(task(2, 8)));
        let half = Mono::default().plus(KEPT_FOR / 2);
        cancelled.job(JobKey(1), half);
        cancelled.forget_old(Mono::default().plus(KEPT_FOR));
        assert!(cancelled.holds(task(1, 3)) && !cancelled.holds(task(2, 7)));
    }

    #[test]
    fn only_so_many_are_kept() {
        let mut cancelled = Cancelled::default();
        for index in 0..=KEPT_MAX as u32 {
            cancelled.task(task(1, index), Mono::default());
        }
        assert!(!cancelled.holds(task(1, 0)) && cancelled.holds(task(1, 1)));
        assert_eq!(cancelled.order.len(), KEPT_MAX);
    }
}
