//! What the worker holds and what happens to it: tasks that wait, run, or have ended and are not yet reported. No I/O,
//! no clock, no threads: whoever calls says what time it is, and carries out what is decided.

mod cancelled;
mod heap;
mod outbox;
mod pace;
mod spare;
mod task;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use mutirao_core::envelope::{Control, Done, Held, ParcelId, Reports, Started};
use mutirao_core::task::Needs;
use mutirao_core::{Mono, Outcome, SessionId, Timestamp, Verdict, WorkerId};

use crate::config::Limits;
use crate::exec::{Halt, HaltReason};
use crate::room::{self, Line};
use cancelled::Cancelled;
pub(crate) use heap::{FLUSH_REPORTS, GATHER, Heap};
use outbox::{Outbox, Report};
use spare::Spare;
pub use task::Try;
pub(crate) use task::{Task, Unpacked, unpack};

/// Parcels remembered, so that one delivered twice is run once.
const PARCELS_SEEN_MAX: usize = 4_096;
/// Ended tasks whose output is still on its way to the blobs.
const CLOSING_MAX: usize = 64;

/// A task to be run now, and the way to stop it.
#[derive(Debug)]
pub(crate) struct Run {
    pub task: Task,
    pub halt: Arc<Halt>,
}

#[derive(Debug)]
struct Running {
    takes: Needs,
    parcel: ParcelId,
    reply_to: Arc<str>,
    trace: Arc<str>,
    halt: Arc<Halt>,
    /// Its process has ended, its output is still being uploaded; it takes no capacity any more.
    closing: bool,
}

#[derive(Debug)]
pub(crate) struct Desk {
    capacity: Needs,
    free: Needs,
    limits: Limits,
    waiting: Line<Task>,
    running: HashMap<Try, Running>,
    closing: usize,
    outbox: Outbox,
    spare: Spare,
    cancelled: Cancelled,
    seen: HashSet<ParcelId>,
    seen_order: VecDeque<ParcelId>,
    draining: bool,
    parcels_taken: u64,
    /// Where the last parcel came from.
    owner_at: Option<Arc<str>>,
}

impl Desk {
    pub fn new(capacity: Needs, limits: Limits, session: SessionId, worker: WorkerId) -> Self {
        Self {
            capacity,
            free: capacity,
            limits,
            waiting: Line::new(),
            running: HashMap::new(),
            closing: 0,
            outbox: Outbox::new(session, worker),
            spare: Spare::default(),
            cancelled: Cancelled::default(),
            seen: HashSet::new(),
            seen_order: VecDeque::new(),
            draining: false,
            parcels_taken: 0,
            owner_at: None,
        }
    }

    /// Where whoever hands tasks out wants to hear of them. None before the first parcel.
    pub fn owner_at(&self) -> Option<Arc<str>> {
        self.owner_at.clone()
    }

    /// Takes a parcel in. From now on everything in it is held, until its outcome is confirmed.
    pub fn accept(&mut self, parcel: Unpacked, now: Timestamp) {
        if !self.is_new(parcel.id) {
            return;
        }
        self.parcels_taken += 1;
        self.owner_at = Some(parcel.reply_to.clone());
        self.outbox.push(parcel.reply_to, Report::Taken(parcel.id));
        for task in parcel.tasks {
            if self.cancelled.holds(task.id()) {
                self.end_unstarted(task, Outcome::new(Verdict::Cancelled, now));
            } else if self.draining {
                self.end_unstarted(task, Outcome::new(Verdict::Returned, now));
            } else if let Some(why) = self.too_big(task.spec.needs) {
                self.end_unstarted(task, Outcome::new(Verdict::Unfit, now).because(why));
            } else {
                self.spare.came(&task);
                self.waiting.join(task.takes(), task);
            }
        }
    }

    /// The next task to run, if one fits. No-ops are run here and now: they are their own outcome.
    pub fn next(&mut self, now: Timestamp, mono: Mono) -> Option<Run> {
        let mut noops = 0;
        let mut run = None;
        while self.may_start() {
            let Some(task) = self.waiting.next(self.free) else { break };
            if task.exec().is_none() {
                noops += 1;
                self.end_unstarted(task, Outcome::new(Verdict::Ok, now));
                continue;
            }
            run = self.begin(task);
            if run.is_some() {
                break;
            }
        }
        if noops > 0 {
            self.spare.pace.ended(noops, mono);
        }
        run
    }

    /// It has run for longer than a moment.
    pub fn lasting(&mut self, (task, attempt): Try, at: Timestamp) {
        if let Some(running) = self.running.get(&(task, attempt)) {
            self.outbox.push(running.reply_to.clone(), Report::Started(Started { task, attempt, at }));
        }
    }

    /// Its process has ended; its outcome follows once its output is safe.
    pub fn closing(&mut self, id: Try) {
        if let Some(running) = self.running.get_mut(&id).filter(|running| !running.closing) {
            running.closing = true;
            self.closing += 1;
            self.free = room::plus(self.free, running.takes);
        }
    }

    pub fn finish(&mut self, id: Try, outcome: Outcome, mono: Mono) {
        let Some(running) = self.running.remove(&id) else { return };
        if running.closing {
            self.closing -= 1;
        } else {
            self.free = room::plus(self.free, running.takes);
        }
        self.spare.pace.ended(1, mono);
        self.report_end(running.reply_to, running.parcel, id, &running.trace, outcome);
    }

    pub fn cancel(&mut self, control: &Control, now: Timestamp, mono: Mono) {
        for job in &control.cancel_jobs {
            self.cancelled.job(*job, mono);
        }
        for (task, through) in control.cancelled() {
            self.cancelled.task(task, through, mono);
        }
        let cancelled = &self.cancelled;
        for (_, running) in self.running.iter().filter(|(id, _)| cancelled.holds(**id)) {
            running.halt.halt(HaltReason::Cancelled);
        }
        for task in self.waiting.remove_if(|task| cancelled.holds(task.id())) {
            self.end_unstarted(task, Outcome::new(Verdict::Cancelled, now));
        }
    }

    /// Takes nothing new from here on, and gives back what has not begun.
    pub fn drain(&mut self, now: Timestamp) {
        self.draining = true;
        for task in self.waiting.remove_if(|_| true) {
            self.end_unstarted(task, Outcome::new(Verdict::Returned, now));
        }
    }

    /// Stops what runs as well.
    pub fn halt(&mut self, now: Timestamp) {
        self.drain(now);
        for running in self.running.values() {
            running.halt.halt(HaltReason::Returned);
        }
    }

    /// Nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    pub fn parcels_taken(&self) -> u64 {
        self.parcels_taken
    }

    pub fn is_draining(&self) -> bool {
        self.draining
    }

    pub fn unreported(&self) -> usize {
        self.outbox.len()
    }

    /// What there is to report, and whether there is other work meanwhile.
    pub fn heap(&self) -> Heap {
        Heap { reports: self.unreported(), idle: self.is_idle(), busy: self.has_waiting() }
    }

    /// How many tasks are the worker's to answer for.
    pub fn held_count(&self) -> usize {
        self.waiting.len() + self.running.len() + self.outbox.unconfirmed().count()
    }

    pub fn take_reports(&mut self) -> Option<(Arc<str>, Reports)> {
        self.outbox.take()
    }

    /// The message of a heartbeat, numbered with those that carry reports. Says again which parcels what is held came in.
    pub fn message(&mut self) -> Reports {
        let mut reports = self.outbox.message();
        reports.taken.extend(self.waiting.iter().map(|task| task.parcel));
        reports.taken.extend(self.running.values().map(|running| running.parcel));
        reports.taken.extend(self.outbox.parcels());
        outbox::each_once(&mut reports.taken);
        reports
    }

    pub fn confirm_reports(&mut self) {
        self.outbox.confirm();
    }

    /// Everything the worker answers for, for its heartbeat.
    pub fn held(&self) -> Vec<Held> {
        let waiting = self.waiting.iter().map(|task| (task.id(), false));
        let running = self.running.keys().map(|id| (*id, true));
        let ended = self.outbox.unconfirmed().map(|id| (id, true));
        waiting.chain(running).chain(ended).map(|((task, attempt), running)| Held { task, attempt, running }).collect()
    }

    /// Forgets what no longer matters. Called with every heartbeat.
    pub fn tidy(&mut self, mono: Mono) {
        self.cancelled.forget_old(mono);
    }

    /// Reports leave as fast as they come, more or less.
    fn may_report(&self) -> bool {
        self.outbox.len() < self.limits.outbox_reports_max && self.outbox.output_bytes() < self.limits.outbox_bytes_max
    }

    fn may_start(&self) -> bool {
        self.may_report() && self.running.len() - self.closing < self.limits.processes_max && self.closing < CLOSING_MAX
    }

    fn begin(&mut self, task: Task) -> Option<Run> {
        // The same try twice, in two parcels: whoever runs already speaks for both.
        if self.running.contains_key(&task.id()) {
            return None;
        }
        let takes = task.takes();
        self.free = room::less(self.free, takes);
        let halt = Arc::new(Halt::default());
        let running = Running {
            takes,
            parcel: task.parcel,
            reply_to: task.reply_to.clone(),
            trace: task.trace.clone(),
            halt: halt.clone(),
            closing: false,
        };
        self.running.insert(task.id(), running);
        Some(Run { task, halt })
    }

    fn end_unstarted(&mut self, task: Task, outcome: Outcome) {
        let id = task.id();
        self.report_end(task.reply_to, task.parcel, id, &task.trace, outcome);
    }

    fn report_end(&mut self, to: Arc<str>, parcel: ParcelId, (task, attempt): Try, trace: &str, outcome: Outcome) {
        let done = Done { task, attempt, trace: trace.into(), outcome };
        self.outbox.push(to, Report::Done(Box::new(done), parcel));
    }

    fn too_big(&self, needs: Needs) -> Option<String> {
        let whole = self.capacity;
        if needs.cpus > whole.cpus {
            return Some(format!("it needs {} cpus, and its worker has {}", needs.cpus, whole.cpus));
        }
        if needs.memory > whole.memory {
            let (needs, whole) = needs.memory.beside(whole.memory);
            return Some(format!("it needs {needs} of memory, and its worker has {whole}"));
        }
        None
    }

    fn is_new(&mut self, id: ParcelId) -> bool {
        if !self.seen.insert(id) {
            return false;
        }
        self.seen_order.push_back(id);
        if self.seen_order.len() > PARCELS_SEEN_MAX
            && let Some(oldest) = self.seen_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests;
