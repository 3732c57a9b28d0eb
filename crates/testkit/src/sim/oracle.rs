//! The one who checks. It is told what takes effect, keeps its own books, and names the first thing that must not be.
//! Nobody in the world can ask it anything.

mod neighbours;
mod queues;
mod room;
mod tally;
mod warrants;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::id::{Attempt, JobKey, QueueName, SessionId, TaskKey};
use mutirao_core::job::Counts;
use mutirao_core::life::Final;
use mutirao_core::outcome::Verdict;
use mutirao_jobs::desk::{Handed, SessionChange};
use mutirao_jobs::foreman::Budget;
use mutirao_jobs::store::Settlement;
use mutirao_shards::{MemberId, ShardId};

use super::ground::SECOND;
use super::rows::{JobRow, Rows, TaskRow};
use super::weather::{LEASE, Weather, shard_of_queue};
use super::wire::Pid;
use super::worker::Worker;
use neighbours::Neighbours;
use queues::QueueBooks;
use room::RoomBooks;
pub use tally::Tally;
use warrants::Warrants;

/// Once a job is cancelled and no disaster is left to hide it: how long until its owner hands out nothing of it, and how
/// long a worker that finds an old parcel of it may run before it is told to stop.
const CANCEL_US_MAX: u64 = 20 * SECOND;

#[derive(Default)]
pub struct Oracle {
    failure: Option<String>,
    generations: BTreeMap<ShardId, u64>,
    tenants: BTreeMap<(ShardId, u64), MemberId>,
    finals: BTreeMap<TaskKey, Final>,
    jobs_of_keys: BTreeMap<u64, JobKey>,
    cancelled: BTreeMap<JobKey, u64>,
    /// Jobs of which everything has ended.
    finished: BTreeSet<JobKey>,
    /// When the disasters ended.
    pub calm_since_us: Option<u64>,
    /// Attempts that a worker ran to a good end.
    done_well: BTreeSet<(TaskKey, Attempt)>,
    /// Attempts that a worker ran to a bad end, by task.
    done_badly: BTreeMap<TaskKey, BTreeSet<Attempt>>,
    /// Tasks of which a worker said that it can never run.
    refused: BTreeSet<TaskKey>,
    /// Sessions that are written down.
    sessions: BTreeMap<SessionId, QueueName>,
    /// What each session received.
    received: BTreeMap<SessionId, Vec<(TaskKey, Attempt)>>,
    /// Sessions whose goodbye was heard: whatever they had, they did not die with it.
    left: BTreeSet<SessionId>,
    /// Sessions that an owner gave up before it had heard a goodbye.
    given_up: BTreeSet<SessionId>,
    /// Tries whose receiver was given up, by task.
    bereft: BTreeMap<TaskKey, BTreeSet<Attempt>>,
    /// Those that were when a generation began: its owner must wait for them.
    awaited: BTreeMap<(ShardId, u64), BTreeMap<SessionId, QueueName>>,
    pub warrants: Warrants,
    pub queues: QueueBooks,
    neighbours: Neighbours,
    pub room: RoomBooks,
    pub tally: Tally,
}

/// What an owner hands out, and what it knows.
pub struct HandOut<'a> {
    pub member: &'a MemberId,
    pub shard: ShardId,
    pub generation: u64,
    pub parcels: &'a [Handed],
    /// Sessions that have beaten since it loaded the shard.
    pub heard: &'a BTreeSet<SessionId>,
    pub since_load: Duration,
}

impl Oracle {
    pub fn of(weather: &Weather) -> Self {
        Self {
            warrants: Warrants::of(weather),
            queues: QueueBooks::of(weather),
            neighbours: Neighbours::of(weather),
            ..Self::default()
        }
    }

    pub fn fail(&mut self, why: impl FnOnce() -> String) {
        self.failure.get_or_insert_with(why);
    }

    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    // ── what the store wrote ─────────────────────────────────────────────────────────────────────────────────────

    pub fn claimed(&mut self, shard: ShardId, generation: u64, member: &MemberId) {
        let before = self.generations.insert(shard, generation).unwrap_or_default();
        self.tally.takeovers += u64::from(before > 0);
        if generation <= before {
            self.fail(|| format!("shard {shard}: generation {generation} after {before}"));
        }
        if let Some(other) = self.tenants.insert((shard, generation), member.clone()) {
            self.fail(|| format!("generation {generation} of shard {shard} was {other}'s and is {member}'s"));
        }
        let of_shard = self.sessions.iter().filter(|(_, queue)| shard_of_queue(queue) == shard);
        let awaited = of_shard.map(|(session, queue)| (session.clone(), queue.clone())).collect();
        self.awaited.insert((shard, generation), awaited);
    }

    pub fn created(&mut self, key: u64, job: JobKey) {
        if let Some(other) = self.jobs_of_keys.insert(key, job) {
            self.fail(|| format!("one request made two jobs: {other:?} and {job:?}"));
        }
    }

    pub fn cancelled(&mut self, job: JobKey, now_us: u64) {
        self.cancelled.insert(job, now_us);
    }

    pub fn settled(
        &mut self,
        member: &MemberId,
        shard: ShardId,
        generation: u64,
        settlement: &Settlement,
        rows: &Rows,
        now_us: u64,
    ) {
        if self.generations.get(&shard) != Some(&generation) || self.tenants.get(&(shard, generation)) != Some(member) {
            let current = self.generations.get(&shard).copied();
            self.fail(|| {
                format!("{member} wrote to shard {shard} in generation {generation} while the current is {current:?}")
            });
        }
        for change in &settlement.sessions {
            match change {
                SessionChange::Came(session, _, queue) => drop(self.sessions.insert(session.clone(), queue.clone())),
                SessionChange::Went(session) => {
                    self.sessions.remove(session);
                    self.give_up(session, now_us);
                }
            }
        }
        self.check_losses(settlement);
        let mut jobs = BTreeSet::new();
        for task in settlement.ended.iter().chain(&settlement.late).map(|ended| ended.task) {
            let Some(how) = rows.end_of(task) else { continue };
            let before = *self.finals.entry(task).or_insert(how);
            if before != how {
                self.fail(|| format!("{task} had ended {before:?} and is now {how:?}"));
            }
            jobs.insert(task.job);
        }
        for job in jobs {
            self.check_job(rows, job);
        }
    }

    /// Who is given up by now: a goodbye that is heard later, before this is written, changes nothing.
    pub fn decided(&mut self, settlement: &Settlement) {
        for change in &settlement.sessions {
            if let SessionChange::Went(session) = change
                && !self.left.contains(session)
            {
                self.given_up.insert(session.clone());
            }
        }
    }

    fn give_up(&mut self, session: &SessionId, now_us: u64) {
        if self.left.contains(session) && !self.given_up.contains(session) {
            return;
        }
        if let Some(silent_us) = self.warrants.wronged(session, now_us) {
            self.fail(|| format!("{session} was given up, which lives and beat {silent_us} us ago"));
        }
        for (task, attempt) in self.received.remove(session).into_iter().flatten() {
            self.bereft.entry(task).or_default().insert(attempt);
        }
    }

    /// A try is lost only with the session that had it: a message that went astray costs time, and never counts.
    fn check_losses(&mut self, settlement: &Settlement) {
        let ended = settlement.ended.iter().map(|ended| (ended.task, ended.losses));
        for (task, losses) in ended.chain(settlement.again.iter().map(|again| (again.task, again.losses))) {
            let bereft = self.bereft.get(&task).map_or(0, BTreeSet::len);
            if losses as usize > bereft {
                self.fail(|| format!("{task} counts {losses} losses, and {bereft} of its workers were given up"));
            }
        }
    }

    /// Counters say what rows say.
    pub fn check_job(&mut self, rows: &Rows, job: JobKey) {
        let Some(row) = rows.jobs.get(&job) else { return };
        let total = u64::from(row.definition.total);
        let mut sum = Counts::default();
        for task in row.tasks.values() {
            if let TaskRow::Ended { how, .. } = task {
                *sum.of(*how) += 1;
            }
        }
        if row.cancelled {
            sum.cancelled = total - (sum.ended() - sum.cancelled);
        }
        if sum != row.counts {
            self.fail(|| format!("{job:?} has the counts {:?} and the rows {sum:?}", row.counts));
        }
        if row.finished != (sum.ended() == total) {
            self.fail(|| format!("{job:?} is finished: {}, with {} of {total} ended", row.finished, sum.ended()));
        }
        if row.finished {
            self.finished.insert(job);
        }
        self.check_ends(job, row);
    }

    /// An ok was run, a failure was failed often enough.
    fn check_ends(&mut self, job: JobKey, row: &JobRow) {
        for (index, ended) in &row.tasks {
            let TaskRow::Ended { how, attempt, failures, losses } = ended else { continue };
            let task = TaskKey { job, index: *index };
            let failed = self.done_badly.get(&task).map_or(0, BTreeSet::len);
            if *how == Final::Ok && attempt.is_none_or(|attempt| !self.done_well.contains(&(task, attempt))) {
                self.fail(|| format!("{task} ended ok by attempt {attempt:?}, which nobody ran to a good end"));
            }
            if *failures as usize > failed {
                self.fail(|| format!("{task} counts {failures} failures and failed {failed} times"));
            }
            let crashes = row.definition.retry.crashes;
            if *how == Final::Dead && !self.refused.contains(&task) && (crashes == 0 || *losses < crashes) {
                self.fail(|| format!("{task} was given up after {losses} losses of {crashes}, and nobody refused it"));
            }
            if matches!(how, Final::Failed | Final::TimedOut) && *failures != row.definition.retry.retries + 1 {
                self.fail(|| format!("{task} ended {how:?} after {failures} failures"));
            }
        }
    }

    // ── what owners do ───────────────────────────────────────────────────────────────────────────────────────────

    /// Whether a job was cancelled so long ago that everybody must know.
    fn long_cancelled(&self, job: JobKey, now_us: u64) -> bool {
        let since_us = self.cancelled.get(&job).zip(self.calm_since_us).map(|(cancelled, calm)| calm.max(*cancelled));
        since_us.is_some_and(|since_us| now_us > since_us + CANCEL_US_MAX)
    }

    pub fn handed_out(&mut self, hand_out: &HandOut<'_>, now_us: u64) {
        let HandOut { member, shard, generation, parcels, heard, since_load } = *hand_out;
        if since_load < LEASE {
            let awaited = self.awaited.get(&(shard, generation)).into_iter().flatten();
            let unheard = awaited.filter(|(session, _)| !heard.contains(*session));
            let unheard = unheard.filter(|(_, queue)| parcels.iter().any(|handed| handed.queue == **queue));
            if let Some(session) = unheard.map(|(session, _)| session.clone()).next() {
                self.fail(|| format!("{member} hands out before {session}, which may hold work, was heard"));
            }
        }
        if self.generations.get(&shard) != Some(&generation) && !parcels.is_empty() {
            self.fail(|| format!("{member} hands out for shard {shard} in generation {generation}, which is over"));
        }
        for pick in parcels.iter().flat_map(|handed| &handed.picks) {
            if let Some(how) = self.finals.get(&pick.task) {
                let (task, how) = (pick.task, *how);
                self.fail(|| format!("{member} hands out {task}, which had ended {how:?}"));
            }
            if self.long_cancelled(pick.task.job, now_us) {
                self.fail(|| format!("{member} hands out {}, long after its job was cancelled", pick.task));
            }
        }
    }

    /// So much waits at an owner to be written or said.
    pub fn gathered(&mut self, member: &MemberId, gathered: usize, budget: Budget) {
        self.tally.full += u64::from(gathered >= budget.items_max);
        if let Some(why) = self.room.gathered(gathered, budget) {
            self.fail(|| format!("{member}: {why}"));
        }
    }

    /// An owner tells workers to stop what they have of a job: it was cancelled, or everything of it has ended.
    pub fn stops(&mut self, member: &MemberId, job: JobKey) {
        if !self.cancelled.contains_key(&job) && !self.finished.contains(&job) {
            self.fail(|| format!("{member} has {job:?} stopped, which nobody cancelled"));
        }
    }

    pub fn heard_goodbye(&mut self, session: &SessionId) {
        self.left.insert(session.clone());
    }

    /// A report is acknowledged: what its owner made of it must be written.
    pub fn acknowledged(&mut self, member: &MemberId, ended: &[TaskKey]) {
        for task in ended {
            if !self.finals.contains_key(task) && !self.cancelled.contains_key(&task.job) {
                self.fail(|| format!("{member} acknowledges the end of {task} before it is written"));
            }
        }
    }

    /// A client hears that its task is cancelled: that must be written.
    pub fn told_cancelled(&mut self, task: TaskKey) {
        if !self.finals.contains_key(&task) && !self.cancelled.contains_key(&task.job) {
            self.fail(|| format!("a client hears that {task} is cancelled before it is written"));
        }
    }

    // ── what workers do ──────────────────────────────────────────────────────────────────────────────────────────

    pub fn received(&mut self, task: TaskKey, attempt: Attempt, session: &SessionId) {
        self.received.entry(session.clone()).or_default().push((task, attempt));
    }

    /// How workers stand beside each other.
    pub fn look_at(&mut self, workers: &BTreeMap<Pid, Worker>, now_us: u64) {
        if let Some(why) = self.neighbours.look(workers, now_us) {
            self.fail(|| why);
        }
    }

    /// A worker starts a process.
    pub fn began(&mut self, queue: &QueueName) {
        if let Some(why) = self.queues.began(queue) {
            self.fail(|| why);
        }
    }

    pub fn ran(&mut self, task: TaskKey, attempt: Attempt, verdict: Verdict, began_us: u64, now_us: u64) {
        self.tally.runs += 1;
        if self.long_cancelled(task.job, began_us) && now_us > began_us + CANCEL_US_MAX / 2 {
            self.fail(|| format!("{task} ran for long though its job had been cancelled before"));
        }
        match verdict {
            Verdict::Ok => {
                self.tally.repeats += u64::from(self.finals.contains_key(&task));
                self.done_well.insert((task, attempt));
            }
            Verdict::Refused => drop(self.refused.insert(task)),
            Verdict::Failed | Verdict::TimedOut => {
                self.done_badly.entry(task).or_default().insert(attempt);
            }
            _ => {}
        }
    }
}
