//! A cloud that lies, is slow and fails, and resource managers that die at any moment, against the books. Afterwards the cloud has
//! what is wanted and nothing else, and what somebody else made was never touched.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::Dice;

use super::tests::{at, books, node};
use super::*;

const AT_MOST: u32 = 4;
const TROUBLE_S: u64 = 600;
/// For the longest pause of a kind, and what is given up after having been waited for.
const CALM_S: u64 = 1_500;
/// What the issue promises, once nothing fails any more and nothing is waited for.
const EQUAL_WITHIN_S: u64 = 60;

struct There {
    /// From when the list has it.
    listed_at: u64,
    /// From when its agent answers; some never do.
    answers_at: Option<u64>,
    told_to_leave: bool,
}

/// What a hook is about to do, and to say.
struct Underway {
    job: Job,
    began: u64,
    works_at: Option<u64>,
    says_at: u64,
    fails: bool,
    /// The manager that asked has died.
    orphan: bool,
}

struct Cloud {
    dice: Dice,
    now: u64,
    troubled: bool,
    machines: BTreeMap<NodeName, There>,
    underway: Vec<Underway>,
    created: BTreeMap<NodeName, u32>,
    needed: BTreeSet<NodeName>,
}

impl Cloud {
    fn chance(&self, one_in: u64) -> bool {
        self.troubled && self.dice.below(one_in) == 0
    }

    fn begin(&mut self, job: Job) {
        let slow = if self.troubled { 1 + self.dice.below(40) } else { 2 };
        let says_at = self.now + slow;
        let fails = self.chance(2);
        // Of those that fail, half have done their work, some of them long after.
        let does = !fails || self.chance(2);
        let late = if fails && self.chance(3) { self.dice.below(15) } else { 0 };
        let works_at = does.then(|| self.now + self.dice.below(slow) + late);
        self.underway.push(Underway { job, began: self.now, works_at, says_at, fails, orphan: false });
    }

    fn work(&mut self, job: &Job) {
        match job {
            Job::List => {}
            Job::Create { node, .. } => {
                if self.machines.contains_key(node) {
                    return;
                }
                *self.created.entry(node.clone()).or_default() += 1;
                let listed_at = self.now + if self.troubled { self.dice.below(15) } else { 1 };
                let answers_at = (!self.chance(6)).then(|| self.now + 5 + self.dice.below(40));
                self.machines.insert(node.clone(), There { listed_at, answers_at, told_to_leave: false });
            }
            Job::Destroy { node } => {
                assert!(!node.0.starts_with("other"), "somebody else's");
                let there = self.machines.remove(node);
                let at_work = there
                    .is_some_and(|there| there.answers_at.is_some_and(|at| at <= self.now) && !there.told_to_leave);
                assert!(!(at_work && self.needed.contains(node)), "{node} worked, and was needed");
            }
        }
    }

    /// A listing: now and then it forgets one, or has one that is not there.
    fn list(&self) -> Vec<Listed> {
        let listed = |node: &NodeName| Listed {
            node: node.clone(),
            kind: None,
            place: Some(Place::Folder("/x".into())),
            leaving: None,
        };
        let all = self.machines.iter().filter(|(_, there)| there.listed_at <= self.now && !self.chance(12));
        let mut all: Vec<Listed> = all.map(|(node, _)| listed(node)).collect();
        if self.chance(8) {
            all.push(listed(&node("small-0-99")));
        }
        all
    }

    fn second(&mut self, books: &mut Books) {
        self.now += 1;
        let mut all = std::mem::take(&mut self.underway);
        for one in &mut all {
            if one.works_at.is_some_and(|works_at| works_at <= self.now) {
                one.works_at = None;
                self.work(&one.job.clone());
            }
        }
        let (said, underway) =
            all.into_iter().partition(|one: &Underway| one.says_at <= self.now && one.works_at.is_none());
        self.underway = underway;
        for Underway { job, began, fails, orphan, .. } in said {
            let result = if fails { Err("it fails".to_owned()) } else { Ok(()) };
            match job {
                _ if orphan => {}
                Job::List => books.listed(at(began), at(self.now), result.map(|()| self.list())),
                Job::Create { node, .. } => books.created(&node, at(self.now), result),
                Job::Destroy { node } => books.destroyed(&node, at(self.now), result),
            }
        }
    }
}

/// A resource manager that wants so many machines, and its hooks.
struct Manager {
    books: Books,
    generation: u64,
    asked: u64,
}

impl Manager {
    fn pass(&mut self, cloud: &mut Cloud, wanted: usize) {
        let now = at(cloud.now);
        for job in self.books.due(now) {
            cloud.begin(job);
        }
        let all: Vec<NodeName> = self.books.machines().keys().cloned().collect();
        for node in &all {
            let machine = &self.books.machines()[node];
            if !machine.is_listed() {
                continue;
            }
            let going = machine.going().is_some();
            let heard = match cloud.machines.get_mut(node) {
                Some(there) if there.answers_at.is_some_and(|at| at <= cloud.now) => {
                    there.told_to_leave |= going;
                    if there.told_to_leave { Heard::Silent("gone".into()) } else { Heard::Answers { workers: 0 } }
                }
                _ => Heard::Silent("no route".into()),
            };
            self.books.heard(node, now, heard);
        }
        let staying: Vec<NodeName> = {
            let all = self.books.machines().iter();
            all.filter(|(_, machine)| machine.going().is_none() && machine.at(now) != At::Lost)
                .map(|(node, _)| node.clone())
                .collect()
        };
        cloud.needed = staying.iter().take(wanted).cloned().collect();
        for node in staying.iter().skip(wanted) {
            self.books.unwant(node, now);
        }
        if staying.len() < wanted && self.books.room("small", now) > 0 {
            self.asked += 1;
            let node = node(&format!("small-{}-{}", self.generation, self.asked));
            self.books.want(&node, "small", now).unwrap();
        }
    }
}

fn live(seed: u64) {
    let dice = Dice::seeded(seed);
    let other = There { listed_at: u64::MAX, answers_at: None, told_to_leave: false };
    let mut cloud = Cloud {
        dice: Dice::seeded(seed + 1_000_000),
        now: 0,
        troubled: true,
        machines: [(node("other-1"), other)].into(),
        underway: Vec::new(),
        created: BTreeMap::new(),
        needed: BTreeSet::new(),
    };
    let mut manager = Manager { books: books(AT_MOST), generation: 1, asked: 0 };
    let (mut wanted, mut deaths) = (0, 0);
    let mut unequal_since = None;
    for second in 0..TROUBLE_S + CALM_S {
        cloud.troubled = second < TROUBLE_S;
        if second.is_multiple_of(60) && second < TROUBLE_S {
            wanted = dice.below(u64::from(AT_MOST)) as usize;
        }
        cloud.second(&mut manager.books);
        manager.pass(&mut cloud, wanted);
        if cloud.troubled && dice.below(60) == 0 {
            // What it asked for goes on, and nobody hears what comes of it.
            cloud.underway.iter_mut().for_each(|one| one.orphan = true);
            manager = Manager { books: books(AT_MOST), generation: manager.generation + 1, asked: 0 };
            deaths += 1;
        }
        let own = cloud.machines.keys().filter(|node| node.0.starts_with("small")).count();
        let known = manager.books.machines().keys().collect::<BTreeSet<_>>();
        let there = cloud.machines.keys().filter(|node| node.0.starts_with("small")).collect::<BTreeSet<_>>();
        if deaths == 0 {
            assert!(own <= AT_MOST as usize, "seed {seed}: {own} machines in second {second}");
        }
        unequal_since = if known == there { None } else { unequal_since.or(Some(second)) };
    }
    let own: Vec<&NodeName> = cloud.machines.keys().filter(|node| node.0.starts_with("small")).collect();
    assert_eq!(own.len(), wanted, "seed {seed}: {own:?} in the cloud\n{:#?}", manager.books);
    assert_eq!(unequal_since, None, "seed {seed}: {own:?}\n{:#?}", manager.books);
    let working = manager.books.machines().values().filter(|machine| machine.at(at(cloud.now)) == At::Work).count();
    assert_eq!(working, wanted, "seed {seed}: {:#?}", manager.books);
    assert!(cloud.machines.contains_key(&node("other-1")), "seed {seed}");
    assert!(cloud.created.values().all(|times| *times == 1), "seed {seed}: created twice: {:?}", cloud.created);
}

#[test]
fn whatever_a_cloud_does_and_whenever_a_manager_dies_there_is_what_is_wanted_and_nothing_else() {
    for seed in 0..300 {
        live(seed);
    }
}

/// Machines vanish, and machines appear that a predecessor was about to make: known within a minute.
#[test]
fn what_is_there_is_what_is_known_within_a_minute() {
    for seed in 0..200 {
        let dice = Dice::seeded(seed);
        let mut cloud = Cloud {
            dice: Dice::seeded(seed + 7),
            now: 0,
            troubled: false,
            machines: BTreeMap::new(),
            underway: Vec::new(),
            created: BTreeMap::new(),
            needed: BTreeSet::new(),
        };
        let mut manager = Manager { books: books(AT_MOST), generation: 1, asked: 0 };
        let (mut unequal_since, mut changes) = (None, 0);
        for second in 0..600u64 {
            cloud.second(&mut manager.books);
            manager.pass(&mut cloud, 2);
            if second.is_multiple_of(97) {
                if dice.below(2) == 0 {
                    cloud.machines.pop_first();
                } else {
                    let there = There { listed_at: 0, answers_at: Some(second), told_to_leave: false };
                    cloud.machines.insert(node(&format!("small-9-{second}")), there);
                }
                changes += 1;
            }
            let equal = manager.books.machines().keys().eq(cloud.machines.keys());
            unequal_since = if equal { None } else { unequal_since.or(Some(second)) };
            assert!(
                unequal_since.is_none_or(|since| second - since <= EQUAL_WITHIN_S),
                "seed {seed}: {:#?}",
                manager.books
            );
        }
        assert!(changes > 3 && manager.books.machines().len() == 2, "seed {seed}");
    }
}
