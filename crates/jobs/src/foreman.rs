//! The foreman: the one task that owns the desk. Everything that happens comes in through its channels, one at a time;
//! everything that follows leaves through channels. Nothing here waits for a disk or a socket, except that when what is
//! settled cannot be written, nothing more is handed out or taken in: the pressure goes back to the workers, and from
//! there nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Control, ParcelId, tasks_of};
use mutirao_core::id::{JobKey, QueueName, TaskKey};
use mutirao_core::life::Final;
use mutirao_core::{Clock, Mono};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::desk::ledger::Ledger;
use crate::desk::{Desk, Effects, Now};
use crate::dispatch::{Outgoing, Undelivered};
use crate::reports::Incoming;
use crate::settings::JobsSettings;
use crate::store::{Settlement, Shared as Store};

/// Settled tasks that may wait to be written before reports are left lying.
const UNSETTLED_MAX: usize = 50_000;
/// Reports taken in at one go.
const REPORTS_AT_ONCE: usize = 32;
const TICK: Duration = Duration::from_millis(200);
const CHECK_OVERDUE: Duration = Duration::from_secs(5);
/// Between two tries at writing when the store refuses.
const SETTLE_PAUSE: Duration = Duration::from_millis(500);

/// What others ask of the foreman.
pub enum Ask {
    Admit(JobKey, Box<Ledger>),
    CancelJob(JobKey, QueueName),
    CancelTask(TaskKey, oneshot::Sender<bool>),
    /// A worker process of this host has died, its tasks with it.
    Bury {
        host: String,
        pid: u32,
    },
    /// A look at the desk, by whoever knows what to look for.
    Look(Box<dyn FnOnce(&Desk, Now) + Send>),
    Stop(oneshot::Sender<()>),
}

/// What settling says back.
struct Settled {
    through: u64,
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
    pub broker: Broker,
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
    pub undelivered: mpsc::Receiver<Undelivered>,
    /// Reports up to this tag may be acknowledged.
    pub settled: watch::Sender<u64>,
}

impl Foreman {
    fn now(&self) -> Now {
        Now { wall: self.clock.now(), mono: self.clock.monotonic() }
    }

    pub async fn run(mut self, mut channels: Channels) {
        let (to_settler, batches) = mpsc::channel::<(Settlement, u64)>(1);
        let (settler_says, mut settler_said) = mpsc::channel::<Settled>(1);
        let settler = Settler {
            store: self.store.clone(),
            clock: self.clock.clone(),
            vitals: self.vitals.clone(),
            changes: self.changes.clone(),
        };
        let settler = tokio::spawn(settler.run(batches, settler_says));
        let clock = self.clock.clone();
        let (mut seen, mut settling) = (0u64, false);
        let (mut next_check, mut next_tick) = (Mono::default(), Mono::default());
        let mut settlement = Settlement::default();
        let mut bye = None;
        let mut hearing = true;
        let mut inbox = Vec::with_capacity(REPORTS_AT_ONCE);
        loop {
            self.absorb(&mut settlement, &channels.outgoing).await;
            if !settling {
                if !settlement.is_empty() {
                    settlement.at = self.clock.now();
                    let batch = std::mem::take(&mut settlement);
                    settling = to_settler.send((batch, seen)).await.is_ok();
                } else {
                    channels.settled.send_if_modified(|through| std::mem::replace(through, seen) != seen);
                    if bye.is_some() {
                        break;
                    }
                }
            }
            self.vitals.open_tasks.store(self.desk.open_tasks(), Ordering::Relaxed);
            let flowing = self.vitals.trouble.lock().is_none() && bye.is_none();
            if flowing && let Ok(place) = channels.outgoing.try_reserve() {
                let handed = self.desk.hand_out(self.now());
                if !handed.is_empty() {
                    place.send(Outgoing::Parcels(handed));
                }
            }
            let room = settlement.ended.len() < UNSETTLED_MAX;
            tokio::select! {
                Some(ask) = channels.asks.recv() => match ask {
                    Ask::Stop(done) => bye = Some(done),
                    ask => self.answer(ask, &channels.outgoing).await,
                },
                received = channels.incoming.recv_many(&mut inbox, REPORTS_AT_ONCE), if room && hearing => {
                    hearing = received > 0;
                    let now = self.now();
                    for Incoming { reports, tag } in inbox.drain(..) {
                        self.desk.report(reports, now);
                        seen = tag;
                    }
                }
                Some(Settled { through }) = settler_said.recv() => {
                    settling = false;
                    channels.settled.send_replace(through);
                }
                Some(failed) = channels.undelivered.recv() => {
                    let now = self.now();
                    match failed {
                        Undelivered::Parcel(parcel) => self.desk.unpost(parcel, now),
                        Undelivered::Broken(parcel, why) => self.desk.refuse(parcel, &why, now),
                    }
                }
                () = clock.sleep_until(next_tick) => {
                    let now = self.now();
                    next_tick = now.mono.plus(self.pause(now));
                    self.desk.tick(now);
                    if now.mono >= next_check {
                        next_check = now.mono.plus(CHECK_OVERDUE);
                        self.look_for_lost_parcels(now).await;
                        self.gauge();
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

    /// Moves what the desk decided to where it is written or said.
    async fn absorb(&mut self, settlement: &mut Settlement, outgoing: &mpsc::Sender<Outgoing>) {
        let Effects { ended, again, stop, sessions } = self.desk.effects();
        settlement.ended.extend(ended);
        settlement.again.extend(again);
        settlement.sessions.extend(sessions);
        let mut controls: std::collections::BTreeMap<QueueName, Control> = Default::default();
        for (queue, task) in stop {
            controls.entry(queue).or_default().cancel_tasks.push(task);
        }
        for (queue, control) in controls {
            let _ = outgoing.send(Outgoing::Control(queue, control)).await;
        }
    }

    async fn answer(&mut self, ask: Ask, outgoing: &mpsc::Sender<Outgoing>) {
        match ask {
            Ask::Admit(job, ledger) => self.desk.admit(job, *ledger),
            Ask::CancelJob(job, queue) => {
                self.desk.cancel_job(job);
                let control = Control { cancel_jobs: vec![job], ..Control::default() };
                let _ = outgoing.send(Outgoing::Control(queue, control)).await;
                let _ = self.changes.send(job);
            }
            Ask::CancelTask(task, done) => {
                let now = self.now();
                // A caller that went away does not undo what it asked.
                let _ = done.send(self.desk.cancel_task(task, now));
            }
            Ask::Bury { host, pid } => {
                let now = self.now();
                self.desk.bury(&host, pid, now);
            }
            Ask::Look(look) => look(&self.desk, self.now()),
            Ask::Stop(_) => {}
        }
    }

    /// Until a retry is due, or the next tick.
    fn pause(&self, now: Now) -> Duration {
        self.desk.next_due().map_or(TICK, |due| due.since(now.wall).min(TICK).max(Duration::from_millis(1)))
    }

    /// A parcel that nobody has, in a queue where nothing lies, is lost: its tasks go out again.
    async fn look_for_lost_parcels(&mut self, now: Now) {
        let mut empty: Option<(QueueName, bool)> = None;
        let overdue: Vec<(QueueName, ParcelId)> = self.desk.overdue(self.settings.parcel_patience, now);
        for (queue, parcel) in overdue {
            if empty.as_ref().is_none_or(|(known, _)| *known != queue) {
                let counts = self.broker.counts(&tasks_of(&queue)).await;
                empty = Some((queue.clone(), counts.is_ok_and(|c| c.ready + c.unacked == 0)));
            }
            if empty.as_ref().is_some_and(|(_, empty)| *empty) {
                tracing::warn!(%queue, parcel = parcel.n, "parcel lost on its way; its tasks go out again");
                self.desk.unpost(parcel, now);
            }
        }
    }

    fn gauge(&self) {
        metrics::gauge!("mutirao_tasks_open").set(self.desk.open_tasks() as f64);
        metrics::gauge!("mutirao_workers").set(self.desk.sessions().count() as f64);
    }
}

/// Writes settlements, one after the other, for as long as it takes.
struct Settler {
    store: Store,
    clock: Arc<dyn Clock>,
    vitals: Arc<Vitals>,
    changes: broadcast::Sender<JobKey>,
}

impl Settler {
    async fn run(self, mut batches: mpsc::Receiver<(Settlement, u64)>, says: mpsc::Sender<Settled>) {
        while let Some((settlement, through)) = batches.recv().await {
            let settlement = Arc::new(settlement);
            self.write(&settlement).await;
            let mut jobs: Vec<JobKey> = settlement.ended.iter().map(|ended| ended.task.job).collect();
            jobs.dedup();
            for how in Final::ALL {
                let n = settlement.ended.iter().filter(|ended| ended.how == how).count();
                if n > 0 {
                    metrics::counter!("mutirao_tasks_ended_total", "state" => how.as_str()).increment(n as u64);
                }
            }
            for job in jobs {
                // Nobody may be listening.
                let _ = self.changes.send(job);
            }
            if says.send(Settled { through }).await.is_err() {
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
