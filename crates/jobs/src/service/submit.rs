//! Taking a job in: checked, written, and then told to the owner of its queue.

use std::collections::BTreeMap;

use mutirao_core::auth::Principal;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::JobKey;
use mutirao_core::job::{Counts, JobSpec, JobState, JobView, Spread};
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::task::{Needs, Retry, TaskSpec};
use mutirao_core::{Problem, Timestamp};
use mutirao_queues::{Defaults, Workers};
use mutirao_store::refused;
use sha2::{Digest, Sha256};

use super::room::{Coming, Place, Source};
use super::{Jobs, stopping, unstoppable};
use crate::desk::ledger::Ledger;
use crate::desk::order::Rank;
use crate::doors::Ask;
use crate::entries::{Kind, pack};
use crate::meters::{SUBMIT, SUBMITTED};
use crate::question::Question;
use crate::store::held::Until;
use crate::store::{AskedBefore, Created, NewJob};

/// What became of a submission.
pub enum Submitted {
    New(JobView),
    /// The same request came before.
    Before(JobView),
    /// An open job has the unique key.
    Joined(JobView),
}

impl Submitted {
    pub fn view(&self) -> &JobView {
        let (Submitted::New(view) | Submitted::Before(view) | Submitted::Joined(view)) = self;
        view
    }
}

impl Jobs {
    pub async fn submit(
        &self,
        owner: &Principal,
        spec: JobSpec,
        idempotency: Option<String>,
        trace: String,
    ) -> Result<Submitted, Problem> {
        let began = self.0.clock.monotonic();
        if self.is_closed() {
            return Err(stopping());
        }
        spec.check()?;
        let spec = spec.with_needs_told();
        // Whoever asks again is answered as before, whatever has become of the queue and its limits since.
        if let Some(key) = &idempotency
            && let Some(before) = self.asked_before(owner, key).await?
        {
            let digest = tokio::task::spawn_blocking(move || digest(&spec, &pack(&spec.spread)));
            return match before.meets(&digest.await.map_err(|_| Problem::internal())?) {
                Created::Before(key) => Ok(Submitted::Before(self.job(key).await?.0)),
                _ => Err(clash(before.job)),
            };
        }
        let definition = self.queue_named(&spec.queue).await?.readable()?.spec;
        self.can_be_staffed(&definition).await?;
        let workers = definition.workers_to_come();
        let total = spec.spread.count() as u32;
        let (queue, needs) = (spec.queue.clone(), spec.task.needs);
        let defaults = definition.defaults.clone();
        let retry = retry_of(&spec, &defaults);
        let varied = Kind::of(&spec.spread) == Kind::Variation;
        let held = !(spec.after.is_empty() && spec.after_ok.is_empty());
        let rank = Rank { priority: spec.priority, owner: owner.name.clone(), labels: spec.labels.clone() };
        let shard = shard_of(&queue);
        let (fit, source) = self.room_for(Coming::Job, u64::from(total), &definition).await?;
        can_ever_run(&spec, fit.largest, &workers)?;
        if fit.largest.is_none() {
            self.can_be_had(&definition, &spec).await?;
        }
        let first = spec.spread.first();
        let created_at = self.0.clock.now();
        let new = as_accepted(&spec, owner, trace.clone(), created_at);
        let owner = owner.clone();
        let job = tokio::task::spawn_blocking(move || new_job(spec, &defaults, owner, idempotency, trace, created_at))
            .await
            .map_err(|_| Problem::internal())?;
        let (jobs, home) = (self.clone(), queue.clone());
        let ledger = Box::new(Ledger::new(queue.clone(), first, total, retry, needs).varied(varied).ranked(rank));
        // A caller that hangs up must not leave a job that is written and never looked at.
        let created = unstoppable(async move {
            let created = jobs.0.store.create(job).await.map_err(refused)?;
            if let Created::New(job) = created {
                jobs.came(&home, u64::from(total), if held { Place::Held } else { Place::Desk(source) });
                jobs.0.news.tell(vec![job]);
                // Were nobody to hear this, the owner would find the job by itself: it is accepted either way.
                match jobs.0.doors.of(shard) {
                    _ if held => jobs.0.held.notify_one(),
                    Some(door) => door.tell(Ask::Admit(job, ledger), &*jobs.0.clock).await,
                    None => jobs.0.asking.tell(shard, Question::Admit { job }).await,
                }
            }
            Ok(created)
        })
        .await?;
        // Whoever was silent a moment ago is not waited for again.
        let view = async |key| match source {
            Source::Owner => Ok::<_, Problem>(self.job(key).await?.0),
            Source::Store => Ok(self.written(key).await?.0),
        };
        match created {
            Created::New(key) => {
                metrics::counter!(SUBMITTED).increment(1);
                metrics::histogram!(SUBMIT).record(self.0.clock.monotonic().since(began).as_secs_f64());
                // It is accepted, whether or not it can be looked at now: whoever heard no would submit it again.
                Ok(Submitted::New(view(key).await.unwrap_or(JobView { id: key, ..new })))
            }
            Created::Before(key) => Ok(Submitted::Before(view(key).await?)),
            Created::Taken(key) => Ok(Submitted::Joined(JobView { joined: true, ..view(key).await? })),
            Created::NoJob(key) => Err(Problem::invalid("after", format!("there is no job {key} to wait for"))),
            Created::TooManyHeld(held) => Err(Problem::busy(format!("{held} jobs wait for others to end"), 10)),
            Created::NoQueue => Err(self.no_queue(&queue).await),
            Created::Clash(key) => Err(clash(key)),
        }
    }

    async fn asked_before(&self, owner: &Principal, key: &str) -> Result<Option<AskedBefore>, Problem> {
        let Principal { name, namespace, .. } = owner.clone();
        self.0.store.asked_before(namespace, name, key.to_owned()).await.map_err(refused)
    }
}

/// `largest` is the most that a worker has, `workers` what one would be given where there is none.
fn can_ever_run(spec: &JobSpec, largest: Option<Needs>, workers: &Workers) -> Result<(), Problem> {
    let queue = &spec.queue;
    let (most, who) = match largest {
        Some(largest) => (largest, format!("the largest worker of queue {queue} has")),
        None => {
            let cpus = workers.cpus.unwrap_or(Cpus { milli: u32::MAX });
            let memory = workers.memory.unwrap_or(Bytes(u64::MAX));
            (Needs { cpus, memory }, format!("queue {queue} is defined to give its workers"))
        }
    };
    if let Some((place, needs)) = first_with(spec, |needs| needs.cpus > most.cpus) {
        let why = format!("needs {} cpus, {who} {}", needs.cpus, most.cpus);
        let remedy = "ask for fewer, start larger workers (worker.cpus), or edit the queue";
        return Err(Problem::invalid(&format!("{place}.needs.cpus"), why).remedy(remedy));
    }
    if let Some((place, needs)) = first_with(spec, |needs| needs.memory > most.memory) {
        let (needs, most) = needs.memory.beside(most.memory);
        let why = format!("needs {needs} of memory, {who} {most}");
        let remedy = "ask for less, start larger workers (worker.memory), or edit the queue";
        return Err(Problem::invalid(&format!("{place}.needs.memory"), why).remedy(remedy));
    }
    Ok(())
}

/// What needs the most memory, and where the job says it.
pub(super) fn hungriest(spec: &JobSpec) -> (String, Bytes) {
    let of_all = Some(spec.task.needs.memory);
    let own = match &spec.spread {
        Spread::Tasks(tasks) => tasks.iter().filter_map(|task| Some(task.needs?.memory)).max(),
        _ => None,
    };
    let most = of_all.max(own).unwrap_or_default();
    let place = first_with(spec, |needs| needs.memory == most).map_or_else(|| "task".into(), |(place, _)| place);
    (format!("{place}.needs.memory"), most)
}

/// What needs so much, and where the job says it: for all tasks, or for one of its own.
fn first_with(spec: &JobSpec, so_much: impl Fn(&Needs) -> bool) -> Option<(String, Needs)> {
    if let Spread::Tasks(tasks) = &spec.spread {
        let own = tasks.iter().enumerate().find_map(|(i, task)| Some((i, task.needs.filter(&so_much)?)));
        if let Some((i, needs)) = own {
            return Some((format!("spread.tasks[{i}]"), needs));
        }
    }
    so_much(&spec.task.needs).then(|| ("task".into(), spec.task.needs))
}

/// What the job says, else its queue.
fn retry_of(spec: &JobSpec, defaults: &Defaults) -> Retry {
    let retry = spec.task.retry.or(defaults.retry).unwrap_or_default();
    Retry { crashes: spec.crash_limit.unwrap_or(retry.crashes), ..retry }
}

/// Each job once: who waits for an end that is ok waits for the end as well.
fn waits_of(spec: &JobSpec) -> Vec<(JobKey, Until)> {
    let ended = spec.after.iter().map(|job| (*job, Until::Ended));
    let waits: BTreeMap<JobKey, Until> = ended.chain(spec.after_ok.iter().map(|job| (*job, Until::Ok))).collect();
    waits.into_iter().collect()
}

/// How a job looks that was just written, but for its id.
fn as_accepted(spec: &JobSpec, owner: &Principal, trace: String, created_at: Timestamp) -> JobView {
    let tasks = spec.spread.count();
    JobView {
        id: JobKey(0),
        name: spec.name.clone(),
        queue: spec.queue.clone(),
        owner: owner.name.clone(),
        state: JobState::Waiting,
        tasks,
        counts: Counts { ready: tasks, ..Counts::default() },
        created_at,
        finished_at: None,
        labels: spec.labels.clone(),
        priority: spec.priority,
        unique: spec.unique.clone(),
        joined: false,
        waits_for: spec.after.iter().chain(&spec.after_ok).copied().collect(),
        reason: None,
        trace,
        task: Some(spec.task.clone()),
    }
}

fn new_job(
    spec: JobSpec,
    defaults: &Defaults,
    owner: Principal,
    idempotency: Option<String>,
    trace: String,
    created_at: Timestamp,
) -> NewJob {
    let segments = pack(&spec.spread);
    let task = written(&spec.task, Some(retry_of(&spec, defaults)), spec.task.timeout.or(defaults.timeout));
    let waits = waits_of(&spec);
    let labels = labels_of(&spec);
    let (first, total) = (spec.spread.first(), spec.spread.count() as u32);
    let idempotency = idempotency.map(|key| (key, digest(&spec, &segments)));
    NewJob {
        namespace: owner.namespace,
        owner: owner.name,
        name: spec.name,
        queue: spec.queue,
        labels,
        priority: spec.priority,
        spec: task,
        kind: Kind::of(&spec.spread),
        first,
        total,
        segments,
        trace,
        created_at,
        idempotency,
        unique: spec.unique,
        waits,
    }
}

fn written(task: &TaskSpec, retry: Option<Retry>, timeout: Option<Span>) -> String {
    let task = TaskSpec { retry: Some(retry.unwrap_or_default()), timeout, ..task.clone() };
    serde_json::to_string(&task).expect("a checked task can be written")
}

fn labels_of(spec: &JobSpec) -> String {
    serde_json::to_string(&spec.labels).expect("texts can be written")
}

/// What tells one request from another. Without the queue's defaults: the same request stays the same when they change.
fn digest(spec: &JobSpec, segments: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let (asked, labels) = (written(&spec.task, spec.task.retry, spec.task.timeout), labels_of(spec));
    let (first, total) = (spec.spread.first(), spec.spread.count() as u32);
    let mut digest = Sha256::new();
    let what = format!("{:?}\n{}\n{asked}\n{labels}\n{first} {total}", spec.name, spec.queue);
    digest.update(what.as_bytes());
    if spec.priority != 0 {
        digest.update(format!("\n{}", spec.priority).as_bytes());
    }
    let waits = waits_of(spec);
    if spec.crash_limit.is_some() || spec.unique.is_some() || !waits.is_empty() {
        digest.update(format!("\n{:?} {:?} {waits:?}", spec.crash_limit, spec.unique).as_bytes());
    }
    segments.iter().for_each(|(_, body)| digest.update(body));
    digest.finalize().to_vec()
}

fn clash(job: JobKey) -> Problem {
    Problem::conflict(format!("this Idempotency-Key was used for another request, which made job {job}"))
        .remedy("use a new key for a new request")
}
