//! What a run or one of its steps was given or gave: kept once, and shared by all that look at it. Expressions see it as
//! values of theirs, which are made when the first of them asks: of a large one that takes far longer than looking at it.

use std::sync::{Arc, LazyLock, OnceLock};

use mutirao_expression::Sight;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Clones share it.
#[derive(Clone, Debug)]
pub struct Given(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    what: What,
    /// About what it takes as a text.
    bytes: usize,
    sight: OnceLock<Sight>,
}

#[derive(Debug)]
enum What {
    /// To the run.
    Input(Value),
    /// By a step.
    Output(Arc<Value>),
    /// By a step that was done for each of a list.
    Outputs(Vec<Arc<Value>>),
}

static SKIPPED: LazyLock<Sight> = LazyLock::new(|| Sight::of(&json!({"output": null, "skipped": true})));

impl Given {
    pub fn input(value: Value, bytes: usize) -> Self {
        Self::new(What::Input(value), bytes)
    }

    pub fn output(value: Arc<Value>, bytes: usize) -> Self {
        Self::new(What::Output(value), bytes)
    }

    pub fn outputs(values: Vec<Arc<Value>>, bytes: usize) -> Self {
        Self::new(What::Outputs(values), bytes)
    }

    fn new(what: What, bytes: usize) -> Self {
        Self(Arc::new(Inner { what, bytes, sight: OnceLock::new() }))
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    pub fn value(&self) -> Value {
        match &self.0.what {
            What::Input(value) => value.clone(),
            What::Output(value) => Value::clone(value),
            What::Outputs(values) => values.iter().map(|value| Value::clone(value)).collect(),
        }
    }

    /// As expressions see it: the run's input as it is, a step as what it gave and whether it was skipped.
    pub fn sight(&self) -> &Sight {
        let step = |output| Sight::map([("output", output), ("skipped", Sight::of(&Value::Bool(false)))]);
        self.0.sight.get_or_init(|| match &self.0.what {
            What::Input(value) => Sight::of(value),
            What::Output(value) => step(Sight::of(value)),
            What::Outputs(values) => step(Sight::list(values.iter().map(|value| &**value))),
        })
    }

    /// Of a step that was skipped.
    pub fn skipped() -> &'static Sight {
        &SKIPPED
    }
}

/// As the text would be.
impl Serialize for Given {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.what {
            What::Input(value) => value.serialize(serializer),
            What::Output(value) => value.serialize(serializer),
            What::Outputs(values) => serializer.collect_seq(values.iter().map(|value| &**value)),
        }
    }
}
