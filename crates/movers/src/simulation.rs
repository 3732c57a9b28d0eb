//! A world of hosts, operators and loads under a mover: events one by one, the same for the same seed.
//!
//! Each operator has a source, a log that its replicas read, and someone after it who takes the first copy of each event. A host
//! has cores; its parts take turns at them, an event each. Each second every part says its message; a round is made when one is
//! due, and its moves are carried out as the document does it (stop and copy) or as the product is to (live).
//!
//! For the lab and for tests. What it takes for granted: a constant time on the network, no cost of moving but what is said in
//! [`Moving`], memory that never runs out, clocks that agree.

mod actors;
pub mod chapter;
pub mod load;
mod moving;
pub mod setup;
pub mod tally;
mod telling;
#[cfg(test)]
mod tests;
pub mod troubles;
mod world;

use mutirao_streams::wire::{Part, StreamId, What};

pub use load::Load;
pub use setup::{HostSetup, Moving, Noise, OperatorSetup, Setup};
pub use tally::{Histogram, Outcome};

use crate::settings::Settings;

/// What comes of a world that goes on until its end.
pub fn run(setup: &Setup, settings: Settings, seed: u64) -> Outcome {
    world::World::new(setup, settings, seed).run()
}

/// What a part is called there: a replica of the operator of this number.
pub fn part(operator: usize, replica: usize) -> Part {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Part { stream: StreamId("lab".into()), what: What::Stage(number(operator)), replica: number(replica) }
}

pub fn host_name(host: usize) -> String {
    format!("host-{:02}", host + 1)
}
