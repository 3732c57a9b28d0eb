//! What all tasks of a job write, merged as it comes: events named `log`, each with whole lines of one stream of one task.
//!
//! Bounded: of the tasks that are not done with, the lowest [`WINDOW_TASKS`] are read, a little of each at a time. Tasks go out
//! by index, so that is where the news is.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, StreamExt, stream};
use mutirao_core::Problem;
use mutirao_core::blobs::{LogStream, log_key};
use mutirao_core::id::{JobKey, TaskKey};
use mutirao_core::job::{JobView, LogPiece, TaskView};
use mutirao_store::refused;
use mutirao_surface::{Args, Part, Rejection, only, paging};
use serde::Deserialize;

use super::lines::{Lines, Places};
use super::logs::LOOK_AGAIN;
use super::{last_event_id, tasks, visible};
use crate::service::Jobs;
use crate::store::KeptOutput;

/// Tasks that are read side by side.
const WINDOW_TASKS: u32 = 128;
/// Tasks whose output is taken from the store at once: bounds memory, as each may have 64 KB in two streams.
const GROUP_TASKS: u32 = 32;
/// Of one stream at one time.
const READ_BYTES: usize = 64 << 10;

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WholeArgs {
    /// Only this stream.
    stream: Option<LogStream>,
    /// Stay until the job has ended.
    #[serde(default)]
    follow: bool,
}

/// What all tasks of a job write, merged line by line.
#[utoipa::path(get, path = "/v1/jobs/{id}/logs", tag = "jobs", params(("id" = String, Path), WholeArgs,
        ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event.")),
    responses((status = 200, description = "Events named `log`, each with whole lines of one task; an event `end` when there will be no more.", content_type = "text/event-stream", body = LogPiece),
              (status = 404, body = Problem, description = "No such job.")))]
pub(super) async fn read(
    State(jobs): State<Jobs>,
    only::Viewer(caller): only::Viewer,
    Part(id): Part<JobKey>,
    Args(args): Args<WholeArgs>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    visible(&jobs, &caller, id).await?;
    let (first, total) = tasks::extent(&jobs, id).await?;
    let places = match last_event_id(&headers) {
        Some(cursor) => paging::decode::<Places>(&cursor)?,
        None => Places { low: u64::from(first), ..Places::default() },
    };
    let merger =
        Merger { jobs, id, args, end: u64::from(first) + total, lines: Lines::from(places), state: Reading::GoesOn };
    let rounds = stream::unfold(Some(merger), |merger| async move {
        let mut merger = merger?;
        let events = merger.round().await?;
        Some((stream::iter(events.into_iter().map(Ok)), Some(merger)))
    });
    Ok(Sse::new(rounds.flatten()).keep_alive(KeepAlive::default()))
}

struct Merger {
    jobs: Jobs,
    id: JobKey,
    args: WholeArgs,
    /// The index after the last.
    end: u64,
    lines: Lines,
    state: Reading,
}

#[derive(PartialEq)]
enum Reading {
    GoesOn,
    /// Everything was sent, and that it was.
    Over,
}

impl Merger {
    /// What came since the last round; none when there will be no more. The last event of a round has the id from which
    /// reading can go on.
    async fn round(&mut self) -> Option<Vec<Event>> {
        if self.state == Reading::Over {
            return None;
        }
        loop {
            let (job, _) = self.jobs.job(self.id).await.ok()?;
            let pieces = self.look(&job).await.ok()?;
            let over = self.lines.low() >= self.end;
            if !pieces.is_empty() {
                return Some(self.events(&pieces));
            }
            if over {
                self.state = Reading::Over;
                return Some(vec![Event::default().event("end").data("{}")]);
            }
            if *self.jobs.0.ending.borrow() {
                return None;
            }
            // Where nothing is waited for, an empty round moves on.
            if self.args.follow {
                self.jobs.0.clock.sleep(LOOK_AGAIN).await;
            }
        }
    }

    fn events(&self, pieces: &[LogPiece]) -> Vec<Event> {
        let event = |piece: &LogPiece| Event::default().event("log").json_data(piece).ok();
        let mut events: Vec<Event> = pieces.iter().filter_map(event).collect();
        if let Some(last) = events.pop() {
            events.push(last.id(paging::encode(&self.lines.places())));
        }
        events
    }

    async fn look(&mut self, job: &JobView) -> Result<Vec<LogPiece>, Problem> {
        let mut pieces = Vec::new();
        let (low, stop) = (self.lines.low(), (self.lines.low() + u64::from(WINDOW_TASKS)).min(self.end));
        let mut from = low;
        while from < stop {
            let size = u64::from(GROUP_TASKS).min(stop - from) as u32;
            self.look_at_group(job, from as u32, size, &mut pieces).await?;
            from += u64::from(size);
        }
        self.lines.advance(stop);
        Ok(pieces)
    }

    async fn look_at_group(
        &mut self,
        job: &JobView,
        from: u32,
        size: u32,
        pieces: &mut Vec<LogPiece>,
    ) -> Result<(), Problem> {
        let views = tasks::look_at(&self.jobs, job, from, size).await?;
        let news = |view: &TaskView| !self.lines.is_done(view.id.index);
        let views: Vec<TaskView> = views.into_iter().filter(news).collect();
        if views.is_empty() {
            return Ok(());
        }
        let kept = match views.iter().any(|view| view.ended_at.is_some()) {
            true => self.jobs.0.store.outputs(self.id, from, size).await.map_err(refused)?,
            false => Vec::new(),
        };
        for view in views {
            // A task that waits for another try has more to say.
            let over = view.ended_at.is_some() || (!self.args.follow && view.attempt.is_none());
            let mut all_read = true;
            for stream in [LogStream::Stdout, LogStream::Stderr] {
                if self.args.stream.is_none_or(|wanted| wanted == stream) {
                    let own = kept.iter().find(|(index, of, _)| (*index, *of) == (view.id.index, stream));
                    all_read &= self.read_stream(&view, stream, own.map(|(_, _, kept)| kept), pieces).await?;
                }
            }
            if all_read && (over || !self.args.follow) {
                self.finish(view.id, pieces);
            }
        }
        Ok(())
    }

    /// Reads on; true when there is no more for now.
    async fn read_stream(
        &mut self,
        view: &TaskView,
        stream: LogStream,
        kept: Option<&KeptOutput>,
        pieces: &mut Vec<LogPiece>,
    ) -> Result<bool, Problem> {
        let Some(attempt) = view.attempt else { return Ok(true) };
        let place = self.lines.place(view.id.index, attempt, stream);
        let bytes = match kept.filter(|kept| kept.attempt == attempt) {
            Some(kept) if !kept.output.in_blobs => {
                let tail = &kept.output.tail;
                tail[(place.offset as usize).min(tail.len())..].to_vec()
            }
            _ => {
                let key = log_key(view.id, attempt, stream);
                let read = self.jobs.0.blobs.read(&key, place.offset, READ_BYTES).await;
                read.map_err(|error| {
                    tracing::warn!(%error, task = %view.id, "log not readable");
                    Problem::unavailable("the log cannot be read now")
                })?
                .to_vec()
            }
        };
        let full = bytes.len() >= READ_BYTES;
        if let Some(text) = self.lines.push(place, &bytes) {
            pieces.push(LogPiece { task: view.id, stream, text });
        }
        Ok(!full)
    }

    fn finish(&mut self, task: TaskKey, pieces: &mut Vec<LogPiece>) {
        for (stream, text) in self.lines.finish(task.index) {
            pieces.push(LogPiece { task, stream, text });
        }
    }
}
