//! What a task wrote: from blobs while it runs or when it wrote much, from its outcome when it wrote little.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use mutirao_core::Problem;
use mutirao_core::blobs::{LogStream, log_key};
use mutirao_core::id::{Attempt, JobKey, TaskKey};
use mutirao_core::job::TaskView;
use mutirao_store::refused;
use mutirao_surface::{Args, Part, Rejection, only};
use serde::Deserialize;

use super::{tasks, visible};
use crate::service::Jobs;

const CHUNK_BYTES: usize = 256 << 10;
/// Between two looks at a log that is being followed.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LogArgs {
    stream: LogStream,
    /// Where to begin.
    #[serde(default)]
    offset: u64,
    /// Stay until the task has ended.
    #[serde(default)]
    follow: bool,
}

/// What a task wrote to one of its streams, as raw bytes.
#[utoipa::path(get, path = "/v1/jobs/{id}/tasks/{index}/logs", tag = "tasks",
    params(("id" = String, Path), ("index" = u32, Path), LogArgs),
    responses((status = 200, description = "The bytes; chunked when followed.", content_type = "application/octet-stream", body = Vec<u8>),
              (status = 404, body = Problem, description = "No such task.")))]
pub(super) async fn read(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Part((id, index)): Part<(JobKey, u32)>,
    Args(args): Args<LogArgs>,
) -> Result<Response, Rejection> {
    let job = visible(&jobs, &caller, id).await?;
    tasks::one(&jobs, &job, index).await?;
    let reader = Reader { jobs, task: TaskKey { job: id, index }, args, attempt: None };
    let chunks = stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(reader))),
            Ok(None) => None,
            Err(problem) => Some((Err(std::io::Error::other(problem)), None)),
        }
    });
    let kind = HeaderValue::from_static("application/octet-stream");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(chunks)).into_response())
}

struct Reader {
    jobs: Jobs,
    task: TaskKey,
    args: LogArgs,
    attempt: Option<Attempt>,
}

impl Reader {
    /// The next bytes; none at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let view = self.view().await?;
            let over = view.ended_at.is_some();
            if let Some(attempt) = view.attempt {
                self.turn_to(attempt);
                let bytes = self.bytes(attempt).await?;
                if !bytes.is_empty() {
                    self.args.offset += bytes.len() as u64;
                    return Ok(Some(bytes));
                }
            }
            if over || !self.args.follow || *self.jobs.0.ending.borrow() {
                return Ok(None);
            }
            self.jobs.0.clock.sleep(LOOK_AGAIN).await;
        }
    }

    async fn view(&self) -> Result<TaskView, Problem> {
        let (job, _) = self.jobs.job(self.task.job).await?;
        tasks::one(&self.jobs, &job, self.task.index).await
    }

    /// A later attempt writes a log of its own, which is read from its beginning.
    fn turn_to(&mut self, attempt: Attempt) {
        if self.attempt.is_some_and(|before| before != attempt) {
            self.args.offset = 0;
        }
        self.attempt = Some(attempt);
    }

    async fn bytes(&self, attempt: Attempt) -> Result<Bytes, Problem> {
        let kept = self.jobs.0.store.output(self.task, self.args.stream).await.map_err(refused)?;
        if let Some(kept) = kept
            && kept.attempt == attempt
            && !kept.output.in_blobs
        {
            let tail = Bytes::from(kept.output.tail);
            return Ok(tail.slice((self.args.offset as usize).min(tail.len())..));
        }
        let key = log_key(self.task, attempt, self.args.stream);
        self.jobs.0.blobs.read(&key, self.args.offset, CHUNK_BYTES).await.map_err(|error| {
            tracing::warn!(%error, task = %self.task, "log not readable");
            Problem::unavailable("the log cannot be read now")
        })
    }
}
