//! Nodes that are processes of this machine, each with a share of what it has. A node is an agent (`mutirao role node`) in a
//! folder of its own; its workers are its children.
//!
//! - [`provider`] is the side of the resource manager; [`care`] starts agents that are not there, and finds those that are.
//! - [`agent`] is the node: it starts and ends workers, and outlives whoever started it.
//! - [`wire`] is what they say to each other, over a socket in the agent's folder that only its owner can open.
//! - [`process`] is how a worker is started, here and by `up`.
//!
//! **Who dies with whom.** A worker holds the end of a pipe from its agent: when the agent dies, however it dies, the worker
//! finishes what it runs and goes. The next agent in the folder sees by the locks of the workers' folders who is still
//! there. An agent that nobody has spoken to for a while says so, and after a long time drains its workers and goes.

pub mod agent;
mod care;
mod children;
pub mod process;
pub mod provider;
pub mod wire;

pub use agent::{Agent, AgentError};
pub use process::WorkerProcess;
pub use provider::{Local, LocalParts, NodeShape, Trusted, Workers, order};
pub use wire::Haste;
