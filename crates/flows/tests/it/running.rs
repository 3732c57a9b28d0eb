//! The capability at work: runs that go on while results are lost and doubled, and while their owner comes and goes.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::rabbit::Config;
use mutirao_broker::{Limits, Memory, Rabbit, Shared as Broker};
use mutirao_core::auth::{Principal, Role};
use mutirao_core::clock::{Clock, ClockExt};
use mutirao_core::{Dice, SystemClock};
use mutirao_flows::foreman::Rules;
use mutirao_flows::foreman::explaining::At;
use mutirao_flows::start::RunRequest;
use mutirao_flows::view::{RunState, RunView};
use mutirao_flows::{FlowSpec, Flows, FlowsParts};
use mutirao_nodes::Namespace;
use mutirao_nodes::errand::{End, Returned, Taker};
use mutirao_nodes::wire::{Parameters, TaskRequest};
use mutirao_shards::store as leases;
use mutirao_shards::{MemberId, Terms};
use mutirao_testkit::services;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, on_both};
use crate::workshop::Workshop;

on_both!(
    a_flow_runs_to_its_end_and_says_how_each_step_went,
    runs_go_on_where_they_were_when_another_process_takes_over,
    two_managers_share_the_runs_and_pass_results_on,
    a_step_waits_for_its_node_and_explain_says_so,
    a_flow_that_nobody_can_be_given_is_taken_with_a_warning,
    a_task_of_the_wire_is_run_once_and_answered_once,
    clients_that_are_told_apart_have_ids_of_their_own_and_are_told_apart,
    whoever_asks_again_gets_the_run_that_was_accepted_whatever_has_become_of_its_flow_and_of_room,
    what_cannot_work_is_refused_with_its_place,
    a_step_that_always_fails_fails_its_run_with_the_reason,
    results_that_nobody_was_asked_for_change_nothing,
    a_result_finds_its_run_though_the_new_owner_has_not_loaded_it,
    any_manager_says_where_a_run_waits,
    runs_that_would_take_too_much_memory_are_refused_until_some_have_ended,
    a_result_that_is_too_large_is_a_failure_of_its_action,
    a_try_takes_as_long_as_its_action_declared_when_the_run_began,
    whoever_follows_a_run_is_told_of_each_step_and_of_its_end,
);

/// Longer than a step that was lost takes until it is tried anew, twice.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) async fn start(engine: &Engine, shop: &Arc<Workshop>) -> Flows {
    let flows = start_as(engine, shop, Terms::alone(), Memory::new(None, Limits::default())).await;
    *shop.taker.lock() = Some(flows.clone());
    flows
}

/// With others: leases of a second or so, and a broker that they share.
async fn start_as(engine: &Engine, shop: &Arc<Workshop>, terms: Terms, broker: Broker) -> Flows {
    start_with(engine, shop, terms, broker, Rules::default()).await
}

async fn start_with(engine: &Engine, shop: &Arc<Workshop>, terms: Terms, broker: Broker, rules: Rules) -> Flows {
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
        rules,
        shutdown: CancellationToken::new(),
    };
    Flows::start(parts).await.unwrap()
}

pub(crate) fn ana() -> Principal {
    Principal { id: "t1".into(), name: "ana".into(), role: Role::Admin, namespace: "default".into() }
}

pub(crate) fn spec(json: Value) -> FlowSpec {
    serde_json::from_value(json).unwrap()
}

pub(crate) async fn run(flows: &Flows, flow: &str, input: Value) -> u64 {
    let request = RunRequest { flow: flow.into(), input, idempotency_key: None };
    flows.run(&ana(), request).await.unwrap().run
}

pub(crate) async fn ended(flows: &Flows, run: u64) -> RunView {
    let view = flows.show(&ana(), run, PATIENCE).await.unwrap();
    assert_ne!(view.state, RunState::Running, "{view:?}");
    view
}

fn graph() -> FlowSpec {
    spec(json!({"name": "graph", "output": "steps.each.output", "steps": [
        {"name": "list", "action": "actions.list", "timeout": "300ms", "retries": 50},
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

async fn a_flow_that_nobody_can_be_given_is_taken_with_a_warning(engine: &Engine) {
    let flows = start(engine, &Workshop::new(0, 0)).await;
    let step = |name: &str, on: Value| json!({"name": name, "action": "actions.a", "on": on});
    let flow = json!({"name": "f", "steps": [step("a", json!({})), step("b", json!({"node": "gate-8"}))]});
    let declared = flows.declare(&ana(), vec![spec(flow)]).await.unwrap();
    let warning = "step b waits until a node can be given it: there is no node gate-8";
    assert_eq!(declared[0].warnings, [warning]);
    assert_eq!(flows.runs(&ana(), Some("f".into()), None, 10).await.unwrap(), [], "it is there, and has none");
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
    // Held until all three have come: whoever asks after the end is answered anew.
    *shop.holds.lock() = true;
    for _ in 0..3 {
        flows.asked(task.clone(), None).await.unwrap();
    }
    let runs = flows.runs(&ana(), None, None, 10).await.unwrap();
    assert_eq!(runs.len(), 1, "asked for again is the same");
    until("its first step is done", || !shop.held.lock().is_empty()).await;
    *shop.holds.lock() = false;
    let held = std::mem::take(&mut *shop.held.lock());
    for returned in held {
        flows.returned(returned).await.unwrap();
    }
    ended(&flows, runs[0].run).await;
    until("its answer has left", || !shop.answers.lock().is_empty()).await;
    let answers = shop.answers.lock().clone();
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    let answer: TaskRequest = serde_json::from_str(answer).unwrap();
    assert_eq!((answer.id.as_str(), answer.created_at), ("streq-1", Some(5)));
    let said: Value = serde_json::from_str(&answer.message_data).unwrap();
    assert_eq!(said["output"], json!({"did": "b", "with": {"did": "a", "with": {"x": 1}}}));
    flows.asked(task.clone(), None).await.unwrap();
    until("whoever missed its answer has it", || shop.answers.lock().len() == 2).await;
    assert_eq!(shop.answers.lock()[1], answers[0], "the same again");
    let other = TaskRequest { message_data: r#"{"x": 2}"#.into(), ..task.clone() };
    flows.asked(other, None).await.unwrap();
    let refused: TaskRequest = serde_json::from_str(&shop.answers.lock()[2]).unwrap();
    assert_eq!(refused.id, "streq-1");
    let said: Value = serde_json::from_str(&refused.message_data).unwrap();
    assert!(said["state"] == "refused" && said["reason"].as_str().is_some_and(|why| why.contains("streq-1")), "{said}");
    assert_eq!(flows.runs(&ana(), None, None, 10).await.unwrap().len(), 1, "nothing was run for it");
    let rights = vec!["urn:mutirao:Action:builtin.http".into()];
    let line = flows.asked(TaskRequest { id: "streq-3".into(), target_actions: rights, ..task.clone() }, None).await;
    assert!(line.unwrap_err().line().contains("not for clients of the wire"));
    let unknown = TaskRequest { id: "streq-2".into(), target_actions: vec!["urn:mutirao:Action:x".into()], ..task };
    assert_eq!(flows.asked(unknown, None).await.unwrap_err().status, 422);
    // Whoever asked for either hears of it.
    let told = shop.answers.lock()[3..].iter().map(|text| serde_json::from_str(text).unwrap()).collect::<Vec<Value>>();
    let said = |one: &Value| one["messageData"].as_str().or(one["message_data"].as_str()).map(str::to_owned).unwrap();
    let [rights, unknown] = &told[..] else { panic!("{told:?}") };
    assert!(said(rights).contains("refused") && said(rights).contains("not for clients of the wire"), "{rights}");
    assert_eq!(unknown["requestID"], "streq-2");
    let unknown: Value = serde_json::from_str(&said(unknown)).unwrap();
    assert!(unknown["state"] == "refused" && unknown["error"].as_str().unwrap().contains("no node has"), "{unknown}");
    flows.stop().await;
}

async fn whoever_asks_again_gets_the_run_that_was_accepted_whatever_has_become_of_its_flow_and_of_room(
    engine: &Engine,
) {
    let shop = Workshop::new(0, 0);
    *shop.closed.lock() = true;
    let (broker, rules) = (Memory::new(None, Limits::default()), Rules { runs_max: 1, ..Rules::default() });
    let flows = start_with(engine, &shop, Terms::alone(), broker, rules).await;
    *shop.taker.lock() = Some(flows.clone());
    let one = json!({"name": "one", "steps": [{"name": "a", "action": "actions.a"}]});
    flows.declare(&ana(), vec![spec(one)]).await.unwrap();
    let request =
        |key: &str, n: u32| RunRequest { flow: "one".into(), input: json!(n), idempotency_key: Some(key.into()) };
    let task = |id: &str| TaskRequest {
        id: id.into(),
        task_id: "urn:mutirao:Task:t".into(),
        target_actions: vec!["urn:mutirao:Action:actions.a".into()],
        message_data: "1".into(),
        created_at: None,
        processing_time: None,
    };
    let first = flows.run(&ana(), request("once", 1)).await.unwrap().run;
    let status =
        |asked: Result<_, mutirao_core::Problem>| asked.map(|_: ()| 0).unwrap_or_else(|problem| problem.status);
    let mut asked = 0;
    until_some("there is no room", async || {
        asked += 1;
        (status(flows.asked(task(&format!("t{asked}")), None).await) == 429).then_some(())
    })
    .await;
    assert_eq!(flows.run(&ana(), request("once", 1)).await.unwrap().run, first, "it takes no more room");
    assert_eq!(status(flows.run(&ana(), request("once", 2)).await.map(drop)), 409);
    assert_eq!(status(flows.run(&ana(), request("another", 1)).await.map(drop)), 429);
    if asked > 1 {
        assert_eq!(status(flows.asked(task("t1"), None).await), 0);
    }
    flows.remove(&ana(), "one").await.unwrap();
    assert_eq!(flows.run(&ana(), request("once", 1)).await.unwrap().run, first, "though its flow is gone");
    assert_eq!(status(flows.run(&ana(), request("another", 1)).await.map(drop)), 404);
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
    let several = json!({"name": "s", "steps": [{"name": "a", "action": "actions.dubble", "retries": 1000},
                                               {"name": "b", "action": "actions.b", "input": "steps.aa.output"}]});
    let lines = flows.declare(&ana(), vec![spec(several.clone())]).await.unwrap_err().line();
    for place in ["steps[0].action: ", "steps[0].retries: ", "steps[1].input: "] {
        assert!(lines.contains(place), "{place} is not in {lines}");
    }
    assert_eq!(flows.wrong_flows(&[spec(several)]).await.len(), 3);
    let runs = flows.runs(&ana(), Some("nope".into()), None, 10).await.unwrap_err().line();
    assert!(runs.starts_with("there is no flow \"nope\""), "{runs}");
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

/// What nodes gave back while nobody looked after a run reaches it, also when the new owner has no room for it yet.
async fn a_result_finds_its_run_though_the_new_owner_has_not_loaded_it(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    *shop.holds.lock() = true;
    let (terms, broker) = (Terms::of(Duration::from_secs(2)), Memory::new(None, Limits::default()));
    let first = start_with(engine, &shop, terms, broker.clone(), Rules::default()).await;
    *shop.taker.lock() = Some(first.clone());
    let one = json!({"name": "one", "steps": [{"name": "a", "action": "actions.a", "timeout": "10m"}]});
    first.declare(&ana(), vec![spec(one)]).await.unwrap();
    let mut runs = Vec::new();
    // Two of each shard.
    for n in 0..2 * mutirao_flows::SHARDS {
        runs.push(run(&first, "one", json!(n)).await);
    }
    until("everything is out", || shop.held.lock().len() == runs.len()).await;
    // As if it were killed.
    *shop.taker.lock() = None;
    drop(first);
    // The next owner reaches no node, and loads one run of each shard.
    let other = Workshop::new(0, 0);
    *other.closed.lock() = true;
    let rules = Rules { runs_max: 1, ..Rules::default() };
    let second = start_with(engine, &other, terms, broker, rules).await;
    let held = std::mem::take(&mut *shop.held.lock());
    // Those of the second of each shard first.
    for returned in held.into_iter().rev() {
        let said = async {
            // Nobody may be the owner yet; then it is said again, as nodes do.
            while second.returned(returned.clone()).await.is_err() {
                SystemClock.sleep(Duration::from_millis(50)).await;
            }
        };
        SystemClock.timeout(PATIENCE, said).await.expect("every result is taken");
    }
    for (n, run) in runs.iter().enumerate() {
        let view = ended(&second, *run).await;
        assert_eq!((view.state, view.output), (RunState::Done, Some(json!({"did": "a", "with": n}))), "run {run}");
    }
    assert!(other.done.lock().is_empty(), "nothing was run again");
    second.stop().await;
}

async fn any_manager_says_where_a_run_waits(engine: &Engine) {
    says_where_a_run_waits(engine, Memory::new(None, Limits::default())).await;
    if let Some(url) = services::shared("MUTIRAO_TEST_AMQP") {
        let prefix = format!("flows{:x}.", mutirao_core::dice::name() as u64);
        let config = Config::new(url, SystemClock::shared(), Arc::new(Dice::from_os()));
        let rabbit = Rabbit::connect(Config { prefix, ..config }).await.unwrap();
        says_where_a_run_waits(engine, rabbit.clone()).await;
        rabbit.close();
    }
}

async fn says_where_a_run_waits(engine: &Engine, broker: Broker) {
    let shop = Workshop::new(0, 0);
    *shop.holds.lock() = true;
    let terms = Terms::of(Duration::from_secs(2));
    let first = start_as(engine, &shop, terms, broker.clone()).await;
    let second = start_as(engine, &shop, terms, broker).await;
    *shop.taker.lock() = Some(first.clone());
    let one = json!({"name": "one", "steps": [{"name": "a", "action": "actions.a", "timeout": "10m"}]});
    first.declare(&ana(), vec![spec(one)]).await.unwrap();
    let mut runs = Vec::new();
    for n in 0..mutirao_flows::SHARDS {
        runs.push(run(&first, "one", json!(n)).await);
    }
    until("everything is out", || shop.held.lock().len() >= runs.len()).await;
    let mut elsewhere = 0;
    for manager in [&first, &second] {
        for run in &runs {
            let explained = until_some("its owner says where it is", async || {
                let explained = manager.explain(&ana(), *run).await.unwrap();
                matches!(&explained.steps[0].at, At::Sent { node: Some(_), .. }).then_some(explained)
            });
            let explained = explained.await;
            let At::Sent { node, why, .. } = &explained.steps[0].at else { panic!("{explained:?}") };
            assert_eq!((node.as_ref().unwrap().as_str(), why.as_deref()), ("shop", Some("the only one")));
            elsewhere += usize::from(explained.owned_at.is_some());
        }
    }
    assert!(elsewhere > 0, "nobody was asked about another's run");
    first.stop().await;
    second.stop().await;
}

pub(crate) async fn until_some<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = look().await {
            return found;
        }
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    panic!("it was never so that {what}");
}

async fn runs_that_would_take_too_much_memory_are_refused_until_some_have_ended(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    *shop.closed.lock() = true;
    let broker = Memory::new(None, Limits::default());
    let rules = Rules { bytes_max: 300_000, ..Rules::default() };
    let flows = start_with(engine, &shop, Terms::alone(), broker, rules).await;
    *shop.taker.lock() = Some(flows.clone());
    let one = json!({"name": "one", "steps": [{"name": "a", "action": "actions.a"}]});
    flows.declare(&ana(), vec![spec(one)]).await.unwrap();
    let ask = async || {
        let request = RunRequest { flow: "one".into(), input: json!("x".repeat(100_000)), idempotency_key: None };
        flows.run(&ana(), request).await
    };
    let mut runs = Vec::new();
    let problem = loop {
        match ask().await {
            Ok(line) => runs.push(line.run),
            Err(problem) => break problem,
        }
        assert!(runs.len() < 500, "nobody said no");
        SystemClock.sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((problem.status, problem.retry_after_s), (429, Some(5)));
    assert!(problem.line().contains("flows.memory"), "{}", problem.line());
    assert!(runs.len() >= 16, "{} were taken", runs.len());
    *shop.closed.lock() = false;
    for run in &runs {
        assert_eq!(ended(&flows, *run).await.state, RunState::Done);
    }
    until_some("there is room again", async || ask().await.ok()).await;
    flows.stop().await;
}

async fn a_result_that_is_too_large_is_a_failure_of_its_action(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    let large = json!({"name": "large", "steps": [{"name": "a", "action": "actions.large", "retries": 0}]});
    flows.declare(&ana(), vec![spec(large)]).await.unwrap();
    let view = ended(&flows, run(&flows, "large", json!(1)).await).await;
    assert_eq!(view.state, RunState::Failed);
    assert!(view.reason.as_deref().is_some_and(|why| why.contains("the most is 262144")), "{:?}", view.reason);
    flows.stop().await;
}

async fn clients_that_are_told_apart_have_ids_of_their_own_and_are_told_apart(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    let task = |x: u32| -> TaskRequest {
        let data = format!("{{\"x\": {x}}}");
        let task = json!({"id": "t", "task_id": "t", "target_actions": ["urn:mutirao:Action:actions.a"], "message_data": data});
        serde_json::from_value(task).unwrap()
    };
    for (n, client) in [(1, Some("ana")), (2, Some("rui")), (3, None)] {
        flows.asked(task(n), client).await.unwrap();
    }
    until("each is answered", || shop.answers.lock().len() == 3).await;
    assert_eq!(flows.runs(&ana(), None, None, 10).await.unwrap().len(), 3, "one id, three clients");
    let told = || shop.told.lock().iter().cloned().zip(shop.answers.lock().clone()).collect::<Vec<_>>();
    let of = |client: Option<&str>, x: u32| {
        told().iter().filter(|(who, text)| who.as_deref() == client && text.contains(&format!("\\\"x\\\":{x}"))).count()
    };
    assert_eq!((of(Some("ana"), 1), of(Some("rui"), 2), of(None, 3)), (1, 1, 1), "{:?}", told());
    // Asked again it is the same run, and who asked is told again; what was used for another is refused to that one.
    flows.asked(task(1), Some("ana")).await.unwrap();
    until("it is told again", || of(Some("ana"), 1) == 2).await;
    flows.asked(task(9), Some("rui")).await.unwrap();
    let (who, refused) = told().pop().unwrap();
    assert!(who.as_deref() == Some("rui") && refused.contains("refused"), "{who:?} {refused}");
    assert_eq!(flows.runs(&ana(), None, None, 10).await.unwrap().len(), 3);
    flows.stop().await;
}

async fn a_try_takes_as_long_as_its_action_declared_when_the_run_began(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    let steps = json!([{"name": "a", "action": "actions.a"}]);
    flows.declare(&ana(), vec![spec(json!({"name": "one", "steps": steps}))]).await.unwrap();
    *shop.holds.lock() = true;
    *shop.declared.lock() = Some(Parameters { timeout: 200, retry: 1 });
    let number = run(&flows, "one", json!(1)).await;
    let task: TaskRequest =
        serde_json::from_value(json!({"id": "t", "task_id": "t", "target_actions": ["urn:mutirao:Action:actions.a"]}))
            .unwrap();
    flows.asked(task, None).await.unwrap();
    *shop.declared.lock() = Some(Parameters { timeout: 1_000_000, retry: 50 });
    let view = ended(&flows, number).await;
    assert_eq!(
        (view.state, view.reason.as_deref()),
        (RunState::Failed, Some("it was not heard of within its timeout"))
    );
    assert_eq!(view.steps["a"]["tries"], 2);
    until_some("the client is told", async || shop.answers.lock().pop().filter(|text| text.contains("not heard of")))
        .await;
    assert_eq!(shop.held.lock().len(), 4, "two tries of each");
    flows.stop().await;
}

async fn whoever_follows_a_run_is_told_of_each_step_and_of_its_end(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    *shop.closed.lock() = true;
    let flows = start(engine, &shop).await;
    let pair = json!({"name": "pair", "steps": [{"name": "a", "action": "actions.a"},
                                               {"name": "b", "action": "actions.b", "after": ["a"]}]});
    flows.declare(&ana(), vec![spec(pair)]).await.unwrap();
    let number = run(&flows, "pair", json!(1)).await;
    assert_eq!(flows.follow(&ana(), 999, Duration::ZERO).await.err().map(|problem| problem.status), Some(404));
    let mut follower = flows.follow(&ana(), number, Duration::ZERO).await.unwrap();
    let first = follower.next().await.unwrap();
    assert_eq!((first.state, first.steps.as_object().map(|steps| steps.len())), (RunState::Running, Some(0)));
    *shop.closed.lock() = false;
    let mut views = vec![first];
    while views.last().is_some_and(|view| view.state == RunState::Running) {
        views.push(SystemClock.timeout(PATIENCE, follower.next()).await.expect("it is told").expect("there is more"));
    }
    let ended: Vec<usize> = views.iter().map(|view| view.steps.as_object().map_or(0, |steps| steps.len())).collect();
    assert!(ended.is_sorted() && ended.last() == Some(&2), "{ended:?}");
    assert_eq!(views.last().unwrap().output, Some(json!({"did": "b", "with": {"did": "a", "with": 1}})));
    flows.stop().await;
}
