//! Watching a run to its end, through restarts of the manager: the run is kept over there, only the watching breaks.

use std::collections::BTreeSet;
use std::time::Duration;

use mutirao_client::Client;
use mutirao_core::{Clock, SystemClock};
use mutirao_flows::view::{RunState, RunView};

use crate::cli::{Out, Shape, show};
use crate::failure::{Exit, Failure};

const ABSENCE_MAX: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_millis(500);
/// The server is asked to wait this long: how far behind what is shown may be.
const GLANCE: &str = "300ms";

/// Each step that ends is a line for people.
pub async fn until_ended(client: &Client, run: u64, out: &Out) -> Result<RunView, Failure> {
    let clock = SystemClock;
    let mut last_heard = clock.monotonic();
    let mut told: BTreeSet<String> = BTreeSet::new();
    loop {
        match client.run::<RunView>(run, Some(GLANCE)).await {
            Ok(view) => {
                last_heard = clock.monotonic();
                if out.shape == Shape::People {
                    for (name, line) in show::steps_ended(&view) {
                        if told.insert(name) {
                            eprintln!("{line}");
                        }
                    }
                }
                if view.state != RunState::Running {
                    return Ok(view);
                }
            }
            Err(error) if !error.is_away() => return Err(error.into()),
            Err(error) if clock.monotonic().since(last_heard) > ABSENCE_MAX => {
                let line = format!("{error}; run {run} is kept, `mutirao flow show {run}` shows it");
                return Err(Failure::new(Exit::Unreachable, line));
            }
            Err(_) => clock.sleep(RETRY).await,
        }
    }
}
