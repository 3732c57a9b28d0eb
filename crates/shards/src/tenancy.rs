//! One member's part in a group, as a machine without I/O: what it holds and until when, what it has seen of the others,
//! what it should ask of the store next. [`office`](crate::office) carries the questions and answers; so does the
//! simulation, through a store that is slow, deaf and forgetful.
//!
//! Moments are always this machine's own: `sent_at` is from before a question left, `received_at` from after its answer
//! had come. Mixing them up would be unsafe, so they are named at every call.

#[cfg(test)]
mod simulation;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::Mono;

use crate::plan::{Move, Scene, Standing, plan};
use crate::silence::Silence;
use crate::store::{LeaseRow, Mark, MemberRow};
use crate::terms::Terms;
use mutirao_core::shard::ShardView;
use mutirao_core::shard::{MemberId, ShardId};

/// A member that has been silent for this many leases is struck off the list, so that it does not grow for ever.
const FORGOTTEN_AFTER_LEASES: u32 = 10;

/// The right to act on a shard, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Grows with every owner; what is written and handed out under it carries it.
    pub generation: u64,
    /// It holds before this moment, on this machine's clock, and not at it.
    pub until: Mono,
    pub asked: Asked,
}

impl Tenure {
    /// To be asked before each act, with the time of asking.
    pub fn holds(&self, now: Mono) -> bool {
        now < self.until
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Stay,
    /// Settle what is in hand, take nothing new, and release.
    Leave,
}

/// A lease worth trying for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub shard: ShardId,
    pub seen: Mark,
}

/// What to ask of the store after a look around.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errands {
    pub claims: Vec<Claim>,
    /// Leases in this member's name under which nobody acts.
    pub releases: Vec<(ShardId, u64)>,
    /// Members long silent, at this beat.
    pub forget: Vec<(MemberId, u64)>,
    pub pace: Pace,
}

/// When to look again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    #[default]
    Steady,
    /// A shard that belongs here is about to be let go of.
    Brisk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Stay,
    /// Shards are settled from this moment on: when the others have seen the goodbye and stand ready.
    Leave(Mono),
}

pub struct Tenancy {
    group: String,
    count: u32,
    me: MemberId,
    terms: Terms,
    intent: Intent,
    held: BTreeMap<ShardId, Tenure>,
    asked_at: BTreeMap<ShardId, Mono>,
    members: BTreeMap<MemberId, MemberRow>,
    leases: BTreeMap<ShardId, LeaseRow>,
    member_silence: Silence<MemberId, u64>,
    lease_silence: Silence<ShardId, Mark>,
}

impl Tenancy {
    pub fn new(group: &str, count: u32, me: MemberId, terms: Terms) -> Self {
        Self {
            group: group.into(),
            count,
            me,
            terms,
            intent: Intent::Stay,
            held: BTreeMap::new(),
            asked_at: BTreeMap::new(),
            members: BTreeMap::new(),
            leases: BTreeMap::new(),
            member_silence: Silence::default(),
            lease_silence: Silence::default(),
        }
    }

    pub fn held(&self) -> &BTreeMap<ShardId, Tenure> {
        &self.held
    }

    pub fn is_leaving(&self) -> bool {
        self.intent != Intent::Stay
    }

    /// What the passing of time does. Tenures that do not hold any more are forgotten; they may be claimed again, in
    /// another generation.
    pub fn tick(&mut self, now: Mono) {
        self.held.retain(|_, tenure| tenure.holds(now));
        self.asked_at.retain(|shard, _| self.held.contains_key(shard));
        if matches!(self.intent, Intent::Leave(from) if now >= from) {
            let shards: Vec<ShardId> = self.held.keys().copied().collect();
            for shard in shards {
                self.ask(shard, Asked::Leave, now);
            }
        }
    }

    /// What to renew now. Whoever was asked to leave and has settled for too long is not supported any further.
    pub fn to_renew(&mut self, now: Mono) -> Vec<(ShardId, u64)> {
        self.tick(now);
        let overdue = |shard| self.asked_at.get(shard).is_some_and(|at| now.since(*at) >= self.terms.settle_max);
        let renewed = self.held.iter().filter(|(shard, _)| !overdue(shard));
        renewed.map(|(shard, tenure)| (*shard, tenure.generation)).collect()
    }

    /// The answer to [`to_renew`](Self::to_renew): of those asked for, these are still ours.
    pub fn renewed(&mut self, asked: &[(ShardId, u64)], kept: &[ShardId], sent_at: Mono) {
        let until = sent_at.plus(self.terms.tenure());
        for (shard, generation) in asked {
            let Some(tenure) = self.held.get_mut(shard).filter(|tenure| tenure.generation == *generation) else {
                // Released or lapsed while the question was on its way: no answer brings it back.
                continue;
            };
            if kept.contains(shard) {
                tenure.until = tenure.until.max(until);
            } else {
                self.drop_tenure(*shard);
            }
        }
    }

    /// A look around: everybody's rows, and what follows from them. The leases must have been read after the members:
    /// whoever has claimed has beaten before.
    pub fn looked(&mut self, members: Vec<MemberRow>, leases: Vec<LeaseRow>, received_at: Mono) -> Errands {
        self.tick(received_at);
        self.member_silence.hear(members.iter().map(|row| (row.member.clone(), row.beats)), received_at);
        self.lease_silence.hear(leases.iter().map(|row| (row.shard, row.mark)), received_at);
        self.members = members.into_iter().map(|row| (row.member.clone(), row)).collect();
        self.leases = leases.into_iter().map(|row| (row.shard, row)).collect();
        // A newer generation than ours is the end of ours, whatever our clock says.
        self.held.retain(|shard, held| self.leases.get(shard).is_none_or(|row| row.mark.generation <= held.generation));

        let alive = self.alive(received_at);
        let shards: BTreeMap<ShardId, Standing> =
            (0..self.count).map(ShardId).map(|shard| (shard, self.standing(shard, received_at))).collect();
        let moves = plan(&Scene { group: &self.group, me: &self.me, alive: &alive, shards: &shards });

        let mut errands = Errands { forget: self.long_silent(received_at), ..Errands::default() };
        for (shard, step) in moves {
            let mark = self.leases.get(&shard).map(|row| row.mark).unwrap_or_default();
            match step {
                Move::Claim => errands.claims.push(Claim { shard, seen: mark }),
                Move::Release => errands.releases.push((shard, mark.generation)),
                Move::Await => errands.pace = Pace::Brisk,
                Move::Keep => self.ask(shard, Asked::Stay, received_at),
                // Whoever leaves the group asks when its time has come.
                Move::HandOver if self.is_leaving() => errands.pace = Pace::Brisk,
                Move::HandOver => self.ask(shard, Asked::Leave, received_at),
                Move::LeaveAlone => {}
            }
        }
        errands
    }

    /// The answer to a claim.
    pub fn claimed(&mut self, claim: Claim, generation: Option<u64>, sent_at: Mono) {
        let Some(generation) = generation else { return };
        let until = sent_at.plus(self.terms.tenure());
        self.held.insert(claim.shard, Tenure { generation, until, asked: Asked::Stay });
        // What is known of the lease is now older than what was just done to it.
        self.leases.insert(
            claim.shard,
            LeaseRow {
                shard: claim.shard,
                owner: Some(self.me.clone()),
                mark: Mark { generation, beats: 0 },
                lease: self.terms.lease,
            },
        );
    }

    /// The user has settled a shard and will not act on it again in this generation. True if it was held in it.
    pub fn let_go(&mut self, shard: ShardId, generation: u64) -> bool {
        let held = self.held.get(&shard).is_some_and(|tenure| tenure.generation == generation);
        if held {
            self.drop_tenure(shard);
        }
        held
    }

    /// From now on: claim nothing, hand everything over, as soon as the others have had the time to notice.
    pub fn leave(&mut self, now: Mono) {
        let others = self.alive(now).into_iter().any(|member| member != self.me);
        self.intent = Intent::Leave(if others { now.plus(self.terms.notice()) } else { now });
        self.tick(now);
    }

    /// Who owns a shard and where it answers, for as long as its owner gives signs of life.
    pub fn owner_of(&self, shard: ShardId, now: Mono) -> Option<(MemberId, String)> {
        let row = self.leases.get(&shard)?;
        let owner = row.owner.as_ref()?;
        if self.lease_silence.of(&shard, now) >= row.lease {
            return None;
        }
        Some((owner.clone(), self.members.get(owner)?.address.clone()))
    }

    pub fn views(&self, now: Mono) -> Vec<ShardView> {
        let view = |shard: ShardId| {
            let row = self.leases.get(&shard);
            let owner = row.and_then(|row| row.owner.clone());
            let address = owner.as_ref().and_then(|owner| self.members.get(owner)).map(|row| row.address.clone());
            let mine = self.held.contains_key(&shard);
            let silence = if mine { Duration::ZERO } else { self.lease_silence.of(&shard, now) };
            let held = row.filter(|row| row.owner.is_some());
            ShardView {
                group: self.group.clone(),
                shard,
                owner,
                address,
                generation: row.map_or(0, |row| row.mark.generation),
                silent_ms: held.map(|_| silence.as_millis() as u64),
                expires_in_ms: held.map(|row| row.lease.saturating_sub(silence).as_millis() as u64),
            }
        };
        (0..self.count).map(ShardId).map(view).collect()
    }

    fn standing(&self, shard: ShardId, now: Mono) -> Standing {
        let Some(row) = self.leases.get(&shard) else { return Standing::Free };
        match &row.owner {
            None => Standing::Free,
            Some(owner) if *owner != self.me => {
                if self.lease_silence.of(&shard, now) >= row.lease {
                    Standing::RunOut
                } else {
                    Standing::Theirs
                }
            }
            Some(_) if self.held.get(&shard).is_some_and(|t| t.generation == row.mark.generation) => Standing::Mine,
            Some(_) => Standing::Unused,
        }
    }

    fn alive(&self, now: Mono) -> BTreeSet<MemberId> {
        let beats = |member: &&MemberId| self.member_silence.of(member, now) < self.terms.lease;
        let mut alive: BTreeSet<MemberId> = self.members.keys().filter(beats).cloned().collect();
        // About itself a member need not ask the store.
        match self.intent {
            Intent::Stay => alive.insert(self.me.clone()),
            Intent::Leave(_) => alive.remove(&self.me),
        };
        alive
    }

    fn long_silent(&self, now: Mono) -> Vec<(MemberId, u64)> {
        let patience = self.terms.lease * FORGOTTEN_AFTER_LEASES;
        let silent = self.members.values().filter(|row| self.member_silence.of(&row.member, now) >= patience);
        silent.filter(|row| row.member != self.me).map(|row| (row.member.clone(), row.beats)).collect()
    }

    fn ask(&mut self, shard: ShardId, asked: Asked, now: Mono) {
        if let Some(tenure) = self.held.get_mut(&shard) {
            tenure.asked = asked;
            match asked {
                Asked::Stay => drop(self.asked_at.remove(&shard)),
                Asked::Leave => drop(self.asked_at.entry(shard).or_insert(now)),
            }
        }
    }

    fn drop_tenure(&mut self, shard: ShardId) {
        self.held.remove(&shard);
        self.asked_at.remove(&shard);
    }
}
