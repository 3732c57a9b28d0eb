//! The provider whose nodes are machines reached by ssh: a pool that is written down in a file. A host is taken when it is needed
//! and left once it has stood empty. The system's own `ssh` is driven, so whatever works by hand (agents, jump hosts, the
//! user's settings) works here.
//!
//! - [`spec`] is what people write about a host.
//! - [`needs`] is what our program needs of a host, read from the program itself.
//! - [`script`] is what is run on a host, and what it answers.
//! - [`line`](mod@line) is one connection: opened once, shared by everything that is said over it.
//! - [`means`] is what all hosts share.
//! - [`host`] is one host's state, and what is done about it beside the listings.
//! - [`provider`] is the side of the resource manager.
//!
//! **What is on the host** is a folder with the program, by its digest, and a folder for the node: an agent, as the provider
//! [`local`](crate::local) has them, that outlives the connection. Its socket is forwarded to here; the manager's API is
//! forwarded to there, so that workers need no other way to it.
//!
//! **Nothing is kept here.** Whoever comes next looks at every host before it says what it has. The connection outlives the
//! resource manager too, and ends by itself when its agent has gone.

pub mod host;
pub mod line;
pub mod means;
pub mod needs;
pub mod provider;
pub mod script;
pub mod spec;

pub use host::inspect;
pub use means::{Means, Reach};
pub use provider::Ssh;
pub use spec::HostSpec;
