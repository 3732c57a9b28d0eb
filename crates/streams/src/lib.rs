//! Streams: graphs of operators that never end. Here is their pure core: what flows, what is done with it, and whether a
//! definition could work. No socket, no file, no clock, no runtime: the same input gives the same output, on each replica
//! and at each replay, however the input was cut into batches.
//!
//! What flows:
//!
//! - [`schema`] says which fields an event has, and of which kind. There are no nulls: what lacks a field does not fit.
//! - [`batch`] holds many events as columns, with a binary form for the log and JSON at the ends of a stream.
//! - [`time`] is the calendar: what stands in a time, and how one is written.
//!
//! What is done with it:
//!
//! - [`expression`] is a small typed language. It is checked once, against a schema, and runs over whole columns.
//! - [`window`] says which events belong together, by count and by the time that they carry; [`aggregate`] makes one figure
//!   of many; [`operator`] is what both and the stateless steps have in common; [`state`] is how what an operator remembers
//!   is written down and read again.
//! - [`reference`](mod@reference) does the same one event at a time, slowly and plainly: what the rest is compared with.
//!
//! What runs it:
//!
//! - [`part`] is a source, a replica of a stage, or a sink, as a function: records and messages in, records and rows out, and what it
//!   remembers written down without stopping. [`record`] is what a log holds.
//! - [`mark`] numbers events, so that what is sent twice is read once; [`hash`] is the same number for a value everywhere.
//! - [`wire`] is what hosts and managers say to each other, and how things are named.
//!
//! What a user writes:
//!
//! - [`definition`] reads a `kind: Stream` and finds everything that is wrong with it at once, with line and column.
//! - [`graph`] is what a definition that could work becomes: operators with a schema on each edge, stateless ones fused.
//!
//! Not here: logs, blobs, and whoever speaks to the outside. Whoever runs parts does (`hosts`), and whoever says where they run
//! (`conductor`).

pub mod aggregate;
pub mod batch;
pub mod definition;
pub mod expression;
pub mod graph;
pub mod hash;
pub mod mark;
pub mod operator;
pub mod part;
pub mod record;
pub mod reference;
pub mod schema;
pub mod state;
pub mod time;
pub mod window;
pub mod wire;

pub use batch::{Batch, Column, Texts, Unfit, Value};
pub use expression::Expression;
pub use graph::Graph;
pub use schema::{Field, Kind, Schema};
