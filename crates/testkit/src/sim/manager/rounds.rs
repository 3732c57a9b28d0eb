//! The rounds of a simulated manager: the real tenancy, asked and answered in the order of `shards::office`.

use std::collections::VecDeque;

use mutirao_core::{Dice, Mono};
use mutirao_shards::store::{LeaseRow, MemberRow};
use mutirao_shards::tenancy::{Pace, Tenancy};
use mutirao_shards::{MemberId, Terms};

use super::super::weather::SHARDS;
use super::super::wire::{Answer, NoAnswer, Question};

struct Waiting {
    id: u64,
    question: Question,
    sent_at: Mono,
}

pub struct Rounds {
    pub tenancy: Tenancy,
    me: MemberId,
    terms: Terms,
    script: VecDeque<Question>,
    waiting: Option<Waiting>,
    members: Vec<MemberRow>,
    next_round: Mono,
    next_beat: Mono,
    goodbye: Goodbye,
    former_life: FormerLife,
}

/// Whether what a former life under this name owned is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FormerLife {
    Unburied,
    /// Or there was none.
    Buried,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Goodbye {
    Unsaid,
    Said,
}

impl Rounds {
    pub fn new(me: MemberId, terms: Terms) -> Self {
        Self {
            tenancy: Tenancy::new("jobs", SHARDS, me.clone(), terms),
            me,
            terms,
            script: VecDeque::new(),
            waiting: None,
            members: Vec::new(),
            next_round: Mono::default(),
            next_beat: Mono::default(),
            goodbye: Goodbye::Unsaid,
            former_life: FormerLife::Buried,
        }
    }

    /// Under the name of one that is certainly dead: first what it owned is given back, as by `shards::store::bury`.
    pub fn after_death(me: MemberId, terms: Terms) -> Self {
        Self { former_life: FormerLife::Unburied, ..Self::new(me, terms) }
    }

    /// Whoever leaves has said so, and nothing is in its name.
    pub fn is_over(&self) -> bool {
        self.tenancy.is_leaving() && self.goodbye == Goodbye::Said && self.tenancy.held().is_empty()
    }

    /// What is to be asked now, if anything. `id` is what the answer will be known by.
    pub fn step(&mut self, id: u64, dice: &Dice, now: Mono) -> Option<Question> {
        if self.waiting.as_ref().is_some_and(|waiting| now.since(waiting.sent_at) >= self.terms.call_max) {
            self.cut_short(now);
        }
        if self.waiting.is_some() {
            return None;
        }
        if self.script.is_empty() && now >= self.next_round {
            self.begin(dice, now);
        }
        let mut question = self.script.pop_front()?;
        if let Question::Renew(_, held) = &mut question {
            *held = self.tenancy.to_renew(now);
        }
        self.waiting = Some(Waiting { id, question: question.clone(), sent_at: now });
        Some(question)
    }

    fn cut_short(&mut self, now: Mono) {
        self.waiting = None;
        self.script.clear();
        (self.next_beat, self.next_round) = (now, now.plus(self.terms.look));
    }

    fn begin(&mut self, dice: &Dice, now: Mono) {
        // Until a look around says otherwise.
        self.next_round = now.plus(self.terms.look);
        if self.former_life == FormerLife::Unburied {
            self.script.push_back(Question::Leases);
            return;
        }
        if self.tenancy.is_leaving() && self.goodbye == Goodbye::Unsaid {
            self.script.push_back(Question::Forget(self.me.clone(), None));
        }
        if now >= self.next_beat {
            self.next_beat = now.plus(dice.jitter(self.terms.beat));
            if !self.tenancy.is_leaving() {
                self.script.push_back(Question::Beat(self.me.clone()));
            }
            self.script.push_back(Question::Renew(self.me.clone(), Vec::new()));
        }
        self.script.extend([Question::Members, Question::Leases]);
    }

    /// Only the answer that is waited for counts.
    pub fn hear(&mut self, id: u64, answer: Result<Answer, NoAnswer>, now: Mono) {
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.id == id) else { return };
        match (waiting.question, answer) {
            (_, Err(NoAnswer)) => self.cut_short(now),
            (Question::Renew(_, held), Ok(Answer::Renewed(kept))) => {
                self.tenancy.renewed(&held, &kept, waiting.sent_at);
            }
            (Question::Leases, Ok(Answer::Leases(leases))) if self.former_life == FormerLife::Unburied => {
                self.bury(&leases);
            }
            (Question::Forget(..), Ok(_)) if self.former_life == FormerLife::Unburied => {
                (self.former_life, self.next_round) = (FormerLife::Buried, now);
            }
            (Question::Members, Ok(Answer::Members(members))) => self.members = members,
            (Question::Leases, Ok(Answer::Leases(leases))) => self.look(leases, now),
            (Question::Claim(_, claim), Ok(Answer::Claimed(generation))) => {
                self.tenancy.claimed(claim, generation, waiting.sent_at);
            }
            (Question::Forget(member, None), Ok(_)) if member == self.me => self.goodbye = Goodbye::Said,
            _ => {}
        }
    }

    fn bury(&mut self, leases: &[LeaseRow]) {
        let mine = leases.iter().filter(|row| row.owner.as_ref() == Some(&self.me));
        let releases = mine.map(|row| Question::Release(self.me.clone(), row.shard, row.mark.generation));
        self.script.extend(releases);
        self.script.push_back(Question::Forget(self.me.clone(), None));
    }

    fn look(&mut self, leases: Vec<LeaseRow>, now: Mono) {
        let errands = self.tenancy.looked(std::mem::take(&mut self.members), leases, now);
        let me = &self.me;
        let releases = errands.releases.into_iter();
        self.script.extend(releases.map(|(shard, generation)| Question::Release(me.clone(), shard, generation)));
        self.script.extend(errands.claims.into_iter().map(|claim| Question::Claim(me.clone(), claim)));
        self.script.extend(errands.forget.into_iter().map(|(member, beats)| Question::Forget(member, Some(beats))));
        self.next_round = match errands.pace {
            Pace::Steady => self.next_beat.min(now.plus(self.terms.glance)),
            Pace::Brisk => now.plus(self.terms.look),
        };
    }
}
