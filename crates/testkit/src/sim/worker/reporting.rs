//! What a simulated worker says: one message at a time, each confirmed before the next leaves; the heartbeat travels in the
//! same order. Then its last words, if anybody takes them in time.

use std::rc::Rc;

use mutirao_core::envelope::{Beat, Reports};
use mutirao_jobs::desk::Now;
use mutirao_shards::ShardId;

use super::super::ground::Ground;
use super::super::weather::shard_of_queue;
use super::super::wire::{Body, Name, ToBroker};
use super::{Stage, Worker};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Beat,
    Outcomes,
}

/// A message that must be confirmed before the next leaves.
pub struct Outgoing {
    to: Name,
    reports: Rc<Reports>,
    kind: Kind,
    /// Its number on the connection it was last sent over.
    pub(super) sent: Option<u64>,
}

impl Worker {
    pub(super) fn confirmed(&mut self, number: u64) {
        let Some(outgoing) = self.outgoing.take_if(|outgoing| outgoing.sent == Some(number)) else { return };
        if outgoing.kind == Kind::Outcomes {
            self.desk.confirm_reports();
        }
        if self.stage == Stage::SayingGoodbye {
            self.stage = Stage::Gone;
        }
    }

    /// One message at a time, each confirmed before the next leaves; the heartbeat travels in the same order.
    pub(super) fn report(&mut self, now: Now, ground: &mut Ground) {
        if self.outgoing.is_none() {
            self.outgoing = self.next_message(now, ground);
        }
        let Some(outgoing) = &mut self.outgoing else { return };
        if outgoing.sent.is_none() && self.link.is_up() {
            let confirm = self.link.number();
            outgoing.sent = Some(confirm);
            let bodies = vec![Body::Reports(outgoing.reports.clone())];
            self.link.send(ToBroker::Publish { to: outgoing.to.clone(), bodies, confirm }, ground);
        }
    }

    /// Whoever goes does not wait for ever for its last words to be taken: an idle worker leaves without a goodbye, one that
    /// must go now with things unsaid. The session's lease says the rest.
    pub(super) fn last_words(&mut self, now: Now, ground: &mut Ground) {
        let idle = !matches!(self.stage, Stage::Working | Stage::Resting) && self.is_idle();
        let idle_since = *self.idle_since.get_or_insert(now.mono);
        if !idle {
            self.idle_since = None;
        } else if now.mono.since(idle_since) >= self.limits.goodbye_wait_max {
            ground.note(|| format!("{}: leaves without a goodbye", self.session));
            ground.oracle.tally.unheard += 1;
            self.stage = Stage::Gone;
        }
        if self.gone_by.is_some_and(|by| now.mono >= by) {
            ground.note(|| format!("{}: leaves with things unsaid", self.session));
            ground.oracle.tally.unheard += 1;
            self.stage = Stage::Gone;
        }
    }

    fn next_message(&mut self, now: Now, ground: &mut Ground) -> Option<Outgoing> {
        if now.mono >= self.beat_at {
            self.beat_at = now.mono.plus(self.limits.beat_every);
            return Some(self.beat(now, Stage::Working));
        }
        if let Some((to, reports)) = self.desk.take_reports() {
            ground.note(|| {
                let done: Vec<_> = reports.done.iter().map(|d| (d.task, d.attempt.n, d.outcome.verdict)).collect();
                format!("{}: reports {done:?}, taken {:?}", self.session, reports.taken)
            });
            let shard = to.rsplit('.').next().and_then(|n| n.parse().ok()).map(ShardId);
            let to = Name::Results(shard.unwrap_or_else(|| shard_of_queue(&self.queue)));
            return Some(Outgoing { to, reports: Rc::new(reports), kind: Kind::Outcomes, sent: None });
        }
        if self.stage == Stage::Draining && self.desk.is_idle() {
            self.stage = Stage::SayingGoodbye;
            return Some(self.beat(now, Stage::SayingGoodbye));
        }
        None
    }

    fn beat(&mut self, now: Now, stage: Stage) -> Outgoing {
        self.desk.tidy(now.mono);
        let mut reports = self.desk.message();
        reports.beat = Some(Beat {
            queue: self.queue.clone(),
            host: "h".into(),
            pid: self.pid.0,
            capacity: self.capacity,
            draining: self.desk.is_draining(),
            leaving: stage == Stage::SayingGoodbye,
            held: self.desk.held(),
        });
        let to = Name::Results(shard_of_queue(&self.queue));
        Outgoing { to, reports: Rc::new(reports), kind: Kind::Beat, sent: None }
    }
}
