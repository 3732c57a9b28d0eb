//! Jobs, tasks, their logs and the workers that run them.

use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use serde::Serialize;

use mutirao_core::blobs::LogStream;
use mutirao_core::dice::os_random;
use mutirao_core::job::{
    DeadTask, JobSpec, JobState, JobView, Letter, LetterCount, LettersRemoved, LogPiece, Page, Retried, TaskState,
    TaskView, WorkerView,
};
use mutirao_core::shard::ShardView;
use mutirao_core::{JobKey, QueueName, TaskKey};

use crate::error::ClientError;
use crate::http::{ByteStream, Call, Client, Repeat};
use crate::target::Target;

/// A job each time it changes, until it is final.
pub type JobStream = Pin<Box<dyn Stream<Item = Result<JobView, ClientError>> + Send>>;

/// What is heard of a job's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Piece {
        piece: LogPiece,
        /// Where to begin when the connection breaks after this.
        id: Option<String>,
    },
    /// There will be no more.
    End,
}

/// A job's output as it comes. One that stops without [`Heard::End`] was broken off.
pub type PieceStream = Pin<Box<dyn Stream<Item = Result<Heard, ClientError>> + Send>>;

/// Where to begin reading a job's output.
#[derive(Clone, Debug, Default)]
pub struct JobLogsFrom {
    /// Only this stream.
    pub stream: Option<LogStream>,
    /// After the piece with this id.
    pub after: Option<String>,
}

/// Which page of a list.
#[derive(Clone, Debug, Default)]
pub struct PageArgs {
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

impl PageArgs {
    /// The rest of a list whose last page ended with `cursor`.
    pub fn after(cursor: String) -> Self {
        Self { limit: None, cursor: Some(cursor) }
    }

    pub(crate) fn of(self, list: Target) -> Target {
        list.arg("limit", self.limit).arg("cursor", self.cursor)
    }
}

/// Which jobs of a list; every part that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub state: Option<JobState>,
    pub queue: Option<QueueName>,
    pub name: Option<String>,
    /// `team=physics`
    pub label: Option<String>,
}

/// Which tasks that ended badly; every part that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter {
    pub queue: Option<QueueName>,
    pub job: Option<JobKey>,
}

/// Where to begin reading a task's output.
#[derive(Clone, Copy, Debug)]
pub struct LogsFrom {
    pub stream: LogStream,
    pub offset: u64,
}

/// How far to read a task's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What is there now.
    SoFar,
    /// Until the task has ended.
    ToTheEnd,
}

impl Client {
    /// Submits a job under a key of its own, so that a repeat after a broken connection submits nothing twice.
    pub async fn submit(&self, spec: &JobSpec) -> Result<JobView, ClientError> {
        let mut key = [0u8; 16];
        os_random(&mut key);
        let key: String = key.iter().map(|b| format!("{b:02x}")).collect();
        self.submit_as(spec, &key).await
    }

    /// Submits a job under the caller's key: the same key always means the same job.
    pub async fn submit_as(&self, spec: &JobSpec, idempotency_key: &str) -> Result<JobView, ClientError> {
        let call = Call::post(Target::new("/v1/jobs"), Repeat::Safe).json(spec)?;
        self.fetch(call.header("idempotency-key", idempotency_key)).await
    }

    pub async fn jobs(&self, filter: JobFilter, page: PageArgs) -> Result<Page<JobView>, ClientError> {
        let target = Target::new("/v1/jobs")
            .arg("state", filter.state.map(JobState::as_str))
            .arg("queue", filter.queue)
            .arg("name", filter.name)
            .arg("label", filter.label);
        self.fetch(Call::get(page.of(target))).await
    }

    pub async fn job(&self, id: JobKey) -> Result<JobView, ClientError> {
        self.fetch(Call::get(job(id))).await
    }

    pub async fn cancel_job(&self, id: JobKey) -> Result<JobView, ClientError> {
        self.fetch(Call::post(job(id).part("cancel"), Repeat::Safe)).await
    }

    /// The job now and each time it changes. The last item is final, if the connection holds that long.
    pub async fn job_events(&self, id: JobKey) -> Result<JobStream, ClientError> {
        let events = self.events(Call::get(job(id).part("events"))).await?;
        let this = self.clone();
        let views = events.filter_map(move |event| {
            let view = match event {
                Ok(event) if event.name == "job" => Some(this.read_event(&event)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            };
            std::future::ready(view)
        });
        Ok(Box::pin(views))
    }

    /// What a job's tasks write, merged.
    pub async fn job_logs(&self, id: JobKey, from: JobLogsFrom, reach: Reach) -> Result<PieceStream, ClientError> {
        let target = job(id)
            .part("logs")
            .arg("stream", from.stream.map(LogStream::as_str))
            .arg("follow", (reach == Reach::ToTheEnd).then_some(true));
        let call = Call::get(target);
        let call = match &from.after {
            Some(after) => call.header("last-event-id", after),
            None => call,
        };
        let events = self.events(call).await?;
        let this = self.clone();
        Ok(Box::pin(events.map(move |event| {
            let event = event?;
            match event.name.as_str() {
                "end" => Ok(Heard::End),
                _ => Ok(Heard::Piece { piece: this.read_event(&event)?, id: event.id }),
            }
        })))
    }

    pub async fn tasks(
        &self,
        id: JobKey,
        state: Option<TaskState>,
        page: PageArgs,
    ) -> Result<Page<TaskView>, ClientError> {
        let target = job(id).part("tasks").arg("state", state.map(word));
        self.fetch(Call::get(page.of(target))).await
    }

    pub async fn task(&self, key: TaskKey) -> Result<TaskView, ClientError> {
        self.fetch(Call::get(task(key))).await
    }

    pub async fn cancel_task(&self, key: TaskKey) -> Result<TaskView, ClientError> {
        self.fetch(Call::post(task(key).part("cancel"), Repeat::Safe)).await
    }

    /// A task's output, byte for byte.
    pub async fn logs(&self, key: TaskKey, from: LogsFrom, reach: Reach) -> Result<ByteStream, ClientError> {
        let target = task(key)
            .part("logs")
            .arg("stream", Some(from.stream.as_str()))
            .arg("offset", Some(from.offset))
            .arg("follow", (reach == Reach::ToTheEnd).then_some(true));
        self.open_stream(Call::get(target)).await
    }

    /// Tasks that ended badly, over all jobs.
    pub async fn dead_tasks(&self, filter: DeadFilter, page: PageArgs) -> Result<Page<DeadTask>, ClientError> {
        let target = Target::new("/v1/tasks/dead").arg("queue", filter.queue).arg("job", filter.job);
        self.fetch(Call::get(page.of(target))).await
    }

    pub async fn retry_job(&self, id: JobKey) -> Result<Retried, ClientError> {
        self.fetch(Call::post(job(id).part("retry"), Repeat::Safe)).await
    }

    pub async fn retry_task(&self, key: TaskKey) -> Result<Retried, ClientError> {
        self.fetch(Call::post(task(key).part("retry"), Repeat::Safe)).await
    }

    pub async fn retry_queue(&self, name: &QueueName) -> Result<Retried, ClientError> {
        self.fetch(Call::post(Target::new("/v1/queues").part(name).part("retry"), Repeat::Safe)).await
    }

    /// What lies with the broker's dead letters on the ways of a queue.
    pub async fn letters(&self, name: &QueueName, limit: u32) -> Result<Vec<Letter>, ClientError> {
        let target = Target::new("/v1/queues").part(name).part("letters").arg("limit", Some(limit));
        self.fetch(Call::get(target)).await
    }

    /// Unfinished jobs that nobody there can read, with the reason.
    pub async fn unreadable_jobs(&self) -> Result<Vec<JobView>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/jobs").part("unreadable"))).await
    }

    /// How many dead letters lie on which ways.
    pub async fn letter_counts(&self) -> Result<Vec<LetterCount>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/letters"))).await
    }

    /// Those on one way.
    pub async fn letters_by(&self, way: &str, limit: u32) -> Result<Vec<Letter>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/letters").part(way).arg("limit", Some(limit)))).await
    }

    /// Removes all dead letters on one way.
    pub async fn remove_letters_by(&self, way: &str) -> Result<LettersRemoved, ClientError> {
        self.fetch(Call::delete(Target::new("/v1/letters").part(way))).await
    }

    /// Removes one of them, and others that are the same.
    pub async fn remove_letter_by(&self, way: &str, id: &str) -> Result<LettersRemoved, ClientError> {
        self.fetch(Call::delete(Target::new("/v1/letters").part(way).part(id))).await
    }

    /// Removes all dead letters on the ways of a queue.
    pub async fn remove_letters(&self, name: &QueueName) -> Result<LettersRemoved, ClientError> {
        self.fetch(Call::delete(Target::new("/v1/queues").part(name).part("letters"))).await
    }

    /// Removes one of them, and others that are the same.
    pub async fn remove_letter(&self, name: &QueueName, id: &str) -> Result<LettersRemoved, ClientError> {
        self.fetch(Call::delete(Target::new("/v1/queues").part(name).part("letters").part(id))).await
    }

    /// Who owns which share of the queues, the monitors and the keys, as the manager that answers sees it.
    pub async fn shards(&self) -> Result<Vec<ShardView>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/shards"))).await
    }

    pub async fn workers(&self) -> Result<Vec<WorkerView>, ClientError> {
        self.fetch(Call::get(Target::new("/v1/workers"))).await
    }
}

fn job(id: JobKey) -> Target {
    Target::new("/v1/jobs").part(id)
}

pub(crate) fn task(key: TaskKey) -> Target {
    job(key.job).part("tasks").part(key.index)
}

/// The one word under which a value travels: `timed_out`.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("states travel as one word, not as {other:?}"),
    }
}
