//! `mutirao job watch`: a line for each thing that changes, through restarts of the manager.

use futures_util::StreamExt;
use mutirao_client::{Change, Client};
use mutirao_core::job::{JobView, WorkerView};
use mutirao_core::{Clock, SystemClock};
use serde::de::DeserializeOwned;

use super::logs::{BREAKS_MAX, RETRY_WAIT};
use super::out::{Out, Shape};
use super::{pipes, show};
use crate::failure::Failure;

pub async fn run(client: &Client, out: Out) -> Result<(), Failure> {
    tokio::select! {
        watched = watch(client, out) => watched,
        () = pipes::reader_gone(std::io::stdout()) => Err(Failure::BrokenPipe),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn watch(client: &Client, out: Out) -> Result<(), Failure> {
    let (mut after, mut breaks) = (None, 0);
    loop {
        let error = match client.changes(after.as_deref()).await {
            Err(error) => error,
            Ok(mut changes) => loop {
                match changes.next().await {
                    Some(Ok(change)) => {
                        breaks = 0;
                        print(&change, out)?;
                        after = change.id.or(after);
                    }
                    Some(Err(error)) => break error,
                    // The manager went away in good order and let go of its readers.
                    None => break client.let_go(),
                }
            },
        };
        breaks += 1;
        if !error.is_away() || breaks > BREAKS_MAX {
            return Err(error.into());
        }
        SystemClock.sleep(RETRY_WAIT).await;
    }
}

fn print(change: &Change, out: Out) -> Result<(), Failure> {
    match out.shape {
        Shape::Json => out.line(serde_json::json!({"event": change.what, "id": change.id, "data": change.data})),
        Shape::People => line(change).map_or(Ok(()), |line| out.line(line)),
    }
}

/// In a line; nothing of what a newer manager tells.
fn line(change: &Change) -> Option<String> {
    fn read<T: DeserializeOwned>(change: &Change) -> Option<T> {
        serde_json::from_value(change.data.clone()).ok()
    }
    Some(match change.what.as_str() {
        "job" => {
            let job: JobView = read(change)?;
            let name = job.name.map(|name| format!(" ({})", show::one_line(&name))).unwrap_or_default();
            format!("job {}{name} in {} is {}: {}", job.id, job.queue, job.state.as_str(), show::counts(&job.counts))
        }
        "queue" => {
            let paused = change.data["paused"].as_bool().unwrap_or_default();
            let name = change.data["name"].as_str().unwrap_or_default();
            format!("queue {} is {}", show::one_line(name), if paused { "paused" } else { "open" })
        }
        "worker" | "worker_gone" => {
            let worker: WorkerView = read(change)?;
            let is = match (change.what.as_str(), worker.draining) {
                ("worker_gone", _) => "gone",
                (_, true) => "draining",
                (_, false) => "there",
            };
            format!("worker {} of {} on {} is {is}", worker.worker, worker.queue, show::one_line(&worker.host))
        }
        "gap" => "something may have been missed: `mutirao job list` shows how things are".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(what: &str, data: serde_json::Value) -> Option<String> {
        line(&Change { what: what.into(), id: None, data })
    }

    #[test]
    fn each_kind_of_change_is_one_line_and_what_is_not_known_is_passed_over() {
        let queue = serde_json::json!({"name": "night", "paused": true});
        assert_eq!(told("queue", queue).unwrap(), "queue night is paused");
        assert!(told("gap", serde_json::json!({})).unwrap().contains("missed"));
        assert_eq!(told("of_the_future", serde_json::json!({})), None);
        assert_eq!(told("job", serde_json::json!({"rubbish": 1})), None);
    }
}
