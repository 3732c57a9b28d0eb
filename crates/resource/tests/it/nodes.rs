//! Nodes that die, are cordoned, drained, made and given back.

use mutirao_elastic::fleet::Life;
use mutirao_elastic::packing::{Kind, Layer, NodeName};
use mutirao_elastic::protocol::Wish;
use mutirao_resource::Origin;

use super::world::{Faults, World, capacity, n_for_n};

fn on(world: &World, node: &str) -> usize {
    world.0.lock().processes.values().filter(|process| process.node.0 == node).count()
}

/// Nodes and processes.
fn there(world: &World) -> (usize, usize) {
    let inner = world.0.lock();
    (inner.nodes.len(), inner.processes.len())
}

fn wish(world: &World, node: &str, wish: Wish) {
    world.0.lock().nodes.get_mut(&NodeName(node.into())).expect("a node").wish = wish;
}

#[tokio::test]
async fn a_drained_node_has_its_workers_replaced_and_takes_none() {
    let world = World::new(n_for_n(3, 6), &[("a", 3), ("b", 6)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 20).await;
    assert_eq!((on(&world, "a"), on(&world, "b")), (3, 0), "one node is filled before the next");
    wish(&world, "a", Wish::Drained);
    for _ in 0..60 {
        world.live(&mut active, 1).await;
        assert!(world.0.lock().processes.len() >= 2, "replaced one after the other");
    }
    assert_eq!((on(&world, "a"), on(&world, "b")), (0, 3));
    world.settled(3, "drained");
}

#[tokio::test]
async fn a_cordoned_node_keeps_what_it_has_and_takes_none() {
    let world = World::new(n_for_n(1, 3), &[("a", 3), ("b", 3)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 20).await;
    wish(&world, "a", Wish::Cordoned);
    world.work().ready.extend([5; 9]);
    world.live(&mut active, 12).await;
    assert_eq!((on(&world, "a"), on(&world, "b")), (1, 2));
}

#[tokio::test]
async fn what_died_with_its_node_is_replaced_and_its_tasks_run() {
    let world = World::new(n_for_n(0, 4), &[("a", 2), ("b", 2)], Faults::default(), 1);
    let mut active = None;
    world.work().ready.extend([20; 12]);
    world.live(&mut active, 25).await;
    world.0.lock().kill_node("a");
    world.live(&mut active, 250).await;
    assert_eq!(world.work().done, 12);
    world.settled(0, "a node died");
}

#[tokio::test]
async fn nodes_are_made_for_those_without_a_place_and_given_back_when_empty() {
    let world = World::new(n_for_n(0, 5), &[("own", 1)], Faults::default(), 1);
    let kind = Kind {
        name: "small".into(),
        capacity: capacity(2),
        labels: Default::default(),
        layer: Layer::Cloud,
        price_micros_per_hour: 10,
        market: Default::default(),
        boot: Default::default(),
        interrupted_every: None,
        available: 2,
    };
    world.0.lock().kinds.push(kind);
    let mut active = None;
    world.work().ready.extend([90; 5]);
    world.live(&mut active, 60).await;
    assert_eq!(there(&world), (3, 5));
    world.live(&mut active, 300).await;
    assert_eq!(there(&world), (1, 0), "the empty ones are given back");
    world.settled(0, "nodes made");
}

#[tokio::test]
async fn without_a_place_it_is_said_why() {
    let world = World::new(n_for_n(3, 5), &[("own", 1)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 20).await;
    let because = world.work().decision.clone().expect("a decision").because.to_string();
    assert!(because.contains("2 have no place now: every node that would do is full"), "{because}");
}

#[tokio::test]
async fn whoever_is_on_a_node_that_is_taken_back_goes_at_once_and_is_replaced_elsewhere() {
    let world = World::new(n_for_n(3, 6), &[("own", 3), ("spot", 6)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 20).await;
    assert_eq!((on(&world, "spot"), on(&world, "own")), (0, 3), "one node is filled before the next");
    world.work().ready.extend([400, 4, 4]);
    world.live(&mut active, 3).await;
    world.0.lock().nodes.get_mut(&NodeName("own".into())).expect("a node").origin = Origin::Taken;
    world.live(&mut active, 1).await;
    let told = world.work().members.values().filter(|member| member.life >= Life::Draining).count();
    assert_eq!(told, 3, "all of them, though a floor of three is to stand");
    let because = world.work().decision.clone().expect("a decision").because.to_string();
    assert!(because.contains("own is taken back by its owner"), "{because}");
    world.live(&mut active, 40).await;
    assert_eq!((on(&world, "own"), on(&world, "spot")), (1, 3), "one finishes what it has");
    // The notice is up: the machine is gone, with what was not finished.
    world.0.lock().kill_node("own");
    world.0.lock().nodes.remove(&NodeName("own".into()));
    world.live(&mut active, 600).await;
    assert_eq!(world.work().done, 3, "it ran again elsewhere");
    world.settled(3, "taken back");
}

#[tokio::test]
async fn one_that_is_taken_back_and_empty_is_given_back_without_waiting() {
    let world = World::new(n_for_n(1, 2), &[("a", 2), ("b", 2)], Faults::default(), 1);
    let mut active = None;
    world.live(&mut active, 20).await;
    world.0.lock().nodes.get_mut(&NodeName("a".into())).expect("a node").origin = Origin::Taken;
    world.live(&mut active, 40).await;
    assert_eq!(
        (there(&world), on(&world, "b")),
        ((1, 1), 1),
        "only the other node is left, with a worker in its place"
    );
    world.settled(1, "given back early");
}
