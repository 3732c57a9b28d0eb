//! The resource manager: the one that watches the load of elastic queues and has workers come and go. It is a client of the
//! manager's API and of a provider, and keeps nothing: what must outlive it is with the manager.
//!
//! - [`manager`] is what it says to the manager, as a trait and over HTTP, each request signed.
//! - [`provider`] is what it says to whoever has the machines, as a trait that fits processes, machines and clusters.
//! - [`lease`] is how it comes to be the only one that acts.
//! - [`queue`] is one queue's pass as a machine without I/O: what is seen goes in, steps come out.
//! - [`nodes`] is where new workers go, and which nodes are given back.
//! - [`pass`] carries one pass out, in the order that makes it safe to die at any point.
//! - [`run`](mod@run) does so again and again, for as long as the lease is held.
//! - [`paper`] is what a pass would do now, without doing it.
//! - [`local`] is the provider whose nodes are processes of this machine.
//! - [`ssh`] is the provider whose nodes are machines of a pool.
//! - [`hooks`] is the provider whose nodes are machines that commands of the user's create and destroy.
//!
//! **In which order.** Identities and their records are made by the manager in one step. What is decided about a worker is
//! recorded before the provider hears of it. A call to the provider is given up before its worker could be believed gone.
//! So whenever this process dies, a successor finds in the store whatever the provider has or is about to have.
//!
//! Not here: how many are wanted (`elastic`), what the manager does with it (`fleet`), flags and settings (`mutirao`).

pub mod hooks;
pub mod lease;
pub mod local;
pub mod manager;
pub mod nodes;
pub mod paper;
pub mod pass;
pub mod provider;
pub mod queue;
pub mod run;
pub mod ssh;

pub use hooks::Hooks;
pub use manager::{HttpManager, Manager, ManagerError};
pub use pass::{Active, Ports};
pub use provider::{Have, Launch, NodeSeen, Origin, Provider, ProviderError};
pub use run::{Parts, run};
