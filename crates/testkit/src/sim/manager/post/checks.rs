//! What an owner must keep to, checked from outside the foreman: its window, its cancelled jobs, those it must wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use mutirao_core::Mono;
use mutirao_core::envelope::{Control, Reports};
use mutirao_core::id::{JobKey, QueueName, SessionId};
use mutirao_jobs::desk::{Desk, Handed};
use mutirao_jobs::store::queues::QueueRow;
use mutirao_shards::ShardId;

use super::super::super::oracle::HandOut;
use super::super::super::window::WindowCheck;
use super::super::super::wire::Definition;
use super::Hands;

pub struct Checks {
    shard: ShardId,
    generation: u64,
    window: WindowCheck,
    loaded_at: Mono,
    /// Sessions that have beaten since.
    heard: BTreeSet<SessionId>,
    /// Jobs it knows to be cancelled.
    cancelled: BTreeSet<JobKey>,
    /// The latest that it was told of each queue.
    queues: BTreeMap<QueueName, QueueRow>,
}

impl Checks {
    pub fn new(shard: ShardId, generation: u64, loaded_at: Mono) -> Self {
        let (heard, cancelled) = (BTreeSet::new(), BTreeSet::new());
        let queues = BTreeMap::new();
        Self { shard, generation, window: WindowCheck::default(), loaded_at, heard, cancelled, queues }
    }

    /// It is told what these queues are.
    pub fn defined(&mut self, rows: &[QueueRow]) {
        for row in rows {
            let known = self.queues.entry(row.spec.name.clone()).or_insert_with(|| row.clone());
            if row.revision > known.revision {
                *known = row.clone();
            }
        }
    }

    pub fn heard(&mut self, reports: &Reports, h: &mut Hands<'_>) {
        self.window.completed(h.now.mono, reports.done.len() as u64);
        if let Some(beat) = &reports.beat {
            self.heard.insert(reports.session.clone());
            if beat.leaving {
                h.ground.oracle.heard_goodbye(&reports.session);
            }
        }
    }

    pub fn told(&mut self, control: &Control, h: &mut Hands<'_>) {
        for job in &control.cancel_jobs {
            h.ground.note(|| format!("{}: knows that {job:?} is cancelled", h.me));
            self.cancelled.insert(*job);
        }
    }

    pub fn handed_out(
        &mut self,
        parcels: &[Handed],
        desk: &Desk,
        known: &BTreeMap<JobKey, Rc<Definition>>,
        h: &mut Hands<'_>,
    ) {
        let hand_out = HandOut {
            member: h.me,
            shard: self.shard,
            generation: self.generation,
            parcels,
            heard: &self.heard,
            since_load: h.now.mono.since(self.loaded_at),
        };
        h.ground.oracle.handed_out(&hand_out, h.ground.now_us);
        let queues: BTreeSet<&QueueName> = parcels.iter().map(|handed| &handed.queue).collect();
        for queue in queues {
            self.check_window(queue, desk, known, h);
            self.check_definition(queue, desk, h);
        }
        for handed in parcels {
            let tasks: Vec<_> = handed.picks.iter().map(|pick| (pick.task, pick.attempt.n)).collect();
            h.ground.note(|| format!("{}: hands out {:?} to {}: {tasks:?}", h.me, handed.id, handed.queue));
            for pick in &handed.picks {
                if self.cancelled.contains(&pick.task.job) {
                    h.ground.oracle.fail(|| format!("{} is handed out of a cancelled job", pick.task));
                }
            }
        }
    }

    /// Something of a queue went out: it was not paused, and no more is out than it lets run.
    fn check_definition(&self, queue: &QueueName, desk: &Desk, h: &mut Hands<'_>) {
        let Some(QueueRow { spec, revision, .. }) = self.queues.get(queue) else { return };
        if spec.paused {
            h.ground.oracle.fail(|| format!("{} hands out of {queue}, paused in revision {revision}", h.me));
        }
        let (occupied, running) = (desk.occupied(queue), spec.limits.running);
        if running.is_some_and(|running| occupied > running as usize) {
            h.ground.oracle.fail(|| format!("{occupied} tasks of {queue} are out, {running:?} may run"));
        }
    }

    /// No more is out than the window allows, and the line counts it right.
    fn check_window(
        &mut self,
        queue: &QueueName,
        desk: &Desk,
        known: &BTreeMap<JobKey, Rc<Definition>>,
        h: &mut Hands<'_>,
    ) {
        let seated = desk.sessions().map(|(_, session)| session);
        let seated = seated.filter(|s| s.queue == *queue && s.known_to_store && !s.draining);
        let (sessions, slots) =
            seated.fold((0, 0), |(n, slots), s| (n + 1, slots + s.capacity.cpus.milli as usize / 1_000));
        let (most, line) = (self.window.most(slots, sessions, h.now.mono), desk.out(queue));
        let of_queue = known.iter().filter(|(_, definition)| definition.queue == *queue);
        let under_way = of_queue.filter_map(|(job, _)| desk.under_way(*job));
        let out: u64 = under_way.map(|under_way| under_way.dispatched + under_way.running).sum();
        if out as usize != line {
            h.ground.oracle.fail(|| format!("{out} tasks of {queue} are out, and its line counts {line}"));
        }
        let occupied = desk.occupied(queue);
        if occupied > most {
            h.ground.oracle.fail(|| {
                format!("{occupied} tasks of {queue} are out, {most} may be with {slots} slots of {sessions} sessions")
            });
        }
    }
}
