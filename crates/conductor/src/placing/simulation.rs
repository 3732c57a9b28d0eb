//! A world that goes wrong, under one seed: hosts come, go, freeze, return and start anew; managers freeze and lose their
//! shard while they decide. The cores are the real ones; the store is a table with a generation, hosts do as they are told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::{Dice, Mono};
use mutirao_streams::wire::{Part, Standing, StreamId, What};

use super::*;
use crate::silence::Ears;

const STEP_MS: u64 = 500;
const HOSTS: usize = 5;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Body {
    Down,
    Running,
    Frozen,
}

struct SimHost {
    body: Body,
    boot: u64,
    /// As it knows it: what it was told last.
    runs: BTreeMap<Part, u64>,
}

#[derive(Clone, Default)]
struct Row {
    boot: u64,
    beats: u64,
}

#[derive(Default)]
struct SimManager {
    frozen: bool,
    /// The generation under which it believes to own the shard.
    generation: Option<u64>,
    ears: Ears,
    /// Read when it took the shard; from then on it alone writes.
    parts: Vec<Wanted>,
    /// Decided before it froze, and written after.
    pending: Option<(u64, Vec<Decision>)>,
}

struct World {
    dice: Dice,
    now: Mono,
    hosts: Vec<SimHost>,
    rows: BTreeMap<String, Row>,
    table: Vec<Wanted>,
    generation: u64,
    managers: Vec<SimManager>,
    /// Who was ever told to run a part under an epoch.
    holders: BTreeMap<(Part, u64), (String, u64)>,
    moves: u64,
}

fn name(n: usize) -> String {
    format!("h{n}")
}

impl World {
    fn new(seed: u64) -> World {
        let dice = Dice::seeded(seed);
        let host = |_| SimHost { body: Body::Running, boot: 1, runs: BTreeMap::new() };
        let mut table = Vec::new();
        let stream = StreamId("s".into());
        for n in 0..4 {
            for replica in 0..=dice.below(3) as u32 {
                let mut needs = Needs::default();
                if dice.below(6) == 0 {
                    needs.inside = Some("the installation's own MQTT");
                }
                let part = Part { stream: stream.clone(), what: What::Stage(n), replica };
                table.push(Wanted { part, needs, seat: None, epoch: 0, bound_for: None });
            }
        }
        let part = Part { stream, what: What::Source(0), replica: 0 };
        let needs = Needs { pin: Some(name(dice.below(HOSTS as u64) as usize)), ..Needs::default() };
        table.push(Wanted { part, needs, seat: None, epoch: 0, bound_for: None });
        World {
            dice,
            now: Mono::default(),
            hosts: (0..HOSTS).map(host).collect(),
            rows: BTreeMap::new(),
            table,
            generation: 0,
            managers: (0..2).map(|_| SimManager::default()).collect(),
            holders: BTreeMap::new(),
            moves: 0,
        }
    }

    fn step(&mut self, calm: bool) {
        self.now = self.now.plus(Duration::from_millis(STEP_MS));
        if calm {
            self.mend()
        } else {
            self.mischief()
        }
        for n in 0..HOSTS {
            self.beat(n);
        }
        for n in 0..self.managers.len() {
            self.manage(n);
        }
        self.look();
    }

    fn mend(&mut self) {
        for host in &mut self.hosts {
            match host.body {
                Body::Running => {}
                Body::Frozen => host.body = Body::Running,
                Body::Down => (host.body, host.boot) = (Body::Running, host.boot + 1),
            }
        }
        self.managers.iter_mut().for_each(|manager| manager.frozen = false);
        if self.managers.iter().all(|manager| manager.generation != Some(self.generation)) {
            self.hand_over(0);
        }
    }

    fn mischief(&mut self) {
        let n = self.dice.below(HOSTS as u64) as usize;
        let host = &mut self.hosts[n];
        match (self.dice.below(20), host.body) {
            (0, Body::Running) => {
                host.body = Body::Down;
                host.runs.clear();
            }
            (1, Body::Running) => host.body = Body::Frozen,
            // So quickly that nobody missed it.
            (2, Body::Running) => {
                host.boot += 1;
                host.runs.clear();
            }
            (3 | 4, Body::Frozen) => host.body = Body::Running,
            (3 | 4, Body::Down) => (host.body, host.boot) = (Body::Running, host.boot + 1),
            _ => {}
        }
        let n = self.dice.below(2) as usize;
        match self.dice.below(25) {
            0 => self.managers[n].frozen = true,
            1..3 => self.managers[n].frozen = false,
            3 | 4 => self.hand_over(n),
            _ => {}
        }
    }

    /// The store gives the shard to another; who had it may not know yet.
    fn hand_over(&mut self, to: usize) {
        self.generation += 1;
        let manager = &mut self.managers[to];
        manager.generation = Some(self.generation);
        manager.parts = self.table.clone();
    }

    /// A word may be lost on the way.
    fn beat(&mut self, n: usize) {
        if self.hosts[n].body != Body::Running || self.dice.below(10) == 0 {
            return;
        }
        let host = &mut self.hosts[n];
        let row = self.rows.entry(name(n)).or_default();
        *row = Row { boot: host.boot, beats: row.beats + 1 };
        let seat = Seat { host: name(n), boot: host.boot };
        let mine = self.table.iter().filter(|wanted| wanted.seat.as_ref() == Some(&seat));
        host.runs = mine.map(|wanted| (wanted.part.clone(), wanted.epoch)).collect();
        for (part, epoch) in &host.runs {
            let holder = (name(n), host.boot);
            let first = self.holders.entry((part.clone(), *epoch)).or_insert_with(|| holder.clone());
            assert_eq!(*first, holder, "two were told to run {part:?} under epoch {epoch}");
        }
    }

    fn manage(&mut self, n: usize) {
        let (now, generation) = (self.now, self.generation);
        if self.managers[n].frozen {
            return;
        }
        if let Some((under, decisions)) = self.managers[n].pending.take() {
            self.write(n, under, &decisions);
        }
        let manager = &mut self.managers[n];
        let Some(under) = manager.generation else { return };
        manager.ears.look(now, self.rows.iter().map(|(id, row)| (id.as_str(), row.boot, row.beats)));
        let hosts: Vec<Host> = self
            .rows
            .iter()
            .map(|(id, row)| {
                let standing = if id == "h0" { Standing::Inside } else { Standing::Apart };
                let life = manager.ears.life(id, now);
                Host { id: id.clone(), name: id.clone(), boot: row.boot, standing, cores: 2, free_bytes: None, life }
            })
            .collect();
        let decisions = place(&hosts, &manager.parts, &BTreeMap::new()).decisions;
        assert!(under <= generation);
        if self.dice.below(8) == 0 {
            self.managers[n].pending = Some((under, decisions));
        } else {
            self.write(n, under, &decisions);
        }
    }

    /// In one transaction with the fence.
    fn write(&mut self, n: usize, under: u64, decisions: &[Decision]) {
        if under != self.generation {
            self.managers[n].generation = None;
            return;
        }
        for decision in decisions {
            let wanted = self.table.iter_mut().find(|wanted| wanted.part == decision.part).unwrap();
            assert_eq!(wanted.seat, decision.from, "{decision:?}");
            assert!(decision.to.is_none() || decision.epoch > wanted.epoch, "{decision:?}");
            assert!(!decision.why.to_string().is_empty());
            (wanted.seat, wanted.epoch) = (decision.to.clone(), decision.epoch);
            self.moves += 1;
        }
        self.managers[n].parts = self.table.clone();
    }

    fn look(&self) {
        let mut taken = BTreeSet::new();
        for wanted in &self.table {
            if let Some(seat) = &wanted.seat {
                assert!(taken.insert((seat.host.clone(), wanted.part.what)), "two replicas on {}", seat.host);
            }
        }
    }

    fn settled(&self) {
        for wanted in &self.table {
            let running: Vec<usize> = (0..HOSTS).filter(|n| self.hosts[*n].runs.contains_key(&wanted.part)).collect();
            let impossible = wanted.needs.inside.is_some() && wanted.part.replica > 0;
            match &wanted.seat {
                Some(seat) => {
                    assert_eq!(running.iter().map(|n| name(*n)).collect::<Vec<_>>(), [seat.host.as_str()]);
                    assert_eq!(self.hosts[running[0]].runs[&wanted.part], wanted.epoch);
                }
                None => assert!(impossible || wanted.needs.inside.is_some(), "{wanted:?} has no place"),
            }
        }
    }
}

fn live(seed: u64) -> u64 {
    let mut world = World::new(seed);
    for round in 0..3 {
        for _ in 0..200 {
            world.step(false);
        }
        for _ in 0..60 {
            world.step(true);
        }
        world.settled();
        let before = world.moves;
        for _ in 0..40 {
            world.step(true);
        }
        assert_eq!(world.moves, before, "seed {seed}, round {round}: something moved without a reason");
    }
    world.moves
}

#[test]
fn whatever_comes_and_goes_each_part_has_one_holder_for_each_epoch_and_finds_its_place() {
    let seeds = match std::env::var("MUTIRAO_SIM_SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).unwrap(),
        Err(_) => 0..300,
    };
    let mut moves = 0;
    for seed in seeds {
        let told = std::panic::catch_unwind(|| live(seed));
        moves += told.unwrap_or_else(|_| panic!("seed {seed} failed: MUTIRAO_SIM_SEED={seed} replays it"));
    }
    assert!(moves > 100, "nothing happened, so this proves nothing");
}
