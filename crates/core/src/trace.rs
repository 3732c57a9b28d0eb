//! Traces: which requests are followed on their way, and what is told about each step of it.
//!
//! A job's trace is a text that travels with its tasks. Plain, 32 hex digits, it only names the request in logs. With a
//! span behind it, `<32 hex>-<16 hex>`, the request is *followed*: whoever does a step for it tells a [`Span`]. Whether to
//! follow is decided once, where the request comes in; the others look at the text. The spans of a task have ids that
//! follow from the trace, the step and the attempt, so that processes need not tell each other.
//!
//! Where spans go is not known here ([`listen`]); while nobody listens nothing is followed.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::Timestamp;
use crate::id::{Attempt, TaskKey};

const TRACE_DIGITS: usize = 32;
const SPAN_DIGITS: usize = 16;
const FOLLOWED_BYTES: usize = TRACE_DIGITS + 1 + SPAN_DIGITS;

/// A trace that is followed, and the span under which the next step belongs. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    pub trace: u128,
    pub parent: u64,
}

impl fmt::Display for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:016x}", self.trace, self.parent)
    }
}

/// The text is not that of a followed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFollowed;

impl FromStr for Followed {
    type Err = NotFollowed;

    /// Quick for those that are not followed, which are nearly all.
    fn from_str(text: &str) -> Result<Self, NotFollowed> {
        if text.len() != FOLLOWED_BYTES {
            return Err(NotFollowed);
        }
        let (trace, parent) = text.split_once('-').ok_or(NotFollowed)?;
        let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
        match (u128::from_str_radix(trace, 16), u64::from_str_radix(parent, 16)) {
            (Ok(trace_id), Ok(parent_id)) if hex(trace) && hex(parent) && trace_id != 0 => {
                Ok(Self { trace: trace_id, parent: parent_id })
            }
            _ => Err(NotFollowed),
        }
    }
}

impl Followed {
    /// The id of a step of a task's way.
    pub fn step(&self, step: Step, task: TaskKey, attempt: Attempt) -> u64 {
        let told = format!("{:032x} {} {task} {attempt}", self.trace, step.as_str());
        let digest = Sha256::digest(told.as_bytes());
        u64::from_be_bytes(std::array::from_fn(|n| digest[n])).max(1)
    }

    /// As a W3C `traceparent`, for those who come after this span.
    pub fn traceparent(&self, span: u64) -> String {
        format!("00-{:032x}-{span:016x}-01", self.trace)
    }
}

/// The name of a trace, without what follows it.
pub fn name_of(text: &str) -> &str {
    text.get(..TRACE_DIGITS).unwrap_or(text)
}

/// The steps of a task's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Dispatch,
    Run,
    Settle,
}

impl Step {
    pub fn as_str(self) -> &'static str {
        match self {
            Step::Dispatch => "dispatch",
            Step::Run => "run",
            Step::Settle => "settle",
        }
    }
}

/// One step, once it is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace: u128,
    pub id: u64,
    /// Zero for none.
    pub parent: u64,
    pub name: &'static str,
    pub began_at: Timestamp,
    pub took: Duration,
    pub notes: Vec<(&'static str, String)>,
    /// Why it failed, if it did.
    pub failed: Option<String>,
}

/// Whoever takes spans. Must not wait.
pub trait Listener: Send + Sync {
    fn hear(&self, span: Span);
}

struct Listening {
    listener: Box<dyn Listener>,
    /// Of requests whose callers do not say whether to follow them, the share that is.
    share: f64,
}

static LISTENING: OnceLock<Listening> = OnceLock::new();

/// Begins following. Once per process; a second listener is not heard of.
pub fn listen(listener: Box<dyn Listener>, share: f64) {
    let _ = LISTENING.set(Listening { listener, share });
}

/// Whether a request that comes in without a wish is to be followed. Trace ids are random, so they decide.
pub fn chooses(trace: u128) -> bool {
    let unit = (trace as u64 >> 11) as f64 / (1u64 << 53) as f64;
    LISTENING.get().is_some_and(|listening| unit < listening.share)
}

pub fn is_listening() -> bool {
    LISTENING.get().is_some()
}

pub fn tell(span: Span) {
    if let Some(listening) = LISTENING.get() {
        listening.listener.hear(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobKey;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn only_a_trace_with_a_span_is_followed() {
        let followed: Followed = format!("{TRACE}-00f067aa0ba902b7").parse().unwrap();
        assert_eq!(followed.to_string(), format!("{TRACE}-00f067aa0ba902b7"));
        assert_eq!(followed.traceparent(7), format!("00-{TRACE}-0000000000000007-01"));
        for plain in ["", TRACE, &format!("{TRACE}-+0f067aa0ba902b7"), &format!("{:032}-{:016}", 0, 1), &"-".repeat(49)]
        {
            assert_eq!(plain.parse::<Followed>(), Err(NotFollowed), "{plain}");
        }
        assert_eq!((name_of(&followed.to_string()), name_of(TRACE), name_of("x")), (TRACE, TRACE, "x"));
    }

    #[test]
    fn whoever_knows_the_attempt_knows_its_spans() {
        let followed: Followed = format!("{TRACE}-0000000000000001").parse().unwrap();
        let task = TaskKey { job: JobKey(1), index: 2 };
        let id = |step, n| followed.step(step, task, Attempt { generation: 1, n });
        assert_eq!(id(Step::Run, 1), id(Step::Run, 1));
        assert_ne!(id(Step::Run, 1), id(Step::Run, 2));
        assert_ne!(id(Step::Run, 1), id(Step::Dispatch, 1));
    }

    #[test]
    fn nothing_is_followed_while_nobody_listens() {
        assert!(!is_listening() && !chooses(1));
    }
}
