//! A flow that could work, compiled: what each step is given once those before it have ended. All of it is a function of the
//! run's input and of what earlier steps gave, so whoever reads these back from a store comes to the same.

use std::time::Duration;

use mutirao_expression::toll::BUDGET;
use mutirao_expression::{Expression, Sight, Stop};
use mutirao_nodes::ActionName;
use mutirao_nodes::routing::Place;
use mutirao_nodes::wire::MESSAGE_BYTES_MAX;
use serde_json::{Map, Value, json};

use crate::given::Given;
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
#[derive(Clone, Debug)]
pub enum Ended {
    Output(Given),
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
    pub input: &'a Given,
    pub steps: &'a [Option<Ended>],
}

/// How much may be looked at in one go, by somebody for whom others wait.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Of what is looked at, about what it takes as a text.
    pub bytes: usize,
    /// What an expression may spend.
    pub units: u64,
}

impl Pace {
    /// Whatever it takes: nobody waits.
    pub const WHOLE: Self = Self { bytes: usize::MAX, units: BUDGET };
    /// About a millisecond.
    pub const LIGHT: Self = Self { bytes: 16 << 10, units: 5_000 };
}

impl Plan {
    pub fn new(name: String, steps: Vec<Step>, output: Option<Expression>, timeout: Option<Duration>) -> Self {
        let last = (0..steps.len()).filter(|n| steps.iter().all(|step| !step.after.contains(n))).collect();
        Self { name, steps, output, timeout, last }
    }

    /// What a step turns out to be, or why nobody can tell.
    pub fn open(&self, number: usize, seen: Seen<'_>, pace: Pace) -> Result<Opening, Stop> {
        let step = &self.steps[number];
        let skipped = |earlier: &usize| matches!(seen.steps[*earlier], Some(Ended::Skipped));
        let failed = |place: &str, why: String| Stop::Failed(format!("{place}: {why}"));
        match &step.when {
            None if step.after.iter().any(skipped) => return Ok(Opening::Skipped),
            None => {}
            Some(when) => match at("when", self.evaluate(when, &step.after, seen, None, pace))? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(Opening::Skipped),
                other => {
                    return Err(failed("when", format!("it is {}, which is neither true nor false", short(&other))));
                }
            },
        }
        let Some(each) = &step.each else { return Ok(Opening::Once) };
        match at("each", self.evaluate(&each.of, &step.after, seen, None, pace))? {
            Value::Array(items) if items.len() > each.at_most => {
                let why = format!("{} items are more than at_most, which is {}", items.len(), each.at_most);
                Err(failed("each", why))
            }
            Value::Array(items) => Ok(Opening::Each(items)),
            other => Err(failed("each", format!("it is {}, which is no list", short(&other)))),
        }
    }

    /// What the action is given; `item`: which of a list. What is too much is not even put together: a step of a few lines
    /// may speak of one large output many times.
    pub fn input(
        &self,
        number: usize,
        seen: Seen<'_>,
        item: Option<(usize, &Value)>,
        pace: Pace,
    ) -> Result<Value, Stop> {
        let step = &self.steps[number];
        let mut room = Room::of(MESSAGE_BYTES_MAX);
        match &step.input {
            Input::Default => match (item, &step.after[..]) {
                (Some((_, item)), _) => room.take(item).map(|()| item.clone()).map_err(Stop::Failed),
                (None, []) => room.take(seen.input).map(|()| seen.input.value()).map_err(Stop::Failed),
                (None, earlier) => {
                    within(earlier.iter().filter_map(|one| output_in(seen, *one)), pace)?;
                    let mut outputs = earlier.iter().filter_map(|one| output_in(seen, *one));
                    outputs.try_for_each(|output| room.take(output)).map_err(Stop::Failed)?;
                    Ok(if let [one] = earlier { output_of(seen, *one) } else { self.by_name(earlier, seen) })
                }
            },
            Input::Whole(all) => {
                let whole = self.evaluate(all, &step.after, seen, item, pace);
                at("input", whole.and_then(|whole| room.take(&whole).map(|()| whole).map_err(Stop::Failed)))
            }
            Input::Fields(fields) => {
                let mut field = |(name, value): &(String, Expression)| {
                    let value = self.evaluate(value, &step.after, seen, item, pace);
                    let value = value.and_then(|value| room.take(&value).map(|()| value).map_err(Stop::Failed));
                    Ok((name.clone(), at(&format!("input.{name}"), value)?))
                };
                fields.iter().map(&mut field).collect::<Result<Map<_, _>, Stop>>().map(Value::Object)
            }
        }
    }

    /// What a run gives back once all its steps have ended.
    pub fn output(&self, seen: Seen<'_>, pace: Pace) -> Result<Value, Stop> {
        let all: Vec<usize> = (0..self.steps.len()).collect();
        if let Some(output) = &self.output {
            return at("output", self.evaluate(output, &all, seen, None, pace));
        }
        within(self.last.iter().filter_map(|one| output_in(seen, *one)), pace)?;
        Ok(if let [one] = self.last[..] { output_of(seen, one) } else { self.by_name(&self.last, seen) })
    }

    fn by_name(&self, numbers: &[usize], seen: Seen<'_>) -> Value {
        let named = numbers.iter().map(|number| (self.steps[*number].name.clone(), output_of(seen, *number)));
        Value::Object(named.collect())
    }

    /// It sees only what it speaks of: the rest may be large, and each item of a list is looked at by itself.
    fn evaluate(
        &self,
        expression: &Expression,
        after: &[usize],
        seen: Seen<'_>,
        item: Option<(usize, &Value)>,
        pace: Pace,
    ) -> Result<Value, Stop> {
        let speaks_of = |name: &str| expression.names().contains(name);
        let spoken_of = expression.members_of("steps").unwrap_or_default();
        let numbers: Vec<usize> =
            after.iter().copied().filter(|number| spoken_of.contains(&self.steps[*number].name)).collect();
        let input = Some(seen.input).filter(|_| speaks_of("input"));
        within(input.into_iter().chain(numbers.iter().filter_map(|number| output_in(seen, *number))), pace)?;
        let named: Vec<(String, &Sight)> = numbers
            .iter()
            .map(|number| {
                let sight = match output_in(seen, *number) {
                    Some(given) => given.sight(),
                    None => Given::skipped(),
                };
                (format!("steps.{}", self.steps[*number].name), sight)
            })
            .collect();
        let mut shared: Vec<(&str, &Sight)> = named.iter().map(|(name, sight)| (name.as_str(), *sight)).collect();
        shared.extend(input.map(|input| ("input", input.sight())));
        // For whoever asks whether there is such a step.
        let steps: Map<String, Value> =
            numbers.iter().map(|number| (self.steps[*number].name.clone(), Value::Null)).collect();
        let steps = Sight::of(&Value::Object(steps));
        shared.push(("steps", &steps));
        let index = json!(item.map(|(index, _)| index));
        let own: Vec<(&str, &Value)> = item
            .iter()
            .flat_map(|(_, item)| [("item", *item), ("index", &index)])
            .filter(|one| speaks_of(one.0))
            .collect();
        expression.evaluate_at(&shared, &own, pace.units)
    }
}

/// Where it stopped.
fn at<T>(place: &str, came: Result<T, Stop>) -> Result<T, Stop> {
    came.map_err(|stop| match stop {
        Stop::Costly => Stop::Costly,
        Stop::Failed(why) => Stop::Failed(format!("{place}: {why}")),
    })
}

fn within<'g>(all: impl Iterator<Item = &'g Given>, pace: Pace) -> Result<(), Stop> {
    let bytes = all.map(Given::bytes).fold(0, usize::saturating_add);
    if bytes > pace.bytes { Err(Stop::Costly) } else { Ok(()) }
}

fn output_of(seen: Seen<'_>, number: usize) -> Value {
    output_in(seen, number).map(Given::value).unwrap_or_default()
}

fn output_in<'s>(seen: Seen<'s>, number: usize) -> Option<&'s Given> {
    match &seen.steps[number] {
        Some(Ended::Output(given)) => Some(given),
        Some(Ended::Skipped) | None => None,
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}
