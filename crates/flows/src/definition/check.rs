//! Whether a flow could work: from its definition to a [`Plan`], or to what is wrong and where.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mutirao_core::Problem;
use mutirao_expression::Expression;
use mutirao_nodes::wire::Parameters;
use mutirao_nodes::{ActionName, Namespace};

use super::{AT_ONCE_MAX, FIELDS_MAX, FlowSpec, ITEMS_MAX, Mapping, RETRIES_MAX, STEPS_MAX, StepSpec};
use crate::plan::{Each, Input, Plan, Step};

const NAME_CHARS_MAX: usize = 64;
const LABELS_MAX: usize = 8;
pub const TRY_MAX: Duration = Duration::from_secs(86_400);

/// The actions that there are; `Unknown` when nobody can tell yet.
#[derive(Clone, Copy, Debug)]
pub enum Catalogue<'a> {
    Known(&'a BTreeSet<ActionName>),
    Unknown,
}

impl FlowSpec {
    /// Refuses what could not work: each refusal names its place, and what was likely meant.
    pub fn plan(&self, namespace: &Namespace, catalogue: Catalogue<'_>) -> Result<Plan, Problem> {
        name("name", &self.name)?;
        if self.steps.is_empty() || self.steps.len() > STEPS_MAX {
            return Err(Problem::invalid("steps", format!("{} are not between 1 and {STEPS_MAX}", self.steps.len())));
        }
        if self.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
            return Err(Problem::invalid("timeout", "no run ends in no time").remedy("write a time like 10m"));
        }
        let mut numbers = BTreeMap::new();
        for (n, step) in self.steps.iter().enumerate() {
            name(&format!("steps[{n}].name"), &step.name)?;
            if let Some(first) = numbers.insert(step.name.as_str(), n) {
                let detail = format!("\"{}\" is the name of steps[{first}] too", step.name);
                return Err(Problem::invalid(&format!("steps[{n}].name"), detail));
            }
        }
        let steps = self.steps.iter().enumerate();
        let steps = steps
            .map(|(n, step)| {
                planned(step, &numbers, namespace, catalogue).map_err(|problem| problem.under(&format!("steps[{n}]")))
            })
            .collect::<Result<Vec<Step>, Problem>>()?;
        straight(&steps)?;
        let output = self.output.as_deref().map(|text| expression("output", text, &["input", "steps"])).transpose()?;
        if let Some(output) = &output {
            spoken_of("output", output, &numbers)?;
        }
        Ok(Plan::new(self.name.clone(), steps, output, self.timeout.map(|timeout| timeout.0)))
    }
}

fn planned(
    spec: &StepSpec,
    numbers: &BTreeMap<&str, usize>,
    namespace: &Namespace,
    catalogue: Catalogue<'_>,
) -> Result<Step, Problem> {
    bounds(spec)?;
    let mut after = BTreeSet::new();
    for (n, earlier) in spec.after.iter().enumerate() {
        after.insert(number(&format!("after[{n}]"), earlier, numbers)?);
    }
    let within: &[&str] = if spec.each.is_some() { &["input", "steps", "item", "index"] } else { &["input", "steps"] };
    let mut compile = |field: &str, text: &str, names: &[&str]| {
        let compiled = expression(field, text, names)?;
        after.extend(spoken_of(field, &compiled, numbers)?);
        Ok(compiled)
    };
    let when = spec.when.as_deref().map(|text| compile("when", text, &["input", "steps"])).transpose()?;
    let each = spec.each.as_deref().map(|text| compile("each", text, &["input", "steps"])).transpose()?;
    let input = match &spec.input {
        None => Input::Default,
        Some(Mapping::Whole(text)) => Input::Whole(compile("input", text, within)?),
        Some(Mapping::Fields(fields)) if fields.len() > FIELDS_MAX => {
            return Err(Problem::invalid(
                "input",
                format!("{} fields are too many, the most is {FIELDS_MAX}", fields.len()),
            ));
        }
        Some(Mapping::Fields(fields)) => {
            let field =
                |(name, text): (&String, &String)| Ok((name.clone(), compile(&format!("input.{name}"), text, within)?));
            Input::Fields(fields.iter().map(field).collect::<Result<_, Problem>>()?)
        }
    };
    let usual = Parameters::default();
    Ok(Step {
        name: spec.name.clone(),
        action: action(&spec.action, namespace, catalogue)?,
        after: after.into_iter().collect(),
        input,
        when,
        each: each.map(|of| Each { of, at_most: spec.at_most as usize, at_once: spec.at_once as usize }),
        retries: spec.retries.unwrap_or(usual.retry),
        timeout: spec.timeout.map_or(Duration::from_millis(usual.timeout), |timeout| timeout.0),
        place: spec.on.clone(),
    })
}

fn bounds(spec: &StepSpec) -> Result<(), Problem> {
    if let Some(retries) = spec.retries.filter(|retries| *retries > RETRIES_MAX) {
        return Err(Problem::invalid("retries", format!("{retries} are too many, the most is {RETRIES_MAX}")));
    }
    if let Some(timeout) = spec.timeout.filter(|timeout| timeout.0.is_zero() || timeout.0 > TRY_MAX) {
        return Err(Problem::invalid("timeout", format!("{timeout} is not between 1ms and a day")));
    }
    for (field, figure, most) in [("at_most", spec.at_most, ITEMS_MAX), ("at_once", spec.at_once, AT_ONCE_MAX)] {
        if !(1..=most).contains(&figure) {
            return Err(Problem::invalid(field, format!("{figure} is not between 1 and {most}")));
        }
    }
    if spec.each.is_none() && (spec.at_most != StepSpec::at_most() || spec.at_once != StepSpec::at_once()) {
        return Err(Problem::invalid("each", "at_most and at_once bound a list, and there is none")
            .remedy("give each, or leave them out"));
    }
    let long = |text: &str| text.is_empty() || text.chars().count() > NAME_CHARS_MAX;
    if spec.on.labels.len() > LABELS_MAX || spec.on.labels.iter().any(|(key, value)| long(key) || long(value)) {
        let detail = format!("at most {LABELS_MAX} labels, each and its value of 1 to {NAME_CHARS_MAX} characters");
        return Err(Problem::invalid("on.labels", detail));
    }
    Ok(())
}

/// Names become parts of request ids, topics and keys.
fn name(field: &str, text: &str) -> Result<(), Problem> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(fits) {
        return Ok(());
    }
    let detail = match text.chars().find(|c| "./+#*".contains(*c)) {
        Some(c) => format!("a name with \"{c}\" in it would be misrouted by AMQP or MQTT"),
        None => format!("\"{}\" is no name", text.chars().take(NAME_CHARS_MAX).collect::<String>()),
    };
    Err(Problem::invalid(field, detail).remedy("write 1 to 64 letters, digits, - and _"))
}

fn action(text: &str, namespace: &Namespace, catalogue: Catalogue<'_>) -> Result<ActionName, Problem> {
    let action = ActionName::within(namespace, text).map_err(|error| Problem::invalid("action", error.to_string()))?;
    let Catalogue::Known(known) = catalogue else { return Ok(action) };
    if known.contains(&action) {
        return Ok(action);
    }
    let near = nearest(action.short(), known.iter().map(ActionName::short));
    let problem = Problem::invalid("action", format!("no node has an action \"{}\"", action.short()));
    Err(problem.remedy(near.map_or_else(
        || "see `mutirao node list` and `mutirao node show ID` for those there are".to_owned(),
        |near| format!("did you mean \"{near}\"?"),
    )))
}

fn expression(field: &str, text: &str, names: &[&str]) -> Result<Expression, Problem> {
    let expression = Expression::compile(text)
        .map_err(|flaw| Problem::invalid(field, flaw.to_string()).remedy("it is CEL, like steps.fetch.output.rows"))?;
    match expression.names().iter().find(|name| !names.contains(&name.as_str())) {
        None => Ok(expression.by_members("steps")),
        Some(name) => Err(Problem::invalid(field, format!("there is no \"{name}\" here"))
            .remedy(format!("there is {}; a text is written in quotes: \"'{name}'\"", names.join(", ")))),
    }
}

/// The steps that an expression speaks of.
fn spoken_of(field: &str, of: &Expression, numbers: &BTreeMap<&str, usize>) -> Result<BTreeSet<usize>, Problem> {
    let Some(names) = of.members_of("steps") else {
        return Err(Problem::invalid(field, "it speaks of steps without naming which")
            .remedy("write steps.NAME.output or steps[\"NAME\"].output"));
    };
    names.iter().map(|name| number(field, name, numbers)).collect()
}

fn number(field: &str, name: &str, numbers: &BTreeMap<&str, usize>) -> Result<usize, Problem> {
    numbers.get(name).copied().ok_or_else(|| {
        let short: String = name.chars().take(NAME_CHARS_MAX).collect();
        let problem = Problem::invalid(field, format!("there is no step \"{short}\""));
        match nearest(&short, numbers.keys().copied()) {
            Some(near) => problem.remedy(format!("did you mean \"{near}\"?")),
            None => problem,
        }
    })
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|one| (strsim::damerau_levenshtein(name, one), one)).min()?;
    (near.0 <= 1 + name.chars().count() / 3).then_some(near.1)
}

/// Refuses steps that wait for each other.
fn straight(steps: &[Step]) -> Result<(), Problem> {
    let mut left: Vec<usize> = (0..steps.len()).collect();
    let mut done = BTreeSet::new();
    loop {
        let (ready, waiting): (Vec<usize>, Vec<usize>) =
            left.iter().partition(|n| steps[**n].after.iter().all(|earlier| done.contains(earlier)));
        if waiting.is_empty() {
            return Ok(());
        }
        if ready.is_empty() {
            return Err(circle(steps, &waiting));
        }
        done.extend(ready);
        left = waiting;
    }
}

/// Each of these waits for another of them, so following that leads round.
fn circle(steps: &[Step], waiting: &[usize]) -> Problem {
    let before = |n: usize| steps[n].after.iter().copied().find(|earlier| waiting.contains(earlier)).unwrap_or(n);
    let mut path = vec![waiting[0]];
    let from = loop {
        let next = before(path[path.len() - 1]);
        match path.iter().position(|n| *n == next) {
            Some(at) => break at,
            None => path.push(next),
        }
    };
    let round = &path[from..];
    let names: Vec<&str> = round.iter().chain([&round[0]]).map(|n| steps[*n].name.as_str()).collect();
    Problem::invalid(&format!("steps[{}]", round[0]), format!("it waits for itself: {}", names.join(" after ")))
        .remedy("leave one of them out of after, input, when or each")
}
