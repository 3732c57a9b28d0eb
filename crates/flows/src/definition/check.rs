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

/// Of a flow, so many faults are told at once.
const FAULTS_MAX: usize = 50;

/// What is wrong so far. Who finds something goes on: nobody mends a long file fault by fault.
#[derive(Default)]
struct Faults(Vec<Problem>);

impl Faults {
    fn keep<T>(&mut self, came: Result<T, Problem>) -> Option<T> {
        came.map_err(|fault| self.0.push(fault)).ok()
    }
}

impl FlowSpec {
    /// Refuses what could not work: the first that is wrong.
    pub fn plan(&self, namespace: &Namespace, catalogue: Catalogue<'_>) -> Result<Plan, Problem> {
        self.planned(namespace, catalogue).map_err(|faults| faults.into_iter().next().unwrap_or_else(Problem::internal))
    }

    /// Refuses what could not work: all that is wrong, each with its place, and what was likely meant.
    pub fn planned(&self, namespace: &Namespace, catalogue: Catalogue<'_>) -> Result<Plan, Vec<Problem>> {
        let mut faults = Faults::default();
        let plan = self.gathered(namespace, catalogue, &mut faults);
        faults.0.truncate(FAULTS_MAX);
        plan.filter(|_| faults.0.is_empty()).ok_or(faults.0)
    }

    fn gathered(&self, namespace: &Namespace, catalogue: Catalogue<'_>, faults: &mut Faults) -> Option<Plan> {
        faults.keep(name("name", &self.name));
        if self.steps.is_empty() || self.steps.len() > STEPS_MAX {
            let detail = format!("{} are not between 1 and {STEPS_MAX}", self.steps.len());
            return faults.keep(Err(Problem::invalid("steps", detail)));
        }
        if self.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
            let none = Problem::invalid("timeout", "no run ends in no time").remedy("write a time like 10m");
            faults.0.push(none);
        }
        let mut numbers = BTreeMap::new();
        for (n, step) in self.steps.iter().enumerate() {
            let place = format!("steps[{n}].name");
            faults.keep(name(&place, &step.name));
            if let Some(first) = numbers.get(step.name.as_str()) {
                let detail = format!("\"{}\" is the name of steps[{first}] too", step.name);
                faults.0.push(Problem::invalid(&place, detail));
            } else {
                numbers.insert(step.name.as_str(), n);
            }
        }
        let mut steps = Vec::new();
        for (n, step) in self.steps.iter().enumerate() {
            let mut own = Faults::default();
            steps.push(planned(step, &numbers, namespace, catalogue, &mut own));
            faults.0.extend(own.0.into_iter().map(|fault| fault.under(&format!("steps[{n}]"))));
        }
        let read = |text: &String| {
            let read = faults.keep(compiled("output", text, &["input", "steps"], &numbers))?;
            faults.keep(sensible("output", &read.0, catalogue));
            Some(read)
        };
        let output = self.output.as_ref().map(read);
        // Of those that cannot be read nobody knows what they wait for.
        let steps = steps.into_iter().collect::<Option<Vec<Step>>>()?;
        faults.keep(straight(&steps))?;
        let output = output.map_or(Some(None), |output| output.map(|(output, _)| Some(output)))?;
        Some(Plan::new(self.name.clone(), steps, output, self.timeout.map(|timeout| timeout.0)))
    }
}

fn planned(
    spec: &StepSpec,
    numbers: &BTreeMap<&str, usize>,
    namespace: &Namespace,
    catalogue: Catalogue<'_>,
    faults: &mut Faults,
) -> Option<Step> {
    bounds(spec, faults);
    let mut after = BTreeSet::new();
    for (n, earlier) in spec.after.iter().enumerate() {
        after.extend(faults.keep(number(&format!("after[{n}]"), earlier, numbers)));
    }
    let within: &[&str] = if spec.each.is_some() { &["input", "steps", "item", "index"] } else { &["input", "steps"] };
    let mut compile = |faults: &mut Faults, field: &str, text: &str, names: &[&str]| {
        let (compiled, spoken_of) = faults.keep(compiled(field, text, names, numbers))?;
        faults.keep(sensible(field, &compiled, catalogue));
        after.extend(spoken_of);
        Some(compiled)
    };
    let when = spec.when.as_deref().map(|text| compile(faults, "when", text, &["input", "steps"]));
    let each = spec.each.as_deref().map(|text| compile(faults, "each", text, &["input", "steps"]));
    let input = match &spec.input {
        None => Some(Input::Default),
        Some(Mapping::Whole(text)) => compile(faults, "input", text, within).map(Input::Whole),
        Some(Mapping::Fields(fields)) if fields.len() > FIELDS_MAX => {
            let detail = format!("{} fields are too many, the most is {FIELDS_MAX}", fields.len());
            faults.keep(Err(Problem::invalid("input", detail)))
        }
        Some(Mapping::Fields(fields)) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, text)| Some((name.clone(), compile(faults, &format!("input.{name}"), text, within)?)))
                .collect();
            fields.into_iter().collect::<Option<_>>().map(Input::Fields)
        }
    };
    let action = faults.keep(action(&spec.action, namespace, catalogue));
    // What is there has to be sound.
    let sound = |one: Option<Option<Expression>>| one.map_or(Some(None), |one| one.map(Some));
    let (when, each) = (sound(when)?, sound(each)?);
    let usual = Parameters::default();
    Some(Step {
        name: spec.name.clone(),
        action: action?,
        after: after.into_iter().collect(),
        input: input?,
        when,
        each: each.map(|of| Each { of, at_most: spec.at_most as usize, at_once: spec.at_once as usize }),
        retries: spec.retries.unwrap_or(usual.retry),
        timeout: spec.timeout.map_or(Duration::from_millis(usual.timeout), |timeout| timeout.0),
        place: spec.on.clone(),
    })
}

fn bounds(spec: &StepSpec, faults: &mut Faults) {
    let mut wrong = |problem: Problem| faults.0.push(problem);
    if let Some(retries) = spec.retries.filter(|retries| *retries > RETRIES_MAX) {
        wrong(Problem::invalid("retries", format!("{retries} are too many, the most is {RETRIES_MAX}")));
    }
    if let Some(timeout) = spec.timeout.filter(|timeout| timeout.0.is_zero() || timeout.0 > TRY_MAX) {
        wrong(Problem::invalid("timeout", format!("{timeout} is not between 1ms and a day")));
    }
    for (field, figure, most) in [("at_most", spec.at_most, ITEMS_MAX), ("at_once", spec.at_once, AT_ONCE_MAX)] {
        if !(1..=most).contains(&figure) {
            wrong(Problem::invalid(field, format!("{figure} is not between 1 and {most}")));
        }
    }
    if spec.each.is_none() && (spec.at_most != StepSpec::at_most() || spec.at_once != StepSpec::at_once()) {
        wrong(
            Problem::invalid("each", "at_most and at_once bound a list, and there is none")
                .remedy("give each, or leave them out"),
        );
    }
    let long = |text: &str| text.is_empty() || text.chars().count() > NAME_CHARS_MAX;
    if spec.on.labels.len() > LABELS_MAX || spec.on.labels.iter().any(|(key, value)| long(key) || long(value)) {
        let detail = format!("at most {LABELS_MAX} labels, each and its value of 1 to {NAME_CHARS_MAX} characters");
        wrong(Problem::invalid("on.labels", detail));
    }
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
    if let Some(other) = known.iter().find(|one| one.short() == action.short()) {
        let problem = Problem::invalid("action", format!("no node has {action}"));
        return Err(problem.remedy(format!("did you mean {other}? it is of another namespace")));
    }
    let near = nearest(action.short(), known.iter().map(ActionName::short));
    let problem = Problem::invalid("action", format!("no node has an action \"{}\"", action.short()));
    Err(problem.remedy(near.map_or_else(
        || "see `mutirao action list` for those there are".to_owned(),
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

/// With the steps that it speaks of.
fn compiled(
    field: &str,
    text: &str,
    names: &[&str],
    numbers: &BTreeMap<&str, usize>,
) -> Result<(Expression, BTreeSet<usize>), Problem> {
    let expression = expression(field, text, names)?;
    let spoken_of = spoken_of(field, &expression, numbers)?;
    Ok((expression, spoken_of))
}

/// The steps that an expression speaks of.
fn spoken_of(field: &str, of: &Expression, numbers: &BTreeMap<&str, usize>) -> Result<BTreeSet<usize>, Problem> {
    let Some(names) = of.members_of("steps") else {
        return Err(Problem::invalid(field, "it speaks of steps without naming which")
            .remedy("write steps.NAME.output or steps[\"NAME\"].output"));
    };
    names.iter().map(|name| number(field, name, numbers)).collect()
}

/// Whether what it asks of a step is something that a step has. Not asked of what was taken before, which may be under way.
fn sensible(field: &str, of: &Expression, catalogue: Catalogue<'_>) -> Result<(), Problem> {
    let Catalogue::Known(_) = catalogue else { return Ok(()) };
    let has = ["output", "skipped"];
    let asked = of.fields_of("steps");
    match asked.iter().find(|(_, asked)| !has.contains(&asked.as_str())) {
        None => Ok(()),
        Some((step, asked)) => {
            let near = nearest(asked, has.into_iter()).unwrap_or("output");
            Err(Problem::invalid(field, format!("a step has no \"{asked}\", only output and skipped"))
                .remedy(format!("did you mean steps[\"{step}\"].{near}?")))
        }
    }
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
