//! Parcels on their way: published, and no session has said yet that it has them. One that does not arrive was lost with
//! the broker, with the worker that had just received it, or was refused by every worker; its tasks go out again, more
//! and more slowly, and are given up when no worker ever takes them.

use std::collections::BTreeSet;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::envelope::ParcelId;
use mutirao_core::id::{JobKey, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::outcome::{Outcome, Verdict};

use super::{Desk, Now, Pick, SessionChange};

/// How long a parcel may still be on its way when a worker of its queue is known to have died.
pub const DOUBT_PATIENCE: Duration = Duration::from_secs(1);
/// A queue must be found empty twice, this far apart: a worker that has just taken a parcel has not said so yet.
const SECOND_LOOK: Duration = Duration::from_millis(500);
/// Times that a task goes out without any worker taking it, or without a word of how it ended.
pub const MISSES_MAX: u32 = 8;
/// How long a queue rests after parcels were lost twice in a row; doubles with each further time.
const REST_FIRST: Duration = Duration::from_secs(1);
const REST_LONGEST: Duration = Duration::from_secs(60);

pub(super) struct Posted {
    queue: QueueName,
    picks: Vec<Pick>,
    since: Mono,
    /// When a later parcel of the queue was taken. Queues are first in, first out: this one should have been before.
    passed: Option<Mono>,
    /// When a worker of the queue died, which may have had it.
    doubted: Option<Mono>,
    /// When it was first not found in its queue.
    missing: Option<Mono>,
}

impl Posted {
    pub fn new(queue: QueueName, picks: Vec<Pick>, since: Mono) -> Self {
        Self { queue, picks, since, passed: None, doubted: None, missing: None }
    }

    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    pub fn picks(&self) -> &[Pick] {
        &self.picks
    }

    fn is_overdue(&self, patience: Duration, now: Mono) -> bool {
        let doubted = |since: Mono| now.since(since) > DOUBT_PATIENCE;
        now.since(self.since) > patience || self.doubted.is_some_and(doubted)
    }
}

/// Who says that it has a parcel.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    pub session: &'a SessionId,
    pub worker: &'a WorkerId,
    /// Whose tasks it takes. None when it was never heard to say so: then it has none of ours.
    pub queue: Option<&'a QueueName>,
}

impl From<'_> {
    /// Whether it can be that it has a parcel.
    pub fn may_take(&self, posted: &Posted) -> bool {
        self.queue == Some(&posted.queue)
    }
}

impl Desk {
    /// A parcel could not be published, as far as is known: its tasks go back in line.
    pub fn unpost(&mut self, parcel: ParcelId, now: Now) {
        let Some(posted) = self.posted.remove(&parcel) else { return };
        for pick in &posted.picks {
            self.finish(pick.task, pick.attempt, Verdict::Returned, None, None, now);
        }
        self.lost.remember(parcel, posted);
    }

    /// A parcel was too long for the broker: its tasks go out again in smaller ones, and one that is alone never can.
    pub fn split(&mut self, parcel: ParcelId, now: Now) {
        let Some(posted) = self.posted.get(&parcel) else { return };
        let fewer = posted.picks.len() / 2;
        if fewer == 0 {
            return self.refuse(parcel, "it is too large to be sent to a worker", now);
        }
        let jobs: Vec<JobKey> = posted.picks.iter().map(|pick| pick.task.job).collect();
        for job in jobs {
            if let Some(ledger) = self.jobs.get_mut(&job) {
                ledger.parcel_max = ledger.parcel_max.min(fewer);
            }
        }
        self.unpost(parcel, now);
    }

    /// What these tasks need is gone from the store: no worker can ever run them.
    pub fn refuse(&mut self, parcel: ParcelId, reason: &str, now: Now) {
        let Some(posted) = self.posted.remove(&parcel) else { return };
        for pick in posted.picks {
            self.give_up(pick, reason, now);
        }
    }

    fn give_up(&mut self, pick: Pick, reason: &str, now: Now) {
        let outcome = Outcome::new(Verdict::Refused, now.wall).because(reason);
        self.finish(pick.task, pick.attempt, Verdict::Refused, None, Some(outcome), now);
    }

    /// Takes back the parcels that were passed by later ones and not taken for longer than `patience`, and says how
    /// many. They were lost on their way, or with the worker that had just received them.
    pub fn take_back_lost(&mut self, patience: Duration, now: Now) -> usize {
        let lost = |posted: &Posted| posted.passed.is_some_and(|passed| now.mono.since(passed) > patience);
        let lost: Vec<ParcelId> = self.posted.iter().filter(|(_, p)| lost(p)).map(|(id, _)| *id).collect();
        self.lose(lost, now)
    }

    /// Queues in which a parcel has not been taken for longer than `patience`, though none has passed it, or may have
    /// been with a worker that died.
    pub fn overdue(&self, patience: Duration, now: Now) -> BTreeSet<QueueName> {
        let late = |posted: &&Posted| posted.is_overdue(patience, now.mono);
        self.posted.values().filter(late).map(|posted| posted.queue.clone()).collect()
    }

    /// Nothing lies in this queue of the broker: what is overdue there, and was not there before, is lost.
    pub fn found_empty(&mut self, queue: &QueueName, patience: Duration, now: Now) -> usize {
        let mut lost = Vec::new();
        for (id, posted) in &mut self.posted {
            if posted.queue == *queue && posted.is_overdue(patience, now.mono) {
                let missing = *posted.missing.get_or_insert(now.mono);
                if now.mono.since(missing) >= SECOND_LOOK {
                    lost.push(*id);
                }
            }
        }
        self.lose(lost, now)
    }

    /// A worker of this queue is gone, maybe with a parcel that it had not spoken of.
    pub(super) fn doubt(&mut self, queue: &QueueName, now: Now) {
        for posted in self.posted.values_mut().filter(|posted| posted.queue == *queue) {
            posted.doubted.get_or_insert(now.mono);
        }
    }

    /// Whether a parcel may have gone with a worker.
    pub fn is_in_doubt(&self) -> bool {
        self.posted.values().any(|posted| posted.doubted.is_some())
    }

    fn lose(&mut self, mut parcels: Vec<ParcelId>, now: Now) -> usize {
        // In the order in which they were sent, so that their tasks go out again in that order.
        parcels.sort_unstable();
        let mut queues = BTreeSet::new();
        for parcel in &parcels {
            let Some(posted) = self.posted.remove(parcel) else { continue };
            for pick in &posted.picks {
                self.miss(*pick, &posted.queue, now);
            }
            queues.insert(posted.queue.clone());
            self.lost.remember(*parcel, posted);
        }
        for queue in queues {
            let Some(line) = self.lines.get_mut(&queue) else { continue };
            line.lost_in_a_row = line.lost_in_a_row.saturating_add(1);
            if let Some(doublings) = line.lost_in_a_row.checked_sub(2) {
                let rest = REST_FIRST.saturating_mul(1 << doublings.min(16)).min(REST_LONGEST);
                line.rests_until = now.mono.plus(rest);
            }
        }
        parcels.len()
    }

    /// It went out and nothing came of it: it goes out again, so many times.
    pub(super) fn miss(&mut self, pick: Pick, queue: &QueueName, now: Now) {
        let TaskKey { job, index } = pick.task;
        let misses = self.jobs.get_mut(&job).map_or(0, |ledger| ledger.missed(index));
        if misses < MISSES_MAX {
            return self.finish(pick.task, pick.attempt, Verdict::Returned, None, None, now);
        }
        let reason = format!(
            "it was handed out {misses} times and nothing came of it; the dead letters of queue {queue} may say why"
        );
        self.give_up(pick, &reason, now);
    }

    /// A session has a parcel. It says so again with whatever it says of the tasks in it.
    pub(super) fn taken(&mut self, from: From<'_>, parcel: ParcelId, now: Now) {
        let Some(posted) = self.posted.get(&parcel) else { return self.taken_after_all(from, parcel) };
        if !from.may_take(posted) {
            return;
        }
        let From { session, worker, .. } = from;
        let Some(posted) = self.posted.remove(&parcel) else { return };
        for (id, other) in &mut self.posted {
            if other.queue == posted.queue && *id < parcel {
                other.passed.get_or_insert(now.mono);
            }
        }
        if let Some(line) = self.lines.get_mut(&posted.queue) {
            line.lost_in_a_row = 0;
            line.rests_until = Mono::default();
        }
        if !self.sessions.knows(session) {
            self.sessions.came(session, worker, &posted.queue, now.mono.plus(self.lease));
            self.effects.sessions.push(SessionChange::Came(session.clone(), worker.clone(), posted.queue.clone()));
        }
        for pick in posted.picks {
            let current = self.jobs.get(&pick.task.job).and_then(|l| l.attempt_of(pick.task.index));
            if current == Some(pick.attempt) {
                self.sessions.hold(session, pick.task, pick.attempt, now.mono);
            } else {
                // Cancelled, or ended by an older attempt, while the parcel was on its way.
                self.dying.taken(pick.task, pick.attempt, session);
                self.effects.stop.push((posted.queue.clone(), pick));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::Timestamp;
    use mutirao_core::envelope::{Beat, Reports};
    use mutirao_core::life::Final;
    use mutirao_core::quantity::{Bytes, Cpus};
    use mutirao_core::task::{Needs, Retry};

    use super::super::ledger::Ledger;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A desk with one job of one task, a worker with the process id 7, and the moment.
    fn desk() -> (Desk, Now) {
        let now = Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1_000)) };
        let mut desk = Desk::new(1, Duration::from_secs(86_400), 1);
        desk.admit(JobKey(1), Ledger::new(QueueName::default(), 1, 1, Retry::default(), Needs::default()));
        let session = SessionId("s".into());
        let mut reports = Reports::new(session.clone(), WorkerId("w".into()));
        reports.beat = Some(Beat {
            queue: QueueName::default(),
            host: "h".into(),
            pid: 7,
            capacity: Needs { cpus: Cpus { milli: 4_000 }, memory: Bytes(0) },
            draining: false,
            leaving: false,
            held: Vec::new(),
        });
        desk.report(reports, now);
        desk.written(&session);
        (desk, now)
    }

    fn later(now: Now, by: Duration) -> Now {
        Now { wall: now.wall.plus(by), mono: now.mono.plus(by) }
    }

    #[test]
    fn a_parcel_that_died_with_its_worker_goes_out_again_soon() {
        let (mut desk, now) = desk();
        let queue = QueueName::default();
        assert_eq!(desk.hand_out(now).len(), 1);
        let now = later(now, Duration::from_secs(2));
        assert!(desk.overdue(PATIENCE, now).is_empty(), "it may lie there");
        desk.bury(&WorkerId("w".into()), 7, now);
        assert!(desk.is_in_doubt());
        let now = later(now, DOUBT_PATIENCE + SECOND_LOOK);
        assert_eq!(desk.overdue(PATIENCE, now), BTreeSet::from([queue.clone()]));
        assert_eq!(desk.found_empty(&queue, PATIENCE, now), 0, "a worker may have taken it this moment");
        let now = later(now, SECOND_LOOK);
        assert_eq!(desk.found_empty(&queue, PATIENCE, now), 1);
        assert!(!desk.is_in_doubt() && desk.standing(TaskKey { job: JobKey(1), index: 1 }).is_some());
    }

    #[test]
    fn tasks_that_no_worker_takes_go_out_more_and_more_slowly_and_are_given_up() {
        let (mut desk, mut now) = desk();
        let (queue, began) = (QueueName::default(), now);
        let (mut sent, mut ended) = (0, Vec::new());
        while ended.is_empty() && sent <= MISSES_MAX {
            if !desk.hand_out(now).is_empty() {
                sent += 1;
                now = later(now, PATIENCE + SECOND_LOOK);
                desk.found_empty(&queue, PATIENCE, now);
            }
            now = later(now, SECOND_LOOK);
            desk.found_empty(&queue, PATIENCE, now);
            ended.extend(desk.effects().ended);
        }
        assert_eq!((sent, ended.len(), ended[0].how), (MISSES_MAX, 1, Final::Dead));
        let reason = ended[0].outcome.as_ref().and_then(|outcome| outcome.reason.clone()).unwrap();
        assert!(reason.contains("8 times") && reason.contains("dead letters of queue default"), "{reason}");
        let waited = now.mono.since(began.mono);
        assert!(waited > PATIENCE * MISSES_MAX + REST_LONGEST, "it rested in between: {waited:?}");
    }
}
