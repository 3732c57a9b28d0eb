//! A simulated worker process: the real desk of the worker, and its three loops (taking, reporting, listening) as one
//! script. What a task does when it runs is the only thing made up.

mod reporting;
mod runs;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::envelope::Parcel;
use mutirao_core::id::{QueueName, SessionId, WorkerId};
use mutirao_core::task::Needs;
use mutirao_jobs::desk::Now;
use mutirao_worker::Limits;
use mutirao_worker::sim::{Desk, Try};

use super::clock::LocalClock;
use super::flaw::Flaw;
use super::ground::{Event, Ground, MS};
use super::link::{Link, News};
use super::wire::{Body, ConnId, FromBroker, Name, Pid, ToBroker};
use reporting::Outgoing;
use runs::Runs;

const TICK_US: u64 = 50 * MS;
/// As in the real taking loop.
const LINGER: Duration = Duration::from_millis(200);

/// What a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A task has run for longer than a moment.
    Lasting(Try),
    /// A task's process has ended.
    Ends(Try),
    /// Its output is safe.
    Uploaded(Try),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    /// It takes nothing new, and stays.
    Resting,
    Draining,
    SayingGoodbye,
    Gone,
}

pub struct Worker {
    pub pid: Pid,
    pub clock: LocalClock,
    pub queue: QueueName,
    pub session: SessionId,
    capacity: Needs,
    limits: Limits,
    link: Link,
    desk: Desk,
    runs: Runs,
    stage: Stage,
    consumer: Option<u64>,
    inbox: VecDeque<(u64, Rc<Parcel>)>,
    no_room_since: Option<Mono>,
    outgoing: Option<Outgoing>,
    beat_at: Mono,
    /// It wants to go, and has nothing to say but goodbye.
    idle_since: Option<Mono>,
    /// It was told to go now, whatever is unsaid by then.
    gone_by: Option<Mono>,
}

/// Few workers, many lives: a worker that starts again is the same worker.
pub fn worker_of(pid: Pid) -> WorkerId {
    WorkerId(format!("w{}", pid.0 % 5))
}

impl Worker {
    pub fn start(pid: Pid, queue: QueueName, capacity: Needs, clock: LocalClock, ground: &mut Ground) -> Self {
        let session = SessionId(format!("s{}", pid.0));
        let worker = worker_of(pid);
        let limits = Limits::default();
        ground.note(|| format!("{session}: worker of {queue} with {} starts", capacity.cpus));
        ground.after(0, Event::Tick(pid));
        Self {
            pid,
            clock,
            queue,
            desk: Desk::new(capacity, limits, session.clone(), worker),
            session,
            capacity,
            limits,
            link: Link::new(pid),
            runs: Runs::default(),
            stage: Stage::Working,
            consumer: None,
            inbox: VecDeque::new(),
            no_room_since: None,
            outgoing: None,
            beat_at: Mono::default(),
            idle_since: None,
            gone_by: None,
        }
    }

    pub fn conn(&self) -> ConnId {
        self.link.conn()
    }

    pub fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// Nothing is held and everything is said.
    pub fn is_idle(&self) -> bool {
        self.desk.is_idle() && self.desk.unreported() == 0 && self.inbox.is_empty()
    }

    /// What waits here first, and what it takes.
    pub fn first_waiting(&self) -> Option<(Try, Needs)> {
        self.desk.first_waiting()
    }

    /// Whether it would begin a task of these needs at once, were it brought one.
    pub fn is_free_for(&self, needs: Needs) -> bool {
        let fits = needs.cpus <= self.capacity.cpus && needs.memory <= self.capacity.memory;
        fits && self.stage == Stage::Working && self.desk.is_idle() && self.link.is_up()
    }

    fn now(&self, ground: &Ground) -> Now {
        self.clock.at(ground.now_us)
    }

    pub fn tick(&mut self, ground: &mut Ground) {
        let now = self.now(ground);
        self.link.tick(now.mono, ground);
        if !ground.has(Flaw::Hoards) {
            self.desk.give_back(now.wall, now.mono);
        }
        self.go_on(ground);
        self.last_words(self.now(ground), ground);
        if self.stage != Stage::Gone {
            ground.after(TICK_US, Event::Tick(self.pid));
        }
    }

    pub fn alarm(&mut self, alarm: Alarm, ground: &mut Ground) {
        let now = self.now(ground);
        match alarm {
            Alarm::Lasting(id) => self.desk.lasting(id, now.wall),
            Alarm::Ends(id) => self.runs.ends(id, self.pid, &mut self.desk, now, ground),
            Alarm::Uploaded(id) => self.runs.uploaded(id, &mut self.desk, now),
        }
        self.go_on(ground);
    }

    /// Finish what runs, give back the rest, go home.
    pub fn drain(&mut self, ground: &mut Ground) {
        if matches!(self.stage, Stage::Working | Stage::Resting) {
            ground.note(|| format!("{}: drains", self.session));
            self.stage = Stage::Draining;
            self.desk.drain(self.now(ground).wall);
            self.stop_consuming(ground);
            self.beat_at = Mono::default();
            self.go_on(ground);
        }
    }

    /// Finish what runs, give back the rest, and stay.
    fn rest(&mut self, ground: &mut Ground) {
        if self.stage == Stage::Working {
            ground.note(|| format!("{}: rests", self.session));
            self.stage = Stage::Resting;
            self.desk.drain(self.now(ground).wall);
            self.stop_consuming(ground);
            self.beat_at = Mono::default();
        }
    }

    pub fn is_resting(&self) -> bool {
        self.stage == Stage::Resting
    }

    /// Stop what runs as well.
    pub fn halt(&mut self, ground: &mut Ground) {
        self.drain(ground);
        let (now, limits) = (self.now(ground), &self.limits);
        let unsaid_max = limits.stop_grace_max + limits.upload_wait_max + limits.goodbye_wait_max;
        self.gone_by.get_or_insert(now.mono.plus(unsaid_max));
        self.desk.halt(now.wall);
        self.go_on(ground);
    }

    pub fn hear(&mut self, conn: ConnId, letter: FromBroker, ground: &mut Ground) {
        let now = self.now(ground);
        match self.link.hear(conn, letter, now.mono) {
            News::Up => self.link.send(ToBroker::Subscribe(Name::Control(self.queue.clone())), ground),
            News::Down => {
                self.consumer = None;
                self.inbox.clear();
                if let Some(outgoing) = &mut self.outgoing {
                    outgoing.sent = None;
                }
            }
            News::Letter(FromBroker::Delivery { consumer, tag, body: Body::Parcel(parcel) }) => {
                if self.consumer == Some(consumer) {
                    self.inbox.push_back((tag, parcel));
                }
            }
            News::Letter(FromBroker::Heard(_, Body::Control(control))) => {
                self.desk.cancel(&control, now.wall, now.mono);
                if control.rest.contains(&worker_of(self.pid)) {
                    self.rest(ground);
                }
                if control.drain.contains(&self.session) {
                    self.drain(ground);
                }
            }
            News::Letter(FromBroker::Confirmed(number)) => self.confirmed(number),
            News::Letter(_) | News::Old => {}
        }
        self.go_on(ground);
    }

    /// Everything that can be done now.
    fn go_on(&mut self, ground: &mut Ground) {
        if self.stage == Stage::Gone {
            return;
        }
        let now = self.now(ground);
        self.begin(now, ground);
        if self.stage == Stage::Working {
            self.take(now, ground);
        }
        self.runs.heed(self.pid, ground);
        self.report(now, ground);
    }

    fn begin(&mut self, now: Now, ground: &mut Ground) {
        while let Some(run) = self.desk.next(now.wall, now.mono) {
            self.runs.begin(run, &self.queue, self.pid, now, ground);
        }
        self.runs.check(self.capacity, &self.session, ground);
    }

    fn take(&mut self, now: Now, ground: &mut Ground) {
        if !self.link.is_up() {
            return;
        }
        if !self.desk.has_room(now.mono) {
            let since = *self.no_room_since.get_or_insert(now.mono);
            if now.mono.since(since) >= LINGER {
                self.stop_consuming(ground);
            }
            return;
        }
        self.no_room_since = None;
        let Some(consumer) = self.consumer else {
            let consumer = self.link.number();
            self.consumer = Some(consumer);
            let from = Name::Tasks(self.queue.clone());
            self.link.send(ToBroker::Consume { from, consumer, credit: self.limits.credit_parcels as usize }, ground);
            return;
        };
        while (self.desk.has_room(now.mono) || ground.has(Flaw::Hoards))
            && let Some((tag, parcel)) = self.inbox.pop_front()
        {
            // Acknowledged on receipt: from here on the session answers for it.
            self.link.send(ToBroker::Ack { consumer, through: tag }, ground);
            ground.note(|| format!("{}: takes parcel {:?} of {} tasks", self.session, parcel.id, parcel.tasks.len()));
            self.runs.received(&parcel, &self.session, ground);
            if let Err(bad) = self.desk.accept((*parcel).clone(), now.wall) {
                ground.oracle.fail(|| format!("an owner made a parcel that makes no sense: {bad}"));
            }
            self.begin(now, ground);
        }
    }

    fn stop_consuming(&mut self, ground: &mut Ground) {
        if let Some(consumer) = self.consumer.take() {
            self.inbox.clear();
            self.link.send(ToBroker::Cancel { consumer }, ground);
        }
    }
}
