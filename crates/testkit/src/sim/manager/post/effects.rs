//! Carrying out what the foreman says.

use mutirao_jobs::dispatch::Outgoing;
use mutirao_jobs::foreman::{Effect, Ending, Errand, Found, Inbox, Input, Outside, Tenure, Way};

use super::super::super::asker::Asker;
use super::super::super::flaw::Flaw;
use super::super::super::wire::Question;
use super::super::Purpose;
use super::{Hands, Post};

/// What is to become of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Stay,
    /// Everything is settled: release the shard.
    Release,
    /// It is another's: drop everything.
    Drop,
}

impl Post {
    /// Everything that can be done now.
    pub fn turn(&mut self, h: &mut Hands<'_>) -> Turn {
        if self.work.is_none() {
            // Nothing is in hand yet.
            return if self.leaving { Turn::Release } else { Turn::Stay };
        }
        loop {
            let Some(effect) = self.next(h) else {
                if let Some(work) = &self.work {
                    h.ground.oracle.gathered(h.me, work.foreman.gathered(), h.ground.weather.budget);
                }
                return Turn::Stay;
            };
            if let Some(turn) = self.carry_out(effect, h) {
                return turn;
            }
        }
    }

    fn next(&mut self, h: &mut Hands<'_>) -> Option<Effect<Asker>> {
        let work = self.work.as_mut()?;
        loop {
            let outside = Outside {
                now: h.now,
                tenure: tenure(self.generation, h),
                way: if work.outbox.has_room() { Way::Free } else { Way::Full },
                inbox: if work.intake.is_empty() { Inbox::Empty } else { Inbox::Waiting },
            };
            if let Some(effect) = work.foreman.poll(outside) {
                return Some(effect);
            }
            let back = work.outbox.go_on(&work.known, h);
            if !back.is_empty() {
                work.foreman.handle(Input::Back(back), h.now);
            } else if !work.answer_all(h) {
                return None;
            }
        }
    }

    fn carry_out(&mut self, effect: Effect<Asker>, h: &mut Hands<'_>) -> Option<Turn> {
        let shard = self.shard;
        let work = self.work.as_mut()?;
        match effect {
            Effect::Settle(settlement) => {
                let (member, generation) = (h.me.clone(), self.generation);
                let question = Question::Settle { member, shard, generation, settlement };
                work.settling = Some(h.ask_store(Purpose::Settle(shard), question));
            }
            Effect::Acknowledge(mark) => work.intake.acknowledge(mark, h),
            Effect::Send(outgoing) => {
                match &outgoing {
                    Outgoing::Parcels(parcels) => work.checks.handed_out(parcels, work.foreman.desk(), &work.known, h),
                    Outgoing::Control(_, control) => work.checks.told(control, h),
                    Outgoing::Look(_) | Outgoing::Remove(_) => {}
                }
                work.outbox.push(outgoing);
            }
            Effect::Read(Errand::Keys) if h.ground.has(Flaw::NeverReconciles) => {
                work.foreman.handle(Input::Found(Found::Nothing), h.now);
            }
            Effect::Read(errand) => {
                let question = match errand {
                    Errand::Keys => Question::Keys(shard),
                    Errand::Jobs(keys) => Question::Jobs(shard, keys),
                };
                work.reading = Some(h.ask_store(Purpose::Compare(shard), question));
            }
            Effect::Answer(asker, answer) => asker.answer(answer, h.link, h.ground),
            Effect::End(Ending::Settled) => {
                work.intake.close(h);
                return Some(Turn::Release);
            }
            Effect::End(Ending::Fenced) => return Some(Turn::Drop),
        }
        None
    }
}

fn tenure(generation: u64, h: &Hands<'_>) -> Tenure {
    let holds = h.tenure.is_some_and(|tenure| tenure.generation == generation && tenure.holds(h.now.mono));
    match holds || h.ground.has(Flaw::TrustsItsTenure) {
        true => Tenure::Holds,
        false => Tenure::Lapsed,
    }
}
