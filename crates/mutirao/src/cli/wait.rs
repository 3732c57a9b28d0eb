//! Waiting for a job to end, through restarts of the manager: the job is kept over there, only the watching breaks.

use std::time::Duration;

use futures_util::StreamExt;
use mutirao_client::{Client, ClientError};
use mutirao_core::blobs::LogStream;
use mutirao_core::job::JobView;
use mutirao_core::{Clock, JobKey, SystemClock};
use serde::Serialize;

use super::out::{Out, Shape};
use super::progress::Progress;
use super::{held_up, logs, show, verdict};
use crate::failure::{Exit, Failure};

/// How long an absent manager is waited for.
const ABSENCE_S_MAX: u64 = 120;
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// The job once it is final; each change on the way goes to `seen`.
pub async fn until_final(client: &Client, id: JobKey, mut seen: impl FnMut(&JobView)) -> Result<JobView, Failure> {
    let clock = SystemClock;
    let mut last_heard = clock.monotonic();
    loop {
        match watch(client, id, &mut seen).await {
            Ok(Some(job)) => return Ok(job),
            Ok(None) => last_heard = clock.monotonic(),
            Err(error) if !error.is_away() => return Err(error.into()),
            Err(error) => {
                if clock.monotonic().since(last_heard) > Duration::from_secs(ABSENCE_S_MAX) {
                    let line =
                        format!("{error}; the job {id} is kept, `mutirao job wait {id}` takes up the wait again");
                    return Err(Failure::new(Exit::Unreachable, line));
                }
            }
        }
        clock.sleep(RETRY_WAIT).await;
    }
}

/// Watches until the job is final, or (`None`) until the stream ends early.
async fn watch(client: &Client, id: JobKey, seen: &mut impl FnMut(&JobView)) -> Result<Option<JobView>, ClientError> {
    let mut events = client.job_events(id).await?;
    let mut heard = false;
    while let Some(view) = events.next().await {
        match view {
            Ok(view) => {
                heard = true;
                seen(&view);
                if view.state.is_final() {
                    return Ok(Some(view));
                }
            }
            // Somebody was there just now, so the patience with absence begins anew.
            Err(error) if heard && error.is_away() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Waits with a bar, says how it ended, and answers with the job's exit code. Ctrl-C leaves the job alone.
pub async fn with_bar(client: &Client, job: &JobView, out: Out) -> Result<u8, Failure> {
    let bar = Progress::of(job, out);
    let ended = tokio::select! {
        ended = until_final(client, job.id, |view| bar.show(view)) => ended,
        never = held_up::say(client, job.id, |line| bar.note(line, out)) => match never {},
        _ = tokio::signal::ctrl_c() => {
            bar.clear();
            return Err(detached(job.id, out));
        }
    };
    bar.clear();
    conclude(client, &ended?, out).await
}

/// How a job ended, for programs.
#[derive(Serialize)]
struct Ended<'a> {
    #[serde(flatten)]
    job: &'a JobView,
    /// What this command ends with.
    exit: u8,
    #[serde(flatten)]
    output: Option<Output>,
}

/// What a single task wrote.
#[derive(Serialize)]
struct Output {
    stdout: String,
    stderr: String,
}

/// A job of many tasks has no output of its own.
async fn output(client: &Client, job: &JobView) -> Result<Option<Output>, Failure> {
    if job.tasks != 1 {
        return Ok(None);
    }
    let task = logs::only_task(client, job.id).await?;
    let stdout = logs::whole(client, task, LogStream::Stdout).await?;
    let stderr = logs::whole(client, task, LogStream::Stderr).await?;
    Ok(Some(Output { stdout, stderr }))
}

/// Says how a job ended.
pub async fn conclude(client: &Client, job: &JobView, out: Out) -> Result<u8, Failure> {
    let (code, culprit) = verdict::of_job(client, job).await?;
    if out.shape == Shape::Json {
        let ended = Ended { exit: code, output: output(client, job).await?, job };
        out.answer(&ended, |_| String::new())?;
        return Ok(code);
    }
    let took = job.finished_at.map(|at| format!(" in {}", show::rough(at.since(job.created_at)))).unwrap_or_default();
    out.note(format!("job {} {}{took}: {}", job.id, job.state.as_str(), show::counts(&job.counts)));
    match culprit {
        Some(task) if job.tasks > 1 => {
            out.note(format!("the first that was not ok: {} {}", task.id, show::fate(&task)));
            out.note(format!("its output: mutirao job logs {} --task {}", job.id, task.id.index));
        }
        Some(task) => out.note(show::fate(&task)),
        None => {}
    }
    Ok(code)
}

/// What is said when a person stops watching.
pub fn detached(id: JobKey, out: Out) -> Failure {
    out.note(format!("the job goes on: `mutirao job wait {id}` takes up the wait, `mutirao job cancel {id}` stops it"));
    Failure::Silent { code: 130 }
}
