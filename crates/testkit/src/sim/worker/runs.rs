//! What tasks do in the simulation: run for a while, end well or badly, stop when told to. The words of a task's command
//! say what it is like.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_core::envelope::Parcel;
use mutirao_core::id::{Attempt, QueueName, SessionId, TaskKey};
use mutirao_core::outcome::{Outcome, Verdict};
use mutirao_core::task::{Action, Needs};
use mutirao_jobs::desk::Now;
use mutirao_worker::sim::{Desk, Run, Try};

use super::super::flaw::Flaw;
use super::super::ground::{Event, Ground, MS, SECOND};
use super::super::wire::Pid;
use super::Alarm;

/// As in the real worker.
const LASTING_US: u64 = 100 * MS;

struct Running {
    run: Run,
    queue: QueueName,
    verdict: Verdict,
    began: Now,
    began_us: u64,
    /// It was told to stop and is about to.
    stopping: bool,
    /// Its process has ended; its output is on its way.
    closing: bool,
}

#[derive(Default)]
pub struct Runs {
    running: BTreeMap<Try, Running>,
    /// Every try that was ever begun here.
    begun: BTreeSet<Try>,
}

impl Runs {
    /// No-ops are over as soon as they are received: the desk says ok by itself.
    pub fn received(&self, parcel: &Parcel, session: &SessionId, ground: &mut Ground) {
        for handout in &parcel.tasks {
            let Some(template) = parcel.templates.get(usize::from(handout.t)) else { continue };
            let task = TaskKey { job: template.job, index: handout.index };
            let attempt = Attempt { generation: parcel.id.generation, n: handout.n };
            ground.oracle.received(task, attempt, session);
            if matches!(template.spec.action, Action::Noop {}) {
                ground.oracle.ran(task, attempt, Verdict::Ok, ground.now_us, ground.now_us);
            }
        }
    }

    pub fn begin(&mut self, run: Run, queue: &QueueName, pid: Pid, now: Now, ground: &mut Ground) {
        let id = run.id();
        ground.oracle.began(queue);
        if !self.begun.insert(id) {
            ground.oracle.fail(|| format!("{pid:?} runs {} attempt {} a second time", id.0, id.1));
        }
        let words = run.command();
        let lasts_us = match words.first().map(String::as_str) {
            Some("quick") => ground.between(MS, 40 * MS),
            Some("long") => ground.between(4 * SECOND, 14 * SECOND),
            _ => ground.between(50 * MS, 2 * SECOND),
        };
        let bad_percent = match words.get(1).map(String::as_str) {
            Some("flaky") => 40,
            Some("hopeless") => 100,
            _ => 0,
        };
        let verdict = match ground.dice.below(100) {
            n if n < 30 && words.get(1).is_some_and(|word| word == "broken") => Verdict::Refused,
            n if n < bad_percent && n % 4 == 0 => Verdict::TimedOut,
            n if n < bad_percent => Verdict::Failed,
            _ => Verdict::Ok,
        };
        ground.note(|| format!("{pid:?}: runs {} attempt {}", id.0, id.1));
        if lasts_us > LASTING_US {
            ground.after(LASTING_US, Event::Alarm(pid, Alarm::Lasting(id)));
        }
        let lasts_us = if ground.has(Flaw::LazyWorker) { 0 } else { lasts_us };
        ground.after(lasts_us, Event::Alarm(pid, Alarm::Ends(id)));
        let (queue, began_us) = (queue.clone(), ground.now_us);
        let running = Running { run, queue, verdict, began: now, began_us, stopping: false, closing: false };
        self.running.insert(id, running);
    }

    /// Those that were told to stop will have stopped soon.
    pub fn heed(&mut self, pid: Pid, ground: &mut Ground) {
        for (id, running) in &mut self.running {
            if !running.stopping
                && !running.closing
                && let Some(verdict) = running.run.halted()
            {
                (running.stopping, running.verdict) = (true, verdict);
                let grace_us = ground.between(MS, 2 * SECOND);
                ground.after(grace_us, Event::Alarm(pid, Alarm::Ends(*id)));
            }
        }
    }

    pub fn ends(&mut self, id: Try, pid: Pid, desk: &mut Desk, now: Now, ground: &mut Ground) {
        let Some(running) = self.running.get_mut(&id).filter(|running| !running.closing) else { return };
        if !ground.has(Flaw::LazyWorker) {
            ground.oracle.ran(id.0, id.1, running.verdict, running.began_us, ground.now_us);
        }
        ground.oracle.queues.ended(&running.queue);
        if ground.chance(20) {
            running.closing = true;
            desk.closing(id);
            let upload_us = ground.between(MS, SECOND);
            ground.after(upload_us, Event::Alarm(pid, Alarm::Uploaded(id)));
        } else {
            self.finish(id, desk, now);
        }
    }

    pub fn uploaded(&mut self, id: Try, desk: &mut Desk, now: Now) {
        self.finish(id, desk, now);
    }

    fn finish(&mut self, id: Try, desk: &mut Desk, now: Now) {
        if let Some(running) = self.running.remove(&id) {
            desk.finish(id, Outcome::new(running.verdict, running.began.wall), now.mono);
        }
    }

    /// What runs fits into the worker.
    pub fn check(&self, capacity: Needs, session: &SessionId, ground: &mut Ground) {
        let running = self.running.values().filter(|running| !running.closing);
        let milli: u64 = running.map(|running| u64::from(running.run.takes().cpus.milli)).sum();
        if milli > u64::from(capacity.cpus.milli) {
            ground.oracle.fail(|| format!("{session}: {milli} thousandths of a cpu are in use of {}", capacity.cpus));
        }
    }
}
