//! A task: one run of an action with its input, the only unit that is dispatched.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exec::Exec;
use crate::limits::{CRASHES_MAX, RETRIES_MAX, SPEC_BYTES_MAX};
use crate::problem::Problem;
use crate::quantity::{Bytes, Cpus, Span};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    Exec(Exec),
    /// Does nothing, at once and well. For measuring everything else.
    Noop {},
}

impl Action {
    /// The action's name, as nodes announce it.
    pub fn urn(&self) -> &'static str {
        match self {
            Action::Exec(_) => "urn:mutirao:action:exec",
            Action::Noop {} => "urn:mutirao:action:noop",
        }
    }
}

/// What a task needs while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    #[schema(value_type = String, example = "500m")]
    #[serde(default = "one_cpu")]
    pub cpus: Cpus,
    /// Zero asks for none in particular and gets no limit.
    #[schema(value_type = String, example = "512M")]
    #[serde(default)]
    pub memory: Bytes,
}

fn one_cpu() -> Cpus {
    Cpus::ONE
}

impl Default for Needs {
    fn default() -> Self {
        Self { cpus: Cpus::ONE, memory: Bytes(0) }
    }
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Tries after the first, when a try failed or timed out.
    #[serde(default)]
    pub retries: u32,
    /// The wait before the first retry; it doubles each time, with jitter.
    #[schema(value_type = String, example = "1s")]
    #[serde(default = "first_wait")]
    pub backoff: Span,
    /// The longest wait between two tries.
    #[schema(value_type = String, example = "5m")]
    #[serde(default = "longest_wait")]
    pub backoff_max: Span,
    /// How often a task may lose its worker before it is given up as dead. Zero: one loss is final.
    #[serde(default = "crashes")]
    pub crashes: u32,
}

fn first_wait() -> Span {
    Span::secs(1)
}
fn longest_wait() -> Span {
    Span::secs(300)
}
fn crashes() -> u32 {
    CRASHES_MAX
}

impl Default for Retry {
    fn default() -> Self {
        Self { retries: 0, backoff: first_wait(), backoff_max: longest_wait(), crashes: crashes() }
    }
}

impl Retry {
    /// The wait after the `failures`-th failure, before jitter: doubling, bounded.
    pub fn wait(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        self.backoff.0.saturating_mul(1 << doublings).min(self.backoff_max.0)
    }
}

/// Everything about a task but which entry of its job it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    pub action: Action,
    #[serde(default)]
    pub needs: Needs,
    /// Absent: as its queue says, else no retries. A job that was accepted has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long one try may run; without it, for ever.
    #[schema(value_type = Option<String>, example = "10m")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// From SIGTERM to SIGKILL when time is up or the task is cancelled.
    #[schema(value_type = String, example = "5s")]
    #[serde(default = "grace")]
    pub grace: Span,
}

fn grace() -> Span {
    Span::secs(5)
}

impl TaskSpec {
    pub fn new(action: Action) -> Self {
        Self { action, needs: Needs::default(), retry: None, timeout: None, grace: grace() }
    }

    pub fn check(&self) -> Result<(), Problem> {
        if let Action::Exec(exec) = &self.action {
            exec.check().map_err(|p| p.under("action.exec"))?;
        }
        let bytes = serde_json::to_vec(self).map_or(0, |spec| spec.len());
        if bytes > SPEC_BYTES_MAX {
            return Err(Problem::invalid("", format!("the task is {bytes} bytes long, the most is {SPEC_BYTES_MAX}"))
                .remedy("put large inputs in files"));
        }
        if let Some(retry) = self.retry.filter(|retry| retry.retries > RETRIES_MAX) {
            let detail = format!("{} is too many, the most is {RETRIES_MAX}", retry.retries);
            return Err(Problem::invalid("retry.retries", detail));
        }
        if self.timeout.is_some_and(|t| t.0.is_zero()) {
            return Err(Problem::invalid("timeout", "is zero").remedy("leave it out for no limit"));
        }
        if self.grace.0 > Duration::from_secs(3600) {
            return Err(Problem::invalid("grace", format!("{} is too long, the most is 1h", self.grace)));
        }
        Ok(())
    }
}
