//! A run in the words of workers and clients out there: their Task becomes a flow of steps one after the other, a step
//! travels as a Message, and one answer goes back.

use hmac::{Hmac, KeyInit, Mac};
use mutirao_core::id::Attempt;
use mutirao_nodes::wire::{Message, TaskRequest, written};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::FlowSpec;
use crate::definition::StepSpec;
use crate::foreman::words::{RunKey, StepKey};

/// A Task that is to be answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    #[serde(flatten)]
    pub task: TaskRequest,
    /// Who asked, and is told; none: all clients are, since they are not told apart where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

const NAME_CHARS_MAX: usize = 64;
/// Of a request's id. Whoever would guess it has to ask a manager each time.
const SEAL_BYTES: usize = 8;

/// Each action is given what the one before it gave, the first what the client sent.
pub fn flow_of(task: &TaskRequest) -> FlowSpec {
    let last = task.task_id.rsplit(':').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    let mut name: String = last.chars().take(NAME_CHARS_MAX).map(plain).collect();
    if name.is_empty() {
        name = "task".into();
    }
    let step = |(n, action): (usize, &String)| {
        let mut step = StepSpec::new(format!("s{}", n + 1), action);
        step.after = (n > 0).then(|| format!("s{n}")).into_iter().collect();
        step
    };
    let steps = task.target_actions.iter().enumerate().map(step).collect();
    FlowSpec { name, timeout: None, steps, output: None }
}

/// What a text holds: JSON, or else the text itself, as small devices answer.
pub fn data_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.into()))
}

/// What goes back: for one action the result as it came, for several the task with everything in it.
pub fn answer_of(task: &TaskRequest, answer: &Value) -> String {
    if let [action] = &task.target_actions[..] {
        let data = match answer["state"].as_str() {
            Some("done") => answer["output"].to_string(),
            _ => json!({"error": answer["reason"], "state": answer["state"]}).to_string(),
        };
        return written(&Message { action: action.clone(), request: task.id.clone(), data });
    }
    written(&TaskRequest {
        id: task.id.clone(),
        task_id: task.task_id.clone(),
        target_actions: task.target_actions.clone(),
        message_data: answer.to_string(),
        created_at: task.created_at.or_else(|| answer["started_at"].as_i64()),
        processing_time: answer["took_ms"].as_i64(),
    })
}

/// By what a result finds back to its task, whoever owns the run by then: `sreq.17.2.0.5-1.` and a seal, by which a manager
/// knows that it was given to somebody: who did not get the task cannot answer for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    pub key: StepKey,
    pub attempt: Attempt,
}

/// What request ids are sealed with: the same for all managers of an installation, and nobody else's.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

/// It is not one that we gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request's id is none that was given")]
pub struct NotOurs;

impl RequestId {
    pub fn sealed(&self, secret: &Secret) -> String {
        let open = format!("sreq.{}.{}", self.key, self.attempt);
        let seal = seal(&open, secret);
        format!("{open}.{seal}")
    }

    pub fn unsealed(text: &str, secret: &Secret) -> Result<Self, NotOurs> {
        let (open, shown) = text.rsplit_once('.').ok_or(NotOurs)?;
        if !bool::from(seal(open, secret).as_bytes().ct_eq(shown.as_bytes())) {
            return Err(NotOurs);
        }
        let parts: Vec<&str> = open.split('.').collect();
        let ["sreq", run, step, item, attempt] = parts[..] else { return Err(NotOurs) };
        let (generation, n) = attempt.split_once('-').ok_or(NotOurs)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| NotOurs);
        let small = |text: &str| text.parse::<u32>().map_err(|_| NotOurs);
        let key = StepKey { run: RunKey(number(run)?), step: small(step)?, item: small(item)? };
        Ok(Self { key, attempt: Attempt { generation: number(generation)?, n: small(n)? } })
    }
}

fn seal(open: &str, secret: &Secret) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("a key of any length will do");
    mac.update(open.as_bytes());
    mac.finalize().into_bytes().iter().take(SEAL_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use mutirao_nodes::Namespace;
    use proptest::prelude::*;

    use super::*;
    use crate::definition::check::Catalogue;

    fn task(actions: &[&str]) -> TaskRequest {
        TaskRequest {
            id: "streq-1".into(),
            task_id: "urn:sapparchi:Task:infer.fator/1".into(),
            target_actions: actions.iter().map(|name| format!("urn:sapparchi:Action:{name}")).collect(),
            message_data: r#"{"url":"x"}"#.into(),
            created_at: Some(5),
            processing_time: Some(0),
        }
    }

    #[test]
    fn a_task_of_the_document_becomes_steps_one_after_the_other() {
        let spec = flow_of(&task(&["actions.a", "actions.b", "actions.c"]));
        assert_eq!(spec.name, "infer-fator-1");
        let plan = spec.plan(&"sapparchi".parse::<Namespace>().unwrap(), Catalogue::Unknown).unwrap();
        let after: Vec<Vec<usize>> = plan.steps.iter().map(|step| step.after.clone()).collect();
        assert_eq!(after, [vec![], vec![0], vec![1]]);
        assert!(plan.steps.iter().all(|step| step.retries == 3 && step.timeout.as_secs() == 30));
        assert_eq!(data_of(r#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(data_of("plain words"), json!("plain words"));
    }

    #[test]
    fn one_action_is_answered_with_its_result_and_several_with_the_task() {
        let done = json!({"state": "done", "output": {"v": 1}, "took_ms": 7, "started_at": 3, "steps": {}});
        assert_eq!(
            answer_of(&task(&["a"]), &done),
            r#"{"actionTo":"urn:sapparchi:Action:a","requestID":"streq-1","messageData":"{\"v\":1}"}"#
        );
        let failed = json!({"state": "failed", "reason": "no"});
        assert!(answer_of(&task(&["a"]), &failed).contains(r#"{\"error\":\"no\",\"state\":\"failed\"}"#));
        let several: TaskRequest = serde_json::from_str(&answer_of(&task(&["a", "b"]), &done)).unwrap();
        assert_eq!((several.id.as_str(), several.created_at, several.processing_time), ("streq-1", Some(5), Some(7)));
        assert_eq!(serde_json::from_str::<Value>(&several.message_data).unwrap(), done);
    }

    proptest! {
        #[test]
        fn a_request_id_finds_back_to_its_task(run: u64, step: u32, item: u32, generation: u64, n: u32) {
            let id = RequestId { key: StepKey { run: RunKey(run), step, item }, attempt: Attempt { generation, n } };
            let text = id.sealed(&Secret([7; 32]));
            prop_assert_eq!(RequestId::unsealed(&text, &Secret([7; 32])), Ok(id));
            prop_assert_eq!(RequestId::unsealed(&text, &Secret([8; 32])), Err(NotOurs));
            prop_assert!(text.len() < 128);
        }

        #[test]
        fn ids_that_nobody_was_given_are_refused(text in "(sreq)?[.0-9a-f-]{0,40}") {
            prop_assert_eq!(RequestId::unsealed(&text, &Secret([7; 32])), Err(NotOurs));
        }
    }
}
