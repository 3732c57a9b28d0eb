//! What a try at a task gave back.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// How one try ended, as the worker (or, for `Lost`, the manager) saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    Failed,
    TimedOut,
    /// Stopped because somebody cancelled the task.
    Cancelled,
    /// Its worker vanished.
    Lost,
    /// The worker gave it back unfinished, because it was told to go home. Nobody's fault: it counts against no limit.
    Returned,
    /// The task is too big for the worker that took it; another may have room.
    Unfit,
    /// No worker can ever run it: an action nobody knows, an input that cannot be read.
    Refused,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Failed => "failed",
            Verdict::TimedOut => "timed_out",
            Verdict::Cancelled => "cancelled",
            Verdict::Lost => "lost",
            Verdict::Returned => "returned",
            Verdict::Unfit => "unfit",
            Verdict::Refused => "refused",
        }
    }
}

/// One output stream of a try.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Output {
    /// The last of it, up to [`crate::limits::TAIL_BYTES_MAX`]; all of it when `bytes` says no more.
    #[serde(default, with = "base64_bytes", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = String, format = Byte)]
    pub tail: Vec<u8>,
    /// How much the command wrote.
    #[serde(default)]
    pub bytes: u64,
    /// The stream was longer than what is kept, and was cut.
    #[serde(default)]
    pub truncated: bool,
    /// The stream is in blobs; the tail is only its end.
    #[serde(default)]
    pub in_blobs: bool,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

/// What a try cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Usage {
    #[serde(default)]
    pub wall_us: u64,
    #[serde(default)]
    pub cpu_user_us: u64,
    #[serde(default)]
    pub cpu_system_us: u64,
    /// The most memory it held. Absent where the kernel cannot tell it apart from the worker's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
}

impl Usage {
    pub fn wall(&self) -> Duration {
        Duration::from_micros(self.wall_us)
    }
}

/// The end of one try at a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The exit code, when the command ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why, in a line, when it is not plain from the rest: "no such program: foo".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Output::is_empty")]
    pub stdout: Output,
    #[serde(default, skip_serializing_if = "Output::is_empty")]
    pub stderr: Output,
    pub started_at: Timestamp,
    #[serde(default)]
    pub usage: Usage,
}

impl Outcome {
    pub fn new(verdict: Verdict, started_at: Timestamp) -> Self {
        Self {
            verdict,
            exit: None,
            signal: None,
            reason: None,
            stdout: Output::default(),
            stderr: Output::default(),
            started_at,
            usage: Usage::default(),
        }
    }

    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

mod base64_bytes {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        STANDARD.decode(text.as_bytes()).map_err(serde::de::Error::custom)
    }
}
