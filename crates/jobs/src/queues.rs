//! Queues as things: [defined and changed](service), told to whoever owns them and [compared](follow) so that a lost word
//! costs seconds, [shown and explained](looks), all of it [over HTTP](routes).
//!
//! What a definition means is the desk's ([`crate::desk::order`], [`crate::desk::line`]); what it may say is
//! `mutirao_queues`'.

pub(crate) mod follow;
pub(crate) mod looks;
pub mod routes;
mod service;

pub use service::Precondition;
