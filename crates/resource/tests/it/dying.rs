//! A resource manager that dies at every one of its calls, a provider that fails, answers that get lost: nothing leaks, the
//! ceiling holds, and what is there is what is recorded.

use std::collections::BTreeSet;

use mutirao_elastic::packing::{Kind, Layer};

use super::world::{Faults, World, capacity, n_for_n, queue};

const MAX: u32 = 4;
const NODES: [(&str, u32); 2] = [("a", 2), ("b", 3)];
const SETTLED_WITHIN_S: u64 = 60;

/// Tasks come twice; in between and at the end everybody but the floor goes.
async fn story(faults: Faults, seed: u64, how: &str) -> World {
    let faults = Faults { ends_untold: true, ..faults };
    let world = World::new(n_for_n(1, MAX), &NODES, faults, seed);
    let mut active = None;
    world.work().ready.extend([3, 9, 4, 6, 2, 7]);
    let mut deaths = world.live(&mut active, 45).await;
    world.work().ready.extend([5, 5, 5]);
    deaths += world.live(&mut active, 45 + SETTLED_WITHIN_S).await;
    if deaths > 0 {
        world.live(&mut active, SETTLED_WITHIN_S).await;
    }
    world.settled(1, how);
    {
        let work = world.work();
        assert_eq!((work.done, work.ready.len()), (9, 0), "{how}: tasks are lost");
    }
    world
}

#[tokio::test]
async fn workers_come_with_tasks_and_go_after_them() {
    let world = story(Faults::default(), 1, "nothing fails").await;
    let inner = world.0.lock();
    assert!(inner.launched >= u64::from(MAX), "{} launched", inner.launched);
    assert!(inner.offer.is_some() && inner.lines[&queue()].trouble.is_none());
}

#[tokio::test]
async fn whenever_it_dies_nothing_leaks_and_the_ceiling_holds() {
    let calls = story(Faults::default(), 1, "nobody dies").await.0.lock().calls;
    for lands in [false, true] {
        // Nine in ten calls are balance checks of quiet seconds; those near a change are all among the first of it.
        for dies_at in 1..=calls {
            let how = format!("dies at call {dies_at} of {calls}, lands: {lands}");
            story(Faults { dies_at: vec![dies_at], lands, ..Faults::default() }, 1, &how).await;
        }
    }
}

#[tokio::test]
async fn a_provider_that_fails_each_third_call_leaks_nothing() {
    for seed in 0..40 {
        let faults = Faults { provider_fails_each: Some(3), ..Faults::default() };
        let world = story(faults, seed, &format!("seed {seed}")).await;
        let errors = world.0.lock().errors;
        assert!(errors > 1, "seed {seed}: {errors} failures prove little");
    }
}

#[tokio::test]
async fn answers_that_are_lost_create_nobody_twice() {
    for each in 3..14 {
        story(Faults { answers_lost_each: Some(each), ..Faults::default() }, each, &format!("each {each}")).await;
    }
}

#[tokio::test]
async fn a_provider_that_often_does_not_say_what_it_has_slows_nothing_down_for_long() {
    for seed in 0..20 {
        let faults = Faults { lists_not_each: Some(3), ..Faults::default() };
        let world = story(faults, seed, &format!("seed {seed}")).await;
        let failures = world.work().trouble.as_ref().map_or(0, |trouble| trouble.failures);
        assert!(failures <= 1, "seed {seed}: what was got over is not counted");
    }
}

#[tokio::test]
async fn a_provider_that_lists_what_is_not_there_and_forgets_what_is_leaks_nothing() {
    for seed in 0..20 {
        let faults = Faults { forgets_each: Some(2 + seed % 3), invents_each: Some(3), ..Faults::default() };
        story(faults, seed, &format!("seed {seed}")).await;
    }
}

/// Nodes are made for tasks and given back after them. Gives the calls around which there were more or fewer nodes.
async fn made_and_given_back(faults: Faults, how: &str) -> Vec<u64> {
    let world = World::new(n_for_n(0, 5), &[("own", 1)], faults, 1);
    world.0.lock().kinds.push(Kind {
        name: "small".into(),
        capacity: capacity(2),
        labels: Default::default(),
        layer: Layer::Cloud,
        price_micros_per_hour: 10,
        market: Default::default(),
        boot: Default::default(),
        interrupted_every: None,
        available: 6,
    });
    world.work().ready.extend([30; 5]);
    let (mut active, mut nodes, mut changes) = (None, 1, Vec::new());
    for _ in 0..480 {
        world.live(&mut active, 1).await;
        let inner = world.0.lock();
        if inner.nodes.len() != nodes {
            nodes = inner.nodes.len();
            changes.push(inner.calls);
        }
    }
    world.settled(0, how);
    assert_eq!((nodes, world.work().done), (1, 5), "{how}: nodes and tasks");
    changes
}

#[tokio::test]
async fn whenever_it_dies_nodes_that_it_had_made_are_used_or_given_back() {
    let changes = made_and_given_back(Faults::default(), "nobody dies").await;
    assert!(changes.len() >= 2, "{changes:?}");
    let near: BTreeSet<u64> = changes.iter().flat_map(|at| at.saturating_sub(6)..at + 4).collect();
    for lands in [false, true] {
        for dies_at in &near {
            let how = format!("dies at call {dies_at}, lands: {lands}");
            made_and_given_back(Faults { dies_at: vec![*dies_at], lands, ..Faults::default() }, &how).await;
        }
    }
}

#[tokio::test]
async fn all_of_it_together_leaks_nothing() {
    for seed in 0..60 {
        let dies_at = (1..8).map(|n| n * 11 + seed % 11).collect();
        let faults = Faults {
            dies_at,
            lands: seed % 2 == 0,
            provider_fails_each: Some(3),
            lists_not_each: Some(3),
            answers_lost_each: Some(7),
            forgets_each: Some(5),
            invents_each: Some(4),
            mute_each: None,
            ends_untold: true,
        };
        let world = World::new(n_for_n(1, MAX), &NODES, faults, seed);
        let mut active = None;
        world.work().ready.extend([3, 9, 4, 6, 2, 7]);
        world.live(&mut active, 300).await;
        world.settled(1, &format!("seed {seed}"));
    }
}

#[tokio::test]
async fn workers_that_never_report_are_given_up_and_replaced() {
    let world = World::new(n_for_n(2, MAX), &NODES, Faults { mute_each: Some(1), ..Faults::default() }, 3);
    let mut active = None;
    world.live(&mut active, 160).await;
    let trouble = world.work().trouble.clone();
    assert!(trouble.is_some_and(|trouble| trouble.error.contains("did not report")), "it is shown");
    world.0.lock().faults.mute_each = None;
    world.live(&mut active, 400).await;
    world.settled(2, "mute ones");
}
