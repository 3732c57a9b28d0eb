//! A worker process as the provider runs it: it starts, reports, takes tasks, drains when told, and leaves.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::{Dice, Timestamp};
use mutirao_elastic::fleet::Activity;

pub struct Process {
    reports_at: Option<Timestamp>,
    reported: bool,
    idle_since: Timestamp,
    pub task_left_s: Option<u64>,
    pub told_to_drain: bool,
    /// Some end by themselves once drained, others wait to be ended.
    leaves_by_itself: bool,
    drained: bool,
}

impl Process {
    pub fn new(now: Timestamp, dice: &Dice, mute: bool) -> Self {
        Self {
            reports_at: (!mute).then(|| now.plus(Duration::from_secs(1 + dice.below(8)))),
            reported: false,
            idle_since: now,
            task_left_s: None,
            told_to_drain: false,
            leaves_by_itself: dice.below(2) == 0,
            drained: false,
        }
    }

    /// A second passes; gives the number of tasks that ended.
    pub fn go_on(&mut self, now: Timestamp, ready: &mut VecDeque<u64>) -> u64 {
        if !self.reported && self.reports_at.is_some_and(|at| now >= at) {
            self.reported = true;
            self.idle_since = now;
        }
        if !self.reported {
            return 0;
        }
        let mut ended = 0;
        self.task_left_s = match self.task_left_s {
            Some(0) | Some(1) => {
                ended = 1;
                self.idle_since = now;
                None
            }
            Some(left) => Some(left - 1),
            None => None,
        };
        if self.told_to_drain {
            self.drained = self.task_left_s.is_none();
        } else if self.task_left_s.is_none() {
            self.task_left_s = ready.pop_front();
        }
        ended
    }

    pub fn is_at_work(&self) -> bool {
        self.task_left_s.is_some()
    }

    pub fn has_left(&self) -> bool {
        self.drained && self.leaves_by_itself
    }

    /// None without a session.
    pub fn activity(&self) -> Option<Activity> {
        if !self.reported {
            None
        } else if self.drained {
            Some(Activity::Drained)
        } else if self.task_left_s.is_some() {
            Some(Activity::Busy { tasks: 1, since: None })
        } else {
            Some(Activity::Idle { since: self.idle_since })
        }
    }
}
