//! What a run gives back: one answer for all of it, with how each step went. Only of what is durable, so that an answer
//! that has to be given again is the same.

use mutirao_core::Timestamp;
use serde_json::{Map, Value, json};

use crate::foreman::run::{Item, Run, State};
use crate::foreman::words::{End, RunEnd, RunKey};
use crate::plan::{Ended, Pace};
use crate::view::RunState;

/// A run whose end is durable.
#[derive(Debug)]
pub struct Told {
    pub run: Run,
    pub end: RunEnd,
    pub at: Timestamp,
}

impl Told {
    pub fn key(&self) -> RunKey {
        self.run.admitted.key
    }

    /// Whether this may be done, and the run forgotten, by somebody for whom others wait.
    pub fn is_light(&self) -> bool {
        self.run.is_light(Pace::LIGHT)
    }

    pub fn answer(mut self) -> Value {
        self.run.unfold();
        of(&self.run, &self.end, self.at)
    }
}

pub fn of(run: &Run, end: &RunEnd, at: Timestamp) -> Value {
    let admitted = &run.admitted;
    let mut answer = json!({
        "run": admitted.key,
        "flow": admitted.plan.name,
        "state": RunState::from(end),
        "started_at": admitted.started_at,
        "ended_at": at,
        "took_ms": at.since(admitted.started_at).as_millis() as u64,
        "steps": steps(run),
    });
    match end {
        // It was had once already, or the run would have failed.
        RunEnd::Done => answer["output"] = admitted.plan.output(run.seen(), Pace::WHOLE).unwrap_or_default(),
        RunEnd::Failed { step, reason } => {
            answer["reason"] = json!(reason);
            answer["failed_step"] = json!(step);
        }
        RunEnd::Cancelled | RunEnd::TimedOut => {}
    }
    answer
}

/// Of a run that goes on: what of it is durable.
pub fn so_far(run: &Run) -> Value {
    let admitted = &run.admitted;
    json!({
        "run": admitted.key,
        "flow": admitted.plan.name,
        "state": RunState::Running,
        "started_at": admitted.started_at,
        "steps": steps(run),
    })
}

fn steps(run: &Run) -> Value {
    let mut steps = Map::new();
    for (n, step) in run.admitted.plan.steps.iter().enumerate() {
        let said = match (&run.ended[n], &run.open[n]) {
            (Some(Ended::Skipped), _) => json!({"state": "skipped"}),
            (_, None) => continue,
            (_, Some(open)) if open.list.is_some() => Value::Array(open.items.iter().map(task).collect()),
            (_, Some(open)) => open.items.first().map(task).unwrap_or_default(),
        };
        if !said.is_null() {
            steps.insert(step.name.clone(), said);
        }
    }
    Value::Object(steps)
}

/// Null for one that has not ended.
fn task(item: &Item) -> Value {
    let (State::Done, Some(outcome)) = (&item.state, &item.outcome) else { return Value::Null };
    let took_ms = outcome.ended_at.since(outcome.began_at).as_millis() as u64;
    let began_at = outcome.began_at;
    let mut said = json!({"tries": outcome.tries, "node": outcome.node, "began_at": began_at, "took_ms": took_ms});
    if let Some(why) = &outcome.why {
        said["why"] = json!(why);
    }
    match &outcome.end {
        End::Ok(output) => (said["state"], said["output"]) = (json!("ok"), Value::clone(output)),
        End::Failed(reason) => (said["state"], said["reason"]) = (json!("failed"), json!(reason)),
    }
    said
}
