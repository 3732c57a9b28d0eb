//! A list of tasks in JSON, read one by one, so that a million take no more memory than they are, and a bad one is named.

use std::fmt;

use mutirao_core::job::Variation;
use serde::Deserializer;
use serde::de::{Error, SeqAccess, Visitor};

#[derive(Debug, thiserror::Error)]
pub enum BadTasks {
    #[error("is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("is not a list of tasks: {0}; write it like [{{\"command\": [\"echo\", \"hello\"]}}]")]
    NotTasks(serde_json::Error),
}

pub fn read(text: &str) -> Result<Vec<Variation>, BadTasks> {
    let mut from = serde_json::Deserializer::from_str(text);
    let tasks = from.deserialize_seq(Tasks).and_then(|tasks| from.end().map(|()| tasks));
    tasks.map_err(|error| if error.is_data() { BadTasks::NotTasks(error) } else { BadTasks::NotJson(error) })
}

struct Tasks;

impl<'de> Visitor<'de> for Tasks {
    type Value = Vec<Variation>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut tasks = Vec::new();
        loop {
            // As people count them.
            let place = tasks.len() + 1;
            match items.next_element() {
                Ok(Some(task)) => tasks.push(task),
                Ok(None) => return Ok(tasks),
                Err(error) => return Err(A::Error::custom(format!("task {place}: {error}"))),
            }
        }
    }
}
