//! What workers say, and what their silence means: reports, heartbeats, leases that run out.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::envelope::{Beat, Done, Reports, Started};
use mutirao_core::id::{Attempt, SessionId, TaskKey, WorkerId};
use mutirao_core::life::{Event, Final};
use mutirao_core::outcome::{Outcome, Verdict};

use super::maps::Set;
use super::parcels::From;
use super::sequence::Order;
use super::{Desk, Ended, Now, Pick, SessionChange};

/// How a session ended.
#[derive(Clone, Copy, PartialEq)]
enum Parting {
    /// It said that it holds nothing any more.
    Goodbye,
    /// It died, or was silent for as long as its lease: what it held was lost with it.
    Death,
}

impl Desk {
    /// Takes in what a worker says.
    pub fn report(&mut self, reports: Reports, now: Now) {
        // A session belongs to the worker that opened it; whoever else uses its name is not heard.
        if self.sessions.speaker_of(&reports.session).is_some_and(|worker| *worker != reports.worker) {
            return;
        }
        if !reports.taken.is_empty() {
            let said = reports.beat.as_ref().map(|beat| &beat.queue);
            let queue = self.sessions.queue_of(&reports.session).or(said).cloned();
            let from = From { session: &reports.session, worker: &reports.worker, queue: queue.as_ref() };
            reports.taken.iter().for_each(|parcel| self.taken(from, *parcel, now));
        }
        for Started { task, attempt, at } in reports.started {
            self.started(&reports.session, task, attempt, at, now);
        }
        for Done { task, attempt, outcome, .. } in reports.done {
            self.stopped(&reports.session, task, attempt);
            if !self.may_speak_of(&reports.session, task, attempt) {
                continue;
            }
            if outcome.verdict == Verdict::Cancelled && !self.is_open(task) {
                self.late(task, attempt, &reports.worker, outcome, now);
                continue;
            }
            let verdict = outcome.verdict;
            self.finish(task, attempt, verdict, Some(&reports.worker), Some(outcome), now);
        }
        if let Some(beat) = &reports.beat {
            self.greet(&reports.session, &reports.worker, beat, now);
        }
        let order = self.sessions.hear(&reports.session, reports.number, now.mono, now.mono.plus(self.lease));
        // A later beat has said all of it better.
        if let Some(beat) = reports.beat.filter(|_| order != Order::Late) {
            let order = if reports.detour { Order::Gap } else { order };
            self.beat(&reports.session, &beat, order, now);
            if let Some(footprint) = reports.footprint {
                self.sessions.measured(&reports.session, *footprint);
            }
        }
        if self.sessions.is_done(&reports.session) {
            self.gone(&reports.session, Parting::Goodbye, now);
        }
    }

    pub(super) fn is_open(&self, task: TaskKey) -> bool {
        self.jobs.get(&task.job).is_some_and(|ledger| !ledger.has_ended(task.index))
    }

    fn late(&mut self, task: TaskKey, attempt: Attempt, worker: &WorkerId, outcome: Outcome, now: Now) {
        self.effects.late.push(Ended {
            task,
            how: Final::Cancelled,
            attempt: Some(attempt),
            failures: 0,
            losses: 0,
            worker: Some(worker.clone()),
            outcome: Some(outcome),
            at: now.wall,
        });
    }

    fn started(&mut self, session: &SessionId, task: TaskKey, attempt: Attempt, at: Timestamp, now: Now) {
        // A task runs only under a session whose lease can run out: one that nobody answers for would run for ever.
        self.adopt(session, task, attempt, now);
        if self.sessions.holder(task, attempt) != Some(session) {
            return;
        }
        self.happen(task, Event::Started(attempt), None, None, now);
        if let Some(ledger) = self.jobs.get_mut(&task.job) {
            ledger.began(task.index, at);
        }
    }

    /// Whether a session's word about an attempt counts: it holds it, or held it until its lease ran out, or was alive
    /// under an earlier owner, which handed it out. Whoever else speaks of it is mistaken or lying.
    fn may_speak_of(&self, session: &SessionId, task: TaskKey, attempt: Attempt) -> bool {
        match self.sessions.holder(task, attempt) {
            Some(holder) => holder == session,
            None => self.sessions.held_once(session, task, attempt) || self.may_inherit(session, task, attempt),
        }
    }

    fn may_inherit(&self, session: &SessionId, task: TaskKey, attempt: Attempt) -> bool {
        let queue = self.jobs.get(&task.job).map(|ledger| &ledger.queue);
        attempt.generation < self.generation && queue.is_some_and(|queue| self.sessions.served(session, queue))
    }

    /// Whoever beats for the first time is there from now on.
    fn greet(&mut self, session: &SessionId, worker: &WorkerId, beat: &Beat, now: Now) {
        if !self.sessions.knows(session) && !beat.leaving {
            self.sessions.came(session, worker, &beat.queue, now.mono.plus(self.lease));
            self.effects.sessions.push(SessionChange::Came(session.clone(), worker.clone(), beat.queue.clone()));
        }
    }

    fn beat(&mut self, session: &SessionId, beat: &Beat, order: Order, now: Now) {
        for held in &beat.held {
            self.adopt(session, held.task, held.attempt, now);
        }
        let believed = self.sessions.beaten(session, beat, now.mono.plus(self.lease), now.mono);
        self.remind(session);
        // After a gap, what the beat does not list may have been taken or ended in what was not heard yet.
        if order == Order::Whole {
            let listed: Set<TaskKey> = beat.held.iter().map(|h| h.task).collect();
            for (task, attempt) in believed.into_iter().filter(|(task, _)| !listed.contains(task)) {
                self.stray(Pick { task, attempt }, now);
            }
            self.still_with(session, &beat.held);
        }
    }

    /// A session that lives does not hold it any more, and how it ended was not heard: that message was lost. It goes out
    /// again, no worker is to blame, and should the message come after all, an `ok` in it counts.
    fn stray(&mut self, pick: Pick, now: Now) {
        self.sessions.part(pick.task, pick.attempt);
        let Some(queue) = self.queue_of(pick.task.job).cloned() else { return };
        self.miss(pick, &queue, now);
    }

    /// A session holds an attempt that we did not know was out: our predecessor handed it out.
    fn adopt(&mut self, session: &SessionId, task: TaskKey, attempt: Attempt, now: Now) {
        let Some(known) = self.sessions.get(session) else { return };
        if self.sessions.holder(task, attempt).is_some() {
            return;
        }
        let queue = known.queue.clone();
        let may = self.may_inherit(session, task, attempt);
        let Some(ledger) = self.jobs.get_mut(&task.job).filter(|ledger| ledger.queue == queue) else {
            self.effects.stop.push((queue, Pick { task, attempt }));
            return;
        };
        match ledger.attempt_of(task.index) {
            Some(_) => {}
            None if ledger.has_ended(task.index) => self.effects.stop.push((queue, Pick { task, attempt })),
            None if !may => {}
            None => {
                ledger.adopt(task.index);
                if self.happen(task, Event::Started(attempt), None, None, now) {
                    self.sessions.hold(session, task, attempt, now.mono);
                    if let (Some(line), Some(ledger)) = (self.lines.get_mut(&queue), self.jobs.get(&task.job)) {
                        line.adopted(task, &ledger.rank, ledger.needs.cpus);
                    }
                }
            }
        }
    }

    fn gone(&mut self, session: &SessionId, parting: Parting, now: Now) {
        if let Some(queue) = self.sessions.get(session).map(|gone| gone.queue.clone()) {
            self.doubt(&queue, now);
        }
        for (task, attempt) in self.sessions.remove(session) {
            match parting {
                Parting::Goodbye => self.stray(Pick { task, attempt }, now),
                Parting::Death => self.finish(task, attempt, Verdict::Lost, None, None, now),
            }
        }
        self.effects.sessions.push(SessionChange::Went(session.clone()));
    }

    /// A worker process is known to be dead, and its children with it: no need to wait for its lease.
    pub fn bury(&mut self, worker: &WorkerId, pid: u32, now: Now) {
        for session in self.sessions.of_process(worker, pid) {
            self.gone(&session, Parting::Death, now);
        }
    }

    /// Time during which nobody could be heard, because we were frozen or could not write, counts against no lease.
    pub fn forgive(&mut self, by: Duration) {
        self.sessions.forgive(by);
        self.settled_at = self.settled_at.plus(by);
    }

    /// A session is in the store: a next owner will wait for it, so it may be given work.
    pub fn written(&mut self, session: &SessionId) {
        self.sessions.written(session);
    }

    /// Lets the leases run out.
    pub fn tick(&mut self, now: Now) {
        for session in self.sessions.expired(now.mono) {
            let left = self.sessions.get(&session).is_some_and(|known| known.left);
            self.gone(&session, if left { Parting::Goodbye } else { Parting::Death }, now);
        }
        self.bury_the_dying();
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::envelope::{Held, ParcelId};
    use mutirao_core::id::{JobKey, QueueName};
    use mutirao_core::quantity::{Bytes, Cpus};
    use mutirao_core::task::{Needs, Retry};
    use mutirao_core::{Mono, Timestamp};

    use super::super::ledger::Ledger;
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const TASK: TaskKey = TaskKey { job: JobKey(1), index: 1 };

    /// A worker as it speaks, numbering what it says, or not.
    struct Voice {
        said: u64,
        counts: bool,
    }

    impl Voice {
        fn message(&mut self) -> Reports {
            self.said += 1;
            let number = Some(self.said).filter(|_| self.counts);
            Reports { number, ..Reports::new(SessionId("s".into()), WorkerId("w".into())) }
        }

        fn beat(&mut self) -> Reports {
            let beat = Beat {
                queue: QueueName::default(),
                host: "h".into(),
                pid: 7,
                capacity: Needs { cpus: Cpus { milli: 1_000 }, memory: Bytes(0) },
                draining: false,
                leaving: false,
                held: Vec::new(),
            };
            Reports { beat: Some(beat), ..self.message() }
        }

        fn goodbye(&mut self) -> Reports {
            let mut reports = self.beat();
            reports.beat.iter_mut().for_each(|beat| beat.leaving = true);
            reports
        }

        fn ok(&mut self, attempt: Attempt, now: Now) -> Reports {
            let outcome = Outcome::new(Verdict::Ok, now.wall);
            let done = vec![Done { task: TASK, attempt, trace: String::new(), outcome }];
            Reports { done, ..self.message() }
        }

        fn taken(&mut self, parcel: ParcelId) -> Reports {
            Reports { taken: vec![parcel], ..self.message() }
        }
    }

    fn later(now: Now, by: Duration) -> Now {
        Now { wall: now.wall.plus(by), mono: now.mono.plus(by) }
    }

    /// One task, which dies with the first worker that does, is with a worker that has said three things.
    fn one_task_held(counts: bool) -> (Desk, Voice, Attempt, Now) {
        let now = Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1_000)) };
        let mut desk = Desk::new(1, LEASE, 1);
        let retry = Retry { crashes: 1, ..Retry::default() };
        desk.admit(TASK.job, Ledger::new(QueueName::default(), 1, 1, retry, Needs::default()));
        let mut voice = Voice { said: 0, counts };
        desk.report(voice.beat(), now);
        desk.written(&SessionId("s".into()));
        let parcel = desk.hand_out(now).remove(0);
        desk.report(voice.taken(parcel.id), now);
        (desk, voice, parcel.picks[0].attempt, now)
    }

    fn ends(desk: &mut Desk) -> Vec<Final> {
        desk.effects().ended.iter().map(|ended| ended.how).collect()
    }

    #[test]
    fn a_beat_that_overtakes_a_report_of_ok_takes_nothing_from_it() {
        let (mut desk, mut voice, attempt, now) = one_task_held(true);
        let (ok, beat) = (voice.ok(attempt, now), voice.beat());
        desk.report(beat, now);
        assert_eq!((ends(&mut desk), desk.hand_out(now).len()), (vec![], 0), "it may still come");
        desk.report(ok, now);
        assert_eq!(ends(&mut desk), [Final::Ok]);
    }

    #[test]
    fn a_report_that_is_lost_costs_a_second_run_and_no_crash() {
        let (mut desk, mut voice, attempt, mut now) = one_task_held(true);
        let lost = voice.ok(attempt, now);
        for _ in 0..6 {
            desk.report(voice.beat(), now);
            now = later(now, LEASE / 5);
            desk.tick(now);
        }
        assert_eq!(ends(&mut desk), []);
        assert_eq!(desk.standing(TASK).unwrap().life.losses, 0, "nobody died");
        let again = desk.hand_out(now).remove(0).picks[0];
        assert_ne!((again.task, again.attempt), (TASK, attempt));
        desk.report(lost, now);
        assert_eq!(ends(&mut desk), [Final::Ok], "it came after all");
    }

    #[test]
    fn a_goodbye_that_overtakes_the_last_report_takes_nothing_from_it() {
        let (mut desk, mut voice, attempt, now) = one_task_held(true);
        let (ok, goodbye) = (voice.ok(attempt, now), voice.goodbye());
        desk.report(goodbye, now);
        assert_eq!((ends(&mut desk), desk.sessions().count()), (vec![], 1), "what it said before is waited for");
        desk.report(ok, now);
        assert_eq!((ends(&mut desk), desk.sessions().count()), (vec![Final::Ok], 0));
    }

    #[test]
    fn a_goodbye_whose_last_report_is_lost_costs_a_second_run_and_no_crash() {
        let (mut desk, mut voice, attempt, now) = one_task_held(true);
        let lost = voice.ok(attempt, now);
        desk.report(voice.goodbye(), now);
        let now = later(now, LEASE);
        desk.tick(now);
        assert_eq!((ends(&mut desk), desk.sessions().count()), (vec![], 0));
        assert_eq!(desk.standing(TASK).unwrap().life.losses, 0);
        desk.report(lost, now);
        assert_eq!(ends(&mut desk), [Final::Ok]);
    }

    #[test]
    fn a_worker_that_does_not_count_loses_no_ok_to_a_beat_that_overtakes_it() {
        let (mut desk, mut voice, attempt, now) = one_task_held(false);
        let (ok, beat) = (voice.ok(attempt, now), voice.beat());
        desk.report(beat, now);
        assert_eq!(ends(&mut desk), []);
        desk.report(ok, now);
        assert_eq!(ends(&mut desk), [Final::Ok]);
    }

    #[test]
    fn an_ok_of_a_former_owners_session_counts_though_it_was_silent_for_a_lease() {
        let now = Now { wall: Timestamp(1_000_000), mono: Mono(Duration::from_secs(1_000)) };
        let mut desk = Desk::new(2, LEASE, 1);
        desk.admit(TASK.job, Ledger::new(QueueName::default(), 1, 1, Retry::default(), Needs::default()));
        desk.expect(SessionId("s".into()), WorkerId("w".into()), QueueName::default(), now);
        let now = later(now, LEASE);
        desk.tick(now);
        let (mut voice, former) = (Voice { said: 0, counts: true }, Attempt { generation: 1, n: 1 });
        let mut stranger = voice.ok(former, now);
        stranger.session = SessionId("stranger".into());
        desk.report(stranger, now);
        assert_eq!(ends(&mut desk), [], "it was not there");
        desk.report(voice.beat(), now);
        desk.report(voice.ok(former, now), now);
        assert_eq!(ends(&mut desk), [Final::Ok]);
    }

    #[test]
    fn a_worker_that_was_given_up_is_told_to_stop_its_attempt_and_no_later_one() {
        let (mut desk, mut voice, attempt, now) = one_task_held(true);
        let now = later(now, LEASE);
        desk.tick(now);
        assert_eq!(ends(&mut desk), [Final::Dead]);
        let mut beat = voice.beat();
        beat.beat.iter_mut().for_each(|beat| beat.held = vec![Held { task: TASK, attempt, running: true }]);
        desk.report(beat, now);
        assert_eq!(desk.effects().stop, [(QueueName::default(), Pick { task: TASK, attempt })]);
    }

    #[test]
    fn a_worker_that_dies_takes_what_it_holds_along() {
        let (mut desk, _, _, now) = one_task_held(true);
        desk.bury(&WorkerId("another".into()), 7, now);
        desk.bury(&WorkerId("w".into()), 8, now);
        assert_eq!(ends(&mut desk), [], "another worker, and another life of this one");
        desk.bury(&WorkerId("w".into()), 7, now);
        assert_eq!(ends(&mut desk), [Final::Dead]);
    }
}
