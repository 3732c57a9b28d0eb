//! The words every other crate speaks: ids, tasks, outcomes, jobs, the life of a task, the envelopes that travel
//! between processes, the clock and the dice. No sockets, no files, no database: anything here can run inside a
//! simulation.
//!
//! What is *not* here: how things are stored (`store`), moved (`broker`), run (`worker`) or served (`api`).

pub mod auth;
pub mod blobs;
pub mod check;
pub mod clock;
pub mod declared;
pub mod dice;
pub mod envelope;
pub mod exec;
pub mod id;
pub mod job;
pub mod life;
pub mod limits;
pub mod meminfo;
pub mod meters;
pub mod node;
pub mod outcome;
pub mod problem;
pub mod quantity;
pub mod sender;
pub mod shard;
pub mod spread;
pub mod task;
pub mod tolerant;
pub mod trace;

pub use clock::{Clock, Mono, SystemClock, Timestamp};
pub use dice::Dice;
pub use id::{Attempt, InstallationId, JobKey, QueueName, SessionId, TaskKey, WorkerId};
pub use outcome::{Outcome, Verdict};
pub use problem::Problem;
pub use shard::ShardId;
