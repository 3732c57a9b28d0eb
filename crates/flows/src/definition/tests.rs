use std::collections::BTreeSet;

use mutirao_expression::Stop;
use mutirao_nodes::{ActionName, Namespace};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::check::Catalogue;
use super::*;
use crate::given::Given;
use crate::plan::{Ended, Opening, Pace, Plan, Seen};

fn output(value: Value) -> Ended {
    Ended::Output(Given::output(value.into(), 0))
}

fn plan_of(json: Value) -> Result<Plan, String> {
    let spec: FlowSpec = serde_json::from_value(json).map_err(|error| error.to_string())?;
    let known = ["actions.fetch_data", "actions.power_factor", "store"];
    let known: BTreeSet<ActionName> =
        known.iter().map(|name| ActionName::within(&Namespace::default(), name).unwrap()).collect();
    spec.plan(&Namespace::default(), Catalogue::Known(&known)).map_err(|problem| problem.line())
}

fn steps(steps: Value) -> Result<Plan, String> {
    plan_of(json!({"name": "f", "steps": steps}))
}

#[test]
fn the_flow_of_the_docs_is_read_and_what_speaks_of_a_step_comes_after_it() {
    let plan = plan_of(json!({
        "name": "power-factor", "timeout": "10m",
        "steps": [
            {"name": "fetch", "action": "actions.fetch_data", "input": {"url": "input.url"}, "on": {"layer": "edge"}},
            {"name": "factor", "action": "urn:mutirao:Action:actions.power_factor", "each": "steps.fetch.output.rows",
             "at_most": 2, "input": {"row": "item", "place": "index"}, "when": "size(steps.fetch.output.rows) > 0",
             "retries": 5, "timeout": "10s"},
            {"name": "store", "action": "store", "after": ["factor"]}
        ],
        "output": "steps.factor.output"
    }))
    .unwrap();
    assert_eq!(plan.steps.iter().map(|step| step.after.clone()).collect::<Vec<_>>(), [vec![], vec![0], vec![1]]);
    let input = Given::input(json!({"url": "http://x"}), 0);
    let rows = |rows: Value| [Some(output(json!({"rows": rows}))), None, None];
    let none = rows(json!([]));
    let seen = Seen { input: &input, steps: &none };
    assert_eq!(plan.input(0, seen, None, Pace::WHOLE), Ok(json!({"url": "http://x"})));
    assert_eq!(plan.open(1, seen, Pace::WHOLE), Ok(Opening::Skipped));
    let two = rows(json!([7, 8]));
    let seen = Seen { input: &input, steps: &two };
    assert_eq!(plan.open(1, seen, Pace::WHOLE), Ok(Opening::Each(vec![json!(7), json!(8)])));
    assert_eq!(plan.input(1, seen, Some((1, &json!(8))), Pace::WHOLE), Ok(json!({"row": 8, "place": 1})));
    let three = rows(json!([7, 8, 9]));
    let why = plan.open(1, Seen { input: &input, steps: &three }, Pace::WHOLE).unwrap_err();
    assert_eq!(why, Stop::Failed("each: 3 items are more than at_most, which is 2".into()));
    let skipped = [Some(output(json!({"rows": []}))), Some(Ended::Skipped), None];
    let seen = Seen { input: &input, steps: &skipped };
    assert_eq!(
        plan.open(2, seen, Pace::WHOLE),
        Ok(Opening::Skipped),
        "what comes after one that was skipped is skipped"
    );
    assert_eq!(plan.output(seen, Pace::WHOLE), Ok(Value::Null));
}

#[test]
fn without_a_mapping_a_step_is_given_what_came_before_it() {
    let plan = steps(json!([
        {"name": "a", "action": "store"}, {"name": "b", "action": "store"},
        {"name": "c", "action": "store", "after": ["a"]}, {"name": "d", "action": "store", "after": ["b", "c"]},
        {"name": "e", "action": "store", "after": ["c"], "when": "steps.b.skipped"}
    ]))
    .unwrap();
    let ended = [Some(output(json!(1))), Some(Ended::Skipped), Some(output(json!(3))), None, None];
    let input = Given::input(json!({"x": 0}), 0);
    let seen = Seen { input: &input, steps: &ended };
    assert_eq!(plan.input(0, seen, None, Pace::WHOLE), Ok(json!({"x": 0})));
    assert_eq!(plan.input(2, seen, None, Pace::WHOLE), Ok(json!(1)));
    assert_eq!(plan.input(3, seen, None, Pace::WHOLE), Ok(json!({"b": null, "c": 3})));
    assert_eq!(plan.open(4, seen, Pace::WHOLE), Ok(Opening::Once), "with a when of its own it decides itself");
    assert_eq!(plan.output(seen, Pace::WHOLE), Ok(json!({"d": null, "e": null})));
}

#[test]
fn expressions_may_go_over_lists() {
    let plan = steps(json!([
        {"name": "a", "action": "store"},
        {"name": "b", "action": "store", "when": "steps.a.output.exists(row, row.n > input.least)",
         "each": "steps.a.output.filter(row, row.n > input.least).map(row, row.n)", "input": "[item].map(n, n * 2)"}
    ]))
    .unwrap();
    let ended = [Some(output(json!([{"n": 1}, {"n": 2}, {"n": 3}]))), None];
    let input = Given::input(json!({"least": 1}), 0);
    let seen = Seen { input: &input, steps: &ended };
    assert_eq!(plan.open(1, seen, Pace::WHOLE), Ok(Opening::Each(vec![json!(2), json!(3)])));
    assert_eq!(plan.input(1, seen, Some((0, &json!(2))), Pace::WHOLE), Ok(json!([4])));
    assert_eq!(plan.steps[1].after, [0]);
    let stray =
        steps(json!([{"name": "a", "action": "store", "input": "input.filter(row, true) + [row]"}])).unwrap_err();
    assert!(stray.starts_with("steps[0].input: there is no \"row\" here"), "{stray}");
}

#[test]
fn what_could_not_work_is_refused_with_its_place_and_what_was_meant() {
    let one = |field: &str, value: Value| {
        let mut step = json!({"name": "fetch", "action": "store"});
        step[field] = value;
        step
    };
    let long: Vec<Value> = (0..=STEPS_MAX).map(|n| json!({"name": format!("s{n}"), "action": "store"})).collect();
    for (given, expected) in [
        (json!([]), "steps: 0 are not between"),
        (json!(long), "steps: 501 are not between"),
        (
            json!([one("action", json!("actions.fech_data"))]),
            "steps[0].action: no node has an action \"actions.fech_data\"; did you mean \"actions.fetch_data\"?",
        ),
        (json!([one("action", json!("zzzzzzzzzz"))]), "steps[0].action: no node has an action \"zzzzzzzzzz\"; see"),
        (json!([one("action", json!("a/#"))]), "steps[0].action: \"urn:mutirao:Action:a/#\" is not an action"),
        (
            json!([one("name", json!("a.b"))]),
            "steps[0].name: a name with \".\" in it would be misrouted by AMQP or MQTT",
        ),
        (json!([one("name", json!("a/b"))]), "steps[0].name: a name with \"/\" in it"),
        (json!([one("name", json!("#"))]), "steps[0].name: a name with \"#\" in it"),
        (json!([one("name", json!("é"))]), "steps[0].name: \"é\" is no name"),
        (
            json!([one("retries", json!(0)), one("retries", json!(0))]),
            "steps[1].name: \"fetch\" is the name of steps[0] too",
        ),
        (
            json!([one("after", json!(["fetsh"]))]),
            "steps[0].after[0]: there is no step \"fetsh\"; did you mean \"fetch\"?",
        ),
        (
            json!([one("input", json!({"x": "steps.fetsh.output"}))]),
            "steps[0].input.x: there is no step \"fetsh\"; did you mean \"fetch\"?",
        ),
        (json!([one("when", json!("steps.qqqqqqqq.skipped"))]), "steps[0].when: there is no step \"qqqqqqqq\""),
        (
            json!([one("input", json!("steps[input.which].output"))]),
            "steps[0].input: it speaks of steps without naming which",
        ),
        (
            json!([one("input", json!({"x": "item"}))]),
            "steps[0].input.x: there is no \"item\" here; there is input, steps",
        ),
        (json!([one("input", json!({"x": "hello"}))]), "steps[0].input.x: there is no \"hello\" here"),
        (json!([one("input", json!("1 +"))]), "steps[0].input: 1 + does not compile"),
        (json!([one("each", json!("((((((((((((((1"))]), "steps[0].each: it has more than 12 brackets"),
        (json!([one("retries", json!(101))]), "steps[0].retries: 101 are too many"),
        (json!([one("timeout", json!("0s"))]), "steps[0].timeout: "),
        (json!([one("timeout", json!("2days"))]), "steps[0].timeout: "),
        (json!([one("at_most", json!(5))]), "steps[0].each: at_most and at_once bound a list"),
        (json!([one("on", json!({"labels": {"": "x"}}))]), "steps[0].on.labels: "),
    ] {
        let line = steps(given.clone()).err().unwrap_or_else(|| panic!("{given} was taken"));
        assert!(line.starts_with(expected), "{given}\n gave {line}\n not  {expected}");
    }
    assert!(steps(json!([one("onn", json!({}))])).unwrap_err().contains("unknown field `onn`"));
    assert!(steps(json!([one("on", json!({"node": "a.b"}))])).unwrap_err().contains("is not a node's id"));
    let line = plan_of(json!({"name": "a+b", "steps": [{"name": "a", "action": "store"}]})).unwrap_err();
    assert!(line.starts_with("name: a name with \"+\" in it would be misrouted"), "{line}");
    let line =
        plan_of(json!({"name": "f", "output": "steps.b", "steps": [{"name": "a", "action": "store"}]})).unwrap_err();
    assert!(line.starts_with("output: there is no step \"b\""), "{line}");
}

#[test]
fn all_that_is_wrong_with_a_flow_is_told_at_once() {
    let spec: FlowSpec = serde_json::from_value(json!({"name": "a.b", "output": "steps.zzzzzzz.output", "steps": [
        {"name": "a", "action": "shop.wrok", "retries": 1000, "timeout": "0s", "each": "input", "at_once": 0},
        {"name": "a", "action": "shop.wurk", "input": {"x": "steps.aa.output", "y": "1 +", "z": "input"}},
        {"name": "b", "action": "store", "when": "hello", "after": ["c"]}
    ]}))
    .unwrap();
    let known = BTreeSet::from([ActionName::within(&Namespace::default(), "store").unwrap()]);
    let faults = spec.planned(&Namespace::default(), Catalogue::Known(&known)).unwrap_err();
    let places: Vec<&str> = faults.iter().filter_map(|fault| fault.field.as_deref()).collect();
    assert_eq!(
        places,
        [
            "name",
            "steps[1].name",
            "steps[0].retries",
            "steps[0].timeout",
            "steps[0].at_once",
            "steps[0].action",
            "steps[1].input.x",
            "steps[1].input.y",
            "steps[1].action",
            "steps[2].after[0]",
            "steps[2].when",
            "output",
        ]
    );
}

#[test]
fn steps_that_wait_for_each_other_are_named() {
    let line = steps(json!([
        {"name": "free", "action": "store"},
        {"name": "a", "action": "store", "after": ["free", "c"]},
        {"name": "b", "action": "store", "input": "steps.a.output"},
        {"name": "c", "action": "store", "when": "steps.b.output == 1"},
        {"name": "d", "action": "store", "after": ["c"]}
    ]))
    .unwrap_err();
    assert!(line.starts_with("steps[1]: it waits for itself: a after c after b after a"), "{line}");
    let line = steps(json!([{"name": "a", "action": "store", "after": ["a"]}])).unwrap_err();
    assert!(line.starts_with("steps[0]: it waits for itself: a after a"), "{line}");
}

#[test]
fn what_no_step_has_and_whose_action_it_is_are_told_where_they_are_written() {
    let second = |fields: Value| {
        let mut step = json!({"name": "b", "action": "store"});
        step.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        steps(json!([{"name": "a", "action": "store"}, step]))
    };
    let output = "did you mean steps[\"a\"].output?";
    for (fields, told) in [
        (json!({"input": {"x": "1 + steps.a.outptu.n"}}), output),
        (json!({"each": "steps['a'].result"}), output),
        (json!({"when": "steps.a.skiped"}), "did you mean steps[\"a\"].skipped?"),
        (json!({"action": "urn:other:Action:store"}), "did you mean urn:mutirao:Action:store?"),
    ] {
        let why = second(fields.clone()).map(drop).unwrap_err();
        assert!(why.contains(told), "{fields}: {why}");
    }
    let fine = json!({"when": "has(steps.a.output.x) && !steps.a.skipped", "input": {"n": 5, "all": "steps.a"}});
    assert!(second(fine).is_ok());
}

proptest! {
    /// Any graph: taken if and only if there is an order in which each comes after those before it.
    #[test]
    fn a_flow_is_taken_exactly_if_it_has_an_order(edges in prop::collection::vec((0usize..6, 0usize..6), 0..12)) {
        let all: Vec<Value> = (0..6).map(|n| {
            let after: BTreeSet<String> = edges.iter().filter(|(to, _)| *to == n).map(|(_, from)| format!("s{from}")).collect();
            json!({"name": format!("s{n}"), "action": "store", "after": after})
        }).collect();
        // Six steps lie in a circle if some can be reached from themselves.
        let mut reach = [[false; 6]; 6];
        edges.iter().for_each(|(to, from)| reach[*to][*from] = true);
        for k in 0..6 { for i in 0..6 { for j in 0..6 { reach[i][j] |= reach[i][k] && reach[k][j]; } } }
        let circle = (0..6).any(|n| reach[n][n]);
        prop_assert_eq!(steps(json!(all)).is_err(), circle);
    }

    #[test]
    fn what_is_written_reads_back(retries in 0u32..100, at_most in 1u32..10_000, timeout_s in 1u64..86_400) {
        let mut step = StepSpec::new("a", "store");
        (step.retries, step.timeout) = (Some(retries), Some(Span::secs(timeout_s)));
        (step.at_most, step.each) = (at_most, Some("input".into()));
        step.input = Some(Mapping::Fields([("x".into(), "item".into())].into()));
        let spec = FlowSpec { name: "f".into(), timeout: None, steps: vec![step], output: None };
        let text = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(serde_json::from_str::<FlowSpec>(&text).unwrap(), spec);
    }
}
