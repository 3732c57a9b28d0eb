//! The workers of one target as the resource manager sees them, and the plan that brings what is there to what is wanted.
//!
//! ```text
//! asked ──► launching ──► reported (idle, busy) ──► draining ──► ending ──► gone
//!   the record     the provider     the worker           hands out    the provider
//!   is written     said yes         has spoken           nothing new  is told
//! ```
//!
//! A life only ever moves to the right. Two rules make it safe to die at any point, and to be succeeded:
//!
//! - **A record is written before the provider is asked, and kept until the provider no longer lists it.** So whatever the
//!   provider has, or is about to have, is in the store. What it lists without a record is a leak and is ended; what is
//!   recorded and not listed for [`Terms::missing_for`] is forgotten. Calls to the provider name the worker, so that doing one
//!   twice is doing it once.
//! - **Everything counts against the ceiling until it is gone**: asked, draining, ending, and what nobody knows.
//!
//! What must be durable before its action goes on is in [`Fleet::apply`]; the rest ([`Fleet::look`]) is seen again by a
//! successor. Removal is always by draining; only what has drained, never reported, or
//! fell silent is ended. A worker on a node that this provider does not have (its predecessor's, or one of a former
//! configuration) cannot be ended: once it has drained it is let in no more, and goes by itself.
//!
//! The same machine serves nodes: then the members are machines and a task is a worker on them.
//!
//! Not here: calls, rows, signatures; how many are wanted ([`decide`](mod@crate::decide)); where a new one goes
//! ([`packing`](crate::packing)).

mod plan;
mod terms;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mutirao_core::{Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

use crate::decide::Removal;
use crate::measure::Workers;
use crate::packing::{Amounts, NodeName};
pub use terms::Terms;
pub use trouble::{Cause, Trouble};

/// What is kept of each worker, and of the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    pub members: BTreeMap<WorkerId, Member>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// Who is still there although the provider was told to end them, or they were let in no more, and since when. A successor tells it again.
    #[serde(skip)]
    told: BTreeMap<WorkerId, Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub life: Life,
    /// When this life began.
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// What it was given of its node, whatever its queue's definition says by now. None for those of the version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub need: Option<Amounts>,
    /// Since when the provider has not listed it. Seen again by a successor, so never written.
    #[serde(skip)]
    absent_since: Option<Timestamp>,
    /// Since when it has had no session.
    #[serde(skip)]
    silent_since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    Asked,
    Launching,
    Reported,
    Draining,
    Ending,
}

/// How many there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    pub wanted: u32,
    /// Holds at every instant, for all that the provider has.
    pub max: u32,
    pub removal: Removal,
}

/// What can be seen from outside, in one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub listing: Listing,
    /// Those with a live session, as the manager knows them. One that has just come back and has not yet heard everybody must
    /// not be asked: whoever is not here counts as silent.
    pub sessions: BTreeMap<WorkerId, Activity>,
    /// Those whose process has ended, as their node knows for certain, and does not start again. Nothing is waited for, not
    /// even for a session that does not know yet.
    pub ended: BTreeSet<WorkerId>,
}

/// What the provider says it has of this target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Listing {
    /// It did not answer; nothing may be concluded.
    #[default]
    Unknown,
    Has(BTreeSet<WorkerId>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    Idle {
        since: Timestamp,
    },
    Busy {
        tasks: u32,
        /// When it took the one that it has had longest. None where that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Was told to drain and has nothing left.
    Drained,
}

/// One step. Steps of a plan are carried out in order; the first that fails ends the pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Have the manager issue this many identities, place them, and write their records ([`Fleet::issue`]).
    Ask { count: u32 },
    /// Write a record for a worker that reports and has none.
    Adopt { worker: WorkerId },
    /// Call the provider.
    Launch { worker: WorkerId },
    /// Write it: from then the manager hands it nothing.
    Drain { worker: WorkerId },
    /// Write it, if there is a record; then call the provider. Its identity is worth nothing any more.
    End { worker: WorkerId, why: Why },
    /// Write it, and have the manager let it in no more: it speaks, and the provider does not have it.
    Dismiss { worker: WorkerId, why: Why },
    /// Remove the record.
    Forget { worker: WorkerId, why: Why },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The provider said yes, and then had nothing.
    NeverCame,
    NeverReported,
    Silent,
    Drained,
    DrainedTooLong,
    /// The provider has it and there is no record.
    Unknown,
    /// It should have ended and is still there.
    StillThere,
    /// The provider has it no more.
    Gone,
    /// Its process has ended.
    Ended,
    /// Its process ended before it ever spoke.
    EndedUnheard,
}

impl Why {
    fn as_str(self) -> &'static str {
        match self {
            Why::NeverCame => "the provider said yes and never had it",
            Why::NeverReported => "it did not report in time",
            Why::Silent => "it fell silent",
            Why::Drained => "it has drained",
            Why::DrainedTooLong => "it took too long to drain",
            Why::Unknown => "nobody knows it",
            Why::StillThere => "it is still there",
            Why::Gone => "the provider has it no more",
            Why::Ended => "its process ended",
            Why::EndedUnheard => "its process ended before it reported",
        }
    }
}

impl Action {
    /// A worker that was launched in vain: to be told to [`Fleet::failed`] as [`Cause::Silence`], or the next would be
    /// launched at once.
    pub fn gives_up(&self) -> bool {
        let (Action::End { why, .. } | Action::Forget { why, .. }) = self else { return false };
        matches!(why, Why::NeverCame | Why::NeverReported | Why::EndedUnheard)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Ask { count } => write!(f, "ask for {count} more"),
            Action::Adopt { worker } => write!(f, "adopt {worker}, found running"),
            Action::Launch { worker } => write!(f, "launch {worker}"),
            Action::Drain { worker } => write!(f, "drain {worker}"),
            Action::End { worker, why } => write!(f, "end {worker}: {}", why.as_str()),
            Action::Dismiss { worker, why } => write!(f, "dismiss {worker}: {}", why.as_str()),
            Action::Forget { worker, why } => write!(f, "forget {worker}: {}", why.as_str()),
        }
    }
}

impl Member {
    pub fn new(life: Life, since: Timestamp, node: Option<NodeName>) -> Self {
        Self { life, since, node, need: None, absent_since: None, silent_since: None }
    }

    pub fn needing(self, need: Option<Amounts>) -> Self {
        Self { need, ..self }
    }

    /// Never back: what comes late changes nothing.
    fn become_at_least(&mut self, life: Life, now: Timestamp) {
        if life > self.life {
            self.life = life;
            self.since = now;
        }
    }

    /// There to stay, as far as we know.
    fn stands(&self) -> bool {
        self.life <= Life::Reported
    }
}

impl Listing {
    fn has(&self, worker: &WorkerId) -> bool {
        matches!(self, Listing::Has(all) if all.contains(worker))
    }

    fn lacks(&self, worker: &WorkerId) -> bool {
        matches!(self, Listing::Has(all) if !all.contains(worker))
    }
}

impl Fleet {
    /// What the store has of it.
    pub fn of(members: BTreeMap<WorkerId, Member>, trouble: Option<Trouble>) -> Self {
        Self { members, trouble, told: BTreeMap::new() }
    }

    /// Takes the store's word on who there is, and on how far their lives have come at least. What only this process has
    /// seen (absence, silence, what the provider was told) stays.
    pub fn follow(&mut self, stored: &BTreeMap<WorkerId, Member>) {
        self.members.retain(|worker, _| stored.contains_key(worker));
        for (worker, member) in stored {
            let own = self.members.entry(worker.clone()).or_insert_with(|| member.clone());
            own.become_at_least(member.life, member.since);
            own.node = own.node.take().or_else(|| member.node.clone());
            own.need = own.need.take().or_else(|| member.need.clone());
        }
    }

    /// The record of an identity that was just issued; to be durable before anything else is done with it.
    pub fn issue(&mut self, worker: WorkerId, node: Option<NodeName>, need: Option<Amounts>, now: Timestamp) {
        self.members.entry(worker).or_insert_with(|| Member::new(Life::Asked, now, node).needing(need));
    }

    /// Takes in what is seen. A successor sees the same, so none of it needs to be written.
    pub fn look(&mut self, seen: &Seen, now: Timestamp) {
        let mut someone_reported = false;
        for (worker, member) in &mut self.members {
            member.since = member.since.min(now);
            if seen.listing.has(worker) {
                member.become_at_least(Life::Launching, now);
                member.absent_since = None;
            } else if seen.listing.lacks(worker) {
                member.absent_since = Some(member.absent_since.map_or(now, |at| at.min(now)));
            }
            if seen.sessions.contains_key(worker) {
                someone_reported |= member.life < Life::Reported;
                member.become_at_least(Life::Reported, now);
                member.silent_since = None;
            } else {
                member.silent_since = Some(member.silent_since.map_or(now, |at| at.min(now)));
            }
        }
        if let Listing::Has(listed) = &seen.listing {
            self.told.retain(|worker, _| listed.contains(worker) || seen.sessions.contains_key(worker));
        }
        self.told.values_mut().for_each(|at| *at = (*at).min(now));
        if let Some(trouble) = &mut self.trouble {
            trouble.until = trouble.until.min(now.plus(Terms::PAUSE_MAX));
            if someone_reported && trouble.cause == Cause::Silence {
                self.trouble = None;
            }
        }
    }

    /// The provider failed, or was not asked at all: it is told again as soon as it may be.
    pub fn not_ended(&mut self, worker: &WorkerId) {
        self.told.remove(worker);
    }

    /// What an action changes in the store. For [`Action::End`] this is written before the provider is called, for
    /// [`Action::Launch`] after it said yes; the others are nothing but this.
    pub fn apply(&mut self, action: &Action, now: Timestamp) {
        match action {
            Action::Ask { .. } => {}
            Action::Adopt { worker } => {
                self.members.entry(worker.clone()).or_insert_with(|| Member::new(Life::Reported, now, None));
            }
            Action::Launch { worker } => self.advance(worker, Life::Launching, now),
            Action::Drain { worker } => self.advance(worker, Life::Draining, now),
            Action::End { worker, .. } | Action::Dismiss { worker, .. } => {
                self.told.insert(worker.clone(), now);
                self.advance(worker, Life::Ending, now);
            }
            Action::Forget { worker, .. } => {
                self.members.remove(worker);
            }
        }
    }

    fn advance(&mut self, worker: &WorkerId, life: Life, now: Timestamp) {
        if let Some(member) = self.members.get_mut(worker) {
            member.become_at_least(life, now);
        }
    }

    /// For the summary of the load, and for people.
    pub fn counts(&self) -> Workers {
        let mut counts = Workers::default();
        for member in self.members.values() {
            match member.life {
                Life::Asked | Life::Launching => counts.creating += 1,
                Life::Reported => counts.running += 1,
                Life::Draining | Life::Ending => counts.draining += 1,
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests;
