//! A task's output, copied to our own: its stdout to stdout, its stderr to stderr, byte for byte.

use std::io::Write;
use std::time::Duration;

use futures_util::StreamExt;
use mutirao_client::{Client, ClientError, LogsFrom, PageArgs, Reach};
use mutirao_core::blobs::LogStream;
use mutirao_core::job::JobView;
use mutirao_core::{Clock, JobKey, SystemClock, TaskKey};

use super::out::Out;
use crate::failure::Failure;

/// How often the copying is taken up again without a byte having come in between.
const BREAKS_MAX: u32 = 240;
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// Which of a task's streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    Both,
    One(LogStream),
}

impl Streams {
    fn has(self, stream: LogStream) -> bool {
        self == Streams::Both || self == Streams::One(stream)
    }
}

/// Copies a task's output. The two streams come side by side, as they would from the command itself.
pub async fn copy(client: &Client, task: TaskKey, streams: Streams, reach: Reach, out: Out) -> Result<(), Failure> {
    let one = async |stream| {
        if streams.has(stream) { copy_one(client, task, stream, reach, out).await } else { Ok(()) }
    };
    let (stdout, stderr) = tokio::join!(one(LogStream::Stdout), one(LogStream::Stderr));
    stdout.and(stderr)
}

async fn copy_one(client: &Client, task: TaskKey, stream: LogStream, reach: Reach, out: Out) -> Result<(), Failure> {
    let (mut offset, mut breaks) = (0, 0);
    loop {
        let before = offset;
        match copy_from(client, task, LogsFrom { stream, offset }, reach, &mut offset, out).await? {
            None if reach == Reach::SoFar || client.task(task).await?.ended_at.is_some() => return Ok(()),
            // The manager went away in good order and let go of its readers.
            None => SystemClock.sleep(RETRY_WAIT).await,
            Some(error) if reach == Reach::SoFar || !error.is_away() => return Err(error.into()),
            // The manager is away for a while; the task and what it wrote are not.
            Some(error) => {
                breaks = if offset > before { 0 } else { breaks + 1 };
                if breaks > BREAKS_MAX {
                    return Err(error.into());
                }
                SystemClock.sleep(RETRY_WAIT).await;
            }
        }
    }
}

/// Copies until the stream ends or breaks; the break comes back as a value, `offset` says how far it got.
async fn copy_from(
    client: &Client,
    task: TaskKey,
    from: LogsFrom,
    reach: Reach,
    offset: &mut u64,
    out: Out,
) -> Result<Option<ClientError>, Failure> {
    let mut chunks = match client.logs(task, from, reach).await {
        Ok(chunks) => chunks,
        Err(error) => return Ok(Some(error)),
    };
    while let Some(chunk) = chunks.next().await {
        let bytes = match chunk {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Some(error)),
        };
        *offset += bytes.len() as u64;
        match from.stream {
            LogStream::Stdout => out.bytes(&bytes)?,
            LogStream::Stderr => std::io::stderr().lock().write_all(&bytes)?,
        }
    }
    Ok(None)
}

/// The output of every task of a job, one after the other. A job of several names each first, on stderr.
pub async fn copy_all(client: &Client, job: &JobView, streams: Streams, out: Out) -> Result<(), Failure> {
    let mut page = PageArgs::default();
    loop {
        let tasks = client.tasks(job.id, None, page).await?;
        for task in &tasks.items {
            if job.tasks > 1 {
                out.note(format!("==> {} <==", task.id));
            }
            copy(client, task.id, streams, Reach::SoFar, out).await?;
        }
        match tasks.next {
            Some(cursor) => page = PageArgs::after(cursor),
            None => return Ok(()),
        }
    }
}

/// The one task of a job that has one.
pub async fn only_task(client: &Client, job: JobKey) -> Result<TaskKey, Failure> {
    let first = client.tasks(job, None, PageArgs { limit: Some(1), cursor: None }).await?;
    let task = first.items.first().ok_or_else(|| Failure::failed(format!("the job {job} shows no task")))?;
    Ok(task.id)
}
