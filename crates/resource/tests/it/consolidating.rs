//! Nodes that were made and are half empty: their workers come together on fewer, and the rest are given back.

use mutirao_core::quantity::Span;
use mutirao_elastic::Elastic;
use mutirao_elastic::packing::{Kind, Layer};
use mutirao_elastic::policy::{NForN, Policy};
use mutirao_resource::Origin;

use super::world::{Faults, World, capacity};

#[tokio::test]
async fn workers_of_half_empty_nodes_come_together_and_no_task_is_begun_twice() {
    let policy = Policy::NForN(NForN { idle_wait: Span::secs(5), tasks_per_worker: 1 });
    let elastic = Elastic { min: 0, max: 12, stale_after: Span::secs(60), policy };
    let world = World::new(elastic, &[], Faults::default(), 1);
    world.0.lock().kinds.push(Kind {
        name: "small".into(),
        capacity: capacity(2),
        labels: Default::default(),
        layer: Layer::Cloud,
        price_micros_per_hour: 10,
        market: Default::default(),
        boot: Default::default(),
        interrupted_every: None,
        available: 10,
    });
    let mut active = None;
    // Eight at once, of which every other ends soon: each of four nodes keeps one that works.
    world.work().ready.extend([20, 150].repeat(4));
    let made = || world.0.lock().nodes.values().filter(|node| node.origin == Origin::Made).count();
    let (mut given, mut most, mut said) = (8, 0, String::new());
    for _ in 0..900 {
        world.live(&mut active, 1).await;
        most = most.max(made());
        // From then on four at a time, without end.
        let under_way = world.0.lock().processes.values().filter(|process| process.task_left_s.is_some()).count();
        let under_way = under_way + world.work().ready.len();
        if under_way < 4 && world.work().done >= 4 {
            world.work().ready.push(30);
            given += 1;
        }
        let because = world.work().decision.as_ref().map(|decision| decision.because.to_string()).unwrap_or_default();
        if because.contains("is emptied: its") {
            said = because;
        }
        if most == 4 && made() == 2 {
            break;
        }
    }
    assert_eq!((most, made()), (4, 2), "four workers of one cpu need two nodes of two: {said}");
    assert!(said.contains("have room elsewhere"), "{said}");
    world.live(&mut active, 200).await;
    assert_eq!(world.work().done, given, "each ran once");
    world.settled(0, "all is done");
}
