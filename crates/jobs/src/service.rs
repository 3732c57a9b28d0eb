//! Jobs, as the rest of the program sees them: start, submit, look, cancel, stop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared as Broker;
use mutirao_core::auth::Principal;
use mutirao_core::blobs::Blobs;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::results_of;
use mutirao_core::id::{JobKey, QueueName, TaskKey, WorkerId};
use mutirao_core::job::{JobSpec, JobState, JobView, WorkerView};
use mutirao_core::task::Needs;
use mutirao_core::{Clock, Dice, Problem};
use mutirao_store::{Database, StoreError};
use mutirao_surface::{BlobGuard, Capability, Ready};
use sha2::{Digest, Sha256};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::desk::ledger::Ledger;
use crate::desk::{Desk, Now, UnderWay};
use crate::dispatch::Dispatch;
use crate::entries::{Kind, pack};
use crate::foreman::{Ask, Channels, Foreman, Vitals};
use crate::meters::{ENDED, METERS, SUBMIT, SUBMITTED};
use crate::settings::JobsSettings;
use crate::store::{self, Created, Forgotten, NewJob, Shared as Store};
use crate::waits::Waits;
use crate::{reports, routes};

const ASKS_MAX: usize = 1_024;
const OUTGOING_MAX: usize = 8;
const CHANGES_MAX: usize = 4_096;
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(10);

pub struct JobsParts {
    /// Has had [`crate::MIGRATIONS`] or [`crate::POSTGRES_MIGRATIONS`] applied.
    pub store: Database,
    pub broker: Broker,
    pub blobs: Arc<dyn Blobs>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub settings: JobsSettings,
}

#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A handle on the running capability; clones share it.
#[derive(Clone)]
pub struct Jobs(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub store: Store,
    pub blobs: Arc<dyn Blobs>,
    pub clock: Arc<dyn Clock>,
    pub settings: JobsSettings,
    pub asks: mpsc::Sender<Ask>,
    pub vitals: Arc<Vitals>,
    pub changes: broadcast::Sender<JobKey>,
    /// Turns true when streams to clients should end.
    pub ending: watch::Sender<bool>,
}

/// What became of a submission.
pub enum Submitted {
    New(JobView),
    Before(JobView),
}

impl Submitted {
    pub fn view(&self) -> &JobView {
        let (Submitted::New(view) | Submitted::Before(view)) = self;
        view
    }
}

impl Jobs {
    /// Reads back what is unfinished and goes on with it.
    pub async fn start(parts: JobsParts) -> Result<Self, JobsError> {
        let JobsParts { store, broker, blobs, clock, dice, settings } = parts;
        let store: Store = store::open(&store);
        let generation = store.next_generation().await?;
        let mut desk = Desk::new(generation, settings.lease, dice.u64());
        let mut recalled = 0;
        for job in store.open_jobs().await? {
            let ledger = Ledger::new(job.queue, job.first, job.total, job.retry, job.needs).recall(job.traces);
            recalled += 1;
            desk.admit(job.key, ledger);
        }
        let now = Now { wall: clock.now(), mono: clock.monotonic() };
        for (session, worker, queue) in store.sessions().await? {
            desk.expect(session, worker, queue, now);
        }
        tracing::info!(generation, jobs = recalled, tasks = desk.open_tasks(), "jobs recalled");

        let (ask, asks) = mpsc::channel(ASKS_MAX);
        let (incoming_in, incoming) = mpsc::channel(reports::CREDIT as usize);
        let (outgoing, outgoing_out) = mpsc::channel(OUTGOING_MAX);
        let (back_in, back) = mpsc::channel(OUTGOING_MAX);
        let (settled, settled_out) = watch::channel(reports::Mark::default());
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        let vitals = Arc::new(Vitals::default());
        let results = results_of(&QueueName::default());
        let waits = Arc::new(Waits::default());
        tokio::spawn(reports::run(broker.clone(), results, clock.clone(), waits.clone(), incoming_in, settled_out));
        tokio::spawn(Dispatch::new(store.clone(), broker, clock.clone(), waits).run(outgoing_out, back_in));
        let foreman = Foreman {
            desk,
            store: store.clone(),
            clock: clock.clone(),
            settings: settings.clone(),
            vitals: vitals.clone(),
            changes: changes.clone(),
        };
        tokio::spawn(foreman.run(Channels { asks, incoming, outgoing, back, settled }));
        let ending = watch::Sender::new(false);
        let jobs = Self(Arc::new(Inner { store, blobs, clock, settings, asks: ask, vitals, changes, ending }));
        tokio::spawn(jobs.clone().sweep());
        Ok(jobs)
    }

    pub fn capability(&self) -> Capability {
        Capability::new("jobs", routes::routes(self.clone()))
            .guard_blobs("logs/", Arc::new(self.clone()))
            .ready_when(Arc::new(self.clone()))
            .measuring(METERS)
    }

    /// Ends streams to clients, writes what is settled, and stops.
    pub async fn stop(&self) {
        self.0.ending.send_replace(true);
        let (done, stopped) = oneshot::channel();
        if self.0.asks.send(Ask::Stop(done)).await.is_ok() && self.0.clock.timeout(STOP_WAIT, stopped).await.is_err() {
            tracing::error!("stopped before everything was written; what is missing will be run again");
        }
    }

    pub async fn submit(
        &self,
        owner: &Principal,
        spec: JobSpec,
        idempotency: Option<String>,
        trace: String,
    ) -> Result<Submitted, Problem> {
        let began = self.0.clock.monotonic();
        spec.check()?;
        let total = spec.spread.count() as u32;
        let open = self.0.vitals.open_tasks.load(Ordering::Relaxed);
        if open + u64::from(total) > self.0.settings.waiting_max {
            let most = self.0.settings.waiting_max;
            return Err(Problem::busy(format!("{open} tasks wait already, the most is {most}"), 10));
        }
        let (queue, needs, retry) = (spec.queue.clone(), spec.task.needs, spec.task.retry);
        self.can_ever_run(&queue, needs).await?;
        let first = spec.spread.first();
        let created_at = self.0.clock.now();
        let owner = owner.clone();
        let job = tokio::task::spawn_blocking(move || new_job(spec, owner, idempotency, trace, created_at))
            .await
            .map_err(|_| Problem::internal())?;
        let jobs = self.clone();
        let ledger = Box::new(Ledger::new(queue, first, total, retry, needs));
        // A caller that hangs up must not leave a job that is written and never looked at.
        let created = unstoppable(async move {
            let created = jobs.0.store.create(job).await.map_err(refused)?;
            if let Created::New(key) = created {
                // Were the foreman gone, the job would be found at the next start: it is accepted either way.
                let _ = jobs.0.asks.send(Ask::Admit(key, ledger)).await;
            }
            Ok(created)
        })
        .await?;
        match created {
            Created::New(key) => {
                metrics::counter!(SUBMITTED).increment(1);
                metrics::histogram!(SUBMIT).record(self.0.clock.monotonic().since(began).as_secs_f64());
                Ok(Submitted::New(self.job(key).await?.0))
            }
            Created::Before(key) => Ok(Submitted::Before(self.job(key).await?.0)),
            Created::Clash(key) => Err(Problem::conflict(format!(
                "this Idempotency-Key was used for another request, which made job {key}"
            ))
            .remedy("use a new key for a new request")),
        }
    }

    async fn can_ever_run(&self, queue: &QueueName, needs: Needs) -> Result<(), Problem> {
        let asked = queue.clone();
        let (known, largest) =
            self.look(move |desk, _| (desk.knows_queue(&asked), desk.largest_worker(&asked))).await?;
        if !known {
            return Err(Problem::invalid("queue", format!("there is no queue \"{queue}\""))
                .remedy(format!("`mutirao worker invite --queue {queue}` says how to start a worker for it")));
        }
        match largest {
            Some(most) if needs.cpus > most.cpus => Err(Problem::invalid(
                "task.needs.cpus",
                format!("needs {} cpus, the largest worker of queue {queue} has {}", needs.cpus, most.cpus),
            )
            .remedy("ask for fewer, or start larger workers (worker.cpus)")),
            Some(most) if needs.memory > most.memory => Err(Problem::invalid(
                "task.needs.memory",
                format!("needs {} of memory, the largest worker of queue {queue} has {}", needs.memory, most.memory),
            )
            .remedy("ask for less, or start larger workers (worker.memory)")),
            _ => Ok(()),
        }
    }

    /// A job as it stands now, and the namespace it is in.
    pub async fn job(&self, key: JobKey) -> Result<(JobView, String), Problem> {
        let found = self.0.store.job(key).await.map_err(refused)?;
        let (mut view, namespace) = found.ok_or_else(|| Problem::not_found(format!("there is no job {key}")))?;
        if view.finished_at.is_none() {
            let under_way = self.look(move |desk, _| desk.under_way(key)).await?;
            stand(&mut view, under_way);
        }
        Ok((view, namespace))
    }

    pub async fn cancel_job(&self, key: JobKey) -> Result<JobView, Problem> {
        let (view, _) = self.job(key).await?;
        let jobs = self.clone();
        unstoppable(async move {
            if jobs.0.store.cancel(key, jobs.0.clock.now()).await.map_err(refused)? {
                let ended = view.tasks - view.counts.ended();
                metrics::counter!(ENDED, "state" => "cancelled").increment(ended);
                let _ = jobs.0.asks.send(Ask::CancelJob(key, view.queue)).await;
            }
            Ok(())
        })
        .await?;
        Ok(self.job(key).await?.0)
    }

    /// Answers once it is written; false when there was nothing to cancel.
    pub async fn cancel_task(&self, task: TaskKey) -> Result<bool, Problem> {
        let (done, answer) = oneshot::channel();
        self.0.asks.send(Ask::CancelTask(task, done)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }

    pub async fn workers(&self) -> Result<Vec<WorkerView>, Problem> {
        self.look(|desk, now| {
            let lease = |until: mutirao_core::Mono| until.since(now.mono);
            let mut workers: Vec<WorkerView> = desk
                .sessions()
                .map(|(id, session)| WorkerView {
                    worker: session.worker.clone(),
                    session: id.clone(),
                    queue: session.queue.clone(),
                    host: session.host.clone(),
                    pid: session.pid,
                    capacity: session.capacity,
                    running: session.held.iter().filter(|(task, _)| desk.is_running(**task)).count() as u64,
                    held: session.held.len() as u64,
                    draining: session.draining,
                    silent_ms: desk.lease().saturating_sub(lease(session.until)).as_millis() as u64,
                })
                .collect();
            workers.sort_by(|a, b| (&a.queue, &a.worker.0, &a.session.0).cmp(&(&b.queue, &b.worker.0, &b.session.0)));
            workers
        })
        .await
    }

    /// Whoever saw a worker process die says so, and what it held goes out again without waiting for its lease.
    pub async fn process_died(&self, host: String, pid: u32) {
        // Were the foreman gone, there would be nothing to hand out.
        let _ = self.0.asks.send(Ask::Bury { host, pid }).await;
    }

    /// Asks something of the desk.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Desk, Now) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (seen, answer) = oneshot::channel();
        let look = Box::new(move |desk: &Desk, now: Now| drop(seen.send(look(desk, now))));
        self.0.asks.send(Ask::Look(look)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }

    /// Removes what has been finished for long enough, for as long as the program runs.
    async fn sweep(self) {
        let mut ending = self.0.ending.subscribe();
        loop {
            tokio::select! {
                () = self.0.clock.sleep(SWEEP_EVERY) => {}
                _ = ending.wait_for(|ending| *ending) => return,
            }
            let keep_ms = self.0.settings.keep.as_millis() as i64;
            let before = mutirao_core::Timestamp(self.0.clock.now().0.saturating_sub(keep_ms));
            loop {
                let Forgotten { jobs, done } = match self.0.store.forget(before).await {
                    Ok(forgotten) => forgotten,
                    Err(error) => {
                        tracing::warn!(%error, "old jobs could not be removed");
                        break;
                    }
                };
                for job in &jobs {
                    if let Err(error) = self.0.blobs.remove_all(&format!("logs/{job}/")).await {
                        tracing::warn!(%job, %error, "logs of an old job could not be removed");
                    }
                }
                if done {
                    break;
                }
            }
        }
    }
}

/// Goes on to its end even when whoever waits for it goes away, as a client may at any await.
async fn unstoppable<T: Send + 'static>(
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(work).await.unwrap_or_else(|_| Err(Problem::internal()))
}

/// Fits what the desk knows of tasks under way into what the store knows of those that ended.
pub(crate) fn stand(view: &mut JobView, under_way: Option<UnderWay>) {
    let open = view.tasks.saturating_sub(view.counts.ended());
    if let Some(desk) = under_way {
        // What ended a moment ago and is not written yet still counts as running: counts never go backwards.
        let ending = open.saturating_sub(desk.open);
        view.counts.running = (desk.running + ending).min(open);
        view.counts.dispatched = desk.dispatched.min(open - view.counts.running);
        view.counts.ready = open - view.counts.running - view.counts.dispatched;
    }
    if view.state != JobState::Cancelled {
        view.state = view.counts.state();
    }
}

fn new_job(
    spec: JobSpec,
    owner: Principal,
    idempotency: Option<String>,
    trace: String,
    created_at: mutirao_core::Timestamp,
) -> NewJob {
    let segments = pack(&spec.spread);
    let task = serde_json::to_string(&spec.task).expect("a checked task can be written");
    let labels = serde_json::to_string(&spec.labels).expect("texts can be written");
    let (first, total) = (spec.spread.first(), spec.spread.count() as u32);
    let idempotency = idempotency.map(|key| {
        let mut digest = Sha256::new();
        let what = format!("{:?}\n{}\n{task}\n{labels}\n{first} {total}", spec.name, spec.queue);
        digest.update(what.as_bytes());
        segments.iter().for_each(|(_, body)| digest.update(body));
        (key, digest.finalize().to_vec())
    });
    NewJob {
        namespace: owner.namespace,
        owner: owner.id,
        name: spec.name,
        queue: spec.queue,
        labels,
        spec: task,
        kind: Kind::of(&spec.spread),
        first,
        total,
        segments,
        trace,
        created_at,
        idempotency,
    }
}

/// The store's refusal, as the caller should hear it.
pub(crate) fn refused(error: StoreError) -> Problem {
    match error {
        StoreError::DiskFull { .. } => Problem::busy("the server's disk is full, nothing was written", 10)
            .remedy("free some space there and try again"),
        StoreError::Busy { waiting } => Problem::busy(format!("{waiting} writes wait for the store"), 1),
        StoreError::Closed => stopping(),
        StoreError::Unreachable { why } => {
            tracing::warn!(why, "the database cannot be reached");
            Problem::unavailable("the server's database cannot be reached; whether this was written is not known")
                .remedy("try again, with the same Idempotency-Key if there was one")
        }
        other => {
            tracing::error!(error = %other, "the store failed");
            Problem::internal()
        }
    }
}

fn stopping() -> Problem {
    Problem::unavailable("the server is stopping")
}

#[async_trait]
impl Ready for Jobs {
    async fn ready(&self) -> Result<(), String> {
        match &*self.0.vitals.trouble.lock() {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(()),
        }
    }
}

/// A worker writes the logs of what it holds, and of nothing else.
#[async_trait]
impl BlobGuard for Jobs {
    /// What a worker keeps of a stream, and the line that says where it was cut.
    fn bytes_max(&self) -> u64 {
        mutirao_core::limits::OUTPUT_BYTES_MAX + 1_024
    }

    async fn may_append(&self, caller: &Principal, key: &str) -> Result<(), Problem> {
        let bad = || Problem::forbidden(format!("\"{key}\" is not the log of a task"));
        let mut parts = key.split('/');
        let (Some("logs"), Some(job), Some(index), Some(attempt)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        if !matches!((parts.next(), parts.next()), (Some("stdout" | "stderr"), None)) {
            return Err(bad());
        }
        let (generation, n) = attempt.split_once('-').ok_or_else(bad)?;
        let task = TaskKey { job: job.parse().map_err(|_| bad())?, index: index.parse().map_err(|_| bad())? };
        let attempt = mutirao_core::Attempt {
            generation: generation.parse().map_err(|_| bad())?,
            n: n.parse().map_err(|_| bad())?,
        };
        let worker = WorkerId(caller.id.clone());
        if self.look(move |desk, _| desk.holds(&worker, task, attempt)).await? {
            Ok(())
        } else {
            Err(Problem::forbidden(format!("task {task} attempt {attempt} is not with this worker")))
        }
    }
}
