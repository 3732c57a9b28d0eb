//! Tasks that had ended and are tried anew, because somebody said so and the store has written it.

use mutirao_core::id::JobKey;

use super::Desk;
use crate::store::dead::Tried;

impl Desk {
    /// False when the job is not here: whoever asks must take it in again.
    pub fn revive(&mut self, job: JobKey, tasks: &[Tried]) -> bool {
        let Some(ledger) = self.jobs.get_mut(&job) else { return false };
        let revived = tasks.iter().filter(|task| ledger.revive(task.index, task.tries)).count() as u64;
        if let Some(line) = self.lines.get_mut(&ledger.queue) {
            line.open += revived;
            self.open += revived;
            line.enter(job, &ledger.rank);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mutirao_core::id::{Attempt, QueueName, TaskKey};
    use mutirao_core::life::{Event, Final};
    use mutirao_core::outcome::Verdict;
    use mutirao_core::task::{Needs, Retry};
    use mutirao_core::{Mono, Timestamp};

    use super::*;
    use crate::desk::Now;
    use crate::desk::ledger::Ledger;

    #[test]
    fn a_task_tried_anew_is_open_again_and_what_earlier_attempts_say_in_vain_is_old() {
        let now = Now { wall: Timestamp(1), mono: Mono(Duration::from_secs(1)) };
        let (job, first) = (JobKey(1), Attempt { generation: 1, n: 1 });
        let task = TaskKey { job, index: 1 };
        let mut desk = Desk::new(1, Duration::from_secs(10), 1);
        desk.admit(job, Ledger::new(QueueName::default(), 1, 2, Retry::default(), Needs::default()));
        desk.happen(task, Event::Started(first), None, None, now);
        desk.finish(task, first, Verdict::Failed, None, None, now);
        assert_eq!((desk.open_tasks(), desk.effects().ended[0].how), (1, Final::Failed));
        let tried = Tried { index: 1, tries: 1 };
        assert!(desk.revive(job, &[tried, tried]), "once, however often it is said");
        assert_eq!((desk.open_tasks(), desk.under_way(job).unwrap().open), (2, 2));
        // The attempt of before says again that it failed.
        desk.finish(task, first, Verdict::Failed, None, None, now);
        assert_eq!((desk.open_tasks(), desk.effects().ended.len()), (2, 0));
        let second = Attempt { generation: 1, n: 2 };
        desk.happen(task, Event::Started(second), None, None, now);
        desk.finish(task, second, Verdict::Ok, None, None, now);
        assert_eq!((desk.open_tasks(), desk.effects().ended[0].how), (1, Final::Ok));
        assert!(!desk.revive(JobKey(2), &[tried]));
    }
}
