//! The output of all tasks of a job as it comes, line by line, each with its task's index before it.

use std::io::Write;

use futures_util::StreamExt;
use mutirao_client::{Client, ClientError, Heard, JobLogsFrom, Reach};
use mutirao_core::blobs::LogStream;
use mutirao_core::job::{JobView, LogPiece};
use mutirao_core::{Clock, SystemClock};

use super::logs::{BREAKS_MAX, RETRY_WAIT, Streams};
use super::out::{Out, Shape};
use crate::failure::Failure;

/// Tasks that the manager reads side by side for one who follows a whole job.
const SIDE_BY_SIDE_MAX: u64 = 128;

/// Follows until the job has ended and all is printed, through restarts of the manager, or until nobody reads.
pub async fn follow(client: &Client, job: &JobView, streams: Streams, out: Out) -> Result<(), Failure> {
    let printer = Printer { width: job.tasks.to_string().len(), out };
    if job.tasks > SIDE_BY_SIDE_MAX {
        out.note(format!(
            "{SIDE_BY_SIDE_MAX} of {} tasks are followed at a time, the lowest that have more to say; others come when \
             these have ended. `mutirao job logs -f {} --task N` follows one of them now",
            job.tasks, job.id
        ));
    }
    tokio::select! {
        biased;
        followed = follow_on(client, job, streams, &printer) => followed,
        () = streams.unread() => Err(Failure::BrokenPipe),
    }
}

async fn follow_on(client: &Client, job: &JobView, streams: Streams, printer: &Printer) -> Result<(), Failure> {
    let mut from = JobLogsFrom { stream: streams.only(), after: None };
    let mut breaks = 0;
    loop {
        let before = from.after.clone();
        match follow_once(client, job, &mut from, printer).await? {
            Ended::AllRead => return Ok(()),
            Ended::Broken(Some(error)) if !error.is_away() => return Err(error.into()),
            Ended::Broken(error) => {
                breaks = if from.after == before { breaks + 1 } else { 0 };
                if let Some(error) = error.filter(|_| breaks > BREAKS_MAX) {
                    return Err(error.into());
                }
                SystemClock.sleep(RETRY_WAIT).await;
            }
        }
    }
}

enum Ended {
    AllRead,
    /// The manager went away, in good order or not.
    Broken(Option<ClientError>),
}

/// Until the stream ends or breaks; `from` says how far it got.
async fn follow_once(
    client: &Client,
    job: &JobView,
    from: &mut JobLogsFrom,
    printer: &Printer,
) -> Result<Ended, Failure> {
    let mut pieces = match client.job_logs(job.id, from.clone(), Reach::ToTheEnd).await {
        Ok(pieces) => pieces,
        Err(error) => return Ok(Ended::Broken(Some(error))),
    };
    while let Some(heard) = pieces.next().await {
        match heard {
            Ok(Heard::Piece { piece, id }) => {
                printer.print(&piece)?;
                from.after = id.or(from.after.take());
            }
            Ok(Heard::End) => return Ok(Ended::AllRead),
            Err(error) => return Ok(Ended::Broken(Some(error))),
        }
    }
    Ok(Ended::Broken(None))
}

struct Printer {
    /// Of the largest index, or nearly.
    width: usize,
    out: Out,
}

impl Printer {
    fn print(&self, piece: &LogPiece) -> Result<(), Failure> {
        if self.out.shape == Shape::Json {
            return self.out.line(serde_json::json!(piece));
        }
        let text = prefixed(piece, self.width);
        match piece.stream {
            LogStream::Stdout => self.out.bytes(text.as_bytes()),
            LogStream::Stderr => Ok(std::io::stderr().lock().write_all(text.as_bytes())?),
        }
    }
}

/// ` 7| a line`
fn prefixed(piece: &LogPiece, width: usize) -> String {
    let index = piece.task.index;
    piece.text.lines().map(|line| format!("{index:>width$}| {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use mutirao_core::{JobKey, TaskKey};

    use super::*;

    #[test]
    fn each_line_has_the_index_of_its_task_before_it() {
        let task = TaskKey { job: JobKey(1), index: 7 };
        let piece = LogPiece { task, stream: LogStream::Stdout, text: "one\n\nno end".into() };
        assert_eq!(prefixed(&piece, 3), "  7| one\n  7| \n  7| no end\n");
    }
}
