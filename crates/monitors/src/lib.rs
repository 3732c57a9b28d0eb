//! Monitors: actions that are run every interval, and what is made of how they end.
//!
//! - [`spec`] is what a user writes, checked. [`condition`] is what must hold of an answer, in CEL.
//! - [`grid`] says at which instants a monitor fires: a fixed grid, with a phase of its own.
//! - [`agenda`] holds the monitors of one owner and says which firings lie between two moments. It remembers no next run.
//! - [`health`] makes up and down of single outcomes: thresholds, flapping, silence; and what opens and closes an incident.
//! - [`maintenance`] says when a service may be away.
//! - [`rollup`] adds outcomes up to minutes, hours and days; [`sketch`] keeps how long things took, small enough for every minute of a year, with its percentiles.
//!
//! All of it is pure: no clock, no store, no socket.

pub mod agenda;
pub mod condition;
pub mod grid;
pub mod health;
pub mod maintenance;
pub mod rollup;
pub mod sketch;
pub mod spec;

pub use agenda::{Agenda, Firing, Missed};
pub use condition::Conditions;
pub use grid::{Grid, MonitorKey};
pub use health::{Health, State};
pub use sketch::Sketch;
pub use spec::MonitorSpec;
