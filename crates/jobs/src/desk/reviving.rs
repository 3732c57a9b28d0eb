//! Tasks that had ended and are tried anew, because somebody said so and the store has written it.

use mutirao_core::id::JobKey;

use super::Desk;
use super::ledger::Trace;
use crate::store::OpenJob;
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

    /// Of these jobs, those of which more tasks were tried anew than is known here: a word of it got lost.
    pub fn behind<'a>(&'a self, revived: &'a [(JobKey, u64)]) -> impl Iterator<Item = JobKey> + 'a {
        let is_behind = |(job, tasks): &&(JobKey, u64)| self.jobs.get(job).is_some_and(|known| known.revived < *tasks);
        revived.iter().filter(is_behind).map(|(job, _)| *job)
    }

    /// Tries those tasks of a job anew of which nobody said so. They are open in the store and have ended here, and so are
    /// tasks whose end is not written yet: unless there are just as many as are missed, a later look must tell.
    pub fn catch_up(&mut self, job: &OpenJob) {
        let Some(ledger) = self.jobs.get(&job.key) else { return };
        let missed = job.revived.saturating_sub(ledger.revived);
        let open_there = |trace: &Trace| match *trace {
            Trace::Again { index, tries, .. } if ledger.has_ended(index) => Some(Tried { index, tries }),
            _ => None,
        };
        if missed == 0 {
            return;
        }
        let tasks: Vec<Tried> = job.traces.iter().filter_map(open_there).collect();
        if tasks.len() as u64 == missed {
            self.revive(job.key, &tasks);
        }
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

    #[test]
    fn a_retry_that_nobody_told_of_is_taken_from_the_store_and_an_end_that_is_not_written_yet_is_not() {
        let now = Now { wall: Timestamp(1), mono: Mono(Duration::from_secs(1)) };
        let job = JobKey(1);
        let mut desk = Desk::new(1, Duration::from_secs(10), 1);
        desk.admit(job, Ledger::new(QueueName::default(), 1, 3, Retry::default(), Needs::default()));
        for index in [1, 2] {
            let (task, first) = (TaskKey { job, index }, Attempt { generation: 1, n: 1 });
            desk.happen(task, Event::Started(first), None, None, now);
            desk.finish(task, first, Verdict::Failed, None, None, now);
        }
        let again = |index| Trace::Again { index, tries: 1, failures: 0, losses: 0, not_before: Timestamp(0) };
        let read = |traces, revived| OpenJob {
            key: job,
            queue: QueueName::default(),
            first: 1,
            total: 3,
            retry: Retry::default(),
            needs: Needs::default(),
            varied: false,
            rank: Default::default(),
            traces,
            revived,
        };
        desk.catch_up(&read(vec![again(1), Trace::Ended(2)], 0));
        assert_eq!(desk.open_tasks(), 1, "its end is not written yet");
        assert_eq!(desk.behind(&[(job, 1), (JobKey(7), 1)]).collect::<Vec<_>>(), [job]);
        desk.catch_up(&read(vec![again(1), again(2)], 1));
        assert_eq!(desk.open_tasks(), 1, "one of them, and who knows which");
        desk.catch_up(&read(vec![again(1), Trace::Ended(2)], 1));
        assert_eq!((desk.open_tasks(), desk.behind(&[(job, 1)]).count()), (2, 0));
        assert!(desk.standing(TaskKey { job, index: 1 }).is_some());
    }
}
