//! `mutirao kv watch`: a line for each change, through restarts of the manager.

use futures_util::StreamExt;
use mutirao_client::{Change, Client, ClientError};
use mutirao_core::{Clock, SystemClock};
use mutirao_kv::view::ChangeView;

use super::super::logs::{BREAKS_MAX, RETRY_WAIT};
use super::super::out::{Out, Shape};
use super::super::{pipes, show};
use crate::failure::Failure;

/// Tries of one that was never answered: it may be starting, and else the address is wrong.
const TRIES_MAX: u32 = 3;

pub async fn run(client: &Client, prefix: &str, cursor: Option<String>, out: Out) -> Result<(), Failure> {
    let mut told = Told { cursor, breaks: 0, has_begun: false };
    tokio::select! {
        watched = follow(client, prefix, &mut told, out) => return watched,
        () = pipes::reader_gone(std::io::stdout()) => return Err(Failure::BrokenPipe),
        _ = tokio::signal::ctrl_c() => {}
    }
    // Programs were told it with each event.
    if let Some(cursor) = &told.cursor {
        out.note(format!("`mutirao kv watch {} --cursor {cursor}` goes on from here", show::quoted(prefix)));
    }
    Ok(())
}

async fn follow(client: &Client, prefix: &str, told: &mut Told, out: Out) -> Result<(), Failure> {
    loop {
        let error = match client.entry_changes(prefix, told.cursor.as_deref()).await {
            Err(error) => error,
            Ok(mut changes) => loop {
                match changes.next().await {
                    Some(Ok(change)) if change.what == "compacted" => {
                        return Err(Failure::failed("what happened since is not known any more; begin anew"));
                    }
                    Some(Ok(change)) => {
                        let line = line(&change, out.shape);
                        let goes_on = told.reach(change.id);
                        goes_on.into_iter().for_each(|note| out.note(note));
                        line.map_or(Ok(()), |line| out.line(line))?;
                    }
                    Some(Err(error)) => break error,
                    // The manager went away in good order and let go of its readers.
                    None => break client.let_go(),
                }
            },
        };
        let waits = told.breaks(error)?;
        waits.into_iter().for_each(|note| out.note(note));
        SystemClock.sleep(RETRY_WAIT).await;
    }
}

/// How far somebody was told, and how often in a row that broke.
struct Told {
    cursor: Option<String>,
    breaks: u32,
    has_begun: bool,
}

impl Told {
    /// What there is to say when it goes on.
    fn reach(&mut self, cursor: Option<String>) -> Option<&'static str> {
        let was_away = self.has_begun && self.breaks > 0;
        (self.breaks, self.has_begun) = (0, true);
        self.cursor = cursor.or(self.cursor.take());
        was_away.then_some("it goes on, and nothing was missed")
    }

    /// What there is to say when it breaks and is to be tried again.
    fn breaks(&mut self, error: ClientError) -> Result<Option<String>, Failure> {
        self.breaks += 1;
        let most = if self.has_begun { BREAKS_MAX } else { TRIES_MAX };
        if error.is_away() && self.breaks < most {
            let is_first = self.has_begun && self.breaks == 1;
            return Ok(is_first.then(|| format!("{error}; this watch tries by itself, and goes on from where it was")));
        }
        let failure = Failure::from(error);
        Err(match self.cursor.as_deref().filter(|_| self.has_begun) {
            Some(cursor) => failure.saying(|line| format!("{line}; `--cursor {cursor}` goes on from where it was")),
            None => failure,
        })
    }
}

/// What is told of a change; nothing where there is nothing for people, or a newer manager tells of it.
fn line(change: &Change, shape: Shape) -> Option<String> {
    if shape == Shape::Json {
        return Some(serde_json::json!({"event": change.what, "cursor": change.id, "data": change.data}).to_string());
    }
    let view = serde_json::from_value::<ChangeView>(change.data.clone()).ok()?;
    let value = match view.entry {
        Some(entry) => format!(" {}", entry.value.as_deref().map_or("(not text)".into(), show::one_line)),
        None => String::new(),
    };
    Some(format!("{} {} {}{value}", change.what, show::one_line(&view.key), view.revision))
}

#[cfg(test)]
mod tests {
    use mutirao_core::Problem;

    use super::*;

    fn away() -> ClientError {
        ClientError::Unreachable { url: "http://h".into(), why: "connection refused".into() }
    }

    fn begun(cursor: &str) -> Told {
        let mut told = Told { cursor: None, breaks: 0, has_begun: false };
        assert_eq!(told.reach(Some(cursor.into())), None);
        told
    }

    fn said(failure: Failure) -> String {
        match failure {
            Failure::Said { line, .. } => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_was_never_answered_is_soon_told_so_and_who_was_is_waited_for() {
        let mut told = Told { cursor: Some("c0".into()), breaks: 0, has_begun: false };
        let tries = (1..).find(|_| told.breaks(away()).is_err()).unwrap();
        assert_eq!(tries, TRIES_MAX);
        let mut told = begun("c1");
        let tries = (1..).find(|_| told.breaks(away()).is_err()).unwrap();
        assert_eq!(tries, BREAKS_MAX);
    }

    #[test]
    fn a_break_is_told_once_and_so_is_its_end_and_the_last_with_the_cursor() {
        let mut told = begun("c1");
        assert!(told.breaks(away()).unwrap().unwrap().contains("by itself"));
        assert_eq!(told.breaks(away()).unwrap(), None);
        assert!(told.reach(Some("c2".into())).unwrap().contains("goes on"));
        assert_eq!(told.reach(None), None);
        let refused = told.breaks(Problem::forbidden("x").into()).unwrap_err();
        assert!(said(refused).ends_with("; `--cursor c2` goes on from where it was"));
    }

    #[test]
    fn what_a_newer_manager_tells_is_for_programs_only() {
        let change = Change { what: "at".into(), id: Some("c".into()), data: serde_json::json!({}) };
        assert_eq!(line(&change, Shape::People), None);
        assert!(line(&change, Shape::Json).unwrap().contains(r#""event":"at""#));
    }
}
