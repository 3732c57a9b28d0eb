//! `mutirao kv watch`: a line for each change, through restarts of the manager.

use futures_util::StreamExt;
use mutirao_client::{Change, Client};
use mutirao_core::{Clock, SystemClock};
use mutirao_kv::view::ChangeView;

use super::super::logs::{BREAKS_MAX, RETRY_WAIT};
use super::super::out::{Out, Shape};
use super::super::{pipes, show};
use crate::failure::Failure;

pub async fn run(client: &Client, prefix: &str, cursor: Option<String>, out: Out) -> Result<(), Failure> {
    tokio::select! {
        watched = follow(client, prefix, cursor, out) => watched,
        () = pipes::reader_gone(std::io::stdout()) => Err(Failure::BrokenPipe),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn follow(client: &Client, prefix: &str, mut cursor: Option<String>, out: Out) -> Result<(), Failure> {
    let mut breaks = 0;
    loop {
        let error = match client.entry_changes(prefix, cursor.as_deref()).await {
            Err(error) => error,
            Ok(mut changes) => loop {
                match changes.next().await {
                    Some(Ok(change)) if change.what == "compacted" => {
                        return Err(Failure::failed("what happened since is not known any more; begin anew"));
                    }
                    Some(Ok(change)) => {
                        breaks = 0;
                        print(&change, out)?;
                        cursor = change.id.or(cursor);
                    }
                    Some(Err(error)) => break error,
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
    if out.shape == Shape::Json {
        return out.line(serde_json::json!({"event": change.what, "cursor": change.id, "data": change.data}));
    }
    let Ok(view) = serde_json::from_value::<ChangeView>(change.data.clone()) else { return Ok(()) };
    let value = match view.entry {
        Some(entry) => format!(" {}", entry.value.as_deref().map_or("(not text)".into(), show::one_line)),
        None => String::new(),
    };
    out.line(format!("{} {} {}{value}", change.what, show::one_line(&view.key), view.revision))
}
