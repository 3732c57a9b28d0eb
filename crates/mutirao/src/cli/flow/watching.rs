//! Watching a run to its end, through restarts of the manager: the run is kept over there, only the watching breaks. Whoever
//! waits is told what for.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt;
use mutirao_client::{Client, ClientError};
use mutirao_core::{Clock, SystemClock};
use mutirao_flows::view::{RunExplained, RunLine, RunState, RunView};

use crate::cli::{Out, Shape, show};
use crate::failure::{Exit, Failure};

const ABSENCE_MAX: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_millis(500);
/// Where there are no events, the server is asked to wait this long: how far behind what is shown may be.
const GLANCE: &str = "300ms";

/// Between two looks at what a run waits for. Most have ended before the first.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What it gave is the output, all else is said beside it. Ctrl-C leaves the run alone.
pub async fn to_the_end(client: &Client, line: &RunLine, out: &Out) -> Result<u8, Failure> {
    let run = line.run;
    out.note(format!("run {run} of {} has begun", line.flow));
    let view = tokio::select! {
        view = until_ended(client, run, out) => view?,
        never = say_what_for(client, run, out) => match never {},
        _ = tokio::signal::ctrl_c() => {
            out.note(format!("the run goes on: `mutirao flow show {run}` shows it, `mutirao flow cancel {run}` ends it"));
            return Err(Failure::Silent { code: 130 });
        }
    };
    match (out.shape, view.state) {
        (Shape::People, RunState::Done) | (Shape::Json, _) => out.answer(&view, show::run_end)?,
        (Shape::People, _) => out.note(show::run_end(&view)),
    }
    Ok(u8::from(view.state != RunState::Done))
}

/// Said once, until it waits for something else. Who cannot be asked now is asked again: the watching itself goes on.
async fn say_what_for(client: &Client, run: u64, out: &Out) -> Infallible {
    let mut said = Vec::new();
    loop {
        SystemClock.sleep(LOOK_EVERY).await;
        let Ok(explained) = client.explain_run::<RunExplained>(run).await else { continue };
        let waits = show::run_waits_for(&explained);
        for line in waits.iter().filter(|line| !said.contains(*line)) {
            out.note(line);
        }
        said = waits;
    }
}

/// Each step that ends is a line for people.
async fn until_ended(client: &Client, run: u64, out: &Out) -> Result<RunView, Failure> {
    let clock = SystemClock;
    let mut last_heard = clock.monotonic();
    let mut told: BTreeSet<String> = BTreeSet::new();
    loop {
        let heard = follow(client, run, |view| {
            last_heard = clock.monotonic();
            if out.shape == Shape::People {
                for (name, line) in show::steps_ended(view) {
                    if told.insert(name) {
                        eprintln!("{line}");
                    }
                }
            }
        });
        match heard.await {
            Ok(view) => return Ok(view),
            Err(error) if !error.is_away() => return Err(error.into()),
            Err(error) if clock.monotonic().since(last_heard) > ABSENCE_MAX => {
                let line = format!("{error}; run {run} is kept, `mutirao flow show {run}` shows it");
                return Err(Failure::new(Exit::Unreachable, line));
            }
            Err(_) => clock.sleep(RETRY).await,
        }
    }
}

/// Until it has ended, or the stream breaks.
async fn follow(client: &Client, run: u64, mut seen: impl FnMut(&RunView)) -> Result<RunView, ClientError> {
    let mut events = match client.run_events::<RunView>(run).await {
        Ok(events) => events,
        // An older manager has none.
        Err(error) if !error.is_away() => return glance(client, run, seen).await,
        Err(error) => return Err(error),
    };
    while let Some(view) = events.next().await {
        let view = match view {
            Ok(view) => view,
            // It is too large for an event.
            Err(error) if !error.is_away() => return glance(client, run, seen).await,
            Err(error) => return Err(error),
        };
        seen(&view);
        if view.state != RunState::Running {
            return Ok(view);
        }
    }
    // The manager went away in good order and let go of its readers.
    Err(client.let_go())
}

/// Asks again and again.
async fn glance(client: &Client, run: u64, mut seen: impl FnMut(&RunView)) -> Result<RunView, ClientError> {
    loop {
        let view: RunView = client.run(run, Some(GLANCE)).await?;
        seen(&view);
        if view.state != RunState::Running {
            return Ok(view);
        }
    }
}
