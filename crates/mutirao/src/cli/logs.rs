//! A task's output, copied to our own: its stdout to stdout, its stderr to stderr, byte for byte; for programs, a JSON
//! line for each piece.

use std::io::Write;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use mutirao_client::{ByteStream, Client, ClientError, LogsFrom, PageArgs, Reach};
use mutirao_core::blobs::LogStream;
use mutirao_core::job::JobView;
use mutirao_core::limits::PAGE_ROWS_MAX;
use mutirao_core::{Clock, JobKey, SystemClock, TaskKey};

use super::out::{Out, Shape};
use super::pipes;
use super::text::Pieces;
use crate::failure::Failure;

/// How often the copying is taken up again without a byte having come in between.
pub const BREAKS_MAX: u32 = 240;
pub const RETRY_WAIT: Duration = Duration::from_millis(500);
/// Tasks whose output is asked for ahead of its turn. What they wrote waits over there, not here.
const TASKS_AHEAD_MAX: usize = 8;

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

    /// The one that is wanted, if not both are.
    pub fn only(self) -> Option<LogStream> {
        match self {
            Streams::Both => None,
            Streams::One(stream) => Some(stream),
        }
    }

    /// Ends when nobody reads any more what is copied.
    pub async fn unread(self) {
        tokio::select! {
            () = pipes::reader_gone(std::io::stdout()), if self.has(LogStream::Stdout) => {}
            () = pipes::reader_gone(std::io::stderr()), if self.has(LogStream::Stderr) => {}
        }
    }
}

/// One stream of one task, on its way out.
struct Sink {
    task: TaskKey,
    stream: LogStream,
    out: Out,
    pieces: Pieces,
}

impl Sink {
    fn new(task: TaskKey, stream: LogStream, out: Out) -> Self {
        Self { task, stream, out, pieces: Pieces::default() }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match (self.out.shape, self.stream) {
            (Shape::Json, _) => {
                let text = self.pieces.push(bytes);
                self.piece(&text)
            }
            (Shape::People, LogStream::Stdout) => self.out.bytes(bytes),
            (Shape::People, LogStream::Stderr) => Ok(std::io::stderr().lock().write_all(bytes)?),
        }
    }

    fn end(mut self) -> Result<(), Failure> {
        let rest = std::mem::take(&mut self.pieces).end();
        self.piece(&rest)
    }

    fn piece(&self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        self.out.line(serde_json::json!({"task": self.task, "stream": self.stream, "text": text}))
    }
}

/// Copies a task's output. The two streams come side by side, as they would from the command itself, and end together
/// when there is nobody left to read one of them.
pub async fn copy(client: &Client, task: TaskKey, streams: Streams, reach: Reach, out: Out) -> Result<(), Failure> {
    let one = async |stream| {
        if streams.has(stream) { copy_one(client, Sink::new(task, stream, out), reach).await } else { Ok(()) }
    };
    let both = async { tokio::try_join!(one(LogStream::Stdout), one(LogStream::Stderr)).map(drop) };
    match reach {
        Reach::SoFar => both.await,
        Reach::ToTheEnd => tokio::select! {
            biased;
            copied = both => copied,
            () = streams.unread() => Err(Failure::BrokenPipe),
        },
    }
}

async fn copy_one(client: &Client, mut sink: Sink, reach: Reach) -> Result<(), Failure> {
    let (mut offset, mut breaks) = (0, 0);
    loop {
        let before = offset;
        match copy_from(client, &mut sink, reach, &mut offset).await? {
            None if reach == Reach::SoFar || client.task(sink.task).await?.ended_at.is_some() => return sink.end(),
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
    sink: &mut Sink,
    reach: Reach,
    offset: &mut u64,
) -> Result<Option<ClientError>, Failure> {
    let from = LogsFrom { stream: sink.stream, offset: *offset };
    let mut chunks = match client.logs(sink.task, from, reach).await {
        Ok(chunks) => chunks,
        Err(error) => return Ok(Some(error)),
    };
    while let Some(chunk) = chunks.next().await {
        let bytes = match chunk {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Some(error)),
        };
        *offset += bytes.len() as u64;
        sink.write(&bytes)?;
    }
    Ok(None)
}

/// The output of every task of a job, one after the other, by index.
pub async fn copy_all(client: &Client, job: &JobView, streams: Streams, out: Out) -> Result<(), Failure> {
    let mut page = PageArgs { limit: Some(PAGE_ROWS_MAX), cursor: None };
    loop {
        let tasks = client.tasks(job.id, None, page).await?;
        // A task that never began wrote nothing.
        let begun = tasks.items.iter().filter(|task| task.attempt.is_some());
        let wanted = begun.flat_map(|task| [(task.id, LogStream::Stdout), (task.id, LogStream::Stderr)]);
        let wanted = wanted.filter(|(_, stream)| streams.has(*stream));
        let opened = stream::iter(wanted).map(|(task, stream)| open(client, Sink::new(task, stream, out)));
        let mut opened = opened.buffered(2 * TASKS_AHEAD_MAX);
        while let Some(opened) = opened.next().await {
            let (mut sink, mut chunks) = opened?;
            while let Some(chunk) = chunks.next().await {
                sink.write(&chunk?)?;
            }
            sink.end()?;
        }
        match tasks.next {
            Some(cursor) => page = PageArgs { limit: Some(PAGE_ROWS_MAX), cursor: Some(cursor) },
            None => return Ok(()),
        }
    }
}

async fn open(client: &Client, sink: Sink) -> Result<(Sink, ByteStream), ClientError> {
    let from = LogsFrom { stream: sink.stream, offset: 0 };
    let chunks = client.logs(sink.task, from, Reach::SoFar).await?;
    Ok((sink, chunks))
}

/// All that a task wrote to one stream, as text. The server keeps a bounded amount.
pub async fn whole(client: &Client, task: TaskKey, stream: LogStream) -> Result<String, Failure> {
    let mut chunks = client.logs(task, LogsFrom { stream, offset: 0 }, Reach::SoFar).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The one task of a job that has one.
pub async fn only_task(client: &Client, job: JobKey) -> Result<TaskKey, Failure> {
    let first = client.tasks(job, None, PageArgs { limit: Some(1), cursor: None }).await?;
    let task = first.items.first().ok_or_else(|| Failure::failed(format!("the job {job} shows no task")))?;
    Ok(task.id)
}
