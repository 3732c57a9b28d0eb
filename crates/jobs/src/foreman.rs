//! The foreman: the one task that owns a shard's desk. Everything that happens comes in through its channels, one at a
//! time; everything that follows leaves through channels. Nothing here waits for a disk or a socket, nor for whoever reads
//! from it. While what is settled cannot be written, nothing is handed out, reports are left lying once a bound is
//! reached, and no lease runs out: whoever could not be heard is not given up.
//!
//! It acts only while its tenure holds, and ends when it is asked to leave and everything in hand is settled, or when the
//! store says that the shard has another owner.

mod loops;
mod pending;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::envelope::Control;
use mutirao_core::id::JobKey;
use mutirao_core::{Clock, ShardId};
use mutirao_shards::Shards;
use tokio::sync::{mpsc, oneshot, watch};

use crate::desk::ledger::Ledger;
use crate::desk::{Desk, Now};
use crate::dispatch::{Back, Outgoing};
use crate::question::{Answer, Question};
use crate::recall::{Errand, Found, Round};
use crate::reports::{Incoming, Mark};
use crate::settings::JobsSettings;
use crate::settler::{Batch, Said, Vitals};
use pending::Pending;

const TICK: Duration = Duration::from_millis(200);
/// Between two ticks when there is nobody and nothing, as on most shards of a small installation.
const TICK_IDLE: Duration = Duration::from_secs(5);
/// Between two looks for parcels that got lost.
const CHECK_OVERDUE: Duration = Duration::from_secs(5);
/// The same, while a parcel may have gone with a worker that died.
const CHECK_DOUBTED: Duration = Duration::from_millis(600);
/// Between two comparisons with the store.
const COMPARE: Duration = Duration::from_secs(5);

/// What others ask of the foreman.
pub enum Ask {
    /// A job that this process has just written.
    Admit(JobKey, Box<Ledger>),
    Question(Question, oneshot::Sender<Answer>),
}

/// What a post is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Work,
    /// Take nothing new, settle what is in hand, and go.
    Leave,
}

/// How a post ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything in hand is written.
    Settled,
    /// The shard has another owner.
    Fenced,
}

/// The right to act on a shard.
pub struct Hold {
    pub shards: Shards,
    pub shard: ShardId,
    pub generation: u64,
}

impl Hold {
    fn holds(&self) -> bool {
        self.shards.tenure(self.shard).is_some_and(|tenure| tenure.generation == self.generation)
    }
}

pub struct Foreman {
    pub desk: Desk,
    pub hold: Hold,
    pub broker: Broker,
    pub clock: Arc<dyn Clock>,
    pub settings: JobsSettings,
    pub vitals: Arc<Vitals>,
}

/// The foreman's ends of its channels.
pub struct Channels {
    pub orders: watch::Receiver<Order>,
    pub asks: mpsc::Receiver<Ask>,
    pub incoming: mpsc::Receiver<Incoming>,
    pub outgoing: mpsc::Sender<Outgoing>,
    pub back: mpsc::Receiver<Vec<Back>>,
    /// Reports up to here may be acknowledged.
    pub settled: watch::Sender<Mark>,
    pub batches: mpsc::Sender<Batch>,
    pub said: mpsc::Receiver<Said>,
    pub errands: mpsc::Sender<Errand>,
    pub found: mpsc::Receiver<Found>,
}

impl Foreman {
    fn now(&self) -> Now {
        Now { wall: self.clock.now(), mono: self.clock.monotonic() }
    }

    fn hear(&mut self, inbox: &mut Vec<Incoming>, seen: &mut Mark) {
        let now = self.now();
        for Incoming { reports, mark } in inbox.drain(..) {
            self.desk.report(reports, now);
            *seen = mark;
        }
    }

    /// As much as goes without waiting: whoever takes it may be waiting for us.
    fn send_out(&mut self, pending: &mut Pending, outgoing: &mpsc::Sender<Outgoing>, may_hand_out: bool) {
        while !pending.outgoing.is_empty()
            && let Ok(place) = outgoing.try_reserve()
            && let Some(next) = pending.outgoing.pop_front()
        {
            place.send(next);
        }
        if may_hand_out && let Ok(place) = outgoing.try_reserve() {
            let handed = self.desk.hand_out(self.now());
            if !handed.is_empty() {
                place.send(Outgoing::Parcels(handed));
            }
        }
    }

    fn answer(&mut self, ask: Ask, pending: &mut Pending) {
        let (question, tell) = match ask {
            Ask::Admit(job, ledger) => {
                if !pending.is_buried(job) {
                    self.desk.admit(job, *ledger);
                }
                return;
            }
            Ask::Question(question, tell) => (question, tell),
        };
        let now = self.now();
        if let Some(answer) = question.look(&self.desk, now) {
            // A caller that went away does not mind.
            let _ = tell.send(answer);
            return;
        }
        match question {
            Question::CancelTask { task } => {
                if self.desk.cancel_task(task, now) {
                    pending.absorb(self.desk.effects());
                    pending.answers.push(tell);
                } else {
                    let _ = tell.send(Answer::CancelTask(false));
                }
                return;
            }
            Question::CancelJob { job, queue } => {
                self.desk.cancel_job(job);
                pending.bury(job);
                let control = Control { cancel_jobs: vec![job], ..Control::default() };
                pending.outgoing.push_back(Outgoing::Control(queue, control));
            }
            Question::Admit { job } => pending.compare_soon |= !self.desk.knows_job(job),
            Question::Bury { worker: Some(worker), pid, .. } => self.desk.bury(&worker, pid, now),
            _ => {}
        }
        let _ = tell.send(Answer::Noted);
    }

    fn take_back(&mut self, back: Vec<Back>) {
        let now = self.now();
        for failed in back {
            match failed {
                Back::Unsent(parcel) => self.desk.unpost(parcel, now),
                Back::TooLong(parcel) => self.desk.split(parcel, now),
                Back::Broken(parcel, why) => self.desk.refuse(parcel, &why, now),
                Back::Empty(queue) => {
                    let lost = self.desk.found_empty(&queue, self.settings.parcel_patience, now);
                    warn_of_lost(lost);
                }
            }
        }
    }

    fn begin_round(&mut self, pending: &mut Pending, errands: &mpsc::Sender<Errand>) {
        pending.compare_soon = false;
        // There is room: the round before is over.
        if errands.try_send(Errand::Keys).is_ok() {
            pending.round = Some(Round::begin(&self.desk, pending.unwritten()));
        }
    }

    /// Goes on with a comparison, or ends it.
    fn compare(&mut self, found: Found, pending: &mut Pending, errands: &mpsc::Sender<Errand>) {
        let Some(round) = pending.round.take() else { return };
        match found {
            Found::Nothing => {}
            Found::Jobs(jobs) => round.take_in(&mut self.desk, jobs),
            Found::Keys(open) => {
                for job in round.cancelled(&self.desk, &open) {
                    let Some(queue) = self.desk.queue_of(job).cloned() else { continue };
                    self.desk.cancel_job(job);
                    let control = Control { cancel_jobs: vec![job], ..Control::default() };
                    pending.outgoing.push_back(Outgoing::Control(queue, control));
                }
                let unknown = round.unknown(&self.desk, &open);
                if !unknown.is_empty() && errands.try_send(Errand::Jobs(unknown)).is_ok() {
                    pending.round = Some(round);
                }
            }
        }
    }

    /// Until a retry is due, or the next tick.
    fn pause(&self, now: Now) -> Duration {
        if self.desk.is_idle() {
            return TICK_IDLE;
        }
        self.desk.next_due().map_or(TICK, |due| due.since(now.mono).min(TICK).max(Duration::from_millis(1)))
    }

    fn look_for_lost_parcels(&mut self, pending: &mut Pending, now: Now) {
        warn_of_lost(self.desk.take_back_lost(self.settings.parcel_patience, now));
        for queue in self.desk.overdue(self.settings.parcel_patience, now) {
            pending.look_at(queue);
        }
    }

    fn show_vitals(&self) {
        self.vitals.open_tasks.store(self.desk.open_tasks(), Ordering::Relaxed);
        self.vitals.workers.store(self.desk.sessions().count() as u64, Ordering::Relaxed);
    }

    fn show_depths(&self) {
        *self.vitals.depths.lock() = self.desk.depths().into_iter().map(|(queue, n)| (queue.clone(), n)).collect();
    }
}

fn warn_of_lost(parcels: usize) {
    if parcels > 0 {
        tracing::warn!(parcels, "parcels were lost on their way; their tasks go out again");
    }
}
