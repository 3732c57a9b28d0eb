//! What an operator may turn.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct JobsSettings {
    /// A session that has not beaten for this long has lost what it held.
    pub lease: Duration,
    /// Tasks that may wait in all queues together; past it, submitting answers 429.
    pub waiting_max: u64,
    /// How long a finished job is kept.
    pub keep: Duration,
    /// How long a parcel may lie in an empty broker queue before its tasks are handed out again.
    pub parcel_patience: Duration,
}

impl Default for JobsSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            waiting_max: 50_000_000,
            keep: Duration::from_secs(30 * 86_400),
            parcel_patience: Duration::from_secs(30),
        }
    }
}
