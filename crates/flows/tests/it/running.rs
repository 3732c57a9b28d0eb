//! The capability at work: runs that go on while results are lost and doubled, and while their owner comes and goes.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{Limits, Memory};
use mutirao_core::auth::{Principal, Role};
use mutirao_core::clock::Clock;
use mutirao_core::{Dice, SystemClock};
use mutirao_flows::foreman::explaining::At;
use mutirao_flows::start::RunRequest;
use mutirao_flows::view::{RunState, RunView};
use mutirao_flows::{FlowSpec, Flows, FlowsParts};
use mutirao_nodes::Namespace;
use mutirao_nodes::errand::{End, Returned, Taker};
use mutirao_nodes::wire::TaskRequest;
use mutirao_shards::store as leases;
use mutirao_shards::{MemberId, Terms};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, on_both};
use crate::workshop::Workshop;

on_both!(
    a_flow_runs_to_its_end_and_says_how_each_step_went,
    runs_go_on_where_they_were_when_another_process_takes_over,
    two_managers_share_the_runs_and_pass_results_on,
    a_step_waits_for_its_node_and_explain_says_so,
    a_task_of_the_wire_is_run_once_and_answered_once,
    what_cannot_work_is_refused_with_its_place,
    a_step_that_always_fails_fails_its_run_with_the_reason,
    results_that_nobody_was_asked_for_change_nothing,
);

const PATIENCE: Duration = Duration::from_secs(30);

async fn start(engine: &Engine, shop: &Arc<Workshop>) -> Flows {
    let flows = start_as(engine, shop, Terms::alone(), Memory::new(None, Limits::default())).await;
    *shop.taker.lock() = Some(flows.clone());
    flows
}

/// With others: leases of a second or so, and a broker that they share.
async fn start_as(engine: &Engine, shop: &Arc<Workshop>, terms: Terms, broker: Arc<Memory>) -> Flows {
    let database = engine.database().await;
    let parts = FlowsParts {
        leases: leases::open(&database, None).await.unwrap(),
        store: database,
        terms,
        member: MemberId::mint("test"),
        address: String::new(),
        broker,
        reach: shop.clone(),
        namespace: Namespace::default(),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::from_os()),
        keep: Duration::from_secs(3_600),
        shutdown: CancellationToken::new(),
    };
    Flows::start(parts).await.unwrap()
}

fn ana() -> Principal {
    Principal { id: "t1".into(), name: "ana".into(), role: Role::Admin, namespace: "default".into() }
}

fn spec(json: Value) -> FlowSpec {
    serde_json::from_value(json).unwrap()
}

async fn run(flows: &Flows, flow: &str, input: Value) -> u64 {
    let request = RunRequest { flow: flow.into(), input, idempotency_key: None };
    flows.run(&ana(), request).await.unwrap().run
}

async fn ended(flows: &Flows, run: u64) -> RunView {
    let view = flows.show(&ana(), run, PATIENCE).await.unwrap();
    assert_ne!(view.state, RunState::Running, "{view:?}");
    view
}

fn graph() -> FlowSpec {
    spec(json!({"name": "graph", "output": "steps.each.output", "steps": [
        {"name": "list", "action": "actions.list"},
        {"name": "each", "action": "actions.double", "each": "steps.list.output.rows", "input": {"n": "item"},
         "timeout": "300ms", "retries": 50},
        {"name": "never", "action": "actions.a", "when": "size(steps.list.output.rows) > 5"},
        {"name": "after", "action": "actions.b", "after": ["each"], "timeout": "300ms", "retries": 50},
    ]}))
}

async fn a_flow_runs_to_its_end_and_says_how_each_step_went(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    flows.declare(&ana(), vec![graph()]).await.unwrap();
    let view = ended(&flows, run(&flows, "graph", json!({})).await).await;
    assert_eq!((view.state, view.output), (RunState::Done, Some(json!([2, 4, 6]))));
    assert_eq!(view.steps["list"]["node"], "shop");
    assert_eq!(view.steps["list"]["why"], "the only one");
    assert_eq!(view.steps["never"]["state"], "skipped");
    assert_eq!(view.steps["each"].as_array().unwrap().len(), 3);
    assert!(view.took_ms.is_some());
    flows.stop().await;
}

async fn runs_go_on_where_they_were_when_another_process_takes_over(engine: &Engine) {
    let shop = Workshop::new(20, 20);
    let (terms, broker) = (Terms::of(Duration::from_secs(2)), Memory::new(None, Limits::default()));
    let flows = start_as(engine, &shop, terms, broker.clone()).await;
    *shop.taker.lock() = Some(flows.clone());
    flows.declare(&ana(), vec![graph()]).await.unwrap();
    let mut runs = Vec::new();
    for n in 0..30 {
        runs.push(run(&flows, "graph", json!({"n": n})).await);
    }
    until("something is done", || shop.done.lock().len() > 1).await;
    // As if it were killed: nothing is given back, and whatever it was doing ends here.
    *shop.taker.lock() = None;
    drop(flows);
    let other = Workshop::new(20, 20);
    let flows = start_as(engine, &other, terms, broker).await;
    *other.taker.lock() = Some(flows.clone());
    for run in &runs {
        let view = ended(&flows, *run).await;
        assert_eq!((view.state, view.output), (RunState::Done, Some(json!([2, 4, 6]))), "run {run}");
    }
    assert!(!other.done.lock().is_empty(), "the first finished everything before it was gone");
    flows.stop().await;
}

/// Runs asked for at either of two managers, results that reach the one that does not own the run, and one of them stopped in
/// the middle.
async fn two_managers_share_the_runs_and_pass_results_on(engine: &Engine) {
    let shop = Workshop::new(0, 30);
    let (terms, broker) = (Terms::of(Duration::from_secs(2)), Memory::new(None, Limits::default()));
    let first = start_as(engine, &shop, terms, broker.clone()).await;
    let second = start_as(engine, &shop, terms, broker).await;
    // Every result reaches the first, whoever sent the task.
    *shop.taker.lock() = Some(first.clone());
    first.declare(&ana(), vec![graph()]).await.unwrap();
    let mut runs = Vec::new();
    for n in 0..40 {
        let asked = if n % 2 == 0 { &first } else { &second };
        runs.push(run(asked, "graph", json!({"n": n})).await);
    }
    for run in &runs[..20] {
        assert_eq!(ended(&second, *run).await.state, RunState::Done);
    }
    *shop.taker.lock() = Some(second.clone());
    first.stop().await;
    for run in &runs {
        let view = ended(&second, *run).await;
        assert_eq!((view.state, view.output), (RunState::Done, Some(json!([2, 4, 6]))), "run {run}");
    }
    second.stop().await;
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    panic!("it was never so that {what}");
}

async fn a_step_waits_for_its_node_and_explain_says_so(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    *shop.closed.lock() = true;
    let flows = start(engine, &shop).await;
    let waits = json!({"name": "waits", "steps": [{"name": "a", "action": "actions.a"},
                                                  {"name": "b", "action": "actions.b", "after": ["a"]}]});
    flows.declare(&ana(), vec![spec(waits)]).await.unwrap();
    let (first, second) = (run(&flows, "waits", json!(1)).await, run(&flows, "waits", json!(2)).await);
    // Longer than any number of tries would take.
    SystemClock.sleep(Duration::from_secs(2)).await;
    let explained = flows.explain(&ana(), first).await.unwrap();
    let at: Vec<&At> = explained.steps.iter().map(|step| &step.at).collect();
    assert!(matches!(at[0], At::Node { why } if why.contains("actions.a")), "{explained:?}");
    assert_eq!(*at[1], At::After { waits_for: vec!["a".into()] });
    flows.cancel(&ana(), second).await.unwrap();
    assert_eq!(ended(&flows, second).await.state, RunState::Cancelled);
    let line = flows.cancel(&ana(), second).await.unwrap_err().line();
    assert!(line.contains("has ended already"), "{line}");
    *shop.closed.lock() = false;
    assert_eq!(ended(&flows, first).await.state, RunState::Done);
    assert_eq!(shop.done.lock().len(), 2, "a and b of the first");
    flows.stop().await;
}

async fn a_task_of_the_wire_is_run_once_and_answered_once(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    let task = TaskRequest {
        id: "streq-1".into(),
        task_id: "urn:mutirao:Task:pair".into(),
        target_actions: vec!["urn:mutirao:Action:actions.a".into(), "urn:mutirao:Action:actions.b".into()],
        message_data: r#"{"x": 1}"#.into(),
        created_at: Some(5),
        processing_time: None,
    };
    for _ in 0..3 {
        flows.asked(task.clone()).await.unwrap();
    }
    let runs = flows.runs(&ana(), None, None, 10).await.unwrap();
    assert_eq!(runs.len(), 1, "asked for again is the same");
    ended(&flows, runs[0].run).await;
    until("its answer has left", || !shop.answers.lock().is_empty()).await;
    let answers = shop.answers.lock().clone();
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    let answer: TaskRequest = serde_json::from_str(answer).unwrap();
    assert_eq!((answer.id.as_str(), answer.created_at), ("streq-1", Some(5)));
    let said: Value = serde_json::from_str(&answer.message_data).unwrap();
    assert_eq!(said["output"], json!({"did": "b", "with": {"did": "a", "with": {"x": 1}}}));
    flows.asked(task.clone()).await.unwrap();
    until("whoever missed its answer has it", || shop.answers.lock().len() == 2).await;
    assert_eq!(shop.answers.lock()[1], answers[0], "the same again");
    let rights = vec!["urn:mutirao:Action:builtin.http".into()];
    let line = flows.asked(TaskRequest { id: "streq-3".into(), target_actions: rights, ..task.clone() }).await;
    assert!(line.unwrap_err().line().contains("not for clients of the wire"));
    let unknown = TaskRequest { id: "streq-2".into(), target_actions: vec!["urn:mutirao:Action:x".into()], ..task };
    assert_eq!(flows.asked(unknown).await.unwrap_err().status, 422);
    flows.stop().await;
}

async fn what_cannot_work_is_refused_with_its_place(engine: &Engine) {
    let flows = start(engine, &Workshop::new(0, 0)).await;
    let cycle = json!({"name": "c", "steps": [{"name": "a", "action": "actions.a", "after": ["b"]},
                                             {"name": "b", "action": "actions.b", "after": ["a"]}]});
    let unknown = json!({"name": "u", "steps": [{"name": "a", "action": "actions.dubble"}]});
    let both = flows.declare(&ana(), vec![spec(cycle), spec(unknown)]).await.unwrap_err().line();
    assert!(both.contains("[0]") && both.contains("[1].steps[0].action") && both.contains("actions.double"), "{both}");
    assert!(flows.flows(&ana(), "", 10).await.unwrap().is_empty(), "all or none");
    let request = RunRequest { flow: "nothing".into(), input: json!(1), idempotency_key: None };
    assert_eq!(flows.run(&ana(), request).await.unwrap_err().status, 404);
    assert_eq!(flows.show(&ana(), 99, Duration::ZERO).await.unwrap_err().status, 404);
    flows.stop().await;
}

async fn a_step_that_always_fails_fails_its_run_with_the_reason(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    let fails = json!({"name": "fails", "steps": [{"name": "a", "action": "actions.fail", "retries": 2},
                                                 {"name": "b", "action": "actions.b", "after": ["a"]}]});
    flows.declare(&ana(), vec![spec(fails)]).await.unwrap();
    let view = ended(&flows, run(&flows, "fails", json!(1)).await).await;
    assert_eq!((view.state, view.failed_step.as_deref()), (RunState::Failed, Some("a")));
    assert_eq!(view.reason.as_deref(), Some("it always does\u{fffd}"), "not every store can keep a NUL");
    let explained = flows.explain(&ana(), view.run).await.unwrap();
    assert!(matches!(&explained.steps[0].at, At::Failed { .. }), "{explained:?}");
    assert_eq!(shop.done.lock().values().sum::<u32>(), 3, "once, and two more tries");
    flows.stop().await;
}

async fn results_that_nobody_was_asked_for_change_nothing(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    *shop.closed.lock() = true;
    let flows = start(engine, &shop).await;
    let one = json!({"name": "one", "steps": [{"name": "a", "action": "actions.a"}]});
    flows.declare(&ana(), vec![spec(one)]).await.unwrap();
    let number = run(&flows, "one", json!(1)).await;
    for request in [format!("sreq.{number}.0.0.1-1"), format!("sreq.{number}.0.0.1-1.0011223344556677"), "x".into()] {
        let returned = Returned { request, end: End::Ok("\"forged\"".into()), node: None };
        assert_eq!(flows.returned(returned).await.unwrap_err().status, 422);
    }
    *shop.closed.lock() = false;
    assert_eq!(ended(&flows, number).await.output, Some(json!({"did": "a", "with": 1})));
    flows.stop().await;
}
