//! Which worker process holds what, and until when its lease runs. Leases run on the monotonic clock, so a stepped wall
//! clock neither kills the living nor keeps the dead. Whoever goes, goes in order: the same history makes the same
//! decisions, so that a seed of a simulation replays them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::envelope::{Beat, Footprint};
use mutirao_core::id::{Attempt, QueueName, SessionId, TaskKey, WorkerId};
use mutirao_core::task::Needs;

use super::maps::Map;
use super::sequence::{Order, Sequence};
use super::window::Seats;

pub struct Session {
    /// It was alive under an earlier owner of the queue, and may speak of what that one handed out.
    pub recalled: bool,
    /// It is written down, so that a next owner will expect it. Until then it is given nothing.
    pub known_to_store: bool,
    pub worker: WorkerId,
    pub queue: QueueName,
    pub until: Mono,
    pub heard: bool,
    pub host: String,
    pub pid: u32,
    pub capacity: Needs,
    /// What it uses, as it last said.
    pub footprint: Option<Footprint>,
    pub draining: bool,
    /// It is to be handed nothing, whether it has heard that or not.
    pub resting: bool,
    /// Since when it has held nothing, as far as its beats show. Not by the wall: a step of it would keep the idle for as long.
    pub idle_since: Option<Mono>,
    /// Something that it held came to an end since its last beat.
    touched: bool,
    /// It said goodbye. What it had said before may still come.
    pub left: bool,
    sequence: Sequence,
    pub held: Map<TaskKey, Attempt>,
    /// When it took each of those.
    held_since: Map<TaskKey, Mono>,
    /// Its own id, to be shared by all that it holds.
    id: Arc<SessionId>,
}

impl Session {
    /// Tasks are handed out in the hope that it takes them.
    fn is_seated(&self) -> bool {
        self.heard && self.known_to_store && !self.draining && !self.resting
    }

    /// When it took what it has had longest.
    pub fn held_longest(&self) -> Option<Mono> {
        self.held_since.values().min().copied()
    }
}

/// Former holders remembered.
const GHOSTS_MAX: usize = 100_000;
/// Sessions remembered that are gone.
const GONE_MAX: usize = 4_096;

/// What is remembered of a session that is gone.
struct Gone {
    worker: WorkerId,
    queue: QueueName,
    recalled: bool,
}

#[derive(Default)]
pub struct Sessions {
    sessions: Map<SessionId, Session>,
    holders: Map<(TaskKey, Attempt), Arc<SessionId>>,
    /// Who held what when it was given up or taken from it: its `ok` would still count.
    ghosts: Map<(TaskKey, Attempt), Arc<SessionId>>,
    ghosts_order: VecDeque<(TaskKey, Attempt)>,
    /// One that was only silent goes on where it was.
    gone: Map<SessionId, Gone>,
    gone_order: VecDeque<SessionId>,
}

impl Sessions {
    pub fn knows(&self, session: &SessionId) -> bool {
        self.sessions.contains_key(session)
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.sessions.iter().filter(|(_, s)| s.heard)
    }

    pub fn expect(&mut self, session: SessionId, worker: WorkerId, queue: QueueName, until: Mono) {
        self.insert(session, worker, queue, until, Origin::Recalled);
    }

    pub fn came(&mut self, session: &SessionId, worker: &WorkerId, queue: &QueueName, until: Mono) {
        self.insert(session.clone(), worker.clone(), queue.clone(), until, Origin::New);
    }

    fn insert(&mut self, session: SessionId, worker: WorkerId, queue: QueueName, until: Mono, origin: Origin) {
        let (recalled, id) = (matches!(origin, Origin::Recalled), Arc::new(session.clone()));
        self.sessions.entry(session).or_insert_with(|| Session {
            recalled,
            known_to_store: recalled,
            worker,
            queue,
            until,
            heard: !recalled,
            host: String::new(),
            pid: 0,
            capacity: Needs::default(),
            footprint: None,
            draining: false,
            resting: false,
            idle_since: None,
            touched: false,
            left: false,
            sequence: Sequence::default(),
            held: Map::default(),
            held_since: Map::default(),
            id,
        });
    }

    /// A session said something: how that stands to what it said before. `wait_until` is how long a gap is waited for.
    pub fn hear(&mut self, session: &SessionId, number: Option<u64>, now: Mono, wait_until: Mono) -> Order {
        let known = self.sessions.get_mut(session);
        known.map_or(Order::Whole, |known| known.sequence.hear(number, now, wait_until))
    }

    /// It said goodbye, and nothing that it said before is waited for.
    pub fn is_done(&self, session: &SessionId) -> bool {
        self.sessions.get(session).is_some_and(|known| known.left && known.sequence.is_whole())
    }

    /// Renews the lease and takes over what the beat says; returns what the session was believed to hold.
    pub fn beaten(&mut self, session: &SessionId, beat: &Beat, until: Mono, at: Mono) -> Vec<(TaskKey, Attempt)> {
        let Some(known) = self.sessions.get_mut(session) else { return Vec::new() };
        known.until = until;
        known.heard = true;
        known.host.clone_from(&beat.host);
        known.pid = beat.pid;
        known.capacity = beat.capacity;
        known.draining = beat.draining || beat.leaving;
        known.left = beat.leaving;
        // What came and went since the last beat was work all the same.
        let since = known.idle_since.filter(|_| !known.touched).unwrap_or(at);
        known.idle_since = known.held.is_empty().then_some(since);
        known.touched = false;
        let mut held: Vec<_> = known.held.iter().map(|(task, attempt)| (*task, *attempt)).collect();
        held.sort_unstable();
        held
    }

    pub fn measured(&mut self, session: &SessionId, footprint: Footprint) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.footprint = Some(footprint);
        }
    }

    pub fn hold(&mut self, session: &SessionId, task: TaskKey, attempt: Attempt, at: Mono) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.held.insert(task, attempt);
            known.held_since.insert(task, at);
            self.holders.insert((task, attempt), known.id.clone());
        }
    }

    pub fn drop_hold(&mut self, task: TaskKey, attempt: Attempt) {
        if let Some(known) = self.let_go(task, attempt) {
            known.touched = true;
        }
    }

    /// Whoever held it has no room for it, ever: that was no work. What it has, if it is there.
    pub fn turned_down(&mut self, task: TaskKey, attempt: Attempt) -> Option<Needs> {
        self.let_go(task, attempt).map(|known| known.capacity)
    }

    fn let_go(&mut self, task: TaskKey, attempt: Attempt) -> Option<&mut Session> {
        let session = self.holders.remove(&(task, attempt))?;
        let known = self.sessions.get_mut(&*session)?;
        if known.held.get(&task) == Some(&attempt) {
            known.held.remove(&task);
            known.held_since.remove(&task);
        }
        Some(known)
    }

    /// It is no longer held, but whoever held it may still say how it stopped.
    pub fn part(&mut self, task: TaskKey, attempt: Attempt) {
        if let Some(holder) = self.holders.get(&(task, attempt)).cloned() {
            self.drop_hold(task, attempt);
            self.remember(task, attempt, holder);
        }
    }

    /// It turns out that this session has what was thought to be lost.
    pub fn had(&mut self, session: &SessionId, task: TaskKey, attempt: Attempt) {
        let id = self.sessions.get(session).map_or_else(|| Arc::new(session.clone()), |known| known.id.clone());
        self.remember(task, attempt, id);
    }

    fn remember(&mut self, task: TaskKey, attempt: Attempt, session: Arc<SessionId>) {
        if self.ghosts.insert((task, attempt), session).is_none() {
            self.ghosts_order.push_back((task, attempt));
        }
        if self.ghosts_order.len() > GHOSTS_MAX
            && let Some(oldest) = self.ghosts_order.pop_front()
        {
            self.ghosts.remove(&oldest);
        }
    }

    pub fn holds_or_held(&self, worker: &WorkerId, task: TaskKey, attempt: Attempt) -> bool {
        let key = (task, attempt);
        let session = self.holders.get(&key).or_else(|| self.ghosts.get(&key));
        session.and_then(|session| self.worker_of(session)) == Some(worker)
    }

    /// The same, to be kept.
    pub fn holder_id(&self, task: TaskKey, attempt: Attempt) -> Option<Arc<SessionId>> {
        self.holders.get(&(task, attempt)).cloned()
    }

    pub fn holder(&self, task: TaskKey, attempt: Attempt) -> Option<&SessionId> {
        self.holders.get(&(task, attempt)).map(|session| &**session)
    }

    pub fn worker_of(&self, session: &SessionId) -> Option<&WorkerId> {
        self.sessions.get(session).map(|s| &s.worker)
    }

    /// Whose word it is: also of one that is gone nobody else may use the name.
    pub fn speaker_of(&self, session: &SessionId) -> Option<&WorkerId> {
        self.worker_of(session).or_else(|| self.gone.get(session).map(|gone| &gone.worker))
    }

    pub fn remove(&mut self, session: &SessionId) -> Vec<(TaskKey, Attempt)> {
        let Some(gone) = self.sessions.remove(session) else { return Vec::new() };
        let recalled = gone.recalled || self.served(session, &gone.queue);
        self.remember_gone(session, Gone { worker: gone.worker, queue: gone.queue, recalled });
        let id = gone.id;
        let mut held: Vec<_> = gone.held.into_iter().collect();
        held.sort_unstable();
        for (task, attempt) in &held {
            self.holders.remove(&(*task, *attempt));
            self.remember(*task, *attempt, id.clone());
        }
        held
    }

    fn remember_gone(&mut self, session: &SessionId, gone: Gone) {
        if self.gone.insert(session.clone(), gone).is_none() {
            self.gone_order.push_back(session.clone());
        }
        if self.gone_order.len() > GONE_MAX
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }

    /// Whose tasks a session takes, or took when it was last heard.
    pub fn queue_of(&self, session: &SessionId) -> Option<&QueueName> {
        let gone = || self.gone.get(session).map(|gone| &gone.queue);
        self.sessions.get(session).map(|known| &known.queue).or_else(gone)
    }

    /// Whether it takes tasks of this queue and was alive under an earlier owner, be it that it was silent since.
    pub fn served(&self, session: &SessionId, queue: &QueueName) -> bool {
        let now = self.sessions.get(session).is_some_and(|known| known.recalled && known.queue == *queue);
        now || self.gone.get(session).is_some_and(|gone| gone.recalled && gone.queue == *queue)
    }

    pub fn held_once(&self, session: &SessionId, task: TaskKey, attempt: Attempt) -> bool {
        self.ghosts.get(&(task, attempt)).is_some_and(|held| **held == *session)
    }

    pub fn get(&self, session: &SessionId) -> Option<&Session> {
        self.sessions.get(session)
    }

    pub fn written(&mut self, session: &SessionId) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.known_to_store = true;
        }
    }

    /// Time during which nobody could be heard does not count against a lease.
    pub fn forgive(&mut self, by: Duration) {
        for session in self.sessions.values_mut() {
            session.until = session.until.plus(by);
            session.sequence.forgive(by);
        }
    }

    /// Of one life of a worker: when it starts again, it has another process.
    pub fn of_process(&self, worker: &WorkerId, pid: u32) -> Vec<SessionId> {
        let is_it = |session: &Session| session.pid == pid && session.worker == *worker;
        let mut found: Vec<_> = self.sessions.iter().filter(|(_, s)| is_it(s)).map(|(id, _)| id.clone()).collect();
        found.sort_unstable();
        found
    }

    pub fn expired(&self, now: Mono) -> Vec<SessionId> {
        let mut expired: Vec<_> =
            self.sessions.iter().filter(|(_, s)| s.until <= now).map(|(id, _)| id.clone()).collect();
        expired.sort_unstable();
        expired
    }

    /// What the sessions of a queue can do together, when each task has these needs. A silent session that is still
    /// expected holds the queue back.
    pub fn seats(&self, queue: &QueueName, needs: Needs) -> Seats {
        let mut seats = Seats::default();
        for session in self.sessions.values().filter(|s| s.queue == *queue) {
            seats.awaited |= !session.heard;
            if session.is_seated() {
                seats.sessions += 1;
                seats.slots += slots(session.capacity, needs);
            }
        }
        seats
    }

    /// What the sessions of a queue hold beyond their slots and this share; whoever takes nothing more has neither.
    pub fn hoarded(&self, queue: &QueueName, needs: Needs, share: usize) -> usize {
        let of_queue = self.sessions.values().filter(|session| session.queue == *queue);
        let due = |session: &Session| if session.is_seated() { slots(session.capacity, needs) + share } else { 0 };
        of_queue.map(|session| session.held.len().saturating_sub(due(session))).sum()
    }

    /// These workers are to be handed nothing, and no others.
    pub fn rest(&mut self, workers: &BTreeSet<WorkerId>) {
        for session in self.sessions.values_mut() {
            session.resting = workers.contains(&session.worker);
        }
    }

    /// A session is to be handed nothing. Its queue, if it has not said that it takes nothing.
    pub fn set_resting(&mut self, session: &SessionId) -> Option<QueueName> {
        let known = self.sessions.get_mut(session)?;
        known.resting = true;
        (!known.draining).then(|| known.queue.clone())
    }

    /// Sessions of a queue that were alive under an earlier owner and have not spoken yet.
    pub fn expected(&self, queue: &QueueName) -> u64 {
        self.sessions.values().filter(|session| session.queue == *queue && !session.heard).count() as u64
    }

    /// Whether anybody takes tasks of a queue, or did and is expected back.
    pub fn serve(&self, queue: &QueueName) -> bool {
        self.sessions.values().any(|session| session.queue == *queue)
    }

    /// What the sessions of a queue have, each size once, in order.
    pub fn sizes(&self, queue: &QueueName) -> Vec<Needs> {
        let of_queue = self.sessions.values().filter(|s| s.queue == *queue && s.heard);
        let sizes: BTreeSet<_> = of_queue.map(|s| (s.capacity.cpus, s.capacity.memory)).collect();
        sizes.into_iter().map(|(cpus, memory)| Needs { cpus, memory }).collect()
    }

    /// The largest session of a queue, if there is any: what no session can hold will never run.
    pub fn largest(&self, queue: &QueueName) -> Option<Needs> {
        let of_queue = || self.sessions.values().filter(|s| s.queue == *queue && s.heard).map(|s| s.capacity);
        Some(Needs { cpus: of_queue().map(|c| c.cpus).max()?, memory: of_queue().map(|c| c.memory).max()? })
    }
}

/// Tasks with these needs that one session can run at once. A worker runs no more than this many processes.
fn slots(capacity: Needs, needs: Needs) -> usize {
    const SLOTS_MAX: u64 = 512;
    let by_cpus = u64::from(capacity.cpus.milli).checked_div(u64::from(needs.cpus.milli)).unwrap_or(SLOTS_MAX);
    let by_memory = capacity.memory.0.checked_div(needs.memory.0).unwrap_or(SLOTS_MAX);
    by_cpus.min(by_memory).clamp(1, SLOTS_MAX) as usize
}

enum Origin {
    New,
    Recalled,
}
