//! A worker's life: what its loops share, and the order in which they start. How it ends: [`ending`].

mod ending;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mutirao_broker::{BrokerError, Shared};
use mutirao_core::blobs::Blobs;
use mutirao_core::{Clock, Dice, Outcome, Verdict};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::cgroup::{self, Cgroups};
use crate::config::Config;
use crate::desk::{Desk, FLUSH_REPORTS, Run};
use crate::exec::{Bench, Ending, Runner, Surroundings, Threads, Uploads};
use crate::footprint::Gauge;
use crate::stop::{self, Stop};
use crate::{control, report, take};

/// Why a worker ended before it was asked to, or without having said all it had to say.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("the worker's folder {dir} cannot be used: {error}")]
    Dir { dir: String, error: std::io::Error },
    #[error("the worker cannot start: {0}")]
    Start(std::io::Error),
    #[error("the worker cannot go on without its broker: {0}")]
    Broker(#[from] BrokerError),
    /// The manager will find out by itself and hand these out again.
    #[error("the worker left with {tasks} tasks not reported: the broker could not be reached in time")]
    Unreported { tasks: usize },
    #[error("a part of the worker broke: {0}")]
    Broke(String),
}

/// What the loops of one worker share.
pub(crate) struct Shop {
    pub config: Config,
    pub broker: Shared,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub bells: Bells,
    pub gauge: Gauge,
    desk: Mutex<Desk>,
    runner: Runner,
    threads: Arc<Threads>,
    runtime: tokio::runtime::Handle,
}

/// What the loops wait for.
#[derive(Default)]
pub(crate) struct Bells {
    /// There is something to report.
    pub outgoing: Notify,
    /// There is so much to report that it should leave at once.
    pub full: Notify,
    /// There may be room for another parcel.
    pub room: Notify,
    /// Something waits here for its turn.
    pub waiting: Notify,
    /// The manager must hear of this at once.
    pub beat: Notify,
}

/// Runs a worker until it is told to stop and everything it held is reported.
pub async fn run(
    mut config: Config,
    broker: Shared,
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    stop: Stop,
) -> Result<(), WorkerError> {
    let keeper = config.keeper.take();
    let shop = Shop::open(config, broker, blobs, clock, dice)?;
    tracing::info!(worker = %shop.config.worker, session = %shop.config.session, queue = %shop.config.queue, "worker up");
    let result = shop.clone().work(stop).await;
    shop.threads.close();
    if let Some(keeper) = keeper {
        let _ = tokio::task::spawn_blocking(move || keeper.dismiss()).await;
    }
    tracing::info!(session = %shop.config.session, "worker gone");
    result
}

impl Shop {
    fn open(
        config: Config,
        broker: Shared,
        blobs: Arc<dyn Blobs>,
        clock: Arc<dyn Clock>,
        dice: Arc<Dice>,
    ) -> Result<Arc<Self>, WorkerError> {
        let tasks_dir = empty_dir(&config.dir, "tasks")?;
        let spool_dir = empty_dir(&config.dir, "spool")?;
        let cgroups =
            Cgroups::prepare(&config.session).inspect_err(|why| tracing::warn!("{}", cgroup::notice(why))).ok();
        let runner = Runner {
            session: config.session.clone(),
            tasks_dir,
            spool_dir,
            limits: config.limits,
            cpu_limit: config.cpu_limit,
            cgroups,
            uploads: Uploads::new(blobs, clock.clone(), dice.clone()),
            clock: clock.clone(),
            dice: dice.clone(),
            surroundings: Surroundings::of_this_process(),
            own_peak_bytes: Default::default(),
            nooks_made: Default::default(),
        };
        let desk = Desk::new(config.capacity, config.limits, config.session.clone(), config.worker.clone());
        Ok(Arc::new(Self {
            config,
            broker,
            clock,
            dice,
            bells: Bells::default(),
            gauge: Gauge::default(),
            desk: Mutex::new(desk),
            runner,
            threads: Threads::new().map_err(WorkerError::Start)?,
            runtime: tokio::runtime::Handle::current(),
        }))
    }

    async fn work(self: Arc<Self>, mut asked: Stop) -> Result<(), WorkerError> {
        // What was asked for from outside and what the manager asks for come together here.
        let (stopper, stop) = stop::stop();
        let (last_word, all_taken) = stop::stop();
        let control = Loop::of(control::listen(self.clone(), stopper.clone()));
        let taking = Loop::of(take::take(self.clone(), stop.clone()));
        let mut reporting = Loop::of(report::report(self.clone(), all_taken));
        let ending = self.end(&mut asked, stopper, stop, taking, last_word);
        tokio::select! {
            result = reporting.result() => result,
            result = control_result(control) => result,
            result = ending => result,
        }
    }

    /// Nothing more is taken: gives back what has not begun, and says so.
    pub fn rest(self: &Arc<Self>) {
        tracing::info!(held = self.desk().held_count(), "resting: nothing new is taken");
        self.with_desk(|desk| desk.drain(self.clock.now()));
        self.bells.beat.notify_one();
    }

    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is held, starts what can then be started, and rings for whoever has something to do now.
    pub fn with_desk<T>(self: &Arc<Self>, change: impl FnOnce(&mut Desk) -> T) -> T {
        let (value, runs) = {
            let mut desk = self.desk();
            let value = change(&mut desk);
            (value, self.startable(&mut desk))
        };
        self.start_all(runs);
        value
    }

    fn startable(&self, desk: &mut Desk) -> Vec<Run> {
        let (now, mono) = (self.clock.now(), self.clock.monotonic());
        let runs = std::iter::from_fn(|| desk.next(now, mono)).collect();
        self.ring(desk);
        runs
    }

    fn ring(&self, desk: &mut Desk) {
        let unreported = desk.unreported();
        if unreported > 0 || desk.is_draining() {
            self.bells.outgoing.notify_one();
        }
        if unreported >= FLUSH_REPORTS || desk.is_idle() {
            self.bells.full.notify_one();
        }
        if desk.has_room(self.clock.monotonic()) {
            self.bells.room.notify_one();
        }
        if desk.has_waiting() {
            self.bells.waiting.notify_one();
        }
    }

    fn start_all(self: &Arc<Self>, runs: Vec<Run>) {
        for run in runs {
            let shop = self.clone();
            self.threads.start(Box::new(move |bench| shop.serve(run, bench)));
        }
    }

    /// A fault of ours in one task must not leave it running for ever in everybody's books.
    fn run_whatever_happens(self: &Arc<Self>, run: &Run, bench: &mut Bench) -> Ending {
        let started_at = self.clock.now();
        let lasting = || self.with_desk(|desk| desk.lasting(run.task.id(), started_at));
        let ending = catch_unwind(AssertUnwindSafe(|| self.runner.run(run, bench, &lasting)));
        ending.unwrap_or_else(|_| Outcome::new(Verdict::Failed, started_at).because("the worker broke").into())
    }

    /// Runs a task and then, on the same thread, whatever its end makes room for: no other thread need wake for it.
    fn serve(self: Arc<Self>, run: Run, bench: &mut Bench) {
        let mut next = Some(run);
        while let Some(run) = next {
            let id = run.task.id();
            let ending = self.run_whatever_happens(&run, bench);
            let mut runs = {
                let mut desk = self.desk();
                match ending.pending {
                    None => desk.finish(id, ending.outcome, self.clock.monotonic()),
                    Some(pending) => {
                        desk.closing(id);
                        let (shop, mut outcome) = (self.clone(), ending.outcome);
                        self.runtime.spawn(async move {
                            pending.settle(&mut outcome, &*shop.clock, shop.config.limits.upload_wait_max).await;
                            let mono = shop.clock.monotonic();
                            shop.with_desk(|desk| desk.finish(id, outcome, mono));
                        });
                    }
                }
                self.startable(&mut desk)
            };
            let others = runs.split_off(runs.len().min(1));
            next = runs.pop();
            self.start_all(others);
        }
    }
}

/// A loop that ends with its handle.
struct Loop(Option<JoinHandle<Result<(), WorkerError>>>);

impl Loop {
    fn of(work: impl Future<Output = Result<(), WorkerError>> + Send + 'static) -> Self {
        Self(Some(tokio::spawn(work)))
    }

    /// Its result, once; after that there is nothing more to say. Cancel-safe.
    async fn result(&mut self) -> Result<(), WorkerError> {
        let Some(handle) = &mut self.0 else { return Ok(()) };
        let result = handle.await;
        self.0 = None;
        result.unwrap_or_else(|error| Err(WorkerError::Broke(error.to_string())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.abort();
        }
    }
}

/// Listening has no good end.
async fn control_result(mut control: Loop) -> Result<(), WorkerError> {
    control.result().await?;
    std::future::pending().await
}

fn empty_dir(parent: &Path, name: &str) -> Result<std::path::PathBuf, WorkerError> {
    let dir = parent.join(name);
    let wrong = |error| WorkerError::Dir { dir: dir.display().to_string(), error };
    match std::fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
        _ => {}
    }
    std::fs::create_dir_all(&dir).map_err(wrong)?;
    Ok(dir)
}
