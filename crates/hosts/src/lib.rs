//! Hosts: what runs parts of streams. One inside each manager, if it is told so, and others as processes of their own; each has
//! a runtime of its own, so that heavy operators never keep an API waiting.
//!
//! | room | what it is |
//! |---|---|
//! | [`manager`] | whom a host listens to |
//! | [`host`] | beats each second, and runs what it is told to, and nothing else |
//! | [`running`] | a part that runs: reads its log, works, appends to those of others; snapshots |
//! | [`sources`] | where events come from |
//! | [`sinks`] | where they go |
//! | [`measure`] | what is told of each part and of the machine each second |
//!
//! What events are and what is done with them is the `streams` crate's, without I/O. Which host runs which part is the
//! conductor's to say. A host goes on with what it has for as long as nobody tells it otherwise: data flows while managers
//! are away.

pub mod ends;
pub mod host;
pub mod manager;
pub mod measure;
pub mod running;
pub mod sinks;
pub mod sources;

pub use ends::{Ends, Files};
pub use host::{Host, HostParts};
pub use manager::{Manager, ManagerError, Remote};
