//! Looking at jobs, tasks and workers, and cancelling. The store knows what has ended; what is under way is asked of the
//! owner. An owner that does not answer keeps nobody from seeing what is written.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use mutirao_core::envelope::shard_of;
use mutirao_core::id::{JobKey, TaskKey, WorkerId};
use mutirao_core::job::{JobState, JobView, WorkerView};
use mutirao_core::shard::JOBS_SHARDS;
use mutirao_core::{Problem, ShardId};
use mutirao_store::refused;

use super::{Jobs, unstoppable};
use crate::asking::Silent;
use crate::desk::UnderWay;
use crate::meters::ENDED;
use crate::question::{Answer, Question, Stand};
use crate::store::Unreadable;

/// How long a look waits for an owner.
pub const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// How long what only the owner can do waits for it.
pub const ACT_PATIENCE: Duration = Duration::from_secs(5);

/// Unfinished jobs that are looked at for one list of those that cannot be read, and how many at a time.
const LOOKED_AT_MAX: usize = 10_000;
const LOOKED_AT_ONCE: usize = 100;

/// Jobs whose shard is kept at hand. It never changes.
const HOMES_MAX: usize = 10_000;

impl Jobs {
    /// A job as it stands now, and the namespace it is in.
    pub async fn job(&self, key: JobKey) -> Result<(JobView, String), Problem> {
        let (view, namespace) = self.written(key).await?;
        let mut views = [view];
        self.stand_all(&mut views).await;
        let [mut view] = views;
        if stands_still(&view)
            && let Some(unreadable) = self.0.store.unreadable(key).await.map_err(refused)?
        {
            view.reason = Some(why_it_waits(&unreadable));
        }
        Ok((view, namespace))
    }

    /// Unfinished jobs in a namespace that no manager of this version can take up, as they are written, with the reason. Of
    /// many jobs only the oldest of each shard are looked at.
    pub async fn unreadable(&self, namespace: &str) -> Result<Vec<JobView>, Problem> {
        let store = &self.0.store;
        let mut found = Vec::new();
        for shard in (0..JOBS_SHARDS).map(ShardId) {
            let mut keys = store.open_keys(shard).await.map_err(refused)?;
            keys.truncate(LOOKED_AT_MAX / JOBS_SHARDS as usize);
            for keys in keys.chunks(LOOKED_AT_ONCE) {
                let unreadable = store.open_jobs(keys.to_vec()).await.map_err(refused)?.unreadable;
                let named = unreadable.iter().map(|unreadable| unreadable.job).collect();
                let mut views = store.jobs_of(namespace.to_owned(), named).await.map_err(refused)?;
                for view in &mut views {
                    let why = unreadable.iter().find(|unreadable| unreadable.job == view.id);
                    view.reason = why.map(why_it_waits);
                }
                found.extend(views);
            }
        }
        Ok(found)
    }

    /// A job as it is written: nobody is asked what is under way.
    pub(super) async fn written(&self, key: JobKey) -> Result<(JobView, String), Problem> {
        let found = self.0.store.job(key).await.map_err(refused)?;
        found.ok_or_else(|| Problem::not_found(format!("there is no job {key}")))
    }

    /// Fits what owners know of tasks under way into what the store knows, and says which shards did not answer.
    pub(crate) async fn stand_all(&self, views: &mut [JobView]) -> Vec<ShardId> {
        let mut open: BTreeMap<ShardId, Vec<JobKey>> = BTreeMap::new();
        for view in views.iter().filter(|view| view.finished_at.is_none()) {
            open.entry(shard_of(&view.queue)).or_default().push(view.id);
        }
        let ask = |(shard, jobs): (ShardId, Vec<JobKey>)| async move {
            (shard, self.0.asking.ask(shard, Question::UnderWay { jobs }, LOOK_PATIENCE).await)
        };
        let mut silent = Vec::new();
        for (shard, answer) in join_all(open.into_iter().map(ask)).await {
            let known = match answer {
                Ok(Answer::UnderWay(known)) => known,
                _ => {
                    silent.push(shard);
                    Vec::new()
                }
            };
            let mine = |view: &&mut JobView| view.finished_at.is_none() && shard_of(&view.queue) == shard;
            for view in views.iter_mut().filter(mine) {
                let under_way = known.iter().find(|(job, _)| *job == view.id).map(|(_, under_way)| *under_way);
                stand(view, under_way);
            }
        }
        silent
    }

    /// How those of a job's tasks stand that have not ended.
    pub(crate) async fn standing(&self, job: &JobView, from: u32, size: u32) -> Vec<Stand> {
        if job.finished_at.is_some() {
            return Vec::new();
        }
        let question = Question::Standing { job: job.id, from, size };
        match self.0.asking.ask(shard_of(&job.queue), question, LOOK_PATIENCE).await {
            Ok(Answer::Standing(standing)) => standing,
            _ => Vec::new(),
        }
    }

    pub async fn cancel_job(&self, job: JobKey) -> Result<JobView, Problem> {
        let (view, _) = self.job(job).await?;
        let jobs = self.clone();
        unstoppable(async move {
            if jobs.0.store.cancel(job, jobs.0.clock.now()).await.map_err(refused)? {
                let ended = view.tasks - view.counts.ended();
                metrics::counter!(ENDED, "state" => "cancelled").increment(ended);
                let (shard, queue) = (shard_of(&view.queue), view.queue);
                // Were nobody to hear this, the owner would find it in the store.
                jobs.0.asking.tell(shard, Question::CancelJob { job, queue }).await;
                jobs.0.news.tell(vec![job]);
            }
            Ok(())
        })
        .await?;
        Ok(self.job(job).await?.0)
    }

    /// The shard of a job, if there is such a job.
    pub(super) async fn home_of(&self, job: JobKey) -> Result<Option<ShardId>, Problem> {
        let known = self.0.homes.lock().get(&job).copied();
        if known.is_some() {
            return Ok(known);
        }
        let Some((view, _)) = self.0.store.job(job).await.map_err(refused)? else { return Ok(None) };
        let home = shard_of(&view.queue);
        let mut homes = self.0.homes.lock();
        if homes.len() >= HOMES_MAX {
            homes.clear();
        }
        homes.insert(job, home);
        Ok(Some(home))
    }

    /// Answers once it is written; false when there was nothing to cancel.
    pub async fn cancel_task(&self, task: TaskKey) -> Result<bool, Problem> {
        let home = self.home_of(task.job).await?;
        let shard = home.ok_or_else(|| Problem::not_found(format!("there is no job {}", task.job)))?;
        match self.0.asking.ask(shard, Question::CancelTask { task }, ACT_PATIENCE).await? {
            Answer::CancelTask(cancelled) => Ok(cancelled),
            _ => Err(Silent { shard }.into()),
        }
    }

    /// The worker processes that are alive, and the shards whose owners did not say.
    pub async fn workers(&self) -> (Vec<WorkerView>, Vec<ShardId>) {
        let (mut workers, mut silent) = (Vec::new(), Vec::new());
        for (shard, answer) in self.ask_all(Question::Workers).await {
            match answer {
                Ok(Answer::Workers(some)) => workers.extend(some),
                _ => silent.push(shard),
            }
        }
        workers.sort_by(|a, b| (&a.queue, &a.worker.0, &a.session.0).cmp(&(&b.queue, &b.worker.0, &b.session.0)));
        (workers, silent)
    }

    /// Whoever saw a worker process die says so, and what it held goes out again without waiting for its lease.
    pub async fn process_died(&self, worker: WorkerId, host: String, pid: u32) {
        // Whoever does not hear this waits for the lease.
        self.ask_all(Question::Bury { worker: Some(worker), host, pid }).await;
    }

    pub(crate) async fn ask_all(&self, question: Question) -> Vec<(ShardId, Result<Answer, Silent>)> {
        let ask = |shard| {
            let question = question.clone();
            async move { (shard, self.0.asking.ask(shard, question, LOOK_PATIENCE).await) }
        };
        join_all((0..JOBS_SHARDS).map(ShardId).map(ask)).await
    }
}

/// Whether an open job has nothing under way, and waits for no other.
fn stands_still(view: &JobView) -> bool {
    view.finished_at.is_none() && view.waits_for.is_empty() && view.counts.running + view.counts.dispatched == 0
}

/// Fits what the desk knows of tasks under way into what the store knows of those that ended.
fn stand(view: &mut JobView, under_way: Option<UnderWay>) {
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

fn why_it_waits(unreadable: &Unreadable) -> String {
    let why = &unreadable.why;
    format!("this version cannot read it, so it waits: {why}; upgrade the managers, or cancel it")
}
