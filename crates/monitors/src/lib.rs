//! Monitors: actions that are run every interval, and what is made of how they end.
//!
//! - [`spec`] is what a user writes, checked. [`condition`] is what must hold of an answer, in CEL.
//! - [`grid`] says at which instants a monitor fires: a fixed grid, with a phase of its own.
//! - [`agenda`] holds the monitors of one owner and says which firings lie between two moments. It remembers no next run.
//! - [`health`] makes up and down of single outcomes: thresholds, flapping, silence; and what opens and closes an incident.
//! - [`maintenance`] says when a service may be away, [`placement`] where checks are made.
//! - [`judge`](mod@judge) makes a verdict of what a probe saw; [`owner`] fires what is due and makes beliefs of verdicts.
//! - [`push`] is about services that are not asked, but call.
//! - [`rollup`] adds outcomes up to minutes, hours and days; [`sketch`] keeps how long they took, in a few bytes.
//! - [`alerts`] says who is told of that, and when; its courier tells them.
//!
//! All of that but the courier is pure: no clock, no store, no socket. Around it:
//!
//! - [`store`] keeps definitions, beliefs, outcomes and incidents; [`envelope`] is what travels.
//! - [`round`] drives an owner for each shard that this process owns; [`checker`] takes checks from the broker and makes them,
//!   inside a manager or as a process of its own. [`meters`] counts what was missed, [`series`] shows each monitor.
//! - [`crew`] hears how checkers are doing, for those who decide how many there should be.
//! - [`roller`] adds up what is over, and says what a time came to.
//! - [`service`] is the capability: what is asked of it by people, over [`routes`].

pub mod agenda;
pub mod alerts;
pub mod checker;
pub mod condition;
pub mod crew;
pub mod envelope;
pub mod grid;
pub mod health;
pub mod judge;
pub mod maintenance;
pub mod meters;
pub mod owner;
pub mod placement;
pub mod push;
pub mod roller;
pub mod rollup;
pub mod round;
pub mod routes;
pub mod series;
pub mod service;
pub mod sketch;
pub mod spec;
pub mod store;

pub use agenda::{Agenda, Firing, Missed};
pub use condition::Conditions;
pub use grid::{Grid, MonitorKey};
pub use health::{Health, State};
pub use service::{Monitors, MonitorsParts};
pub use spec::MonitorSpec;
pub use store::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use store::sqlite::MIGRATIONS;

/// The group of shards that monitors fall into.
pub const GROUP: &str = "monitors";
/// Into how many. Part of the data: it never changes.
pub const SHARDS: u32 = 16;
