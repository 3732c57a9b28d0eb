//! The typed client of Mutirão's HTTP API: what the CLI, workers and other programs use to speak with a manager.
//!
//! - [`Client`]: jobs, tasks, queues, workers, tokens, enrolment, health; errors are one clear line with a remedy.
//! - [`Signer`]: how a worker proves who it is, request by request.
//! - [`HttpBlobs`]: blobs reached over HTTP.
//!
//! What is *not* here: the link over which workers take tasks (`broker`), and anything that prints (`mutirao`).
//!
//! ```no_run
//! use mutirao_client::{Client, Credentials};
//! use mutirao_core::{exec::Exec, job::JobSpec, task::{Action, TaskSpec}};
//!
//! # async fn example() -> Result<(), mutirao_client::ClientError> {
//! let client = Client::new("http://127.0.0.1:7070", Credentials::Token("mut_…".into()))?;
//! let exec = Exec { command: vec!["echo".into(), "hello".into()], ..Default::default() };
//! let job = client.submit(&JobSpec::new(TaskSpec::new(Action::Exec(exec)))).await?;
//! println!("{} is {}", job.id, job.state.as_str());
//! # Ok(()) }
//! ```

mod access;
mod blobs;
mod credentials;
mod elastic;
mod error;
mod events;
mod fleet;
mod flows;
mod hosts;
mod http;
mod jobs;
pub mod kv;
mod monitors;
mod nodes;
mod queues;
mod sse;
mod streams;
mod target;

pub use access::Health;
pub use blobs::HttpBlobs;
pub use credentials::{BadKey, Credentials, Signer, WorkerKey};
pub use error::ClientError;
pub use events::{Change, ChangeStream};
pub use flows::RunStream;
pub use http::{ByteStream, Client};
pub use jobs::{DeadFilter, Heard, JobFilter, JobLogsFrom, JobStream, LogsFrom, PageArgs, PieceStream, Reach};
pub use mutirao_tls::{Believe, Trust};
pub use queues::Unfinished;
pub use streams::{EventStream, Over};
