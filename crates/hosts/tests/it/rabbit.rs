//! The same over RabbitMQ, and its queues as sources and sinks. Without a server every test says that it was skipped.

use std::sync::Arc;

use mutirao_broker::Rabbit;
use mutirao_broker::rabbit::Config;
use mutirao_core::{Dice, SystemClock};
use mutirao_testkit::services;

use crate::world::{LIMITS, World, grid, pause};

async fn rabbit() -> Option<Arc<Rabbit>> {
    let url = services::shared(services::AMQP_VARIABLE)?;
    let dice = Arc::new(Dice::from_os());
    let prefix = format!("test-{:016x}.", dice.u64());
    let config = Config { prefix, limits: LIMITS, ..Config::new(&url, SystemClock::shared(), dice) };
    Some(Rabbit::connect(config).await.expect("a connection"))
}

#[tokio::test(flavor = "multi_thread")]
async fn over_rabbitmq_hosts_may_be_killed_as_well() {
    let Some(rabbit) = rabbit().await else { return };
    let mut world = World::on(tempfile::tempdir().unwrap(), rabbit, &grid(10, 4_000, "1s"), LIMITS);
    ["a", "b", "c"].iter().for_each(|name| world.start(name));
    world.chief.place_all(&["a", "b", "c"]);
    world.until_lines("out.jsonl", 100, 40).await;
    world.kill("b");
    pause(500).await;
    world.start("d");
    for part in world.chief.parts_of("b") {
        world.chief.place(&part, "d");
    }
    pause(1_500).await;
    world.cut_off("c");
    pause(1_500).await;
    world.heal("c");
    world.until_ended(80).await;
    world.check("out.jsonl");
}
