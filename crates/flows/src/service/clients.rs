//! What nodes give back, and what clients of the wire ask for.

use async_trait::async_trait;
use mutirao_core::Problem;
use mutirao_core::auth::DEFAULT_NAMESPACE;
use mutirao_nodes::errand::{Returned, Taker};
use mutirao_nodes::wire::{TEXT_CHARS_MAX, TaskRequest};
use mutirao_nodes::{ActionName, NodeId};
use mutirao_store::refused;
use serde_json::{Value, json};

use super::Flows;
use crate::foreman::words::RunKey;
use crate::post::Word;
use crate::start::{INPUT_BYTES_MAX, RunRequest};
use crate::store::{Asked, By, NewRun};
use crate::view::{RunLine, RunState};
use crate::wire::Reply;
use crate::{answer, returns, wire};

/// The status of a key that was used for something else.
const CONFLICT: u16 = 409;
/// There is no room at the moment.
const BUSY: u16 = 429;
/// Who owns what the wire asks for.
const OWNER: &str = "wire";

/// Whoever may ask on the wire need not be let in by the API: what is done with the manager's rights is not for it.
fn may_be_asked_for(action: &ActionName) -> bool {
    !action.short().starts_with("builtin.") || matches!(action.short(), "builtin.cel" | "builtin.aggregate")
}

impl Flows {
    /// Whoever asked waits for an answer, and has none but this.
    async fn refuse(&self, of: &Reply, reason: &str) -> Result<(), Problem> {
        let text = wire::answer_of(&of.task, &json!({"state": "refused", "reason": reason}));
        self.0.bench.reach.answer(text, of.client.as_deref()).await
    }

    async fn answer_again(&self, run: u64, of: &Reply) -> Result<(), Problem> {
        let found = self.0.store.read(vec![RunKey(run)]).await.map_err(refused)?;
        let Some(record) = found.into_iter().next() else { return Ok(()) };
        let Some((end, at)) = record.row.end.clone() else { return Ok(()) };
        let task = of.task.clone();
        let text = self.unfolded(record, move |run| wire::answer_of(&task, &answer::of(run, &end, at))).await?;
        self.0.bench.reach.answer(text, of.client.as_deref()).await
    }
}

/// It would be refused again; anything else may pass.
fn is_refusal(problem: &Problem) -> bool {
    (400..500).contains(&problem.status) && problem.status != BUSY
}

impl Flows {
    async fn take_in(&self, reply: &Reply, input: Value, asked: Option<Asked>) -> Result<RunLine, Problem> {
        let task = &reply.task;
        let spec = wire::flow_of(task);
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
        let by = By { namespace: DEFAULT_NAMESPACE.into(), who: OWNER.into(), at: self.0.clock.now() };
        self.begin(NewRun { by, spec, input, asked, reply: Some(reply.clone()) }).await
    }
}

#[async_trait]
impl Taker for Flows {
    async fn returned(&self, returned: Returned) -> Result<(), Problem> {
        returns::bring(&self.0.bench, returned).await
    }

    /// A Task that comes again, as it may, is the run that it was.
    async fn asked(&self, task: TaskRequest, client: Option<&str>) -> Result<(), Problem> {
        if !(1..=TEXT_CHARS_MAX).contains(&task.id.len()) || task.id.chars().any(char::is_control) {
            return Err(Problem::invalid("id", "it has no characters, too many, or some that nobody can see"));
        }
        let input = wire::data_of(&task.message_data);
        let request = RunRequest { flow: task.task_id.clone(), input: input.clone(), idempotency_key: None };
        // Ids are a client's own, where it is known who asks; no name of one has a slash.
        let key = match client {
            Some(client) => format!("client:{client}/{}", task.id),
            None => format!("wire:{}", task.id),
        };
        let asked = Some((key, request.fingerprint()));
        let reply = Reply { task, client: client.map(str::to_owned) };
        let line = match self.take_in(&reply, input, asked.clone()).await {
            Ok(line) => Ok(line),
            // What was accepted once stays so, whatever would be said of it today.
            Err(problem) if is_refusal(&problem) => match self.asked_before(DEFAULT_NAMESPACE, &asked).await {
                Ok(before) => before.ok_or(problem),
                Err(used) => Err(used),
            },
            Err(problem) => Err(problem),
        };
        match line {
            Ok(line) if line.state == RunState::Running => Ok(()),
            // Asked for again: its answer may have been missed.
            Ok(line) => self.answer_again(line.run, &reply).await,
            Err(problem) if problem.status == CONFLICT => {
                let reason = "was used for another task already; give each task an id of its own";
                self.refuse(&reply, &format!("the id {} {reason}", reply.task.id)).await
            }
            Err(problem) if is_refusal(&problem) => {
                self.refuse(&reply, &problem.line()).await?;
                Err(problem)
            }
            Err(problem) => Err(problem),
        }
    }

    fn lost(&self, node: &NodeId) {
        for door in self.0.bench.doors.all() {
            // A post that is too busy to hear of it finds out by their timeouts.
            let _ = door.try_send(Word::Lost(node.clone()));
        }
    }
}
