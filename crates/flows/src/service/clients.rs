//! What nodes give back, and what clients of the wire ask for.

use async_trait::async_trait;
use mutirao_core::Problem;
use mutirao_core::auth::DEFAULT_NAMESPACE;
use mutirao_nodes::errand::{Returned, Taker};
use mutirao_nodes::wire::{TEXT_CHARS_MAX, TaskRequest};
use mutirao_nodes::{ActionName, NodeId};
use mutirao_store::refused;
use serde_json::json;

use super::Flows;
use crate::foreman::words::RunKey;
use crate::post::Word;
use crate::start::{INPUT_BYTES_MAX, RunRequest};
use crate::store::{By, NewRun};
use crate::view::RunState;
use crate::{answer, returns, wire};

/// The status of a key that was used for something else.
const CONFLICT: u16 = 409;
/// Who owns what the wire asks for.
const OWNER: &str = "wire";

/// Whoever may ask on the wire need not be let in by the API: what is done with the manager's rights is not for it.
fn may_be_asked_for(action: &ActionName) -> bool {
    !action.short().starts_with("builtin.") || matches!(action.short(), "builtin.cel" | "builtin.aggregate")
}

impl Flows {
    /// Who used an id twice waits for an answer, and has none but this.
    async fn refuse(&self, task: &TaskRequest) -> Result<(), Problem> {
        let reason = format!("the id {} was used for another task already; give each task an id of its own", task.id);
        self.0.bench.reach.answer(wire::answer_of(task, &json!({"state": "refused", "reason": reason}))).await
    }

    async fn answer_again(&self, run: u64, task: &TaskRequest) -> Result<(), Problem> {
        let found = self.0.store.read(vec![RunKey(run)]).await.map_err(refused)?;
        let Some(record) = found.into_iter().next() else { return Ok(()) };
        let Some((end, at)) = record.row.end.clone() else { return Ok(()) };
        let of = task.clone();
        let text = self.unfolded(record, move |run| wire::answer_of(&of, &answer::of(run, &end, at))).await?;
        self.0.bench.reach.answer(text).await
    }
}

#[async_trait]
impl Taker for Flows {
    async fn returned(&self, returned: Returned) -> Result<(), Problem> {
        returns::bring(&self.0.bench, returned).await
    }

    /// A Task that comes again, as it may, is the run that it was.
    async fn asked(&self, task: TaskRequest) -> Result<(), Problem> {
        if !(1..=TEXT_CHARS_MAX).contains(&task.id.len()) || task.id.chars().any(char::is_control) {
            return Err(Problem::invalid("id", "it has no characters, too many, or some that nobody can see"));
        }
        let spec = wire::flow_of(&task);
        let (plan, catalogue) = (self.0.bench.plans.of(&spec).await?, self.0.bench.reach.catalogue());
        if let Some(step) = plan.steps.iter().find(|step| !catalogue.contains(&step.action)) {
            return Err(Problem::invalid("target_actions", format!("no node has {}", step.action)));
        }
        if let Some(step) = plan.steps.iter().find(|step| !may_be_asked_for(&step.action)) {
            let detail =
                format!("{} works with the manager's own rights, and is not for clients of the wire", step.action);
            return Err(Problem::invalid("target_actions", detail)
                .remedy("declare a flow that has it, and let that be run through the API"));
        }
        if task.message_data.len() > INPUT_BYTES_MAX {
            return Err(Problem::invalid("message_data", format!("more than {INPUT_BYTES_MAX} bytes")));
        }
        let input = wire::data_of(&task.message_data);
        let by = By { namespace: DEFAULT_NAMESPACE.into(), who: OWNER.into(), at: self.0.clock.now() };
        let request = RunRequest { flow: task.task_id.clone(), input: input.clone(), idempotency_key: None };
        let asked = Some((format!("wire:{}", task.id), request.fingerprint()));
        let line = match self.begin(NewRun { by, spec, input, asked, reply: Some(task.clone()) }).await {
            Ok(line) => line,
            Err(problem) if problem.status == CONFLICT => return self.refuse(&task).await,
            Err(problem) => return Err(problem),
        };
        match line.state {
            RunState::Running => Ok(()),
            // Asked for again: its answer may have been missed.
            _ => self.answer_again(line.run, &task).await,
        }
    }

    fn lost(&self, node: &NodeId) {
        for door in self.0.bench.doors.all() {
            // A post that is too busy to hear of it finds out by their timeouts.
            let _ = door.try_send(Word::Lost(node.clone()));
        }
    }
}
