//! Flows by chance, and what comes of them when nothing goes wrong: worked out one step after the other, without a foreman.

use std::collections::BTreeMap;

use mutirao_core::Dice;
use mutirao_nodes::ActionName;
use serde_json::{Value, json};

use crate::foreman::tests::admitted;
use crate::foreman::words::{Admitted, Asker, StepKey};
use crate::given::Given;
use crate::plan::{Ended, Opening, Pace, Plan, Seen};

pub struct Reference {
    pub output: Value,
    /// What each task is given, by step and item.
    pub inputs: BTreeMap<(u32, u32), Value>,
    pub may_be_cancelled: bool,
    after: Vec<Vec<usize>>,
}

impl Reference {
    /// All tasks of all steps that a task comes after.
    pub fn must_be_durable(&self, key: StepKey) -> Vec<StepKey> {
        let earlier = &self.after[key.step as usize];
        let theirs = self.inputs.keys().filter(|(step, _)| earlier.contains(&(*step as usize)));
        theirs.map(|(step, item)| StepKey { run: key.run, step: *step, item: *item }).collect()
    }
}

/// What an action gives: a function of what it is given.
pub fn work(action: &ActionName, input: &Value) -> Value {
    let mut sum = action.short().len() as u64;
    input.to_string().bytes().for_each(|byte| sum = (sum * 31 + u64::from(byte)) % 9_973);
    json!({"n": sum, "list": (0..sum % 4).collect::<Vec<_>>()})
}

pub fn run_of(run: u64, dice: &Dice) -> (Admitted, Reference) {
    let count = 1 + dice.below(6) as usize;
    let mut lists = Vec::new();
    let steps: Vec<Value> = (0..count).map(|n| step(n, &mut lists, dice)).collect();
    let input = json!({"n": dice.below(10), "list": (0..dice.below(5)).collect::<Vec<_>>()});
    let asker = if dice.below(2) == 0 { Asker::Reader } else { Asker::Client };
    let admitted = Admitted { asker, ..admitted(run, json!({"name": "f", "steps": steps}), input) };
    let reference = reference(&admitted.plan, &admitted.input);
    (admitted, reference)
}

fn step(n: usize, lists: &mut Vec<bool>, dice: &Dice) -> Value {
    let earlier: Vec<usize> = (0..n).filter(|_| dice.below(2) == 0).collect();
    let field = |e: &usize| {
        let value = if lists[*e] { format!("size(steps.s{e}.output)") } else { format!("steps.s{e}.output.n") };
        (format!("d{e}"), format!("steps.s{e}.skipped ? 0 : {value}"))
    };
    let mut input: BTreeMap<String, String> = earlier.iter().map(field).collect();
    input.insert("n".into(), "input.n".into());
    let mut step = json!({"name": format!("s{n}"), "action": format!("a{n}"), "retries": 100, "timeout": "1s"});
    let list = dice.below(4) == 0;
    if list {
        let plain = earlier.iter().find(|e| !lists[**e]).filter(|_| dice.below(2) == 0);
        let each = plain.map_or("input.list".into(), |e| format!("steps.s{e}.skipped ? [] : steps.s{e}.output.list"));
        (step["each"], step["at_once"]) = (json!(each), json!(1 + dice.below(3)));
        input.insert("item".into(), "item + index".into());
    }
    match dice.below(5) {
        0 => step["when"] = json!("input.n % 2 == 0"),
        1 if !earlier.is_empty() => step["when"] = json!(format!("steps.s{}.skipped || input.n > 3", earlier[0])),
        // Only by order, with what came before as it is.
        2 if !list => {
            step["after"] = earlier.iter().map(|e| format!("s{e}")).collect();
            lists.push(false);
            return step;
        }
        _ => {}
    }
    step["input"] = json!(input);
    lists.push(list);
    step
}

fn reference(plan: &Plan, input: &Value) -> Reference {
    let given = Given::input(input.clone(), 0);
    let input = &given;
    let output = |value: Value| Ended::Output(Given::output(value.into(), 0));
    let mut ended: Vec<Option<Ended>> = vec![None; plan.steps.len()];
    let mut inputs = BTreeMap::new();
    for n in 0..plan.steps.len() {
        let seen = Seen { input, steps: &ended };
        let mut task = |item: Option<(usize, &Value)>| {
            let given = plan.input(n, seen, item, Pace::WHOLE).unwrap();
            let gave = work(&plan.steps[n].action, &given);
            inputs.insert((n as u32, item.map_or(0, |(index, _)| index as u32)), given);
            gave
        };
        let how = match plan.open(n, seen, Pace::WHOLE).unwrap() {
            Opening::Skipped => Ended::Skipped,
            Opening::Once => output(task(None)),
            Opening::Each(list) => output(list.iter().enumerate().map(|one| task(Some(one))).collect()),
        };
        ended[n] = Some(how);
    }
    let output = plan.output(Seen { input, steps: &ended }, Pace::WHOLE).unwrap();
    let after = plan.steps.iter().map(|step| step.after.clone()).collect();
    Reference { output, inputs, may_be_cancelled: false, after }
}
