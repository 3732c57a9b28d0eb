//! Nodes that run actions on edge, fog and cloud: who is there, what each offers, whether it can be relied on, over which
//! protocol it is spoken to, and which of them gets the next task.
//!
//! What is decided, without I/O and without a clock: what happens and when goes in, what is to be done comes out.
//!
//! | module | what it decides |
//! |---|---|
//! | [`names`] | what a namespace, a node and an action may be called |
//! | [`wire`] | the words on the wire, and where they travel |
//! | [`pulse`] | when a manager says that it is there, and when it asks everybody to register |
//! | [`enrolment`] | what a node does to become registered, and to stay so |
//! | [`registry`] | who is registered, with what; who is refused |
//! | [`breaker`] | which nodes are spared because they fail |
//! | [`preference`] | which protocol is tried first for a node |
//! | [`routing`] | which node gets a task |
//!
//! What is around it: `switchboard` holds all of that and speaks through each `way`: `embedded` (MQTT of our own), `rabbit`
//! (AMQP, and MQTT by its plugin) and `http`. `store` keeps what outlives a manager, `device` and `keys` say who may speak as a
//! node, `allowance` what it may say of itself, `hands` are the actions of this process, and `errand` is the seam to whoever has tasks: flows.

pub mod allowance;
pub mod breaker;
pub mod device;
pub mod embedded;
pub mod endpoint;
pub mod enrolment;
pub mod errand;
pub mod hands;
pub mod http;
pub mod keys;
pub mod meters;
pub mod names;
pub mod preference;
pub mod pulse;
pub mod rabbit;
pub mod registry;
mod routes;
pub mod routing;
pub mod store;
pub mod switchboard;
pub mod topics;
mod view;
pub mod way;
pub mod wire;

pub use mutirao_elastic::packing::Layer;
pub use names::{ActionName, Namespace, NodeId, Offer};
pub use store::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use store::sqlite::MIGRATIONS;
