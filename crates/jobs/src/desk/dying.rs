//! Attempts that are still with a worker, or on their way to one, though their task has ended: it was cancelled, or an older
//! attempt ended it after all. A process takes a while to stop. Until its worker has said that it did, or is gone, it
//! keeps its place, so that a queue never runs more at once than it should.

use std::sync::Arc;

use mutirao_core::envelope::Held;
use mutirao_core::id::{Attempt, QueueName, SessionId, TaskKey};

use super::line::Line;
use super::maps::{Map, Set};
use super::sessions::Sessions;
use super::{Desk, Posted};

struct Place {
    queue: QueueName,
    /// None while its parcel is on its way.
    with: Option<Arc<SessionId>>,
}

#[derive(Default)]
pub(super) struct Dying(Map<(TaskKey, Attempt), Place>);

impl Dying {
    /// To be told while its session is still known to hold it.
    pub fn begin(&mut self, task: TaskKey, attempt: Attempt, queue: &QueueName, line: &mut Line, sessions: &Sessions) {
        let place = Place { queue: queue.clone(), with: sessions.holder_id(task, attempt) };
        if self.0.insert((task, attempt), place).is_none() {
            line.dying += 1;
        }
    }

    /// Its parcel was taken.
    pub fn taken(&mut self, task: TaskKey, attempt: Attempt, session: &SessionId) {
        if let Some(place) = self.0.get_mut(&(task, attempt)) {
            place.with = Some(Arc::new(session.clone()));
        }
    }

    fn take_if(&mut self, over: impl Fn(&(TaskKey, Attempt), &Place) -> bool) -> Vec<QueueName> {
        let mut queues = Vec::new();
        self.0.retain(|key, place| {
            let over = over(key, place);
            if over {
                queues.push(place.queue.clone());
            }
            !over
        });
        queues
    }
}

impl Desk {
    /// A session said how an attempt ended.
    pub(super) fn stopped(&mut self, session: &SessionId, task: TaskKey, attempt: Attempt) {
        if self.dying.0.is_empty() {
            return;
        }
        let theirs = |place: &Place| place.with.as_deref() == Some(session);
        if self.dying.0.get(&(task, attempt)).is_some_and(theirs)
            && let Some(place) = self.dying.0.remove(&(task, attempt))
        {
            self.free(&place.queue);
        }
    }

    /// A session has said all that it holds.
    pub(super) fn still_with(&mut self, session: &SessionId, held: &[Held]) {
        if self.dying.0.is_empty() {
            return;
        }
        let held: Set<(TaskKey, Attempt)> = held.iter().map(|held| (held.task, held.attempt)).collect();
        let over = self.dying.take_if(|key, place| place.with.as_deref() == Some(session) && !held.contains(key));
        over.iter().for_each(|queue| self.free(queue));
    }

    /// What was with a session that is gone, or in a parcel that is, has stopped.
    pub(super) fn bury_the_dying(&mut self) {
        if self.dying.0.is_empty() {
            return;
        }
        let picks = self.posted.values().flat_map(Posted::picks);
        let posted: Set<(TaskKey, Attempt)> = picks.map(|pick| (pick.task, pick.attempt)).collect();
        let over = self.dying.take_if(|key, place| match &place.with {
            Some(session) => !self.sessions.knows(session),
            None => !posted.contains(key),
        });
        over.iter().for_each(|queue| self.free(queue));
    }

    fn free(&mut self, queue: &QueueName) {
        if let Some(line) = self.lines.get_mut(queue) {
            line.dying = line.dying.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mutirao_core::envelope::{Beat, Done, ParcelId, Reports};
    use mutirao_core::id::{JobKey, WorkerId};
    use mutirao_core::outcome::{Outcome, Verdict};
    use mutirao_core::quantity::{Bytes, Cpus};
    use mutirao_core::task::{Needs, Retry};
    use mutirao_core::{Mono, Timestamp};
    use mutirao_queues::{Limits, QueueSpec};

    use super::super::ledger::Ledger;
    use super::super::{Now, Pick};
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn says() -> Reports {
        Reports::new(SessionId("s".into()), WorkerId("w".into()))
    }

    fn beat(held: &[Pick]) -> Reports {
        let held = held.iter().map(|pick| Held { task: pick.task, attempt: pick.attempt, running: true }).collect();
        let beat = Beat {
            queue: QueueName::default(),
            host: "h".into(),
            pid: 7,
            capacity: Needs { cpus: Cpus { milli: 4_000 }, memory: Bytes(0) },
            draining: false,
            leaving: false,
            held,
        };
        Reports { beat: Some(beat), ..says() }
    }

    fn done(pick: Pick, verdict: Verdict, now: Now) -> Reports {
        let outcome = Outcome::new(verdict, now.wall);
        Reports { done: vec![Done { task: pick.task, attempt: pick.attempt, trace: String::new(), outcome }], ..says() }
    }

    /// A queue that lets one run, two jobs of a task each, and a worker; the first task is on its way.
    fn one_of_two_out() -> (Desk, ParcelId, Pick, Now) {
        let now = Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1_000)) };
        let mut desk = Desk::new(1, LEASE, 1);
        let spec = QueueSpec {
            limits: Limits { running: Some(1), ..Limits::default() },
            ..QueueSpec::new(QueueName::default())
        };
        desk.define(&Arc::new(spec), 1, now);
        for job in [1, 2] {
            desk.admit(JobKey(job), Ledger::new(QueueName::default(), 1, 1, Retry::default(), Needs::default()));
        }
        desk.report(beat(&[]), now);
        desk.written(&SessionId("s".into()));
        let mut handed = desk.hand_out(now);
        assert_eq!(handed.len(), 1);
        let parcel = handed.remove(0);
        (desk, parcel.id, parcel.picks[0], now)
    }

    fn goes_out(desk: &mut Desk, now: Now) -> bool {
        !desk.hand_out(now).is_empty()
    }

    #[test]
    fn what_was_cancelled_keeps_its_place_until_its_worker_says_that_it_stopped() {
        let (mut desk, parcel, pick, now) = one_of_two_out();
        desk.report(Reports { taken: vec![parcel], ..says() }, now);
        desk.cancel_jobs(&[pick.task.job]);
        desk.report(beat(&[pick]), now);
        desk.tick(now);
        assert!(!goes_out(&mut desk, now), "its process has not stopped");
        desk.report(done(pick, Verdict::Cancelled, now), now);
        assert!(goes_out(&mut desk, now));
    }

    #[test]
    fn what_was_cancelled_on_its_way_keeps_its_place_until_it_is_known_to_have_stopped() {
        let (mut desk, parcel, pick, now) = one_of_two_out();
        assert!(desk.cancel_task(pick.task, now));
        desk.tick(now);
        assert!(!goes_out(&mut desk, now), "a worker may begin it this moment");
        desk.report(Reports { taken: vec![parcel], ..says() }, now);
        assert!(!goes_out(&mut desk, now));
        desk.report(beat(&[]), now);
        assert!(goes_out(&mut desk, now), "its worker does not have it any more");
    }

    #[test]
    fn a_parcel_that_never_left_and_a_worker_that_is_gone_keep_no_place() {
        let (mut desk, parcel, pick, now) = one_of_two_out();
        desk.cancel_jobs(&[pick.task.job]);
        desk.unpost(parcel, now);
        desk.tick(now);
        assert!(goes_out(&mut desk, now));

        let (mut desk, parcel, pick, now) = one_of_two_out();
        desk.report(Reports { taken: vec![parcel], ..says() }, now);
        desk.cancel_jobs(&[pick.task.job]);
        desk.bury(&WorkerId("w".into()), 7, now);
        desk.tick(now);
        assert_eq!(desk.occupied(&QueueName::default()), 0);
    }

    #[test]
    fn an_attempt_whose_task_an_older_one_ended_keeps_its_place_too() {
        let (mut desk, parcel, first, now) = one_of_two_out();
        desk.unpost(parcel, now);
        let parcel = desk.hand_out(now).remove(0);
        let second = parcel.picks[0];
        assert_eq!(second.task, first.task);
        desk.report(Reports { taken: vec![parcel.id], ..says() }, now);
        let former = ParcelId { n: parcel.id.n - 1, ..parcel.id };
        desk.report(Reports { taken: vec![former], ..done(first, Verdict::Ok, now) }, now);
        assert!(!goes_out(&mut desk, now), "the second try works in vain, but it works");
        desk.report(done(second, Verdict::Cancelled, now), now);
        assert!(goes_out(&mut desk, now));
    }
}
