//! Elasticity is one machine: metric source × policy × target. This crate is its pure half: what is wanted, why, and which
//! steps lead there. It reads no clock, opens no socket and starts nothing.
//!
//! - [`measure`] is what a target's load looks like at an instant, with what is not known left out.
//! - [`policy`] is what a user writes under `elastic:`, checked, with the presets.
//! - [`decide`](mod@decide) turns (policy, state, load, now) into how many are wanted, and says why.
//! - [`fleet`] is the life of each worker as the resource manager sees it, and the plan that brings what is there to what is
//!   wanted, safe to die in at any point.
//! - [`lasting`] is how long tasks of a queue last, and how much longer one will that has run for a while.
//! - [`managers`] is how many managers there should be, by their cpu.
//! - [`packing`] puts workers on nodes, and says who goes first when there are too many.
//! - [`protocol`] is what the resource manager and the manager say to each other.
//! - [`steady`] is the time all of it is told: one that never jumps while a process lives.
//! - [`view`] is what people are shown of it.
//!
//! Words: a *target* is whatever is counted (workers of a queue, schedulers, replicas of the API, nodes). They are called
//! workers throughout, because that is what nearly all of them are.
//!
//! **How it is used.** Each pass of the one active resource manager: measure the load; [`decide()`](decide::decide); write the
//! new state; then, with [`Aim`] the decision, let the [`Fleet`] look at what the provider and the manager see and carry out
//! its plan, one action after the other. The state and the fleet's members are rows in the store, so a successor adopts
//! them.
//!
//! Not here: reading metrics, starting processes, routes, the loop.

pub mod decide;
pub mod fleet;
pub mod lasting;
pub mod managers;
pub mod measure;
pub mod packing;
pub mod policy;
pub mod protocol;
pub mod steady;
pub mod view;

pub use decide::{Change, Decision, Removal, State, decide};
pub use fleet::{Action, Aim, Fleet, Listing, Member, Seen, Terms};
pub use measure::Load;
pub use policy::{Elastic, Policy, Preset};
pub use steady::Steady;

/// Workers of one target, at most: what a policy may ask for, whatever the load.
pub const WORKERS_MAX: u32 = 10_000;
