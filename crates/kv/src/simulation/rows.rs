//! What the store keeps of one shard, as the engines do: all of a batch or nothing, fenced by the generation.

use std::collections::{BTreeMap, HashMap};

use mutirao_core::Timestamp;

use super::Flaw;
use crate::fold::{Before, Entry, Event, Folded, expire, fold};
use crate::store::{Known, OfSender, without_parcel};
use crate::write::{Parcel, Place, Producer, WriteId};

pub enum Commit {
    Done,
    Fenced,
    /// Nothing was written.
    Away,
}

#[derive(Default)]
pub struct Rows {
    pub away: bool,
    pub generation: u64,
    pub history: Vec<Event>,
    revision: u64,
    entries: HashMap<Place, Entry>,
    /// By sender and number: the first revision, and how many.
    pub parcels: BTreeMap<(Producer, u64), (u64, usize)>,
}

impl Rows {
    pub fn introduce(&mut self, producer: Producer) {
        self.parcels.insert((producer, 0), (0, 0));
    }

    pub fn heard(&self, producer: Producer) -> Option<u64> {
        self.parcels.range((producer, 0)..=(producer, u64::MAX)).next_back().map(|((_, number), _)| *number)
    }

    pub fn apply(&mut self, generation: u64, parcels: Vec<Parcel>, now: Timestamp, flaw: Flaw) -> Commit {
        if self.away {
            return Commit::Away;
        }
        if generation != self.generation {
            return Commit::Fenced;
        }
        let heard = match flaw {
            Flaw::NoNumbers => HashMap::new(),
            _ => parcels.iter().filter_map(|p| Some((p.producer, self.heard(p.producer)?))).collect(),
        };
        let before = Before { revision: self.revision, entries: self.entries.clone(), heard };
        let folded = fold(before, parcels, now);
        self.write(folded);
        Commit::Done
    }

    pub fn expire(&mut self, generation: u64, now: Timestamp) {
        if self.away || generation != self.generation {
            return;
        }
        let due = self.entries.iter().filter(|(_, entry)| entry.expires_at.is_some_and(|at| at <= now));
        let due: Vec<Place> = due.map(|(place, _)| place.clone()).collect();
        let before = Before { revision: self.revision, entries: self.entries.clone(), heard: HashMap::new() };
        self.write(expire(before, due, now));
    }

    fn write(&mut self, folded: Folded) {
        self.revision = folded.revision;
        self.entries.extend(folded.entries);
        self.history.extend(folded.history);
        for taken in folded.taken {
            self.parcels.insert((taken.producer, taken.number), (taken.first, taken.fates.len()));
        }
    }

    /// The event of a write, if it was applied.
    pub fn event(&self, id: WriteId) -> Option<&Event> {
        let (first, writes) = self.parcels.get(&(id.producer, id.number))?;
        let applied = id.number > 0 && (id.index as usize) < *writes;
        applied.then(|| self.history.get(*first as usize - 1 + id.index as usize))?
    }

    /// Whether whoever asks is told that it never will be made.
    pub fn is_never(&self, id: WriteId) -> bool {
        let of = |from| self.parcels.range((id.producer, from)..=(id.producer, u64::MAX));
        let of_sender = OfSender {
            oldest: of(1).next().map(|((_, number), _)| *number),
            last: self.heard(id.producer),
            introduced: self.parcels.contains_key(&(id.producer, 0)),
            whole: true,
        };
        self.event(id).is_none() && without_parcel(id.number, of_sender) == Known::Never
    }
}
