//! The store as a service: questions come in, wait for the disk, take effect all at once or not at all, and are answered,
//! perhaps too late, perhaps never. Leases are the shards' own [`Ledger`]; jobs are [`Rows`]. The fence is checked in the
//! same instant in which a settlement is written.

use mutirao_jobs::store::Settlement;
use mutirao_shards::store::memory::Ledger;

use super::flaw::Flaw;
use super::ground::{Event, Ground, MS, SECOND};
use super::rows::Rows;
use super::weather::Climate;
use super::wire::{Answer, Call, Created, NoAnswer, Question};

#[derive(Default)]
pub struct Store {
    pub rows: Rows,
    leases: Ledger,
    life: u32,
    away_until_us: u64,
    slow_until_us: u64,
}

impl Store {
    pub fn go_away(&mut self, ground: &Ground, for_us: u64) {
        self.away_until_us = ground.now_us + for_us;
    }

    /// What was about to be written is not; the rest is there when it is back.
    pub fn crash(&mut self, ground: &Ground, for_us: u64) {
        self.life += 1;
        self.go_away(ground, for_us);
    }

    pub fn slow_down(&mut self, ground: &Ground, for_us: u64) {
        self.slow_until_us = ground.now_us + for_us;
    }

    pub fn recover(&mut self) {
        (self.away_until_us, self.slow_until_us) = (0, 0);
        self.rows.recover();
    }

    pub fn hear(&mut self, call: Call, ground: &mut Ground) {
        if self.away_until_us > ground.now_us {
            // Refused at once, or left hanging.
            if ground.chance(70) {
                ground.answer(call.pid, call.id, Err(NoAnswer));
            }
            return;
        }
        let slow = self.slow_until_us > ground.now_us;
        let crawls = ground.weather.climate == Climate::Slow && !ground.calm;
        let disk_us = if crawls && matches!(call.question, Question::Settle { .. }) {
            ground.between(3 * SECOND, 4_500 * MS)
        } else if slow {
            ground.between(100 * MS, 3 * SECOND)
        } else {
            ground.between(100, 3 * MS)
        };
        ground.after(disk_us, Event::Commit(call, self.life));
    }

    pub fn commit(&mut self, call: Call, life: u32, ground: &mut Ground) {
        let Call { pid, id, question } = call;
        if life != self.life || ground.bad_luck(ground.weather.failed_commits_per_mille) {
            ground.note(|| format!("store: undone for {pid:?}: {question:?}"));
            ground.answer(pid, id, Err(NoAnswer));
            return;
        }
        let answer = self.carry_out(&question, ground);
        if ground.bad_luck(ground.weather.unsaid_commits_per_mille) {
            ground.note(|| format!("store: done, and not said, for {pid:?}: {question:?}"));
            ground.answer(pid, id, Err(NoAnswer));
        } else {
            ground.answer(pid, id, Ok(answer));
        }
    }

    fn carry_out(&mut self, question: &Question, ground: &mut Ground) -> Answer {
        match question {
            Question::Beat(me) => self.leases.beat(me, ""),
            Question::Renew(me, held) => return Answer::Renewed(self.leases.renew(me, held)),
            Question::Members => return Answer::Members(self.leases.members()),
            Question::Leases => return Answer::Leases(self.leases.leases()),
            Question::Claim(me, claim) => {
                let lease = ground.weather.terms.lease;
                let generation = self.leases.claim(claim.shard, claim.seen, me, lease);
                if let Some(generation) = generation {
                    ground.note(|| format!("store: shard {} is {me}'s, generation {generation}", claim.shard));
                    ground.oracle.claimed(claim.shard, generation, me);
                }
                return Answer::Claimed(generation);
            }
            Question::Release(me, shard, generation) => self.leases.release(me, *shard, *generation),
            Question::Forget(member, beats) => self.leases.forget(member, *beats),
            Question::Create { key, definition } => {
                let created = self.rows.create(*key, definition.clone(), ground.flaw);
                let Some((job, created)) = created else { return Answer::NoQueue };
                if created == Created::New {
                    ground
                        .note(|| format!("store: {job:?} created, {} tasks in {}", definition.total, definition.queue));
                    ground.oracle.created(*key, job);
                }
                return Answer::Created(job, created);
            }
            Question::CancelJob(job) => {
                let cancelled = self.rows.cancel(*job);
                if cancelled.is_some() {
                    ground.note(|| format!("store: {job:?} cancelled"));
                    ground.oracle.cancelled(*job, ground.now_us);
                    ground.oracle.check_job(&self.rows, *job);
                }
                return Answer::Cancelled(cancelled);
            }
            Question::ChangeQueue(change) => {
                let (word, cancelled) = self.rows.change_queue(change);
                ground.note(|| format!("store: {change:?}: {word:?}, {} jobs with it", cancelled.len()));
                if word.is_some() {
                    ground.oracle.queues.changed(change);
                    ground.oracle.tally.queue_changes += 1;
                }
                for job in cancelled {
                    ground.oracle.cancelled(job, ground.now_us);
                    ground.oracle.check_job(&self.rows, job);
                }
                return Answer::Queue(word);
            }
            Question::Queues => {
                let (defined, removed) = self.rows.queues.all();
                return Answer::Queues(defined, removed, self.rows.resting.clone());
            }
            Question::Load(shard) => return Answer::Loaded(self.rows.load(*shard, ground.now_us)),
            Question::Keys(shard) if ground.has(Flaw::HidesTheDamaged) => {
                let loaded = self.rows.load(*shard, ground.now_us);
                return Answer::Keys(loaded.jobs.into_iter().map(|(job, _)| job.key).collect());
            }
            Question::Keys(shard) => return Answer::Keys(self.rows.open_keys(*shard)),
            Question::Jobs(shard, keys) => {
                let mut loaded = self.rows.load(*shard, ground.now_us);
                loaded.jobs.retain(|(job, _)| keys.contains(&job.key));
                return Answer::Loaded(loaded);
            }
            Question::Settle { member, shard, generation, settlement } => {
                if !self.leases.is_current(*shard, *generation) && !ground.has(Flaw::NoFence) {
                    ground.note(|| format!("store: {member} fenced off shard {shard}, generation {generation}"));
                    return Answer::Fenced;
                }
                ground.note(|| {
                    let Settlement { ended, late, again, sessions, .. } = &**settlement;
                    let ends: Vec<_> = ended.iter().map(|e| (e.task, e.how)).collect();
                    let agains: Vec<_> = again.iter().map(|a| a.task).collect();
                    format!("store: {member} settles: {ends:?}, again {agains:?}, late {}, {sessions:?}", late.len())
                });
                self.rows.settle(settlement, ground.flaw);
                ground.oracle.settled(member, *shard, *generation, settlement, &self.rows, ground.now_us);
                return Answer::Settled;
            }
        }
        Answer::Done
    }
}
