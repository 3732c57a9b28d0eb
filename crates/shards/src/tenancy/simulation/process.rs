//! One member: the real tenancy, the rounds around it as a script, and a user who settles and lets go when asked.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mutirao_core::{Dice, Mono};

use super::super::{Asked, Claim, Pace, Tenancy};
use super::world::TERMS;
use crate::store::memory::Ledger;
use crate::store::{LeaseRow, MemberRow};
use mutirao_core::shard::{MemberId, ShardId};

#[derive(Clone, Debug)]
pub enum Question {
    Beat,
    Renew(Vec<(ShardId, u64)>),
    Members,
    Leases,
    Claim(Claim),
    Release(ShardId, u64),
    Forget(MemberId, Option<u64>),
}

#[derive(Clone, Debug)]
pub enum Answer {
    Done,
    Renewed(Vec<ShardId>),
    Members(Vec<MemberRow>),
    Leases(Vec<LeaseRow>),
    Claimed(Option<u64>),
}

impl Question {
    pub fn answer(&self, ledger: &mut Ledger, asker: &MemberId) -> Answer {
        match self {
            Self::Beat => ledger.beat(asker, "somewhere"),
            Self::Renew(held) => return Answer::Renewed(ledger.renew(asker, held)),
            Self::Members => return Answer::Members(ledger.members()),
            Self::Leases => return Answer::Leases(ledger.leases()),
            Self::Claim(claim) => {
                return Answer::Claimed(ledger.claim(claim.shard, claim.seen, asker, TERMS.lease));
            }
            Self::Release(shard, generation) => ledger.release(asker, *shard, *generation),
            Self::Forget(member, beats) => ledger.forget(member, *beats),
        }
        Answer::Done
    }
}

struct Waiting {
    id: u64,
    question: Question,
    sent_at: Mono,
}

pub struct Process {
    pub me: MemberId,
    pub tenancy: Tenancy,
    /// Local seconds to a real one.
    pub rate: f64,
    pub frozen_until_ms: u64,
    pub cut_until_ms: u64,
    booted_ms: u64,
    script: VecDeque<Question>,
    waiting: Option<Waiting>,
    members: Vec<MemberRow>,
    next_round: Mono,
    next_beat: Mono,
    goodbye_said: bool,
    settling: BTreeMap<(ShardId, u64), Mono>,
    questions: u64,
}

impl Process {
    pub fn new(me: MemberId, rate: f64, booted_ms: u64, count: u32) -> Self {
        Self {
            tenancy: Tenancy::new("g", count, me.clone(), TERMS),
            me,
            rate,
            frozen_until_ms: 0,
            cut_until_ms: 0,
            booted_ms,
            script: VecDeque::new(),
            waiting: None,
            members: Vec::new(),
            next_round: Mono::default(),
            next_beat: Mono::default(),
            goodbye_said: false,
            settling: BTreeMap::new(),
            questions: 0,
        }
    }

    /// Its own clock, which also counts while it is frozen.
    pub fn now(&self, real_ms: u64) -> Mono {
        Mono(Duration::from_secs_f64((real_ms - self.booted_ms) as f64 * self.rate / 1e3))
    }

    /// An answer came. Only the one that is waited for counts.
    pub fn hear(&mut self, id: u64, answer: Answer, now: Mono) {
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.id == id) else { return };
        match (waiting.question, answer) {
            (Question::Renew(held), Answer::Renewed(kept)) => self.tenancy.renewed(&held, &kept, waiting.sent_at),
            (Question::Members, Answer::Members(members)) => self.members = members,
            (Question::Leases, Answer::Leases(leases)) => self.look(leases, now),
            (Question::Claim(claim), Answer::Claimed(generation)) => {
                self.tenancy.claimed(claim, generation, waiting.sent_at)
            }
            _ => {}
        }
    }

    fn look(&mut self, leases: Vec<LeaseRow>, now: Mono) {
        let errands = self.tenancy.looked(std::mem::take(&mut self.members), leases, now);
        self.script.extend(errands.releases.into_iter().map(|(shard, gen_)| Question::Release(shard, gen_)));
        self.script.extend(errands.claims.into_iter().map(Question::Claim));
        self.script.extend(errands.forget.into_iter().map(|(member, beats)| Question::Forget(member, Some(beats))));
        self.next_round = match errands.pace {
            Pace::Steady => self.next_beat.min(now.plus(TERMS.glance)),
            Pace::Brisk => now.plus(TERMS.look),
        };
    }

    /// Does what is due, and says what it asks of the store.
    pub fn step(&mut self, dice: &Dice, now: Mono) -> Vec<(u64, Question)> {
        let mut asks = self.settle(dice, now);
        if self.waiting.as_ref().is_some_and(|waiting| now.since(waiting.sent_at) >= TERMS.call_max) {
            self.waiting = None;
            self.script.clear();
            (self.next_beat, self.next_round) = (now, now.plus(TERMS.look));
        }
        if self.waiting.is_none() && self.script.is_empty() && now >= self.next_round {
            self.begin(dice, now);
        }
        if self.waiting.is_none()
            && let Some(mut question) = self.script.pop_front()
        {
            if let Question::Renew(held) = &mut question {
                *held = self.tenancy.to_renew(now);
            }
            self.questions += 1;
            asks.push((self.questions, question.clone()));
            self.waiting = Some(Waiting { id: self.questions, question, sent_at: now });
        }
        asks
    }

    fn begin(&mut self, dice: &Dice, now: Mono) {
        // Until a look around says otherwise.
        self.next_round = now.plus(TERMS.look);
        if self.tenancy.is_leaving() && !self.goodbye_said {
            self.goodbye_said = true;
            self.script.push_back(Question::Forget(self.me.clone(), None));
        }
        if now >= self.next_beat {
            self.next_beat = now.plus(dice.jitter(TERMS.beat));
            if !self.tenancy.is_leaving() {
                self.script.push_back(Question::Beat);
            }
            self.script.push_back(Question::Renew(Vec::new()));
        }
        self.script.extend([Question::Members, Question::Leases]);
    }

    /// The user: takes a moment to settle, now and then more than it has, and lets go.
    fn settle(&mut self, dice: &Dice, now: Mono) -> Vec<(u64, Question)> {
        let held = self.tenancy.held().clone();
        for (shard, tenure) in held.iter().filter(|(_, tenure)| tenure.asked == Asked::Leave) {
            let takes = if dice.below(20) == 0 { TERMS.settle_max * 2 } else { TERMS.lease / 50 };
            self.settling.entry((*shard, tenure.generation)).or_insert(now.plus(takes));
        }
        let ready: Vec<_> = self.settling.iter().filter(|(_, at)| now >= **at).map(|(key, _)| *key).collect();
        let mut asks = Vec::new();
        for (shard, generation) in ready {
            self.settling.remove(&(shard, generation));
            if self.tenancy.let_go(shard, generation) {
                self.questions += 1;
                asks.push((self.questions, Question::Release(shard, generation)));
            }
        }
        asks
    }
}
