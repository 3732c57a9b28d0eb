//! A replica that goes to another host, and whoever waits for it.

use std::time::Duration;

use mutirao_client::Client;
use mutirao_conductor::view::{Migrate, Migrating, PartView, StreamView};
use mutirao_core::{Clock, SystemClock};

use crate::failure::Failure;

const LOOK: Duration = Duration::from_millis(300);

/// Asks for it, and with `wait` goes on until the replica is there, or stays where it was.
pub async fn run(client: &Client, name: &str, ask: &Migrate, wait: Option<Duration>) -> Result<Migrating, Failure> {
    let begun: Migrating = client.migrate_stream(name, ask).await?;
    let Some(wait) = wait else { return Ok(begun) };
    let clock = SystemClock;
    let until = clock.monotonic().plus(wait);
    loop {
        clock.sleep(LOOK).await;
        let view: StreamView = client.stream(name).await?;
        let is = |part: &&PartView| part.kind == "stage" && part.name == begun.stage && part.replica == begun.replica;
        let Some(part) = view.parts.iter().find(is) else {
            return Err(Failure::failed(format!("stage {} is gone", begun.stage)));
        };
        if part.moves.is_none() {
            return match part.host.as_deref() == Some(begun.to.as_str()) {
                true => Ok(begun),
                false => Err(Failure::failed(format!(
                    "stage {} stays where it was; `mutirao stream explain {name}` says why",
                    begun.stage
                ))),
            };
        }
        if clock.monotonic() >= until {
            return Err(Failure::failed(format!(
                "stage {} is still on its way after {} s; `mutirao stream show {name}` says how far it is",
                begun.stage,
                wait.as_secs()
            )));
        }
    }
}
