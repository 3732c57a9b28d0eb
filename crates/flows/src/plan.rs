//! A flow that could work, compiled: what each step is given once those before it have ended. All of it is a function of the
//! run's input and of what earlier steps gave, so whoever reads these back from a store comes to the same.

use std::time::Duration;

use mutirao_expression::{Expression, value_of};
use mutirao_nodes::ActionName;
use mutirao_nodes::routing::Place;
use mutirao_nodes::wire::MESSAGE_BYTES_MAX;
use serde_json::{Map, Value, json};

use crate::room::Room;

#[derive(Debug)]
pub struct Plan {
    pub name: String,
    pub steps: Vec<Step>,
    pub output: Option<Expression>,
    pub timeout: Option<Duration>,
    /// Steps that no other comes after.
    last: Vec<usize>,
}

#[derive(Debug)]
pub struct Step {
    pub name: String,
    pub action: ActionName,
    /// The numbers of those that come before it, in order.
    pub after: Vec<usize>,
    pub input: Input,
    pub when: Option<Expression>,
    pub each: Option<Each>,
    pub retries: u32,
    pub timeout: Duration,
    pub place: Place,
}

#[derive(Debug)]
pub struct Each {
    pub of: Expression,
    pub at_most: usize,
    pub at_once: usize,
}

#[derive(Debug)]
pub enum Input {
    /// What came before.
    Default,
    Whole(Expression),
    Fields(Vec<(String, Expression)>),
}

/// How a step ended, for those that come after it.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    Output(Value),
    Skipped,
}

/// What a step turns out to be once it may begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Opening {
    Skipped,
    Once,
    /// One task for each; maybe none.
    Each(Vec<Value>),
}

/// What is known when a step may begin: the run's input, and how those before it ended.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub input: &'a Value,
    pub steps: &'a [Option<Ended>],
}

impl Plan {
    pub fn new(name: String, steps: Vec<Step>, output: Option<Expression>, timeout: Option<Duration>) -> Self {
        let last = (0..steps.len()).filter(|n| steps.iter().all(|step| !step.after.contains(n))).collect();
        Self { name, steps, output, timeout, last }
    }

    /// What a step turns out to be, or why nobody can tell.
    pub fn open(&self, number: usize, seen: Seen<'_>) -> Result<Opening, String> {
        let step = &self.steps[number];
        let skipped = |earlier: &usize| seen.steps[*earlier] == Some(Ended::Skipped);
        match &step.when {
            None if step.after.iter().any(skipped) => return Ok(Opening::Skipped),
            None => {}
            Some(when) => match self.evaluate(when, &step.after, seen, None).map_err(|why| format!("when: {why}"))? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(Opening::Skipped),
                other => return Err(format!("when: it is {}, which is neither true nor false", short(&other))),
            },
        }
        let Some(each) = &step.each else { return Ok(Opening::Once) };
        match self.evaluate(&each.of, &step.after, seen, None).map_err(|why| format!("each: {why}"))? {
            Value::Array(items) if items.len() > each.at_most => {
                Err(format!("each: {} items are more than at_most, which is {}", items.len(), each.at_most))
            }
            Value::Array(items) => Ok(Opening::Each(items)),
            other => Err(format!("each: it is {}, which is no list", short(&other))),
        }
    }

    /// What the action is given; `item`: which of a list. What is too much is not even put together: a step of a few lines
    /// may speak of one large output many times.
    pub fn input(&self, number: usize, seen: Seen<'_>, item: Option<(usize, &Value)>) -> Result<Value, String> {
        let step = &self.steps[number];
        let mut room = Room::of(MESSAGE_BYTES_MAX);
        match &step.input {
            Input::Default => match (item, &step.after[..]) {
                (Some((_, item)), _) => room.take(item).map(|()| item.clone()),
                (None, []) => room.take(seen.input).map(|()| seen.input.clone()),
                (None, earlier) => {
                    earlier.iter().filter_map(|one| output_in(seen, *one)).try_for_each(|output| room.take(output))?;
                    Ok(if let [one] = earlier { output_of(seen, *one) } else { self.by_name(earlier, seen) })
                }
            },
            Input::Whole(all) => {
                let whole = self.evaluate(all, &step.after, seen, item);
                whole.and_then(|whole| room.take(&whole).map(|()| whole)).map_err(|why| format!("input: {why}"))
            }
            Input::Fields(fields) => {
                let field = |(name, value): &(String, Expression)| {
                    let value = self.evaluate(value, &step.after, seen, item);
                    let value = value.and_then(|value| room.take(&value).map(|()| value));
                    Ok((name.clone(), value.map_err(|why| format!("input.{name}: {why}"))?))
                };
                fields.iter().map(field).collect::<Result<Map<_, _>, String>>().map(Value::Object)
            }
        }
    }

    /// What a run gives back once all its steps have ended.
    pub fn output(&self, seen: Seen<'_>) -> Result<Value, String> {
        let all: Vec<usize> = (0..self.steps.len()).collect();
        match (&self.output, &self.last[..]) {
            (Some(output), _) => self.evaluate(output, &all, seen, None).map_err(|why| format!("output: {why}")),
            (None, [one]) => Ok(output_of(seen, *one)),
            (None, several) => Ok(self.by_name(several, seen)),
        }
    }

    fn by_name(&self, numbers: &[usize], seen: Seen<'_>) -> Value {
        let named = numbers.iter().map(|number| (self.steps[*number].name.clone(), output_of(seen, *number)));
        Value::Object(named.collect())
    }

    fn evaluate(
        &self,
        expression: &Expression,
        after: &[usize],
        seen: Seen<'_>,
        item: Option<(usize, &Value)>,
    ) -> Result<Value, String> {
        // Only what it speaks of: the rest may be large, and each item of a list is looked at by itself.
        let speaks_of = |name: &str| expression.names().contains(name);
        let mut names = Vec::new();
        if speaks_of("input") {
            names.push(("input", value_of(seen.input)));
        }
        if speaks_of("steps") {
            let spoken_of = expression.members_of("steps").unwrap_or_default();
            let numbers = after.iter().filter(|number| spoken_of.contains(&self.steps[**number].name));
            let steps = numbers.map(|number| {
                let skipped = seen.steps[*number] == Some(Ended::Skipped);
                (self.steps[*number].name.clone(), json!({"output": output_of(seen, *number), "skipped": skipped}))
            });
            names.push(("steps", value_of(&Value::Object(steps.collect()))));
        }
        if let Some((index, item)) = item {
            names.extend([("item", value_of(item)), ("index", value_of(&json!(index)))]);
        }
        expression.evaluate(names)
    }
}

fn output_of(seen: Seen<'_>, number: usize) -> Value {
    output_in(seen, number).cloned().unwrap_or_default()
}

fn output_in<'s>(seen: Seen<'s>, number: usize) -> Option<&'s Value> {
    match &seen.steps[number] {
        Some(Ended::Output(value)) => Some(value),
        Some(Ended::Skipped) | None => None,
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}
