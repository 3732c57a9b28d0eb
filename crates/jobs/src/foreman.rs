//! The foreman: the one task that owns the desk. Everything that happens comes in through its channels, one at a time;
//! everything that follows leaves through channels. Nothing here waits for a disk or a socket, nor for whoever reads from
//! it. While what is settled cannot be written, nothing is handed out, reports are left lying once a bound is reached, and
//! no lease runs out: whoever could not be heard is not given up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::Control;
use mutirao_core::id::{JobKey, QueueName, SessionId, TaskKey};
use mutirao_core::life::Final;
use mutirao_core::{Clock, Mono};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::desk::ledger::Ledger;
use crate::desk::{Desk, Effects, Now, SessionChange};
use crate::dispatch::{Back, Outgoing};
use crate::meters::{Depths, ENDED, OPEN, SETTLE, WORKERS};
use crate::reports::{Incoming, Mark};
use crate::settings::JobsSettings;
use crate::store::{Settlement, Shared as Store};

/// Settled tasks that may wait to be written before reports are left lying.
const UNSETTLED_MAX: usize = 50_000;
/// Reports taken in at one go.
const REPORTS_AT_ONCE: usize = 32;
const TICK: Duration = Duration::from_millis(200);
const CHECK_OVERDUE: Duration = Duration::from_secs(5);
/// A tick this late, or a settlement that takes this long, means that we could not hear anybody.
const DEAF: Duration = Duration::from_secs(1);
/// Between two tries at writing when the store refuses.
const SETTLE_PAUSE: Duration = Duration::from_millis(500);
/// Jobs remembered that were cancelled before the desk had heard of them.
const GRAVES_MAX: usize = 1_024;

pub type Look = Box<dyn FnOnce(&Desk, Now) + Send>;

/// What others ask of the foreman.
pub enum Ask {
    Admit(JobKey, Box<Ledger>),
    CancelJob(JobKey, QueueName),
    /// Answered once it is written, or with false when there is nothing to cancel.
    CancelTask(TaskKey, oneshot::Sender<bool>),
    /// A worker process of this host has died, its tasks with it.
    Bury {
        host: String,
        pid: u32,
    },
    /// A look at the desk, by whoever knows what to look for.
    Look(Look),
    Stop(oneshot::Sender<()>),
}

/// What settling says back.
struct Settled {
    through: Mark,
    came: Vec<SessionId>,
}

/// What everybody may know about the foreman's state without asking.
#[derive(Default)]
pub struct Vitals {
    pub open_tasks: AtomicU64,
    /// Why nothing can be written at the moment, if so.
    pub trouble: parking_lot::Mutex<Option<String>>,
}

pub struct Foreman {
    pub desk: Desk,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub settings: JobsSettings,
    pub vitals: Arc<Vitals>,
    /// Jobs whose written state changed.
    pub changes: broadcast::Sender<JobKey>,
}

/// The foreman's ends of its channels.
pub struct Channels {
    pub asks: mpsc::Receiver<Ask>,
    pub incoming: mpsc::Receiver<Incoming>,
    pub outgoing: mpsc::Sender<Outgoing>,
    pub back: mpsc::Receiver<Vec<Back>>,
    /// Reports up to here may be acknowledged.
    pub settled: watch::Sender<Mark>,
}

/// What waits to be written, to be said, or to be answered.
#[derive(Default)]
struct Pending {
    settlement: Settlement,
    /// Answered when what is in `settlement` is written.
    answers: Vec<oneshot::Sender<bool>>,
    outgoing: VecDeque<Outgoing>,
    graves: VecDeque<JobKey>,
}

impl Foreman {
    fn now(&self) -> Now {
        Now { wall: self.clock.now(), mono: self.clock.monotonic() }
    }

    pub async fn run(mut self, mut channels: Channels) {
        let (to_settler, batches) = mpsc::channel::<Batch>(1);
        let (settler_says, mut settler_said) = mpsc::channel::<Settled>(1);
        let settler = Settler {
            store: self.store.clone(),
            clock: self.clock.clone(),
            vitals: self.vitals.clone(),
            changes: self.changes.clone(),
        };
        let settler = tokio::spawn(settler.run(batches, settler_says));
        let clock = self.clock.clone();
        let mut pending = Pending::default();
        let mut seen = Mark::default();
        let mut settling_since: Option<Mono> = None;
        let mut last_tick = clock.monotonic();
        let (mut next_check, mut next_tick) = (last_tick, last_tick);
        let (mut bye, mut hearing) = (None, true);
        let mut inbox = Vec::with_capacity(REPORTS_AT_ONCE);
        let mut depths = Depths::default();
        loop {
            self.absorb(&mut pending);
            if settling_since.is_none() {
                if !pending.settlement.is_empty() || !pending.answers.is_empty() {
                    pending.settlement.at = self.clock.now();
                    let settlement = std::mem::take(&mut pending.settlement);
                    let batch = Batch { settlement, through: seen, answers: std::mem::take(&mut pending.answers) };
                    // There is room: the one before is done.
                    if to_settler.try_send(batch).is_ok() {
                        settling_since = Some(clock.monotonic());
                    }
                } else {
                    channels.settled.send_if_modified(|through| std::mem::replace(through, seen) != seen);
                    if bye.is_some() && (channels.incoming.is_empty() || !hearing) {
                        break;
                    }
                }
            }
            self.vitals.open_tasks.store(self.desk.open_tasks(), Ordering::Relaxed);
            let flowing = self.vitals.trouble.lock().is_none() && bye.is_none();
            self.send_out(&mut pending, &channels.outgoing, flowing);
            let room = pending.settlement.ended.len() < UNSETTLED_MAX;
            tokio::select! {
                Some(ask) = channels.asks.recv() => match ask {
                    Ask::Stop(done) => bye = Some(done),
                    ask => self.answer(ask, &mut pending),
                },
                received = channels.incoming.recv_many(&mut inbox, REPORTS_AT_ONCE), if room && hearing => {
                    hearing = received > 0;
                    self.hear(&mut inbox, &mut seen);
                }
                Some(Settled { through, came }) = settler_said.recv() => {
                    settling_since = None;
                    channels.settled.send_replace(through);
                    came.iter().for_each(|session| self.desk.written(session));
                }
                Some(back) = channels.back.recv() => self.take_back(back),
                () = clock.sleep_until(next_tick) => {
                    // Whoever spoke while we were away is heard before anybody is given up.
                    while let Ok(incoming) = channels.incoming.try_recv() {
                        inbox.push(incoming);
                    }
                    self.hear(&mut inbox, &mut seen);
                    let now = self.now();
                    let elapsed = now.mono.since(last_tick);
                    let stuck = settling_since.is_some_and(|since| now.mono.since(since) > DEAF);
                    if elapsed > DEAF || stuck || !room {
                        self.desk.forgive(elapsed);
                    }
                    last_tick = now.mono;
                    next_tick = now.mono.plus(self.pause(now));
                    self.desk.tick(now);
                    if now.mono >= next_check {
                        next_check = now.mono.plus(CHECK_OVERDUE);
                        self.look_for_lost_parcels(&mut pending, now);
                        self.gauge(&mut depths);
                    }
                }
            }
        }
        drop(to_settler);
        let _ = settler.await;
        if let Some(done) = bye {
            let _ = done.send(());
        }
    }

    fn hear(&mut self, inbox: &mut Vec<Incoming>, seen: &mut Mark) {
        let now = self.now();
        for Incoming { reports, mark } in inbox.drain(..) {
            self.desk.report(reports, now);
            *seen = mark;
        }
    }

    /// Moves what the desk decided to where it is written or said.
    fn absorb(&mut self, pending: &mut Pending) {
        let Effects { ended, late, again, stop, sessions } = self.desk.effects();
        pending.settlement.ended.extend(ended);
        pending.settlement.late.extend(late);
        pending.settlement.again.extend(again);
        pending.settlement.sessions.extend(sessions);
        let mut controls: BTreeMap<QueueName, Control> = BTreeMap::new();
        for (queue, task) in stop {
            controls.entry(queue).or_default().cancel_tasks.push(task);
        }
        pending.outgoing.extend(controls.into_iter().map(|(queue, control)| Outgoing::Control(queue, control)));
    }

    /// As much as goes without waiting: whoever takes it may be waiting for us.
    fn send_out(&mut self, pending: &mut Pending, outgoing: &mpsc::Sender<Outgoing>, flowing: bool) {
        while !pending.outgoing.is_empty()
            && let Ok(place) = outgoing.try_reserve()
            && let Some(next) = pending.outgoing.pop_front()
        {
            place.send(next);
        }
        if flowing && let Ok(place) = outgoing.try_reserve() {
            let handed = self.desk.hand_out(self.now());
            if !handed.is_empty() {
                place.send(Outgoing::Parcels(handed));
            }
        }
    }

    fn answer(&mut self, ask: Ask, pending: &mut Pending) {
        let now = self.now();
        match ask {
            Ask::Admit(job, ledger) => {
                if !pending.graves.contains(&job) {
                    self.desk.admit(job, *ledger);
                }
            }
            Ask::CancelJob(job, queue) => {
                self.desk.cancel_job(job);
                pending.graves.push_back(job);
                if pending.graves.len() > GRAVES_MAX {
                    pending.graves.pop_front();
                }
                let control = Control { cancel_jobs: vec![job], ..Control::default() };
                pending.outgoing.push_back(Outgoing::Control(queue, control));
                // Nobody may be listening.
                let _ = self.changes.send(job);
            }
            Ask::CancelTask(task, done) => {
                if self.desk.cancel_task(task, now) {
                    self.absorb(pending);
                    pending.answers.push(done);
                } else {
                    // A caller that went away does not undo what it asked.
                    let _ = done.send(false);
                }
            }
            Ask::Bury { host, pid } => self.desk.bury(&host, pid, now),
            Ask::Look(look) => look(&self.desk, now),
            Ask::Stop(_) => {}
        }
    }

    fn take_back(&mut self, back: Vec<Back>) {
        let now = self.now();
        for failed in back {
            match failed {
                Back::Unsent(parcel) => self.desk.unpost(parcel, now),
                Back::TooLong(parcel) => self.desk.split(parcel, now),
                Back::Broken(parcel, why) => self.desk.refuse(parcel, &why, now),
                Back::Empty(queue) => {
                    let lost = self.desk.found_empty(&queue, self.settings.parcel_patience, now);
                    warn_of_lost(lost);
                }
            }
        }
    }

    /// Until a retry is due, or the next tick.
    fn pause(&self, now: Now) -> Duration {
        self.desk.next_due().map_or(TICK, |due| due.since(now.wall).min(TICK).max(Duration::from_millis(1)))
    }

    fn look_for_lost_parcels(&mut self, pending: &mut Pending, now: Now) {
        warn_of_lost(self.desk.take_back_lost(self.settings.parcel_patience, now));
        for queue in self.desk.overdue(self.settings.parcel_patience, now) {
            pending.outgoing.push_back(Outgoing::Look(queue));
        }
    }

    fn gauge(&self, depths: &mut Depths) {
        metrics::gauge!(OPEN).set(self.desk.open_tasks() as f64);
        metrics::gauge!(WORKERS).set(self.desk.sessions().count() as f64);
        depths.show(self.desk.depths());
    }
}

fn warn_of_lost(parcels: usize) {
    if parcels > 0 {
        tracing::warn!(parcels, "parcels were lost on their way; their tasks go out again");
    }
}

struct Batch {
    settlement: Settlement,
    through: Mark,
    answers: Vec<oneshot::Sender<bool>>,
}

/// Writes settlements, one after the other, for as long as it takes.
struct Settler {
    store: Store,
    clock: Arc<dyn Clock>,
    vitals: Arc<Vitals>,
    changes: broadcast::Sender<JobKey>,
}

impl Settler {
    async fn run(self, mut batches: mpsc::Receiver<Batch>, says: mpsc::Sender<Settled>) {
        while let Some(Batch { settlement, through, answers }) = batches.recv().await {
            let settlement = Arc::new(settlement);
            let began = self.clock.monotonic();
            self.write(&settlement).await;
            metrics::histogram!(SETTLE).record(self.clock.monotonic().since(began).as_secs_f64());
            for answer in answers {
                // A caller that went away does not undo what it asked.
                let _ = answer.send(true);
            }
            let mut jobs: Vec<JobKey> = settlement.ended.iter().map(|ended| ended.task.job).collect();
            jobs.dedup();
            for how in Final::ALL {
                let n = settlement.ended.iter().filter(|ended| ended.how == how).count();
                if n > 0 {
                    metrics::counter!(ENDED, "state" => how.as_str()).increment(n as u64);
                }
            }
            for job in jobs {
                // Nobody may be listening.
                let _ = self.changes.send(job);
            }
            let came = |change: &SessionChange| match change {
                SessionChange::Came(session, ..) => Some(session.clone()),
                SessionChange::Went(_) => None,
            };
            let came = settlement.sessions.iter().filter_map(came).collect();
            if says.send(Settled { through, came }).await.is_err() {
                return;
            }
        }
    }

    /// Only success ends this: what workers did must not be forgotten because a disk was full for an hour.
    async fn write(&self, settlement: &Arc<Settlement>) {
        loop {
            match self.store.settle(settlement.clone()).await {
                Ok(()) => {
                    if self.vitals.trouble.lock().take().is_some() {
                        tracing::info!("outcomes can be written again");
                    }
                    return;
                }
                Err(error) => {
                    let line = error.to_string();
                    let before = self.vitals.trouble.lock().replace(line.clone());
                    if before.as_ref() != Some(&line) {
                        tracing::error!(
                            error = line,
                            "outcomes cannot be written; nothing is handed out until they can"
                        );
                    }
                }
            }
            self.clock.sleep(SETTLE_PAUSE).await;
        }
    }
}
