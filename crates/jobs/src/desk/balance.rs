//! How queues stand for whoever decides how many workers they get, and which workers are to be handed nothing.
//!
//! A worker that is to rest is told so until its beats say that it does; from the first word on it is not counted when tasks
//! are handed out. What is on its way to the queue may still reach it before the word does: it runs that, or gives it back.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::id::{QueueName, WorkerId};
use mutirao_core::quantity::Span;
use mutirao_elastic::fleet::Activity;
use mutirao_elastic::measure::Tasks;
use mutirao_queues::QueueSight;

use super::sessions::Session;
use super::{Desk, Now};

impl Desk {
    /// The desk has just been taken over: whoever lives is heard within a lease.
    pub fn begin(&mut self, now: Now) {
        self.see(now);
        self.settled_at = now.mono.plus(self.lease);
    }

    /// Time passes.
    pub fn see(&mut self, now: Now) {
        self.seen = self.seen.max(now.mono);
    }

    /// These workers, and no others, are to be handed nothing.
    pub fn rest(&mut self, workers: BTreeSet<WorkerId>) {
        self.resting = workers;
        self.sessions.rest(&self.resting);
        let unheard = self.sessions.iter().filter(|(_, session)| session.resting && !session.draining);
        self.effects.rest.extend(unheard.map(|(_, session)| (session.queue.clone(), session.worker.clone())));
    }

    /// After a beat: whoever is to rest and does not is told again.
    pub(super) fn remind(&mut self, session: &mutirao_core::SessionId) {
        if self.resting.is_empty() {
            return;
        }
        let Some(worker) = self.sessions.worker_of(session).filter(|worker| self.resting.contains(*worker)) else {
            return;
        };
        let worker = worker.clone();
        if let Some(queue) = self.sessions.set_resting(session) {
            self.effects.rest.push((queue, worker));
        }
    }

    pub fn sight(&self, queue: &QueueName, now: Now) -> QueueSight {
        let settled = now.mono >= self.settled_at;
        let mut sessions: BTreeMap<WorkerId, Activity> = BTreeMap::new();
        let mut footprints = BTreeMap::new();
        let mut held = 0;
        for (_, session) in self.sessions.iter().filter(|(_, session)| session.queue == *queue) {
            held += session.held.len() as u64;
            footprints.extend(session.footprint.map(|footprint| (session.worker.clone(), footprint)));
            let activity = activity(session, now);
            // A worker that was started anew may have two lives for a while: the busier one counts.
            let known = sessions.entry(session.worker.clone()).or_insert(activity);
            if rank(activity) > rank(*known) {
                *known = activity;
            }
        }
        let tasks = self.lines.get(queue).map_or(Tasks { ended: Some(0), ..Tasks::default() }, |line| {
            let unheld = line.open.saturating_sub(held);
            let held_back = line.retrying() as u64 + line.too_big_count(&self.jobs);
            let startable = unheld.saturating_sub(held_back);
            let ready = line.allowed(startable, held);
            let first = line.first().and_then(|job| self.jobs.get(&job)).filter(|_| ready > 0);
            let oldest_wait = first.map_or_else(Span::default, |ledger| Span(now.mono.since(ledger.since)));
            Tasks { ready, running: held, unacknowledged: line.out as u64, oldest_wait, ended: Some(line.ended) }
        });
        QueueSight { queue: queue.clone(), tasks, sessions: settled.then_some(sessions), footprints }
    }
}

fn activity(session: &Session, now: Now) -> Activity {
    match session.held.len() as u32 {
        0 if session.draining => Activity::Drained,
        0 => Activity::Idle { since: session.idle_since.map_or(now.wall, |at| now.wall_at(at)) },
        tasks => Activity::Busy { tasks, since: session.held_longest().map(|at| now.wall_at(at)) },
    }
}

fn rank(activity: Activity) -> u32 {
    match activity {
        Activity::Drained => 0,
        Activity::Idle { .. } => 1,
        Activity::Busy { tasks, .. } => tasks.saturating_add(1),
    }
}

#[cfg(test)]
mod tests;
