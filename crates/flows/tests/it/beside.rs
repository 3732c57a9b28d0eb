//! A run that speaks of large outputs many times, beside others of its shard.

use std::time::Duration;

use mutirao_core::SystemClock;
use mutirao_core::clock::ClockExt;
use mutirao_flows::view::RunState;
use serde_json::json;

use crate::engine::{Engine, on_both};
use crate::running::{ana, ended, run, spec, start};
use crate::workshop::Workshop;

on_both!(a_run_of_large_outputs_keeps_no_other_of_its_shard_waiting);

/// On a machine that does much else.
const SOON: Duration = Duration::from_secs(20);

async fn a_run_of_large_outputs_keeps_no_other_of_its_shard_waiting(engine: &Engine) {
    let shop = Workshop::new(0, 0);
    let flows = start(engine, &shop).await;
    // A hundred and sixty thousand numbers, of which each of a thousand items goes over many.
    let heavy = spec(json!({"name": "heavy", "steps": [
        {"name": "big", "action": "actions.numbers", "each": "input.few"},
        {"name": "many", "action": "actions.a", "each": "input.many", "at_most": 1000, "at_once": 1000,
         "input": {"item": "item", "all": "size(steps.big.output[index % 8].filter(n, n > 0)) + size(steps.big.output)"}}]}));
    let light = spec(json!({"name": "light", "steps": [{"name": "a", "action": "actions.a", "input": "input"}]}));
    flows.declare(&ana(), vec![heavy, light]).await.unwrap();
    let (few, many): (Vec<u32>, Vec<u32>) = ((0..8).collect(), (0..1_000).collect());
    let first = run(&flows, "heavy", json!({"few": few, "many": many})).await;
    let begun = || shop.done.lock().keys().filter(|done| done.starts_with("urn:mutirao:Action:actions.a ")).count();
    crate::running::until_some("the list has begun", async || (begun() > 0).then_some(())).await;
    let clock = SystemClock::shared();
    let mut in_its_shard = 0;
    for n in 0..16 {
        let number = run(&flows, "light", json!(n)).await;
        in_its_shard += u32::from(number % 16 == first % 16);
        let view = clock.timeout(SOON, ended(&flows, number)).await;
        assert_eq!(view.map(|view| view.state).ok(), Some(RunState::Done), "run {number} beside run {first}");
    }
    assert_eq!(in_its_shard, 1);
    let view = clock.timeout(SOON, flows.show(&ana(), first, Duration::ZERO)).await.expect("it is shown").unwrap();
    assert_eq!(view.state, RunState::Running, "or this shows nothing");
    let before = begun();
    crate::running::until_some("it goes on", async || (begun() > before).then_some(())).await;
    flows.cancel(&ana(), first).await.unwrap();
    assert_eq!(ended(&flows, first).await.state, RunState::Cancelled);
    flows.stop().await;
}
