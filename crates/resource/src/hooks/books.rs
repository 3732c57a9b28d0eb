//! What is known of the machines of one set of hooks, and what is to be done about them. What hooks answered and agents said goes
//! in, jobs for hooks come out; no I/O, no clock.
//!
//! ```text
//! wanted ─► creating ─► made ─► listed: boots, answers ─► going ─► not listed any more: forgotten
//!                └─► doubtful: create failed, and may have made one ─► listed after all, or forgotten
//! ```
//!
//! **The list is the truth.** What it has and nobody asked for was left by a predecessor, and is taken over. What it has no more,
//! twice in a row, is forgotten. What create said yes to and the list does not have, or the other way round, takes up its place until it
//! is known: better one too few than one too many.
//!
//! Nothing is destroyed but what goes for a reason: nobody needs it, it never took work, it was lost for long, its kind is not
//! known any more. And again and again until the list has it no more.

mod kinds;
mod machine;

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_elastic::packing::NodeName;

use super::words::Place;
use kinds::Kinds;
pub use kinds::Limits;
use machine::Stage;
pub use machine::{APPEARS_WITHIN, At, DOUBTED_FOR, LOST_AFTER, Machine, Why};

/// Machines that are being created, or destroyed, at once.
const AT_ONCE: usize = 4;
/// Without a listing for this long nothing is created.
pub const BLIND_AFTER: Duration = Duration::from_secs(60);
/// One that took work and has been silent for this long is destroyed.
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(600);
/// An agent that was told to leave and has no workers is given this long.
const GOODBYE_MAX: Duration = Duration::from_secs(30);
/// Between tries, doubling.
const AGAIN_FIRST: Duration = Duration::from_secs(5);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// A machine, as the list hook said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub node: NodeName,
    pub kind: Option<String>,
    pub place: Option<Place>,
    /// When it is taken back by its owner, in its words.
    pub leaving: Option<String>,
}

/// Something for a hook to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    List,
    Create { node: NodeName, kind: String },
    Destroy { node: NodeName },
}

/// What came of asking a machine's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Answers {
        workers: usize,
    },
    /// It is there, and obeys a newer resource manager than this.
    Another,
    Silent(String),
    /// It can be reached, and does not fit.
    Refused(String),
}

#[derive(Debug, Default)]
struct Listing {
    running: bool,
    next_at: Option<Mono>,
    good_at: Option<Mono>,
    failures: u32,
    trouble: Option<String>,
}

#[derive(Debug)]
pub struct Books {
    list_every: Duration,
    kinds: Kinds,
    machines: BTreeMap<NodeName, Machine>,
    listing: Listing,
    /// What comes from now on is somebody else's.
    closed: bool,
}

impl Books {
    pub fn new(limits: Limits, list_every: Duration) -> Self {
        let (machines, listing) = (BTreeMap::new(), Listing::default());
        Self { list_every, kinds: Kinds::new(limits), machines, listing, closed: false }
    }

    pub fn machines(&self) -> &BTreeMap<NodeName, Machine> {
        &self.machines
    }

    /// Whether it has ever been known what is there.
    pub fn is_known(&self) -> bool {
        self.listing.good_at.is_some()
    }

    /// Why it is not known what is there now.
    pub fn trouble(&self) -> Option<&str> {
        self.listing.trouble.as_deref()
    }

    /// Kinds of which none are created for now, and why.
    pub fn paused(&self, now: Mono) -> Vec<(String, String)> {
        self.kinds.paused(now)
    }

    /// How many more of a kind may be asked for.
    pub fn room(&self, kind: &str, now: Mono) -> u32 {
        let blind = self.listing.good_at.is_none_or(|at| now.since(at) >= BLIND_AFTER);
        let of_kind = self.machines.values().filter(|machine| machine.kind.as_deref() == Some(kind)).count();
        if blind { 0 } else { self.kinds.room(kind, of_kind, self.machines.len(), now) }
    }

    /// One is needed. Yes when it is on its way.
    pub fn want(&mut self, node: &NodeName, kind: &str, now: Mono) -> Result<(), String> {
        match self.machines.get(node) {
            Some(machine) if machine.going.is_some() => return Err("it is being destroyed".into()),
            Some(_) => return Ok(()),
            None => {}
        }
        if let Some(why) = self.kinds.pause(kind, now) {
            return Err(why);
        }
        if self.room(kind, now) == 0 {
            let why = self.listing.trouble.clone().map(|why| format!("what is there is not known: {why}"));
            return Err(why.unwrap_or_else(|| "no more may be had".into()));
        }
        self.machines.insert(node.clone(), Machine::new(Stage::Wanted, Some(kind.to_owned()), now));
        Ok(())
    }

    /// Nobody needs it any more. Yes when it is not there.
    pub fn unwant(&mut self, node: &NodeName, now: Mono) {
        match self.machines.get_mut(node) {
            Some(machine) if machine.stage == Stage::Wanted => drop(self.machines.remove(node)),
            Some(machine) if machine.ceded => {}
            Some(machine) => machine.go(Why::Unneeded, now),
            None => {}
        }
    }

    /// Whoever goes for good takes over nothing any more.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// It has been taken over: nothing more is done about it from here.
    pub fn cede(&mut self, node: &NodeName) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.ceded = true;
        }
    }

    /// What hooks are to do now. Whatever is given out here comes back by [`listed`](Self::listed), [`created`](Self::created)
    /// or [`destroyed`](Self::destroyed).
    pub fn due(&mut self, now: Mono) -> Vec<Job> {
        let mut jobs = Vec::new();
        if !self.listing.running && self.listing.next_at.is_none_or(|at| at <= now) {
            self.listing.running = true;
            jobs.push(Job::List);
        }
        let creating = self.machines.values().filter(|machine| machine.stage == Stage::Creating).count();
        let wanted = self.machines.iter_mut().filter(|(_, machine)| machine.stage == Stage::Wanted);
        for (node, machine) in wanted.take(AT_ONCE.saturating_sub(creating)) {
            machine.stage = Stage::Creating;
            jobs.push(Job::Create { node: node.clone(), kind: machine.kind.clone().unwrap_or_default() });
        }
        let running = |machine: &&Machine| machine.going.as_ref().is_some_and(|going| going.running);
        let destroying = self.machines.values().filter(running).count();
        let due = self.machines.iter_mut().filter(|(_, machine)| machine.is_to_be_destroyed(now));
        for (node, machine) in due.take(AT_ONCE.saturating_sub(destroying)) {
            if let Some(going) = &mut machine.going {
                going.running = true;
            }
            jobs.push(Job::Destroy { node: node.clone() });
        }
        jobs
    }

    /// What the list hook said, and when it was asked.
    pub fn listed(&mut self, began: Mono, now: Mono, said: Result<Vec<Listed>, String>) {
        self.listing.running = false;
        let all = match said {
            Ok(all) => all,
            Err(why) => {
                self.listing.failures = self.listing.failures.saturating_add(1);
                self.listing.next_at = Some(now.plus(again(self.listing.failures).max(self.list_every)));
                self.listing.trouble = Some(why);
                return;
            }
        };
        self.listing = Listing {
            running: false,
            next_at: Some(now.plus(self.list_every)),
            good_at: Some(began),
            failures: 0,
            trouble: None,
        };
        self.machines.values_mut().for_each(|machine| machine.seen = false);
        for listed in all {
            if self.closed && !self.machines.contains_key(&listed.node) {
                continue;
            }
            let kind = self.kinds.of(&listed);
            let fresh = || Machine::new(Stage::Listed { missed: 0 }, kind.clone(), now);
            let machine = self.machines.entry(listed.node).or_insert_with(fresh);
            (machine.seen, machine.place, machine.leaving) = (true, listed.place, listed.leaving);
            machine.is_there(kind, now);
        }
        let kinds = &mut self.kinds;
        self.machines.retain(|_, machine| machine.seen || machine.outlives_absence(began, now, kinds));
    }

    pub fn created(&mut self, node: &NodeName, now: Mono, said: Result<(), String>) {
        self.listing.next_at = self.listing.next_at.map(|_| now);
        let Some(machine) = self.machines.get_mut(node) else { return };
        if let Err(why) = &said {
            tracing::warn!(%node, why, "the create hook fails");
            self.kinds.fails(machine.kind.as_deref(), why, now);
            machine.note = Some(why.clone());
        }
        if machine.stage != Stage::Creating {
            return;
        }
        machine.coming_since = now;
        machine.stage = match (machine.seen, said) {
            (true, _) => Stage::Listed { missed: 0 },
            (false, Ok(())) => Stage::Made { at: now },
            (false, Err(_)) => Stage::Doubtful { at: now },
        };
    }

    pub fn destroyed(&mut self, node: &NodeName, now: Mono, said: Result<(), String>) {
        self.listing.next_at = self.listing.next_at.map(|_| now);
        let Some(going) = self.machines.get_mut(node).and_then(|machine| machine.going.as_mut()) else { return };
        going.running = false;
        going.tries = going.tries.saturating_add(1);
        going.not_before = Some(now.plus(again(going.tries)));
        match said {
            Ok(()) => (going.done_at, going.trouble) = (Some(now), None),
            Err(why) => {
                tracing::warn!(%node, why, "the destroy hook fails");
                going.trouble = Some(why);
            }
        }
    }

    /// What came of asking its agent.
    pub fn heard(&mut self, node: &NodeName, now: Mono, heard: Heard) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        match heard {
            Heard::Answers { workers } => {
                let first = !std::mem::replace(&mut machine.answered, true);
                (machine.silent_since, machine.note) = (None, None);
                if let Some(going) = &mut machine.going {
                    going.empty |= workers == 0 && now.since(going.since) >= GOODBYE_MAX;
                } else if first {
                    // Of one that has long been there, nothing is learnt about the next.
                    self.kinds.works(machine.kind.as_deref());
                }
            }
            Heard::Another => machine.silent_since = None,
            Heard::Silent(why) => {
                let silent_for = now.since(*machine.silent_since.get_or_insert(now));
                machine.note = Some(why);
                if let Some(going) = &mut machine.going {
                    // Whoever works on one of a former kind is not ended because a connection broke.
                    going.empty |= going.why != Why::Former || silent_for >= LOST_AFTER;
                } else if machine.answered && silent_for >= GIVEN_UP_AFTER {
                    machine.go(Why::Lost, now);
                } else if !machine.answered && now.since(machine.coming_since) >= self.kinds.ready_within(&machine.kind)
                {
                    let why = format!("{node} took no work: {}", machine.note.as_deref().unwrap_or_default());
                    self.kinds.fails(machine.kind.as_deref(), &why, now);
                    machine.go(Why::Useless, now);
                }
            }
            Heard::Refused(why) => {
                machine.note = Some(why.clone());
                if let Some(going) = &mut machine.going {
                    going.empty = true;
                } else if !machine.answered {
                    self.kinds.fails(machine.kind.as_deref(), &why, now);
                    machine.go(Why::Useless, now);
                }
            }
        }
    }
}

fn again(tries: u32) -> Duration {
    AGAIN_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(AGAIN_MAX)
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
