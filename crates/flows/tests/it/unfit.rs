//! What nodes say and clients ask that fits nowhere: it costs the run that it is in, and no other of its shard.

use mutirao_core::Problem;
use mutirao_flows::start::RunRequest;
use mutirao_flows::view::RunState;
use mutirao_nodes::errand::Taker;
use mutirao_nodes::wire::TaskRequest;
use serde_json::{Value, json};

use crate::engine::{Engine, on_both};
use crate::running::{ana, ended, run, spec, start};
use crate::workshop::Workshop;

on_both!(what_does_not_fit_costs_its_run_and_no_other, ids_that_a_store_would_not_take_are_refused_or_kept_apart);

async fn what_does_not_fit_costs_its_run_and_no_other(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    let one = |name: &str, mut step: Value| {
        (step["name"], step["retries"]) = (json!("a"), json!(0));
        spec(json!({"name": name, "steps": [step]}))
    };
    let after = |name: &str, action: &str, input: Value| {
        spec(json!({"name": name, "steps": [{"name": "a", "action": action},
                                            {"name": "b", "action": "actions.b", "after": ["a"], "input": input}]}))
    };
    let fields: serde_json::Map<String, Value> = (0..64).map(|n| (format!("f{n}"), json!("steps.a.output"))).collect();
    let all = vec![
        one("good", json!({"action": "actions.a"})),
        one("failing", json!({"action": "actions.fail"})),
        one("nul", json!({"action": "actions.nul"})),
        one("deep", json!({"action": "actions.deep"})),
        one("deeper", json!({"action": "actions.deeper"})),
        one("large", json!({"action": "actions.large"})),
        one("key", json!({"action": "actions.a", "input": "input.m[input.k]"})),
        one("when", json!({"action": "actions.a", "when": "input.m[input.k]"})),
        one("each", json!({"action": "actions.a", "each": "input.m[input.k]"})),
        one("busy", json!({"action": "actions.a", "input": "input.l.map(a, input.l.map(b, a * b))"})),
        after("many", "actions.nul", json!(fields)),
        after("spoken", "actions.nul", json!({"x": "steps.a.output.missing"})),
    ];
    let names: Vec<String> = all.iter().map(|spec| spec.name.clone()).collect();
    flows.declare(&ana(), all).await.unwrap();
    let list: Vec<u32> = (0..10_000).collect();
    let input = json!({"m": {}, "k": "\u{0}k", "l": list, "\u{0}": "\u{0}"});
    let mut runs = Vec::new();
    // More than there are shards, so that each has some.
    for _ in 0..3 {
        for name in &names {
            runs.push((name.clone(), run(&flows, name, input.clone()).await));
        }
    }
    for (name, number) in &runs {
        let view = ended(&flows, *number).await;
        let well = ["good", "nul", "deep", "deeper", "many"].contains(&name.as_str());
        assert_eq!(view.state, if well { RunState::Done } else { RunState::Failed }, "{name}: {view:?}");
        assert!(well || view.reason.as_ref().is_some_and(|why| !why.is_empty() && !why.contains('\0')), "{view:?}");
    }
    for _ in 0..16 {
        let number = run(&flows, "good", json!(1)).await;
        assert_eq!(ended(&flows, number).await.state, RunState::Done, "its shard goes on");
    }
    flows.stop().await;
}

async fn ids_that_a_store_would_not_take_are_refused_or_kept_apart(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    let task = |id: &str, action: &str, data: &str| TaskRequest {
        id: id.into(),
        task_id: "urn:mutirao:Task:t\0t".into(),
        target_actions: vec![format!("urn:mutirao:Action:{action}")],
        message_data: data.into(),
        created_at: None,
        processing_time: None,
    };
    let refused = |asked: Result<(), Problem>| asked.err().map(|problem| problem.status);
    assert_eq!(refused(flows.asked(task("a\0b", "actions.a", "{}"), None).await), Some(422));
    assert_eq!(refused(flows.asked(task("", "actions.a", "{}"), None).await), Some(422));
    flows.asked(task("t-1", "actions.nul", "{\"a\": \"\\u0000\"}"), None).await.unwrap();
    flows.asked(task("t-2", "actions.a", "not json \0"), None).await.unwrap();
    crate::running::until_some("both are answered", async || (shop.answers.lock().len() == 2).then_some(())).await;
    let key = |key: &str| RunRequest { flow: "f".into(), input: json!(1), idempotency_key: Some(key.into()) };
    assert_eq!(flows.run(&ana(), key("a\0b")).await.err().map(|problem| problem.status), Some(422));
    flows.stop().await;
}
