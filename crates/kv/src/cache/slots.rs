//! The cache as a machine: what is kept under each key, who vouches for it, and what each question and each word does. Redis
//! does the same in its scripts.

use std::collections::{BTreeMap, HashMap, HashSet};

use mutirao_core::{Mono, ShardId};

use super::{LEASE, Looked, Reign, Token};
use crate::fold::Entry;
use crate::write::Place;

/// What a slot costs besides its key and value.
const SLOT_BYTES: usize = 200;

#[derive(Clone, Debug)]
enum Slot {
    Lease { epoch: u64, token: Token, until: Mono },
    Entry { epoch: u64, entry: Entry },
}

impl Slot {
    fn epoch(&self) -> u64 {
        match self {
            Slot::Lease { epoch, .. } | Slot::Entry { epoch, .. } => *epoch,
        }
    }

    /// A lease ends by itself: whoever took it may have gone.
    fn counts(&self, epoch: u64, now: Mono) -> bool {
        let is_over = matches!(self, Slot::Lease { until, .. } if *until <= now);
        self.epoch() == epoch && !is_over
    }

    fn bytes(&self, place: &Place) -> usize {
        let value = match self {
            Slot::Lease { .. } => 0,
            Slot::Entry { entry, .. } => {
                entry.value.as_ref().map_or(0, |value| value.bytes.len() + value.content_type.len())
            }
        };
        SLOT_BYTES + place.key.as_str().len() + place.namespace.len() + value
    }
}

/// Somebody's word for the values of a shard.
#[derive(Clone, Debug)]
struct Word {
    reign: Reign,
    until: Mono,
    /// Until when it was to count when it was first given: which of two is the later.
    begun: Mono,
    /// About to change. Kept with the word, so that neither can be thrown away without the other.
    changing: HashSet<Place>,
}

/// Keys and what is kept of them, the longest unused thrown away first.
pub struct Slots {
    words: BTreeMap<ShardId, Word>,
    slots: HashMap<Place, (Slot, u64)>,
    /// By last use.
    used: BTreeMap<u64, Place>,
    uses: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Slots {
    pub fn new(bytes_max: usize) -> Self {
        Self { words: BTreeMap::new(), slots: HashMap::new(), used: BTreeMap::new(), uses: 0, bytes: 0, bytes_max }
    }

    fn word(&self, shard: ShardId, now: Mono) -> Option<&Word> {
        self.words.get(&shard).filter(|word| now < word.until)
    }

    fn word_of(&mut self, shard: ShardId, reign: Reign, now: Mono) -> Option<&mut Word> {
        self.words.get_mut(&shard).filter(|word| now < word.until && word.reign == reign)
    }

    /// Of whoever gave the last word.
    pub fn generation(&self, shard: ShardId) -> Option<u64> {
        self.words.get(&shard).map(|word| word.reign.generation)
    }

    /// Whether it counts: not against somebody who came later, nor against a later word of one's own.
    pub fn begin(&mut self, shard: ShardId, reign: Reign, until: Mono, now: Mono) -> bool {
        let later = |word: &Word| (word.reign.generation, word.begun) > (reign.generation, until);
        if self.word(shard, now).is_some_and(later) {
            return false;
        }
        self.words.insert(shard, Word { reign, until, begun: until, changing: HashSet::new() });
        true
    }

    pub fn renew(&mut self, shard: ShardId, reign: Reign, until: Mono, now: Mono) -> bool {
        let Some(word) = self.word_of(shard, reign, now) else { return false };
        word.until = until.max(word.until);
        true
    }

    /// Of which of them something was kept; none if the word does not count.
    pub fn mark(&mut self, shard: ShardId, reign: Reign, places: &[Place], now: Mono) -> Option<Vec<usize>> {
        let word = self.word_of(shard, reign, now)?;
        word.changing.extend(places.iter().cloned());
        Some((0..places.len()).filter(|n| self.evict(&places[*n])).collect())
    }

    /// `None`: what it is now is not known or not worth keeping, only that it does not change any more.
    pub fn offer(&mut self, shard: ShardId, reign: Reign, entries: &[(Place, Option<Entry>)], now: Mono) -> bool {
        let Some(word) = self.word_of(shard, reign, now) else { return false };
        for (place, _) in entries {
            word.changing.remove(place);
        }
        for (place, entry) in entries {
            let Some(entry) = entry else { continue };
            let newer = match self.slots.get(place) {
                Some((Slot::Entry { epoch, entry: there }, _)) => {
                    *epoch != reign.epoch || there.revision < entry.revision
                }
                Some((Slot::Lease { .. }, _)) | None => true,
            };
            if newer {
                self.put(place.clone(), Slot::Entry { epoch: reign.epoch, entry: entry.clone() });
            }
        }
        true
    }

    /// `shard`: the place's, which costs a hash. `token`: what is to be the permission, if there is nothing.
    pub fn look(&mut self, shard: ShardId, place: &Place, token: Token, now: Mono) -> Looked {
        let Some(word) = self.word(shard, now) else { return Looked::Past };
        if word.changing.contains(place) {
            return Looked::Past;
        }
        let epoch = word.reign.epoch;
        match self.slots.get(place).map(|(slot, _)| slot).filter(|slot| slot.counts(epoch, now)).cloned() {
            Some(Slot::Entry { entry, .. }) => {
                self.touch(place);
                Looked::Hit(entry)
            }
            // Another is about to fill it in.
            Some(Slot::Lease { .. }) => Looked::Past,
            None => {
                self.put(place.clone(), Slot::Lease { epoch, token, until: now.plus(LEASE) });
                Looked::Miss(token)
            }
        }
    }

    /// Whether it was filled in.
    pub fn fill(&mut self, place: &Place, token: Token, entry: &Entry, now: Mono) -> bool {
        let Some(word) = self.word(place.shard(), now) else { return false };
        let epoch = word.reign.epoch;
        let leased = match self.slots.get(place) {
            Some((Slot::Lease { epoch: of, token: held, .. }, _)) => *of == epoch && *held == token,
            _ => false,
        };
        if leased {
            self.put(place.clone(), Slot::Entry { epoch, entry: entry.clone() });
        }
        leased
    }

    /// Whoever has this lease will not fill it in.
    pub fn give_up(&mut self, place: &Place, token: Token) {
        let is_its = |slot: &Slot| matches!(slot, Slot::Lease { token: held, .. } if *held == token);
        if self.slots.get(place).is_some_and(|(slot, _)| is_its(slot)) {
            self.evict(place);
        }
    }

    /// Forgets what is kept of a key; whether there was anything.
    pub fn evict(&mut self, place: &Place) -> bool {
        let Some((slot, used)) = self.slots.remove(place) else { return false };
        self.bytes -= slot.bytes(place);
        self.used.remove(&used);
        true
    }

    /// Forgets a word, as a server does that starts again empty.
    pub fn forget(&mut self, shard: ShardId) {
        self.words.remove(&shard);
    }

    fn put(&mut self, place: Place, slot: Slot) {
        self.evict(&place);
        self.uses += 1;
        self.bytes += slot.bytes(&place);
        self.used.insert(self.uses, place.clone());
        self.slots.insert(place, (slot, self.uses));
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.used.first_key_value() else { break };
            let oldest = oldest.clone();
            self.evict(&oldest);
        }
    }

    fn touch(&mut self, place: &Place) {
        self.uses += 1;
        if let Some((_, used)) = self.slots.get_mut(place) {
            self.used.remove(used);
            *used = self.uses;
            self.used.insert(self.uses, place.clone());
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
