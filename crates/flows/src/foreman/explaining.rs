//! Where a run waits, and why each node was chosen, for people who ask.

use mutirao_core::{Mono, Timestamp};
use mutirao_nodes::NodeId;
use serde::{Deserialize, Serialize};

use super::run::{Item, Phase, Run, State};
use super::words::{End, RunKey, StepKey};
use super::{Foreman, Out};
use crate::plan::Ended;

/// Tasks of one list that are told of.
const ITEMS_TOLD: usize = 20;

/// What a step is at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StepExplained {
    pub step: String,
    /// Which of its list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    #[serde(flatten)]
    pub at: At,
    /// How often it was tried in vain, and why the last time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum At {
    /// For steps that have not ended.
    After {
        waits_for: Vec<String>,
    },
    /// For others of its list to end.
    Turn,
    /// For a node that has it and has room.
    Node {
        why: String,
    },
    /// To be sent; or its pause is not over.
    Ready,
    Sent {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        node: Option<NodeId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        #[schema(value_type = i64)]
        since: Timestamp,
        /// Until it is given up and tried again.
        left_ms: u64,
    },
    /// For what came of it to be durable.
    Writing,
    Done {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        node: Option<NodeId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    Failed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        node: Option<NodeId>,
        reason: String,
    },
    Skipped,
    /// It has begun and not ended, as far as the store says; its owner knows more.
    Open,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Foreman {
    /// None: it is not known here, or has ended.
    pub fn explain(&self, run: RunKey, now: Mono) -> Option<Vec<StepExplained>> {
        let run = self.runs.get(&run).filter(|run| run.phase == Phase::Going)?;
        Some(steps(run, |key, item| at(item, self.outs.get(&key), now)))
    }
}

/// Of a run as the store has it.
pub fn from_store(run: &Run) -> Vec<StepExplained> {
    steps(run, |_, item| ended(item).unwrap_or(At::Open))
}

fn steps(run: &Run, at: impl Fn(StepKey, &Item) -> At) -> Vec<StepExplained> {
    let plan = run.admitted.plan.clone();
    let mut told = Vec::new();
    for (n, step) in plan.steps.iter().enumerate() {
        let of_step = |at: At| StepExplained { step: step.name.clone(), item: None, at, tries: 0, last_reason: None };
        let Some(open) = &run.open[n] else {
            let open = |earlier: &&usize| run.ended[**earlier].is_none();
            let waits_for = step.after.iter().filter(open).map(|earlier| plan.steps[*earlier].name.clone()).collect();
            told.push(of_step(match run.ended[n] {
                Some(Ended::Skipped) => At::Skipped,
                Some(Ended::Output(_)) => At::Done { node: None, why: None },
                None => At::After { waits_for },
            }));
            continue;
        };
        // Those that have not ended are what one asks for.
        let (ended, going): (Vec<_>, Vec<_>) =
            open.items.iter().enumerate().partition(|(_, item)| matches!(item.state, State::Done));
        for (i, item) in going.into_iter().chain(ended).take(ITEMS_TOLD) {
            let key = StepKey { run: run.admitted.key, step: n as u32, item: i as u32 };
            let item_number = open.list.is_some().then_some(i as u32);
            let (tries, last_reason) = (item.tries, item.last_reason.clone());
            told.push(StepExplained { item: item_number, tries, last_reason, ..of_step(at(key, item)) });
        }
    }
    told
}

fn at(item: &Item, out: Option<&Out>, now: Mono) -> At {
    match (&item.state, out) {
        (State::Unsent, _) => At::Turn,
        (State::Ready, _) => item.waits_for.clone().map_or(At::Ready, |why| At::Node { why }),
        (State::Out(_), Some(out)) => At::Sent {
            node: out.node.clone(),
            why: out.why.clone(),
            since: out.began_at,
            left_ms: out.overdue.0.since(now).as_millis() as u64,
        },
        (State::Out(_), None) | (State::Decided { .. }, _) => At::Writing,
        (State::Done, _) => ended(item).unwrap_or(At::Writing),
    }
}

fn ended(item: &Item) -> Option<At> {
    let outcome = item.outcome.as_ref().filter(|_| matches!(item.state, State::Done))?;
    let node = outcome.node.clone();
    Some(match &outcome.end {
        End::Ok(_) => At::Done { node, why: outcome.why.clone() },
        End::Failed(reason) => At::Failed { node, reason: reason.clone() },
    })
}
