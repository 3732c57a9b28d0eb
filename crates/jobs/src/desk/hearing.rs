//! What workers say, and what their silence means: reports, heartbeats, leases that run out.

use std::collections::HashSet;
use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::envelope::{Beat, Done, Reports, Started};
use mutirao_core::id::{Attempt, SessionId, TaskKey, WorkerId};
use mutirao_core::life::{Event, Final};
use mutirao_core::outcome::{Outcome, Verdict};

use super::sessions::Session;
use super::{Desk, Ended, Now, SessionChange};

/// Whether a beat tells all that its session holds.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Whole,
    /// What it does not list may have been taken since.
    Partial,
}

impl Desk {
    /// Takes in what a worker says.
    pub fn report(&mut self, reports: Reports, now: Now) {
        // A session belongs to the worker that opened it; whoever else uses its name is not heard.
        if self.sessions.worker_of(&reports.session).is_some_and(|worker| *worker != reports.worker) {
            return;
        }
        for parcel in reports.taken {
            self.taken(&reports.session, &reports.worker, parcel, now);
        }
        for Started { task, attempt, at } in reports.started {
            self.started(&reports.session, task, attempt, at, now);
        }
        for Done { task, attempt, outcome, .. } in reports.done {
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
        if let Some(beat) = reports.beat {
            let scope = if reports.detour { Scope::Partial } else { Scope::Whole };
            self.beat(reports.session, reports.worker, beat, scope, now);
        }
    }

    fn is_open(&self, task: TaskKey) -> bool {
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
        let recalled = |known: &Session| known.recalled && Some(&known.queue) == queue;
        attempt.generation < self.generation && self.sessions.get(session).is_some_and(recalled)
    }

    fn beat(&mut self, session: SessionId, worker: WorkerId, beat: Beat, scope: Scope, now: Now) {
        if !self.sessions.knows(&session) {
            if beat.leaving {
                return;
            }
            self.sessions.came(&session, &worker, &beat.queue, now.mono.plus(self.lease));
            self.effects.sessions.push(SessionChange::Came(session.clone(), worker, beat.queue.clone()));
        }
        for held in &beat.held {
            self.adopt(&session, held.task, held.attempt, now);
        }
        let listed: HashSet<TaskKey> = beat.held.iter().map(|h| h.task).collect();
        for (task, attempt) in self.sessions.beaten(&session, &beat, now.mono.plus(self.lease)) {
            if scope == Scope::Whole && !listed.contains(&task) {
                self.finish(task, attempt, Verdict::Lost, None, None, now);
            }
        }
        if beat.leaving {
            self.gone(&session, now);
        }
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
            self.effects.stop.push((queue, task));
            return;
        };
        match ledger.attempt_of(task.index) {
            Some(_) => {}
            None if ledger.has_ended(task.index) => self.effects.stop.push((queue, task)),
            None if !may => {}
            None => {
                ledger.adopt(task.index);
                if self.happen(task, Event::Started(attempt), None, None, now) {
                    self.sessions.hold(session, task, attempt);
                    if let Some(line) = self.lines.get_mut(&queue) {
                        line.out += 1;
                        line.forget_wait(task);
                    }
                }
            }
        }
    }

    fn gone(&mut self, session: &SessionId, now: Now) {
        if let Some(queue) = self.sessions.get(session).map(|gone| gone.queue.clone()) {
            self.doubt(&queue, now);
        }
        for (task, attempt) in self.sessions.remove(session) {
            self.finish(task, attempt, Verdict::Lost, None, None, now);
        }
        self.effects.sessions.push(SessionChange::Went(session.clone()));
    }

    /// A worker process is known to be dead, and its children with it: no need to wait for its lease.
    pub fn bury(&mut self, host: &str, pid: u32, now: Now) {
        for session in self.sessions.of_process(host, pid) {
            self.gone(&session, now);
        }
    }

    /// Time during which nobody could be heard, because we were frozen or could not write, counts against no lease.
    pub fn forgive(&mut self, by: Duration) {
        self.sessions.forgive(by);
    }

    /// A session is in the store: a next owner will wait for it, so it may be given work.
    pub fn written(&mut self, session: &SessionId) {
        self.sessions.written(session);
    }

    /// Lets the leases run out.
    pub fn tick(&mut self, now: Now) {
        for session in self.sessions.expired(now.mono) {
            self.gone(&session, now);
        }
    }
}
