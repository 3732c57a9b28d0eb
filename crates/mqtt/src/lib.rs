//! MQTT 3.1.1, small and bounded: what an installation needs so that a microcontroller or `mosquitto_pub` can talk to it
//! with nothing else installed, and what a node needs to talk to it.
//!
//! From the inside out, each room knowing only those before it:
//!
//! | room | what it is | I/O |
//! |---|---|---|
//! | [`codec`] | bytes to packets and back | none |
//! | [`topics`] | names, filters, and who matches whom | none |
//! | [`session`] | what one client has still to be given, in order, within bounds | none |
//! | [`hub`] | all sessions together: who may, who hears, what is retained, whose will is read | none |
//! | [`server`] | sockets, TLS, time limits; one task a connection | yes |
//! | [`port`] | the program's own place at the hub | channels |
//! | [`client`] | the other side: a node that comes back by itself and loses nothing it was asked to say | yes |
//!
//! **Nothing here is durable.** Sessions and retained messages live in memory: the store is the truth, and a manager that
//! restarts answers "no session" and hands out again what nobody reported. What is durable is the program's doing: a
//! message with quality 1 for a topic of the program is acknowledged only once the program has taken it
//! ([`port::Delivery::accept`]).
//!
//! What is *not* here: MQTT 5, bridges, who anybody is, which a [`gate::Gate`] says, and quality 2 towards clients: they are
//! granted 1. From clients it is taken, and heard once within a session; as sessions are not durable, what was not released
//! before a restart of ours may be heard again, and whoever hears it has to know it by what it says.

mod acks;
pub mod client;
pub mod codec;
pub mod gate;
pub mod hub;
pub mod limits;
pub mod port;
pub mod retained;
pub mod server;
pub mod session;
pub mod topics;

pub use client::{Client, Options};
pub use codec::Qos;
pub use gate::{Gate, Guest, Knock, Refusal, Rights, Standing};
pub use hub::Waiting;
pub use limits::Limits;
pub use port::{Delivery, Inbox, Port, Published, Speaker, TooLong};
pub use server::{Config, Listener};
pub use session::{Message, Wanted};
pub use topics::{TopicFilter, TopicName};
