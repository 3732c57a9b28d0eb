//! Which part of a stream moves to which host, by what is measured. Functions of state and time: no I/O, no clock, no chance
//! but a seed.
//!
//! - [`message`] is what is heard of a part each second; [`memory`] is what is remembered of it.
//! - [`scene`] is who sits where and what may move, as whoever places parts knows it.
//! - [`mover`] makes a round of it every ten seconds, by one of four strategies: none, [`random`], [`adaptive`] (the document's,
//!   rule by rule) and [`mutirao`] (ours).
//! - [`round`] is what a round found, with all its reasons as data; its `Display` is what people read.
//! - `simulation` (a feature, for the lab) is a world of hosts, operators and loads in which strategies are compared.
//!
//! **How it is used.** Whoever hears the beats of hosts gives each part's message to [`Mover::hear`]. From time to time he asks
//! for a [`Mover::round`] with the scene as it is. Each [`Move`] of it is a wish, held against the rules of placement and carried
//! out by others; as long as one is under way, the scene says so and there is no round.
//!
//! **Why "movers".** In this product a scheduler fires monitors, and placing is who gives a part that has no place a host. Whoever
//! decides that a part which has a place had better have another is neither: a *mover*. A *round* is what it does at an instant, a
//! *move* what comes of it. A *part*, a *host* and a *stage* are what they are in `mutirao_streams::wire`.
//!
//! `docs/adaptive-scheduling.md` has the formulas, and what the document leaves open.

pub mod adaptive;
pub mod dominance;
pub mod memory;
pub mod message;
pub mod mover;
pub mod mutirao;
pub mod random;
pub mod round;
pub mod scene;
pub mod settings;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
pub mod trend;
pub mod wait;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;

pub use message::{Message, Own, Use};
pub use mover::Mover;
pub use round::{Move, Round};
pub use scene::{Host, HostId, Scene, Seated, Stage};
pub use settings::{Settings, Strategy};
