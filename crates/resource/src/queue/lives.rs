//! How long tasks last, from what workers are seen to have: who has another than before, or none, has ended the one before.
//! All times are the manager's own, compared with each other.

use std::collections::BTreeMap;

use mutirao_core::{Timestamp, WorkerId};
use mutirao_elastic::State;
use mutirao_elastic::fleet::Activity;
use mutirao_elastic::protocol::QueueBalance;

/// Closer than this, two beginnings are the same: they are reckoned back from each look.
const SAME_MS: i64 = 1_000;

#[derive(Debug, Default)]
pub struct Lives {
    /// Since when workers have had what they have had longest.
    running: BTreeMap<WorkerId, Timestamp>,
    ended: Option<u64>,
}

impl Lives {
    pub fn look(&mut self, balance: &QueueBalance, state: &mut State) {
        let (Some(sessions), Some(tasks)) = (&balance.sessions, balance.load.tasks) else { return };
        // Another owner of the queue counts anew, and took everything at once.
        if tasks.ended.is_none() || tasks.ended < self.ended {
            self.running.clear();
        }
        self.ended = tasks.ended;
        // Whoever is gone may have taken it along.
        self.running.retain(|worker, _| sessions.contains_key(worker));
        for (worker, activity) in sessions {
            let (over_at, next) = match activity {
                Activity::Busy { since: Some(since), .. } => (*since, Some(*since)),
                Activity::Idle { since } => (*since, None),
                Activity::Busy { since: None, .. } | Activity::Drained => {
                    self.running.remove(worker);
                    continue;
                }
            };
            let before = self.running.get(worker).copied();
            if next.is_some() && before.is_some_and(|before| over_at.0 - before.0 < SAME_MS) {
                continue;
            }
            if let Some(before) = before {
                state.lasted(over_at.since(before));
            }
            match next {
                Some(since) => drop(self.running.insert(worker.clone(), since)),
                None => drop(self.running.remove(worker)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mutirao_elastic::fleet::Fleet;
    use mutirao_elastic::measure::{Load, Tasks};

    use super::*;

    fn balance(ended: u64, all: &[(&str, Activity)]) -> QueueBalance {
        let tasks = Tasks { ended: Some(ended), ..Tasks::default() };
        QueueBalance {
            queue: "q".parse().expect("a name"),
            elastic: None,
            need: Default::default(),
            load: Load { tasks: Some(tasks), ..Load::default() },
            sessions: Some(all.iter().map(|(name, activity)| (WorkerId((*name).into()), *activity)).collect()),
            state: State::default(),
            fleet: Fleet::default(),
        }
    }

    fn busy(since_s: i64) -> Activity {
        Activity::Busy { tasks: 1, since: Some(Timestamp(since_s * 1_000)) }
    }

    #[test]
    fn a_task_lasted_until_its_worker_has_another_or_none() {
        let (mut lives, mut state) = (Lives::default(), State::default());
        let mut rounds = 0;
        while state.lasting().is_none() {
            // One after the other of a minute each, and one of two that is followed by rest.
            let from = rounds * 180;
            let idle = Activity::Idle { since: Timestamp((from + 180) * 1_000) };
            for activity in [busy(from), busy(from), busy(from + 60), idle, idle] {
                lives.look(&balance(1, &[("w", activity)]), &mut state);
            }
            rounds += 1;
        }
        assert_eq!(rounds, 5, "two of each round were seen to end");
        let lasting = state.lasting().expect("ten were seen");
        assert!(lasting.goes_on(90.0, 100.0) < 0.1 && lasting.goes_on(20.0, 20.0) > 0.9);
    }

    #[test]
    fn nothing_is_learned_from_whoever_left_or_from_another_owner_of_the_queue() {
        let (mut lives, mut state) = (Lives::default(), State::default());
        lives.look(&balance(5, &[("a", busy(0)), ("b", busy(0))]), &mut state);
        lives.look(&balance(5, &[("b", busy(0))]), &mut state);
        lives.look(&balance(0, &[("a", busy(50)), ("b", busy(50))]), &mut state);
        assert_eq!(state, State::default());
        state.lasted(Duration::from_secs(1));
        assert_ne!(state, State::default(), "it would have been seen");
    }
}
