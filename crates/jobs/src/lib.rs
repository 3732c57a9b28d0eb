//! Batch jobs: tasks submitted together to a queue, each run until it ends once.
//!
//! The way of a task through this crate:
//! 1. [`routes`] reads the request, [`service`] checks it and has [`store`] write it down; then the client hears yes.
//! 2. The queue's shard has one owner among all managers. There, `post` drives the [`foreman`], which says, without any I/O,
//!    what is done next; within it the [`desk`] knows which task goes next, to how many, and what every report means.
//! 3. What the desk hands out, [`dispatch`] packs into parcels and publishes.
//! 4. Reports come back through [`reports`]; what the desk makes of them is settled in the store by the [`settler`], in
//!    batches fenced by the shard's generation, and only then acknowledged.
//!
//! Several managers: `posts` follows which shards this process owns; [`asking`] puts a [`question`] to the owner of a
//! shard, here or elsewhere; `recall` reads what the foreman compares its desk with, so that a lost word costs seconds;
//! `news` tells every manager which jobs changed.
//!
//! A job is kept as its definition and its exceptions: a task has a row of its own only once it failed, was lost or
//! ended. So a million waiting tasks are a few rows on disk and a bitmap in memory.
//!
//! A queue is defined by people ([`queues`]); its definition reaches the desk at once, and acts on all that waits.
//!
//! Not here: running anything (the worker's), growing the workers (elastic's).

pub mod asking;
pub mod desk;
pub mod dispatch;
mod doors;
mod ear;
pub mod entries;
pub mod foreman;
mod hub;
mod letters;
pub mod meters;
mod news;
mod post;
mod posts;
pub mod question;
pub mod queues;
mod recall;
pub mod reports;
mod roll;
pub mod routes;
pub mod service;
pub mod settings;
pub mod settler;
pub mod store;
mod strays;
pub mod traces;
pub mod waits;

/// What the shards of queues are called together.
pub const GROUP: &str = "jobs";

pub use roll::Roll;
pub use service::{Elasticity, Jobs, JobsError, JobsParts};
pub use settings::JobsSettings;
pub use store::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use store::sqlite::MIGRATIONS;
