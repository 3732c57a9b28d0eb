//! An adversary decides what happens next: readers, appliers that come, go and lose their calls, words that arrive late, slots and
//! words that are thrown away. Whatever it does, what is found is what the store says at that moment.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::Timestamp;
use proptest::prelude::*;

use super::super::VOUCHED_FOR;
use super::super::warden::Standing;
use super::{Looked, Mono, Place, Reign, ShardId, Slots, Token};
use crate::fold::Entry;
use crate::write::Value;

const KEYS: usize = 3;

/// Keys of one shard.
fn places() -> Vec<Place> {
    let place = |n: usize| Place { namespace: "default".into(), key: format!("k{n}").parse().unwrap() };
    let first = place(0).shard();
    (0..).map(place).filter(|place| place.shard() == first).take(KEYS).collect()
}

fn entry(revision: u64) -> Entry {
    let value = (!revision.is_multiple_of(3))
        .then(|| Value { bytes: Bytes::from(revision.to_string()), content_type: "t".into() });
    Entry { revision, changed_at: Timestamp(0), value, expires_at: None }
}

/// What becomes of a call of an applier.
#[derive(Clone, Copy, Debug)]
enum Call {
    Done,
    /// It is done, and nobody is told.
    Unheard,
    /// It is not done.
    Lost,
    /// It is not done, and that is said.
    Refused,
}

#[derive(Clone, Debug)]
enum Step {
    Begin(Call),
    /// Given now, arriving whenever [`Step::Arrive`] says.
    Renew(Call),
    Arrive(usize),
    Mark(Vec<usize>, Call),
    Commit,
    Offer(Call),
    /// Another applier takes over; the one before says nothing any more.
    Succeed,
    Look(usize),
    Read(usize),
    Fill(usize),
    Evict(usize),
    /// The server starts again, empty but for the slots.
    Restart,
    Pass(u64),
}

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![4 => Just(Call::Done), 1 => Just(Call::Unheard), 1 => Just(Call::Lost), 1 => Just(Call::Refused)]
}

fn steps() -> impl Strategy<Value = Step> {
    let some = proptest::collection::vec(0..KEYS, 1..=KEYS);
    prop_oneof![
        3 => calls().prop_map(Step::Begin),
        2 => calls().prop_map(Step::Renew),
        2 => (0..4_usize).prop_map(Step::Arrive),
        4 => (some, calls()).prop_map(|(keys, call)| Step::Mark(keys, call)),
        5 => Just(Step::Commit),
        4 => calls().prop_map(Step::Offer),
        1 => Just(Step::Succeed),
        8 => (0..KEYS).prop_map(Step::Look),
        4 => (0..6_usize).prop_map(Step::Read),
        4 => (0..6_usize).prop_map(Step::Fill),
        2 => (0..KEYS).prop_map(Step::Evict),
        1 => Just(Step::Restart),
        3 => (1..1_500_u64).prop_map(Step::Pass),
    ]
}

#[derive(Clone, Copy)]
enum Word {
    First,
    Again,
}

enum Phase {
    Idle,
    /// About to change; none: there is nobody to be told.
    Marked(Vec<usize>, Option<Reign>),
    Committed(Vec<usize>, Option<Reign>),
}

struct World {
    places: Vec<Place>,
    slots: Slots,
    store: HashMap<usize, u64>,
    revision: u64,
    now: Mono,
    generation: u64,
    epochs: u64,
    standing: Standing,
    phase: Phase,
    /// Words on their way: whose, and until when they say that it counts.
    late: Vec<(Word, Reign, Mono)>,
    readers: Vec<(usize, Token, Option<u64>)>,
    tokens: u64,
    hits: u64,
}

impl World {
    fn new() -> Self {
        Self {
            places: places(),
            slots: Slots::new(1 << 20),
            store: HashMap::new(),
            revision: 0,
            now: Mono::default(),
            generation: 1,
            epochs: 0,
            standing: Standing::first(Mono::default()),
            phase: Phase::Idle,
            late: Vec::new(),
            readers: Vec::new(),
            tokens: 0,
            hits: 0,
        }
    }

    fn shard(&self) -> ShardId {
        self.places[0].shard()
    }

    fn there(&self, key: usize) -> u64 {
        self.store.get(&key).copied().unwrap_or(0)
    }

    /// As an applier hears of it.
    fn heard(&mut self, call: Call, act: impl FnOnce(&mut Slots) -> bool) -> bool {
        let done = !matches!(call, Call::Lost | Call::Refused) && act(&mut self.slots);
        let heard = done && matches!(call, Call::Done);
        if !heard {
            self.standing = self.standing.failed(self.now);
        }
        heard
    }

    fn step(&mut self, step: Step) {
        let (shard, now) = (self.shard(), self.now);
        match step {
            Step::Begin(call) => {
                if !matches!(self.standing, Standing::Silent { .. }) || !matches!(self.phase, Phase::Idle) {
                    return;
                }
                self.epochs += 1;
                let reign = Reign { generation: self.generation, epoch: self.epochs };
                let before = self.standing;
                self.standing = self.standing.saying(now);
                let until = now.plus(VOUCHED_FOR);
                if matches!(call, Call::Lost) {
                    self.late.push((Word::First, reign, until));
                }
                let begun = self.heard(call, |slots| slots.begin(shard, reign, until, now));
                if begun {
                    self.standing = Standing::Vouching { reign, said: now };
                } else if matches!(call, Call::Refused) {
                    self.standing = before.refused(now);
                }
            }
            Step::Renew(call) => {
                let before = self.standing;
                let Standing::Vouching { reign, .. } = before else { return };
                self.standing = self.standing.saying(now);
                let until = now.plus(VOUCHED_FOR);
                if matches!(call, Call::Lost) {
                    self.late.push((Word::Again, reign, until));
                }
                self.heard(call, |slots| slots.renew(shard, reign, until, now));
                if matches!(call, Call::Refused) {
                    self.standing = before.refused(now);
                }
            }
            Step::Arrive(n) if n < self.late.len() => {
                match self.late.remove(n) {
                    (Word::First, reign, until) => self.slots.begin(shard, reign, until, now),
                    (Word::Again, reign, until) => self.slots.renew(shard, reign, until, now),
                };
            }
            Step::Mark(keys, call) => self.mark(keys, call),
            Step::Commit => {
                let Phase::Marked(keys, reign) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
                for key in &keys {
                    self.revision += 1;
                    self.store.insert(*key, self.revision);
                }
                self.phase = Phase::Committed(keys, reign);
            }
            Step::Offer(call) => {
                let Phase::Committed(keys, reign) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
                let Some(reign) = reign else { return };
                let entries: Vec<_> =
                    keys.iter().map(|key| (self.places[*key].clone(), Some(entry(self.there(*key))))).collect();
                self.heard(call, |slots| slots.offer(shard, reign, &entries, now));
            }
            Step::Succeed => {
                self.generation += 1;
                self.standing = Standing::first(now);
                self.phase = Phase::Idle;
            }
            Step::Look(key) => {
                self.tokens += 1;
                match self.slots.look(&self.places[key], Token(self.tokens), now) {
                    Looked::Hit(found) => {
                        self.hits += 1;
                        assert_eq!(found.revision, self.there(key), "what was found is not what is there");
                    }
                    Looked::Miss(token) => self.readers.push((key, token, None)),
                    Looked::Past => {}
                }
            }
            Step::Read(n) if n < self.readers.len() => {
                let there = self.there(self.readers[n].0);
                self.readers[n].2.get_or_insert(there);
            }
            Step::Fill(n) if n < self.readers.len() && self.readers[n].2.is_some() => {
                let (key, token, read) = self.readers.remove(n);
                let read = read.map_or_else(crate::cache::nothing, entry);
                self.slots.fill(&self.places[key], token, &read, now);
            }
            Step::Evict(key) => {
                let place = self.places[key].clone();
                self.slots.evict(&place);
            }
            Step::Restart => {
                self.slots.forget(shard);
                // With its connections.
                self.late.clear();
            }
            Step::Pass(ms) => self.now = now.plus(Duration::from_millis(ms)),
            Step::Arrive(_) | Step::Read(_) | Step::Fill(_) => {}
        }
    }

    fn mark(&mut self, keys: Vec<usize>, call: Call) {
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        let (shard, now) = (self.shard(), self.now);
        if let Standing::Vouching { reign, .. } = self.standing {
            let places: Vec<Place> = keys.iter().map(|key| self.places[*key].clone()).collect();
            if self.heard(call, |slots| slots.mark(shard, reign, &places, now).is_some()) {
                self.phase = Phase::Marked(keys, Some(reign));
                return;
            }
        }
        // It waits until nobody believes any more; others may do something meanwhile, so only if it is time.
        if let Standing::Silent { believed, .. } = self.standing
            && now >= believed
        {
            self.phase = Phase::Marked(keys, None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_is_what_is_there_whatever_happens_in_between(all in proptest::collection::vec(steps(), 1..150)) {
        let mut world = World::new();
        all.into_iter().for_each(|step| world.step(step));
    }
}

/// The plain way: otherwise a cache that never finds anything would pass as well.
#[test]
fn what_was_filled_in_or_offered_is_found() {
    let mut world = World::new();
    for step in [Step::Begin(Call::Done), Step::Look(0), Step::Read(0), Step::Fill(0), Step::Look(0)] {
        world.step(step);
    }
    assert_eq!(world.hits, 1, "that there is nothing, too");
    for step in
        [Step::Mark(vec![0, 1], Call::Done), Step::Look(0), Step::Commit, Step::Look(1), Step::Offer(Call::Done)]
    {
        world.step(step);
    }
    assert_eq!(world.hits, 1, "nothing is found of what changes");
    for key in [0, 1] {
        world.step(Step::Look(key));
    }
    assert_eq!(world.hits, 3);
    world.step(Step::Pass(2_000));
    world.step(Step::Look(0));
    assert_eq!(world.hits, 3, "nobody vouches any more");
}

#[test]
fn no_more_is_kept_than_may_be_and_what_was_used_last_stays() {
    let mut slots = Slots::new(2_000);
    let now = Mono::default();
    let reign = Reign { generation: 1, epoch: 1 };
    let place = |n: u32| Place { namespace: "default".into(), key: format!("k{n}").parse().unwrap() };
    for shard in (0..crate::SHARDS).map(ShardId) {
        assert!(slots.begin(shard, reign, now.plus(VOUCHED_FOR), now));
    }
    for n in 0..100 {
        slots.offer(place(n).shard(), reign, &[(place(n), Some(entry(u64::from(n) + 1)))], now);
        assert!(slots.bytes() <= 2_000);
        assert!(matches!(slots.look(&place(0), Token(1), now), Looked::Hit(_)), "{n}");
    }
    assert!(!matches!(slots.look(&place(1), Token(2), now), Looked::Hit(_)));
}
