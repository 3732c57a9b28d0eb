//! The world around the members: time, the network, the store, misfortune, and the one who checks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use mutirao_core::Dice;

use super::Owners;
use super::process::{Answer, Process, Question};
use crate::rendezvous::Rendezvous;
use crate::store::memory::Ledger;
use crate::terms::{Company, Terms};
use mutirao_core::shard::{MemberId, ShardId};

pub const LEASE_MS: u64 = 1_000;
/// Calls may take long, so that an answer can be much younger than its question.
pub const TERMS: Terms = Terms {
    lease: Duration::from_millis(LEASE_MS),
    margin: Duration::from_millis(LEASE_MS / 5),
    beat: Duration::from_millis(LEASE_MS / 5),
    look: Duration::from_millis(LEASE_MS / 40),
    glance: Duration::from_millis(LEASE_MS / 20),
    call_max: Duration::from_millis(LEASE_MS / 2),
    settle_max: Duration::from_millis(LEASE_MS * 3),
    company: Company::Others,
};
const SHARDS: u32 = 8;
const STEP_MS: u64 = 10;
const PROCESSES_MAX: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Luck {
    Good,
    Bad,
}

enum Letter {
    Question(MemberId, u64, Question),
    Answer(MemberId, u64, Answer),
}

pub struct World {
    dice: Dice,
    luck: Luck,
    rates: Range<f64>,
    /// Letters that take their time, in this world.
    slow_percent: u64,
    now_ms: u64,
    ledger: Ledger,
    store_away_until_ms: u64,
    mail: Vec<(u64, Letter)>,
    processes: Vec<Process>,
    born: u64,
    /// Who held each generation of each shard.
    tenants: BTreeMap<(ShardId, u64), MemberId>,
    takeovers: u64,
    without_owner_ms: BTreeMap<ShardId, u64>,
    longest_gap_ms: u64,
}

impl World {
    pub fn new(seed: u64, rates: Range<f64>, luck: Luck) -> Self {
        let dice = Dice::seeded(seed);
        Self {
            slow_percent: dice.below(30),
            dice,
            luck,
            rates,
            now_ms: 1_000,
            ledger: Ledger::default(),
            store_away_until_ms: 0,
            mail: Vec::new(),
            processes: Vec::new(),
            born: 0,
            tenants: BTreeMap::new(),
            takeovers: 0,
            without_owner_ms: BTreeMap::new(),
            longest_gap_ms: 0,
        }
    }

    pub fn join(&mut self) -> MemberId {
        self.born += 1;
        let me = MemberId(format!("m{}-{:x}", self.born, self.dice.u64()));
        // Often one of the extremes: that is where a margin that is too small shows.
        let rate = match self.dice.below(4) {
            0 => self.rates.start,
            1 => self.rates.end,
            _ => self.rates.start + (self.rates.end - self.rates.start) * self.dice.unit(),
        };
        let booted_ms = self.now_ms - self.dice.below(1_000);
        self.processes.push(Process::new(me.clone(), rate, booted_ms, SHARDS));
        me
    }

    pub fn kill(&mut self, n: usize) -> MemberId {
        self.processes.remove(n).me
    }

    pub fn leave(&mut self, n: usize) -> MemberId {
        let process = &mut self.processes[n];
        let now = process.now(self.now_ms);
        process.tenancy.leave(now);
        process.me.clone()
    }

    pub fn freeze(&mut self, n: usize, for_ms: u64) -> MemberId {
        self.processes[n].frozen_until_ms = self.now_ms + for_ms;
        self.processes[n].me.clone()
    }

    pub fn calm_down(&mut self) {
        self.luck = Luck::Good;
    }

    /// Who believes to own what.
    pub fn owners(&self) -> Owners {
        let held = self.processes.iter().flat_map(|process| {
            let now = process.now(self.now_ms);
            let held = process.tenancy.held().iter().filter(move |(_, tenure)| tenure.holds(now));
            held.map(|(shard, tenure)| (*shard, (process.me.clone(), tenure.generation)))
        });
        held.collect()
    }

    /// How often a shard went to another while its last owner lived and had not released it.
    pub fn takeovers(&self) -> u64 {
        self.takeovers
    }

    pub fn forget_gaps(&mut self) {
        self.longest_gap_ms = 0;
    }

    pub fn longest_gap_ms(&self) -> u64 {
        self.longest_gap_ms
    }

    pub fn run(&mut self, for_ms: u64) -> Result<(), String> {
        let end = self.now_ms + for_ms;
        while self.now_ms < end {
            self.now_ms += STEP_MS;
            if self.luck == Luck::Bad {
                self.misfortune();
            }
            self.carry_mail();
            for n in 0..self.processes.len() {
                let process = &mut self.processes[n];
                if process.frozen_until_ms > self.now_ms {
                    continue;
                }
                let asks = process.step(&self.dice, process.now(self.now_ms));
                let me = process.me.clone();
                for (id, question) in asks {
                    self.post(n, Letter::Question(me.clone(), id, question));
                }
            }
            self.check()?;
        }
        Ok(())
    }

    fn misfortune(&mut self) {
        let n = self.dice.below(self.processes.len() as u64) as usize;
        let for_ms = self.dice.below(3 * LEASE_MS);
        match self.dice.below(1_000) {
            0 if self.processes.len() > 1 => drop(self.kill(n)),
            1..=2 if self.processes.len() < PROCESSES_MAX => drop(self.join()),
            3..=6 => drop(self.freeze(n, for_ms)),
            7..=14 => self.processes[n].cut_until_ms = self.now_ms + for_ms,
            15..=16 => self.store_away_until_ms = self.now_ms + for_ms,
            17 if self.processes.len() > 1 => drop(self.leave(n)),
            _ => {}
        }
    }

    /// Sends a letter on its way, if the network is kind.
    fn post(&mut self, n: usize, letter: Letter) {
        let cut = self.processes[n].cut_until_ms > self.now_ms;
        let bad = self.luck == Luck::Bad;
        if cut || bad && self.dice.below(100) < 3 {
            return;
        }
        let delay_ms = match self.dice.below(100) {
            0..=1 if bad => self.dice.below(3 * LEASE_MS),
            n if bad && n < 2 + self.slow_percent => self.dice.below(LEASE_MS * 2 / 3),
            _ => self.dice.below(8),
        };
        self.mail.push((self.now_ms + delay_ms, letter));
    }

    fn carry_mail(&mut self) {
        let (due, later) = std::mem::take(&mut self.mail).into_iter().partition(|(at, _)| *at <= self.now_ms);
        self.mail = later;
        let due: Vec<(u64, Letter)> = due;
        for (_, letter) in due {
            match letter {
                Letter::Question(from, id, question) => self.serve(from, id, &question),
                Letter::Answer(to, id, answer) => self.deliver(to, id, answer),
            }
        }
    }

    fn serve(&mut self, from: MemberId, id: u64, question: &Question) {
        if self.store_away_until_ms > self.now_ms {
            return;
        }
        let owner_before = |ledger: &Ledger, shard: ShardId| {
            ledger.leases().into_iter().find(|row| row.shard == shard).and_then(|row| row.owner)
        };
        let taken_from = match question {
            Question::Claim(claim) => owner_before(&self.ledger, claim.shard).filter(|owner| *owner != from),
            _ => None,
        };
        let answer = question.answer(&mut self.ledger, &from);
        if matches!(answer, Answer::Claimed(Some(_)))
            && taken_from.is_some_and(|owner| self.processes.iter().any(|process| process.me == owner))
        {
            self.takeovers += 1;
        }
        // The question may come from the dead; the answer then goes nowhere.
        if let Some(n) = self.processes.iter().position(|process| process.me == from) {
            self.post(n, Letter::Answer(from, id, answer));
        }
    }

    fn deliver(&mut self, to: MemberId, id: u64, answer: Answer) {
        let Some(process) = self.processes.iter_mut().find(|process| process.me == to) else { return };
        if process.frozen_until_ms > self.now_ms {
            // It lies in the socket until the process wakes.
            self.mail.push((process.frozen_until_ms, Letter::Answer(to, id, answer)));
            return;
        }
        let now = process.now(self.now_ms);
        process.hear(id, answer, now);
    }

    fn check(&mut self) -> Result<(), String> {
        let mut owned = BTreeSet::new();
        for process in &self.processes {
            let now = process.now(self.now_ms);
            for (shard, tenure) in process.tenancy.held().iter().filter(|(_, tenure)| tenure.holds(now)) {
                let (me, generation) = (&process.me, tenure.generation);
                if !owned.insert(*shard) {
                    return Err(format!("shard {shard} has two owners at {} ms, {me} is one", self.now_ms));
                }
                if !self.ledger.is_current(*shard, generation) {
                    return Err(format!("{me} believes in generation {generation} of shard {shard}, which is over"));
                }
                let tenant = self.tenants.entry((*shard, generation)).or_insert_with(|| me.clone());
                if tenant != me {
                    return Err(format!("generation {generation} of shard {shard} had two owners: {tenant}, {me}"));
                }
            }
        }
        for shard in (0..SHARDS).map(ShardId) {
            let gap_ms = self.without_owner_ms.entry(shard).or_default();
            *gap_ms = if owned.contains(&shard) { 0 } else { *gap_ms + STEP_MS };
            self.longest_gap_ms = self.longest_gap_ms.max(*gap_ms);
        }
        Ok(())
    }

    /// Every shard is where it should be.
    pub fn is_settled(&self) -> Result<(), String> {
        let staying = self.processes.iter().filter(|process| !process.tenancy.is_leaving());
        let alive: BTreeSet<MemberId> = staying.map(|process| process.me.clone()).collect();
        let (owners, rendezvous) = (self.owners(), Rendezvous::of("g", &alive));
        for shard in (0..SHARDS).map(ShardId) {
            let should = rendezvous.owner(shard);
            let does = owners.get(&shard).map(|(owner, _)| owner);
            if should != does {
                return Err(format!("shard {shard} should be with {should:?} and is with {does:?}"));
            }
        }
        Ok(())
    }
}
