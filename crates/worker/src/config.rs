//! What a worker is told when it starts: who it is, what it may use, and its bounds.

use std::path::PathBuf;
use std::time::Duration;

use mutirao_core::limits::OUTPUT_BYTES_MAX;
use mutirao_core::task::Needs;
use mutirao_core::{QueueName, SessionId, WorkerId};

use crate::keeper::Keeper;

/// A worker's settings. Start from [`Config::new`] and change what differs.
pub struct Config {
    pub worker: WorkerId,
    /// This life of the worker. The keeper, when there is one, is started for the same session.
    pub session: SessionId,
    pub queue: QueueName,
    /// What the running tasks may need together.
    pub capacity: Needs,
    /// A folder of this worker's own: task folders and spooled output. Emptied at start.
    pub dir: PathBuf,
    pub host: String,
    /// Ends the tasks of a worker that was killed. Without one, they live on.
    pub keeper: Option<Keeper>,
    pub cpu_limit: CpuLimit,
    pub limits: Limits,
    /// After this long without a task it drains and ends by itself.
    pub idle_end: Option<Duration>,
}

impl Config {
    pub fn new(worker: WorkerId, queue: QueueName, capacity: Needs, dir: impl Into<PathBuf>) -> Self {
        Self {
            worker,
            session: SessionId::random(),
            queue,
            capacity,
            dir: dir.into(),
            host: "localhost".into(),
            keeper: None,
            cpu_limit: CpuLimit::Accounted,
            limits: Limits::default(),
            idle_end: None,
        }
    }
}

/// Whether a task is held to the cpus it asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuLimit {
    /// They decide how many tasks run together, nothing else.
    #[default]
    Accounted,
    /// The kernel throttles a task that uses more, where cgroups allow it.
    Enforced,
}

/// The bounds of one worker.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub beat_every: Duration,
    /// Bytes kept of each output stream.
    pub output_bytes_max: u64,
    /// Processes running at once, whatever the capacity.
    pub processes_max: usize,
    /// Parcels the broker may send ahead.
    pub credit_parcels: u32,
    /// Reports that may wait to leave before no further task is started.
    pub outbox_reports_max: usize,
    /// Bytes of output in those reports.
    pub outbox_bytes_max: usize,
    /// How long an ended task's outcome waits for its output to reach the blobs.
    pub upload_wait_max: Duration,
    /// From SIGTERM to SIGKILL when the worker itself must go now, however patient the task is.
    pub stop_grace_max: Duration,
    /// How long the last reports may take to leave once everything has stopped.
    pub goodbye_wait_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            beat_every: Duration::from_secs(2),
            output_bytes_max: OUTPUT_BYTES_MAX,
            processes_max: 1_024,
            credit_parcels: 2,
            outbox_reports_max: 8_192,
            outbox_bytes_max: 32 << 20,
            upload_wait_max: Duration::from_secs(30),
            stop_grace_max: Duration::from_secs(10),
            goodbye_wait_max: Duration::from_secs(10),
        }
    }
}
