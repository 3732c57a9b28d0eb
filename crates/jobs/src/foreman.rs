//! The foreman: what the owner of a shard does next. It holds the desk and everything that waits around it, and does no
//! I/O at all: what happens goes in through [`handle`](Foreman::handle), what is to be done comes out of
//! [`poll`](Foreman::poll), and whoever drives it carries that out and says how it went.
//!
//! ```text
//!              reports ─┐                                    ┌─► Settle       to the store, fenced
//!            questions ─┤                                    ├─► Acknowledge  reports whose meaning is written
//!   how writing went   ─┼─► handle ─► desk, pending ─► poll ─┼─► Send         parcels, words to workers, looks
//!   what came back     ─┤                                    ├─► Read         the store, to compare
//!   what was read      ─┤                                    ├─► Answer
//!   the time           ─┘                                    └─► End
//! ```
//!
//! Two drive it: [`post`](crate::post) with sockets, disks and a clock, and the simulation with models of them. So what the
//! simulation proves is what runs. The order of what is done is the order of the lines in `poll`, and the rules are these:
//!
//! - What was decided is written, then acknowledged ([`pending`]). One settlement is written at a time, each until the store
//!   has answered; nobody gives up on what workers did because a disk was full for an hour.
//! - While writing fails nothing is handed out. What gathers meanwhile has a [`Budget`]; past it reports are left lying,
//!   and so are questions.
//! - Whoever could not be heard is not given up: time in which we were frozen, could not write, or had no broker counts
//!   against no lease ([`watch`]).
//! - Words between managers are hints. The store is compared with every few seconds ([`comparing`]).
//! - It writes and hands out only while its tenure holds, and ends when it was told to leave and all that it heard is
//!   written, or when the store says that the shard has another owner.
//!
//! Not here: which task goes next and what a report means (the [`desk`](crate::desk)), and how anything is written, sent or
//! read.

mod asked;
mod comparing;
mod outside;
mod pending;
#[cfg(test)]
mod tests;
mod watch;
mod words;

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::id::{JobKey, QueueName, SessionId, WorkerId};

use crate::desk::ledger::Ledger;
use crate::desk::{Desk, Now};
use crate::dispatch::{Back, Outgoing};
use crate::question::{Answer, Question};
use crate::reports::{Incoming, Mark};
use crate::store::queues::{QueueRow, Removed};
use crate::store::{OpenJob, Settlement, Settling};
use asked::define;
use comparing::Comparing;
pub use comparing::{Errand, Found};
pub use outside::{Inbox, Outside, Reach, Tenure, Way};
pub use pending::Budget;
use pending::Pending;
use watch::Watch;
use words::Word;

/// What others ask of the foreman; `A` is to whom the answer goes.
pub enum Ask<A> {
    /// A job that this process has just written.
    Admit(JobKey, Box<Ledger>),
    Question(Question, A),
    /// Definitions of queues, as the store has them, and queues that were deleted.
    Queues {
        defined: Vec<QueueRow>,
        removed: Vec<Removed>,
    },
}

impl<A> Ask<A> {
    /// Changes nothing, and leaves nothing to be written.
    pub fn only_looks(&self) -> bool {
        matches!(self, Self::Question(question, _) if question.only_looks())
    }
}

/// What happens.
pub enum Input<A> {
    Heard(Incoming),
    Asked(Ask<A>),
    /// The store answered the last [`Effect::Settle`].
    Settled(Settling),
    /// It did not, or refused. Whether anything was written is not known, and does not matter: ends count once.
    Unsettled,
    /// Of what was sent.
    Back(Vec<Back>),
    /// Of the last [`Effect::Read`].
    Found(Found),
    /// Take nothing new, settle what is in hand, and go.
    Leave,
    /// It is [`wake_at`](Foreman::wake_at). Every report that had come by now has been handled.
    Tick(Reach),
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect<A> {
    Settle(Arc<Settlement>),
    /// Reports up to here.
    Acknowledge(Mark),
    Send(Outgoing),
    Read(Errand),
    Answer(A, Answer),
    End(Ending),
}

/// How a post ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything in hand is written.
    Settled,
    /// The shard has another owner.
    Fenced,
}

/// What a new owner must know.
pub struct Recalled {
    pub generation: u64,
    pub jobs: Vec<OpenJob>,
    /// Those that were alive under an earlier owner.
    pub sessions: Vec<(SessionId, WorkerId, QueueName)>,
    /// The definitions of the queues of its shard.
    pub queues: Vec<QueueRow>,
}

pub struct Foreman<A> {
    desk: Desk,
    /// How long a parcel may be on its way.
    patience: Duration,
    pending: Pending<A>,
    comparing: Comparing,
    watch: Watch,
    stage: Stage,
    /// Something happened since the desk was last asked what may go out.
    stirred: bool,
    /// Nothing may go out, so that it is no use to be awake when something is due.
    barred: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Working,
    Leaving { since: Mono },
    Fenced,
}

impl<A> Foreman<A> {
    /// Begins with what the store holds. Until each session has spoken or its lease has run out, nothing goes out to its
    /// queue. `now` is when anybody could first be heard: however long the reading took, it counts against no lease.
    pub fn new(recalled: Recalled, lease: Duration, patience: Duration, seed: u64, now: Now) -> Self {
        let mut desk = Desk::new(recalled.generation, lease, seed);
        desk.wait_for_definitions();
        desk.begin(now);
        for (session, worker, queue) in recalled.sessions {
            desk.expect(session, worker, queue, now);
        }
        define(&mut desk, recalled.queues, now);
        recalled.jobs.into_iter().for_each(|job| comparing::admit(&mut desk, job));
        Self {
            desk,
            patience,
            pending: Pending::within(Budget::default()),
            comparing: Comparing::new(now.mono),
            watch: Watch::new(now.mono),
            stage: Stage::Working,
            stirred: true,
            barred: false,
        }
    }

    /// With another budget than usual. To be said before anything happens.
    pub fn within(self, budget: Budget) -> Self {
        Self { pending: Pending::within(budget), ..self }
    }

    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// What is decided and not yet being written.
    pub fn decided(&self) -> &Settlement {
        &self.pending.settlement
    }

    /// Nothing waits to be written or is being written.
    pub fn is_settled(&self) -> bool {
        self.pending.is_settled()
    }

    /// How much is gathered, against the budget.
    pub fn gathered(&self) -> usize {
        self.pending.items()
    }

    /// Whether what others ask is taken in now, or left with them.
    pub fn has_room(&self) -> bool {
        !self.pending.is_full()
    }

    /// Whether reports are taken in now, or left lying.
    pub fn hears(&self) -> bool {
        self.watch.hearing && self.has_room()
    }

    /// When something is to be done though nothing happens.
    pub fn wake_at(&self) -> Mono {
        self.pending.again_at().map_or(self.watch.next_tick, |again| again.min(self.watch.next_tick))
    }

    pub fn handle(&mut self, input: Input<A>, now: Now) {
        self.desk.see(now);
        match input {
            Input::Heard(Incoming { reports, mark }) => {
                self.desk.report(reports, now);
                self.pending.seen = mark;
            }
            Input::Asked(ask) => self.asked(ask, now),
            Input::Settled(Settling::Written) => self.pending.written(&mut self.desk),
            Input::Settled(Settling::Fenced) => self.stage = Stage::Fenced,
            Input::Unsettled => self.pending.failed(now.mono),
            Input::Back(back) => self.take_back(back, now),
            Input::Found(found) => self.found(found),
            Input::Leave => {
                if self.stage == Stage::Working {
                    self.stage = Stage::Leaving { since: now.mono };
                }
            }
            Input::Tick(broker) => self.tick(broker, now),
        }
        self.absorb();
        self.watch.stay_awake(&self.desk, now.mono);
        self.stirred = true;
    }

    /// The next thing to do, until there is none.
    pub fn poll(&mut self, outside: Outside) -> Option<Effect<A>> {
        if self.stage == Stage::Fenced {
            return Some(Effect::End(Ending::Fenced));
        }
        let answer = self.pending.answers.pop_front().map(|(asker, answer)| Effect::Answer(asker, answer));
        answer
            .or_else(|| self.settle(outside))
            .or_else(|| self.acknowledge(outside))
            .or_else(|| self.send(outside))
            .or_else(|| self.hand_out(outside))
            .or_else(|| self.compare(outside))
            .or_else(|| self.end(outside))
    }

    fn settle(&mut self, Outside { now, tenure, .. }: Outside) -> Option<Effect<A>> {
        if tenure == Tenure::Lapsed {
            return None;
        }
        self.pending.settle(now).map(Effect::Settle)
    }

    /// Never by one that has lost its shard: what it was brought meanwhile is for its successor, to whom the broker brings
    /// it when we are gone.
    fn acknowledge(&mut self, outside: Outside) -> Option<Effect<A>> {
        if outside.tenure == Tenure::Lapsed {
            return None;
        }
        self.pending.acknowledge().map(Effect::Acknowledge)
    }

    /// Nothing by one that has lost its shard: above all it removes no queue that its successor may be filling.
    fn send(&mut self, outside: Outside) -> Option<Effect<A>> {
        if outside.way == Way::Full || outside.tenure == Tenure::Lapsed {
            return None;
        }
        self.pending.words.next().map(Effect::Send)
    }

    fn hand_out(&mut self, outside: Outside) -> Option<Effect<A>> {
        if !self.stirred {
            return None;
        }
        // What cannot be written as fast as it comes is not added to.
        let unwritten = self.pending.is_in_trouble() || self.pending.is_full();
        self.barred = !self.may_act(outside) || outside.way == Way::Full || unwritten;
        if self.barred {
            return None;
        }
        self.stirred = false;
        let handed = self.desk.hand_out(outside.now);
        (!handed.is_empty()).then_some(Effect::Send(Outgoing::Parcels(handed)))
    }

    fn end(&self, outside: Outside) -> Option<Effect<A>> {
        let heard_all = outside.inbox == Inbox::Empty || !self.watch.hearing;
        let done = matches!(self.stage, Stage::Leaving { .. }) && self.pending.is_settled() && heard_all;
        done.then_some(Effect::End(Ending::Settled))
    }

    /// Whether new things may be begun.
    fn may_act(&self, outside: Outside) -> bool {
        self.stage == Stage::Working && outside.tenure == Tenure::Holds
    }

    /// Moves what the desk decided to where it is written or said.
    fn absorb(&mut self) {
        let effects = self.desk.effects();
        effects.closed.iter().for_each(|job| self.is_over(*job));
        self.pending.absorb(effects);
    }

    /// A job is over: whoever speaks of it as new is late.
    fn is_over(&mut self, job: JobKey) {
        self.comparing.is_over(job);
        self.pending.bury(job);
    }

    /// The store has written that these jobs are cancelled. However many they are, workers are told in few words.
    fn cancel_jobs(&mut self, jobs: &[JobKey]) {
        let at_work = self.desk.cancel_jobs(jobs);
        jobs.iter().for_each(|job| self.is_over(*job));
        for (queue, jobs) in at_work {
            jobs.into_iter().for_each(|job| self.pending.words.tell(&queue, Word::StopJob(job)));
        }
    }

    fn take_back(&mut self, back: Vec<Back>, now: Now) {
        for failed in back {
            match failed {
                Back::Unsent(parcel) => self.desk.unpost(parcel, now),
                Back::TooLong(parcel) => self.desk.split(parcel, now),
                Back::Broken(parcel, why) => self.desk.refuse(parcel, &why, now),
                Back::Gone(queue) => self.desk.is_gone(&queue),
                Back::Empty(queue) => {
                    let lost = self.desk.found_empty(&queue, self.patience, now);
                    watch::warn_of_lost(lost);
                }
            }
        }
    }
}
