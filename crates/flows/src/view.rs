//! How flows and runs look to whoever asks.

use mutirao_core::declared::Became;
use mutirao_core::{Problem, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::FlowSpec;
use crate::foreman::explaining::StepExplained;
use crate::foreman::words::RunEnd;
use crate::store::{FlowRow, RunRow};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FlowView {
    #[schema(value_type = Object)]
    pub definition: FlowSpec,
    pub revision: u64,
    #[schema(value_type = i64)]
    pub changed_at: Timestamp,
    pub changed_by: String,
}

impl From<FlowRow> for FlowView {
    fn from(row: FlowRow) -> Self {
        let FlowRow { spec, revision, changed_at, changed_by } = row;
        Self { definition: spec, revision, changed_at, changed_by }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FlowDeclared {
    pub name: String,
    pub became: Became,
    /// Steps that no node can be given at the moment, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    Done,
    Failed,
    Cancelled,
    TimedOut,
}

impl RunState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}

impl From<&RunEnd> for RunState {
    fn from(end: &RunEnd) -> Self {
        match end {
            RunEnd::Done => Self::Done,
            RunEnd::Failed { .. } => Self::Failed,
            RunEnd::Cancelled => Self::Cancelled,
            RunEnd::TimedOut => Self::TimedOut,
        }
    }
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunLine {
    pub run: u64,
    pub flow: String,
    pub state: RunState,
    pub owner: String,
    #[schema(value_type = i64)]
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub ended_at: Option<Timestamp>,
}

impl From<&RunRow> for RunLine {
    fn from(row: &RunRow) -> Self {
        Self {
            run: row.key.0,
            flow: row.flow.clone(),
            state: row.end.as_ref().map_or(RunState::Running, |(end, _)| RunState::from(end)),
            owner: row.owner.clone(),
            started_at: row.started_at,
            ended_at: row.end.as_ref().map(|(_, at)| *at),
        }
    }
}

/// A run with what its steps gave so far, and at its end what it gave itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunView {
    pub run: u64,
    pub flow: String,
    pub state: RunState,
    #[schema(value_type = i64)]
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub output: Option<Value>,
    /// Why it failed, and at which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_step: Option<String>,
    /// By name, those that have ended: output or reason, node, tries, time.
    #[schema(value_type = Object)]
    pub steps: Value,
}

impl RunView {
    /// Of a run whose flow this program cannot read.
    pub fn unreadable(line: RunLine, end: Option<RunEnd>, problem: Problem) -> Self {
        let RunLine { run, flow, state, started_at, ended_at, .. } = line;
        let (failed_step, why) = match end {
            Some(RunEnd::Failed { step, reason }) => (step, reason),
            _ => (None, format!("this program cannot read its flow: {}", problem.line())),
        };
        let took_ms = ended_at.map(|at| at.since(started_at).as_millis() as u64);
        let steps = Value::Object(Default::default());
        Self { run, flow, state, started_at, ended_at, took_ms, output: None, reason: Some(why), failed_step, steps }
    }
}

/// Where a run waits, and why its nodes were chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunExplained {
    pub run: u64,
    pub flow: String,
    pub state: RunState,
    /// Where it is looked after, when that is another manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned_at: Option<String>,
    pub steps: Vec<StepExplained>,
}
