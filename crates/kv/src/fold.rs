//! What writes make of entries, in order: a pure function, so that a hundred writes cost one read and one write of the store.
//!
//! Every write takes the next revision of its shard, also one whose condition did not hold: so the revision of the n-th
//! write of a parcel is known from that of its first, and what became of it can be looked up without a row of its own.
//! The clock that counts is that of whoever applies, once for the whole batch: no client's clock decides anything.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use mutirao_core::Timestamp;

use crate::write::{Change, Condition, Parcel, Place, Producer, Value, Write};

/// A key as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of the last change.
    pub revision: u64,
    pub changed_at: Timestamp,
    /// None: deleted. Kept for a while, for whoever looks at an earlier point.
    pub value: Option<Value>,
    pub expires_at: Option<Timestamp>,
}

impl Entry {
    /// What somebody who looks now sees.
    pub fn seen_at(&self, now: Timestamp) -> Option<&Value> {
        self.value.as_ref().filter(|_| self.expires_at.is_none_or(|at| now < at))
    }

    /// Whether its time is over, and nobody has said so yet.
    fn is_over_at(&self, now: Timestamp) -> bool {
        self.value.is_some() && self.seen_at(now).is_none()
    }
}

/// What a revision was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Put,
    Delete,
    /// Its time was over.
    Expire,
    /// A deletion of what was not there.
    Nothing,
    /// The condition did not hold; nothing changed.
    Conflict,
}

impl Kind {
    /// Whether the key is another one after it.
    pub fn changes(self) -> bool {
        matches!(self, Kind::Put | Kind::Delete | Kind::Expire)
    }
}

/// One line of the history: what one revision did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub revision: u64,
    pub place: Place,
    pub kind: Kind,
    pub at: Timestamp,
    /// What is there after it.
    pub value: Option<Value>,
    pub expires_at: Option<Timestamp>,
}

/// What a line of the history takes beside its texts and its value, about: its times, and its places in indexes.
const LINE_BYTES: usize = 100;

impl Event {
    /// What it takes to keep it.
    pub fn bytes(&self) -> u64 {
        let value = self.value.as_ref().map_or(0, |value| value.bytes.len() + value.content_type.len());
        (self.place.namespace.len() + self.place.key.as_str().len() + value + LINE_BYTES) as u64
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Applied {
        revision: u64,
    },
    /// The condition did not hold; `there` is the revision that was there.
    Conflict {
        there: Option<u64>,
    },
}

/// What is known before: the shard's revision, the entries of which it matters what they are, and the last parcel of each sender.
#[derive(Clone, Debug, Default)]
pub struct Before {
    pub revision: u64,
    pub entries: HashMap<Place, Entry>,
    pub heard: HashMap<Producer, u64>,
}

/// A parcel that was taken up: its writes have the revisions from `first` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub producer: Producer,
    pub number: u64,
    pub first: u64,
    pub fates: Vec<Fate>,
}

/// What is to be written, all of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// The shard's revision after it.
    pub revision: u64,
    /// Each key once, as it is in the end.
    pub entries: BTreeMap<Place, Entry>,
    pub history: Vec<Event>,
    /// Those that were new.
    pub taken: Vec<Taken>,
}

/// Applies parcels in order, each once: those at or below what was heard of their sender are passed over. Before the first of them
/// what is over is ended: once somebody was told that a key is not there, nobody finds it, whatever time the next owner has.
pub fn fold(before: Before, parcels: Vec<Parcel>, now: Timestamp) -> Folded {
    let Before { revision, entries, mut heard } = before;
    let mut book = Book { now, known: entries, touched: HashSet::new(), revision, history: Vec::new() };
    let mut taken = Vec::new();
    for parcel in parcels {
        let last = heard.entry(parcel.producer).or_default();
        if parcel.number <= *last {
            continue;
        }
        *last = parcel.number;
        if taken.is_empty() {
            book.end_what_is_over();
        }
        let first = book.revision + 1;
        let fates = parcel.writes.into_iter().map(|write| book.apply(write)).collect();
        taken.push(Taken { producer: parcel.producer, number: parcel.number, first, fates });
    }
    book.close(taken)
}

/// Ends what is over. Whatever was written since it was found is left alone.
pub fn expire(before: Before, due: Vec<Place>, now: Timestamp) -> Folded {
    let Before { revision, entries, .. } = before;
    let mut book = Book { now, known: entries, touched: HashSet::new(), revision, history: Vec::new() };
    for place in due {
        if book.known.get(&place).is_some_and(|entry| entry.is_over_at(now)) {
            book.set(place, Kind::Expire, None, None);
        }
    }
    book.close(Vec::new())
}

struct Book {
    now: Timestamp,
    known: HashMap<Place, Entry>,
    touched: HashSet<Place>,
    revision: u64,
    history: Vec<Event>,
}

impl Book {
    /// Of what is known.
    fn end_what_is_over(&mut self) {
        let over = self.known.iter().filter(|(_, entry)| entry.is_over_at(self.now));
        let over: BTreeSet<Place> = over.map(|(place, _)| place.clone()).collect();
        for place in over {
            self.set(place, Kind::Expire, None, None);
        }
    }

    fn apply(&mut self, write: Write) -> Fate {
        let there = self.known.get(&write.place).filter(|entry| entry.seen_at(self.now).is_some());
        let there = there.map(|entry| entry.revision);
        let holds = match write.condition {
            Condition::None => true,
            Condition::Absent => there.is_none(),
            Condition::At(revision) => there == Some(revision),
        };
        if !holds {
            self.note(write.place, Kind::Conflict, None, None);
            return Fate::Conflict { there };
        }
        match write.change {
            Change::Put { value, lasts } => {
                let expires_at = lasts.map(|lasts| self.now.plus(lasts));
                self.set(write.place, Kind::Put, Some(value), expires_at);
            }
            Change::Delete if there.is_some() => self.set(write.place, Kind::Delete, None, None),
            Change::Delete => self.note(write.place, Kind::Nothing, None, None),
        }
        Fate::Applied { revision: self.revision }
    }

    fn set(&mut self, place: Place, kind: Kind, value: Option<Value>, expires_at: Option<Timestamp>) {
        self.note(place.clone(), kind, value.clone(), expires_at);
        let entry = Entry { revision: self.revision, changed_at: self.now, value, expires_at };
        self.known.insert(place.clone(), entry);
        self.touched.insert(place);
    }

    fn note(&mut self, place: Place, kind: Kind, value: Option<Value>, expires_at: Option<Timestamp>) {
        self.revision += 1;
        self.history.push(Event { revision: self.revision, place, kind, at: self.now, value, expires_at });
    }

    fn close(mut self, taken: Vec<Taken>) -> Folded {
        let last = |place: Place| self.known.remove(&place).map(|entry| (place, entry));
        let entries = self.touched.into_iter().filter_map(last).collect();
        Folded { revision: self.revision, entries, history: self.history, taken }
    }
}

#[cfg(test)]
mod tests;
