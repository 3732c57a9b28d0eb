//! What every store of flows keeps to.

use std::sync::Arc;

use mutirao_core::declared::Became;
use mutirao_core::id::Attempt;
use mutirao_core::{ShardId, Timestamp};
use mutirao_flows::FlowSpec;
use mutirao_flows::foreman::words::{Batch, End, Noted, Outcome, RunEnd, RunKey, StepKey, Try};
use mutirao_flows::start::RunRequest;
use mutirao_flows::store::{self, Begun, By, Fate, NewRun, Progress, RunsOf, Shared};
use mutirao_shards::Fence;
use serde_json::{Value, json};

use crate::engine::{Engine, on_both};

on_both!(
    a_flow_is_made_changed_or_left_as_it_is,
    a_run_is_asked_for_once_by_its_key,
    what_is_written_stays_as_it_is_and_comes_back,
    whoever_lost_the_shard_writes_nothing,
    where_tasks_are_is_kept_until_they_fail_there,
    runs_are_forgotten_only_after_their_answer_has_left,
    the_secret_is_the_first_that_anybody_came_with,
);

fn by() -> By {
    By { namespace: "default".into(), who: "ana".into(), at: Timestamp(5) }
}

fn spec(name: &str, action: &str) -> FlowSpec {
    serde_json::from_value(json!({"name": name, "steps": [{"name": "a", "action": action}]})).unwrap()
}

fn new_run(key: Option<&str>, input: Value) -> NewRun {
    let request = RunRequest { flow: "f".into(), input: input.clone(), idempotency_key: None };
    let asked = key.map(|key| (key.to_owned(), request.fingerprint()));
    NewRun { by: by(), spec: spec("f", "actions.a"), input, asked, reply: None }
}

/// A run of the shard that the fence is for.
async fn run_of(store: &Shared, shard: ShardId) -> RunKey {
    loop {
        let Begun::New(run) = store.begin(new_run(None, json!(1))).await.unwrap() else { panic!("asked before") };
        if mutirao_flows::shard_of(run) == shard {
            return run;
        }
    }
}

fn outcome(run: RunKey, step: u32, end: End) -> Outcome {
    let key = StepKey { run, step, item: 0 };
    let node = Some("n1".parse().unwrap());
    let why = Some("the only one".into());
    Outcome { key, end, tries: 2, node, why, began_at: Timestamp(7), ended_at: Timestamp(9) }
}

async fn a_flow_is_made_changed_or_left_as_it_is(engine: &Engine) {
    let store = store::open(&engine.database().await);
    let put = |specs: Vec<FlowSpec>| store.put(specs, by());
    assert_eq!(put(vec![spec("f", "actions.a"), spec("g", "actions.a")]).await.unwrap(), [Became::Made, Became::Made]);
    assert_eq!(
        put(vec![spec("f", "actions.b"), spec("g", "actions.a")]).await.unwrap(),
        [Became::Changed, Became::Unchanged]
    );
    let row = store.flow("default".into(), "f".into()).await.unwrap().unwrap();
    assert_eq!((row.spec, row.revision, row.changed_by.as_str()), (spec("f", "actions.b"), 2, "ana"));
    assert!(store.flow("other".into(), "f".into()).await.unwrap().is_none(), "another namespace");
    let names = |rows: Vec<store::FlowRow>| rows.into_iter().map(|row| row.spec.name).collect::<Vec<_>>();
    assert_eq!(names(store.flows("default".into(), "f".into(), 10).await.unwrap()), ["g"]);
    assert!(store.remove("default".into(), "f".into()).await.unwrap());
    assert!(!store.remove("default".into(), "f".into()).await.unwrap());
}

async fn a_run_is_asked_for_once_by_its_key(engine: &Engine) {
    let store = store::open(&engine.database().await);
    let Begun::New(first) = store.begin(new_run(Some("k"), json!({"a": 1}))).await.unwrap() else { panic!() };
    assert_eq!(store.begin(new_run(Some("k"), json!({"a": 1}))).await.unwrap(), Begun::Again(first));
    assert_eq!(store.begin(new_run(Some("k"), json!({"a": 2}))).await.unwrap(), Begun::Other(first));
    let asked = async |namespace: &str, key: &str, input: Value| {
        let (key, print) = new_run(Some(key), input).asked.unwrap();
        store.asked(namespace.into(), key, print).await.unwrap()
    };
    assert_eq!(asked("default", "k", json!({"a": 1})).await, Some(Begun::Again(first)));
    assert_eq!(asked("default", "k", json!({"a": 2})).await, Some(Begun::Other(first)));
    assert_eq!(asked("default", "l", json!({"a": 1})).await, None);
    assert_eq!(asked("other", "k", json!({"a": 1})).await, None);
    let Begun::New(second) = store.begin(new_run(None, json!({"a": 1}))).await.unwrap() else { panic!() };
    assert!(second > first);
    let which = RunsOf { namespace: "default".into(), flow: Some("f".into()), before: None, rows: 10 };
    let keys: Vec<RunKey> = store.runs(which.clone()).await.unwrap().iter().map(|row| row.key).collect();
    assert_eq!(keys, [second, first], "newest first");
    let before = RunsOf { before: Some(second), flow: None, ..which.clone() };
    assert_eq!(store.runs(before).await.unwrap().len(), 1);
    let none = RunsOf { flow: Some("g".into()), ..which };
    assert!(store.runs(none).await.unwrap().is_empty());
}

async fn what_is_written_stays_as_it_is_and_comes_back(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    let run = run_of(&store, fence.shard).await;
    let tried = |tries, reason: &str| Try { key: StepKey { run, step: 1, item: 0 }, tries, reason: reason.into() };
    let batch = Batch {
        number: 1,
        outcomes: vec![
            outcome(run, 0, End::Ok(json!({"v": [1, "x"]}).into())),
            outcome(run, 2, End::Failed("no".into())),
        ],
        tries: vec![tried(2, "second")],
        ..Batch::default()
    };
    for _ in 0..2 {
        assert_eq!(store.write(fence.clone(), Arc::new(batch.clone())).await.unwrap(), Fate::Durable);
    }
    let late = Batch {
        outcomes: vec![outcome(run, 0, End::Ok(json!("another").into()))],
        tries: vec![tried(1, "first")],
        ..Batch::default()
    };
    store.write(fence.clone(), Arc::new(late)).await.unwrap();
    let [record] = &store.read(vec![run]).await.unwrap()[..] else { panic!("one run") };
    let mut outcomes = record.outcomes.clone();
    outcomes.sort_by_key(|one| one.key);
    assert_eq!(outcomes, batch.outcomes, "the first that was written");
    assert_eq!(record.tries[0].tries, 2, "never fewer");
    let progress = Progress { outcomes: 2, ended: false };
    assert_eq!((store.progress(run).await.unwrap(), record.progress()), (Some(progress), progress));
    assert_eq!(store.progress(RunKey(u64::MAX >> 1)).await.unwrap(), None);
    assert_eq!((record.input.clone(), record.row.end.clone()), (json!(1), None));
    assert!(store.cancel(run).await.unwrap());
    assert!(store.open(fence.shard, 10).await.unwrap().contains(&(run, true)));
    let failed = RunEnd::Failed { step: Some("a".into()), reason: "no".into() };
    let ends = |end: RunEnd, at| Batch { ends: vec![(run, end, Timestamp(at))], ..Batch::default() };
    store.write(fence.clone(), Arc::new(ends(failed.clone(), 11))).await.unwrap();
    store.write(fence.clone(), Arc::new(ends(RunEnd::Done, 12))).await.unwrap();
    let row = store.row(run).await.unwrap().unwrap();
    assert_eq!(row.end, Some((failed, Timestamp(11))), "the first end counts");
    assert!(!store.cancel(run).await.unwrap(), "it has ended");
    assert_eq!(store.progress(run).await.unwrap(), Some(Progress { outcomes: 2, ended: true }));
}

async fn whoever_lost_the_shard_writes_nothing(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    let run = run_of(&store, fence.shard).await;
    let former = Fence { generation: fence.generation + 1, ..fence };
    let batch = Batch { outcomes: vec![outcome(run, 0, End::Ok(json!(1).into()))], ..Batch::default() };
    assert_eq!(store.write(former, Arc::new(batch)).await.unwrap(), Fate::Fenced);
    assert!(store.read(vec![run]).await.unwrap()[0].outcomes.is_empty());
}

async fn where_tasks_are_is_kept_until_they_fail_there(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    let run = run_of(&store, fence.shard).await;
    let key = |step| StepKey { run, step, item: 0 };
    let noted = |step, n, node: &str| Noted {
        key: key(step),
        attempt: Attempt { generation: 3, n },
        node: node.parse().unwrap(),
        since: Timestamp(10 * i64::from(n)),
    };
    let write =
        async |batch: Batch| assert_eq!(store.write(fence.clone(), Arc::new(batch)).await.unwrap(), Fate::Durable);
    let kept = async || {
        let mut noted = store.read(vec![run]).await.unwrap().remove(0).noted;
        noted.sort_by_key(|one| one.key);
        noted
    };
    write(Batch { noted: vec![noted(0, 1, "n1"), noted(1, 1, "n1"), noted(1, 2, "n2")], ..Batch::default() }).await;
    assert_eq!(kept().await, [noted(0, 1, "n1"), noted(1, 2, "n2")], "the last word of each");
    let tried = |step| Try { key: key(step), tries: 1, reason: "no".into() };
    write(Batch { tries: vec![tried(0), tried(1)], noted: vec![noted(1, 3, "n3")], ..Batch::default() }).await;
    assert_eq!(kept().await, [noted(1, 3, "n3")], "of a task that was tried in vain, what came after that");
}

async fn runs_are_forgotten_only_after_their_answer_has_left(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = store::open(&database);
    let run = run_of(&store, fence.shard).await;
    let end = Batch {
        outcomes: vec![outcome(run, 0, End::Ok(json!(1).into()))],
        ends: vec![(run, RunEnd::Done, Timestamp(100))],
        ..Batch::default()
    };
    store.write(fence.clone(), Arc::new(end)).await.unwrap();
    assert_eq!(store.sweep(Timestamp(1_000), 10).await.unwrap(), 0, "somebody waits for its answer");
    assert!(store.open(fence.shard, 100).await.unwrap().contains(&(run, false)));
    store.write(fence.clone(), Arc::new(Batch { announced: vec![run], ..Batch::default() })).await.unwrap();
    assert!(!store.open(fence.shard, 100).await.unwrap().contains(&(run, false)));
    assert_eq!(store.sweep(Timestamp(100), 10).await.unwrap(), 0, "not old enough");
    assert_eq!(store.sweep(Timestamp(101), 10).await.unwrap(), 1);
    assert!(store.read(vec![run]).await.unwrap().is_empty());
}

async fn the_secret_is_the_first_that_anybody_came_with(engine: &Engine) {
    let store = store::open(&engine.database().await);
    assert_eq!(store.secret([1; 32]).await.unwrap().0, [1; 32]);
    assert_eq!(store.secret([2; 32]).await.unwrap().0, [1; 32]);
}
