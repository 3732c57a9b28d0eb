//! An adversary decides what happens next: readers, appliers that come, go and lose their calls, words that arrive late, slots and
//! words that are thrown away. Whatever it does, what is found is what the store says at that moment: in the cache that all share, and
//! in the memory of either of two processes before it, as [`near`](super::super::near) has it.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::Timestamp;
use proptest::prelude::*;

use super::super::VOUCHED_FOR;
use super::super::warden::{Batches, Standing};
use super::{Looked, Mono, Place, Reign, ShardId, Slots, Token};
use crate::fold::Entry;
use crate::write::Value;

const KEYS: usize = 3;
/// Appliers take turns in them, and readers ask in either.
const PROCESSES: usize = 2;

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
    /// Nobody is told whether it is committed: it is not, so far.
    Fail,
    /// It is after all.
    CommitLate,
    Offer(Call),
    /// Another applier takes over; the one before says nothing any more.
    Succeed,
    /// By whom, of what.
    Look(usize, usize),
    /// One who found nothing in its own process asks the cache that all share.
    Ask(usize),
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
        1 => Just(Step::Fail),
        2 => Just(Step::CommitLate),
        4 => calls().prop_map(Step::Offer),
        1 => Just(Step::Succeed),
        8 => (0..PROCESSES, 0..KEYS).prop_map(|(process, key)| Step::Look(process, key)),
        8 => (0..6_usize).prop_map(Step::Ask),
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

/// One who found nothing so far.
struct Reader {
    process: usize,
    key: usize,
    token: Token,
    /// What it was told.
    read: Option<u64>,
    /// Whether it has a lease on the key here, and there.
    here: bool,
    there: bool,
}

struct World {
    places: Vec<Place>,
    slots: Slots,
    near: [Slots; PROCESSES],
    store: HashMap<usize, u64>,
    revision: u64,
    now: Mono,
    generation: u64,
    epochs: u64,
    standing: Standing,
    phase: Phase,
    batches: Batches,
    /// Keys of batches that may be committed yet.
    in_doubt: Vec<Vec<usize>>,
    /// Words on their way: whose, and until when they say that it counts.
    late: Vec<(Word, Reign, Mono)>,
    asking: Vec<Reader>,
    readers: Vec<Reader>,
    tokens: u64,
    hits: u64,
}

impl World {
    fn new() -> Self {
        Self {
            places: places(),
            slots: Slots::new(1 << 20),
            near: [(); PROCESSES].map(|()| Slots::new(1 << 20)),
            store: HashMap::new(),
            revision: 0,
            now: Mono::default(),
            generation: 1,
            epochs: 0,
            standing: Standing::first(Mono::default()),
            phase: Phase::Idle,
            batches: Batches::Known,
            in_doubt: Vec::new(),
            late: Vec::new(),
            asking: Vec::new(),
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

    /// The memory of the process in which the applier is.
    fn here(&mut self) -> &mut Slots {
        &mut self.near[self.generation as usize % PROCESSES]
    }

    /// As an applier hears of it.
    fn heard(&mut self, call: Call, act: impl FnOnce(&mut Slots) -> bool) -> bool {
        let done = !matches!(call, Call::Lost | Call::Refused) && act(&mut self.slots);
        self.was(done && matches!(call, Call::Done))
    }

    fn was(&mut self, done: bool) -> bool {
        if !done {
            self.standing = self.standing.failed(self.now);
        }
        done
    }

    fn step(&mut self, step: Step) {
        let (shard, now) = (self.shard(), self.now);
        match step {
            Step::Begin(call) => {
                let may = match self.standing {
                    Standing::Silent { .. } => self.batches != Batches::InDoubt,
                    Standing::Vouching { .. } => self.batches == Batches::Settled,
                };
                if !may || !matches!(self.phase, Phase::Idle) {
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
                let begun = begun && self.here().begin(shard, reign, until, now);
                if self.was(begun) {
                    (self.standing, self.batches) = (Standing::Vouching { reign, said: now }, Batches::Known);
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
                let renewed = self.heard(call, |slots| slots.renew(shard, reign, until, now));
                let renewed = renewed && self.here().renew(shard, reign, until, now);
                self.was(renewed);
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
                self.commit(&keys);
                // As they would take the same revisions.
                self.in_doubt.clear();
                if self.batches == Batches::InDoubt {
                    self.batches = Batches::Settled;
                }
                self.phase = Phase::Committed(keys, reign);
            }
            Step::Fail => {
                let Phase::Marked(keys, _) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
                self.in_doubt.push(keys);
                self.batches = Batches::InDoubt;
            }
            Step::CommitLate => {
                if let Some(keys) = self.in_doubt.pop() {
                    self.in_doubt.clear();
                    self.commit(&keys);
                }
            }
            Step::Offer(call) => {
                let Phase::Committed(keys, reign) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
                let Some(reign) = reign else { return };
                let entries: Vec<_> =
                    keys.iter().map(|key| (self.places[*key].clone(), Some(entry(self.there(*key))))).collect();
                let here = self.here().offer(shard, reign, &entries, now);
                let offered = self.heard(call, |slots| slots.offer(shard, reign, &entries, now));
                self.was(here && offered);
            }
            Step::Succeed => {
                self.generation += 1;
                self.standing = Standing::first(now);
                self.phase = Phase::Idle;
                // The store lets nobody have a shard of which something is being committed.
                (self.batches, self.in_doubt) = (Batches::Known, Vec::new());
            }
            Step::Look(process, key) => {
                self.tokens += 1;
                let (place, token, near) = (&self.places[key], Token(self.tokens), &mut self.near[process]);
                let found = near.look(shard, place, token, now);
                // It is another's, who told nobody here: as whoever holds shards knows.
                let counts = near.generation(shard) == Some(self.generation);
                let found = if counts { found } else { Looked::Past };
                let here = matches!(found, Looked::Miss(_));
                match found {
                    Looked::Hit(found) => self.found(key, found.revision),
                    _ => self.asking.push(Reader { process, key, token, read: None, here, there: false }),
                }
            }
            Step::Ask(n) if n < self.asking.len() => {
                let mut reader = self.asking.remove(n);
                let place = self.places[reader.key].clone();
                match self.slots.look(shard, &place, reader.token, now) {
                    Looked::Hit(found) => {
                        self.found(reader.key, found.revision);
                        reader.read = Some(found.revision);
                        self.readers.push(reader);
                    }
                    Looked::Miss(_) => {
                        reader.there = true;
                        self.readers.push(reader);
                    }
                    Looked::Past if reader.here => self.near[reader.process].give_up(&place, reader.token),
                    Looked::Past => {}
                }
            }
            Step::Read(n) if n < self.readers.len() => {
                let there = self.there(self.readers[n].key);
                self.readers[n].read.get_or_insert(there);
            }
            Step::Fill(n) if n < self.readers.len() && self.readers[n].read.is_some() => {
                let Reader { process, key, token, read, there, .. } = self.readers.remove(n);
                let read = read.filter(|read| *read > 0).map_or_else(crate::cache::nothing, entry);
                self.near[process].fill(&self.places[key], token, &read, now);
                if there {
                    self.slots.fill(&self.places[key], token, &read, now);
                }
            }
            Step::Evict(key) => {
                let place = self.places[key].clone();
                self.slots.evict(&place);
                self.near[key % PROCESSES].evict(&place);
            }
            Step::Restart => {
                self.slots.forget(shard);
                // With its connections.
                self.late.clear();
            }
            Step::Pass(ms) => self.now = now.plus(Duration::from_millis(ms)),
            Step::Arrive(_) | Step::Ask(_) | Step::Read(_) | Step::Fill(_) => {}
        }
    }

    fn commit(&mut self, keys: &[usize]) {
        for key in keys {
            self.revision += 1;
            self.store.insert(*key, self.revision);
        }
    }

    fn found(&mut self, key: usize, revision: u64) {
        self.hits += 1;
        assert_eq!(revision, self.there(key), "what was found is not what is there");
    }

    fn mark(&mut self, keys: Vec<usize>, call: Call) {
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        let (shard, now) = (self.shard(), self.now);
        if let Standing::Vouching { reign, .. } = self.standing {
            let places: Vec<Place> = keys.iter().map(|key| self.places[*key].clone()).collect();
            let here = self.here().mark(shard, reign, &places, now).is_some();
            let marked = here && self.heard(call, |slots| slots.mark(shard, reign, &places, now).is_some());
            if self.was(marked) {
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
    // The first applier is in the second process.
    let (own, other) = (1, 0);
    for step in
        [Step::Begin(Call::Done), Step::Look(own, 0), Step::Ask(0), Step::Read(0), Step::Fill(0), Step::Look(own, 0)]
    {
        world.step(step);
    }
    assert_eq!((world.hits, world.asking.len()), (1, 0), "that there is nothing, too, and nobody else was asked");
    world.step(Step::Look(other, 0));
    world.step(Step::Ask(0));
    assert_eq!(world.hits, 2, "whoever applies nothing asks the cache that all share");
    world.readers.clear();
    for step in [
        Step::Mark(vec![0, 1], Call::Done),
        Step::Look(own, 0),
        Step::Ask(0),
        Step::Commit,
        Step::Look(own, 1),
        Step::Ask(0),
        Step::Offer(Call::Done),
    ] {
        world.step(step);
    }
    assert_eq!(world.hits, 2, "nothing is found of what changes");
    for key in [0, 1] {
        world.step(Step::Look(own, key));
    }
    assert_eq!(world.hits, 4);
    world.step(Step::Pass(2_000));
    world.step(Step::Look(own, 0));
    world.step(Step::Ask(0));
    assert_eq!(world.hits, 4, "nobody vouches any more");
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
        assert!(matches!(slots.look(place(0).shard(), &place(0), Token(1), now), Looked::Hit(_)), "{n}");
    }
    assert!(!matches!(slots.look(place(1).shard(), &place(1), Token(2), now), Looked::Hit(_)));
}
