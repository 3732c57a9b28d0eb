//! The server itself is killed under a stream, and started again.

use mutirao_broker::Rabbit;
use mutirao_broker::rabbit::Config;
use mutirao_core::{Dice, SystemClock};
use mutirao_testkit::services::{self, Service};

use crate::world::{LIMITS, World, grid, pause};

/// RabbitMQ keeps the directory of its queues in a file that it flushes now and then: one made a moment before it is killed is not
/// found again.
const QUEUES_ARE_KNOWN_MS: u64 = 4_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_under_a_stream_costs_time_and_no_event() {
    if services::shared(services::AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Service::rabbitmq(folder.path()).expect("a server of our own");
    let config = Config::new(server.url(), SystemClock::shared(), Dice::from_os().into());
    let rabbit = Rabbit::connect(Config { limits: LIMITS, ..config }).await.expect("a connection");
    let mut world = World::on(tempfile::tempdir().unwrap(), rabbit, &grid(20, 3_000, "1s"), LIMITS);
    ["a", "b", "c"].iter().for_each(|name| world.start(name));
    world.chief.place_all(&["a", "b", "c"]);
    world.until_lines("out.jsonl", 100, 60).await;
    pause(QUEUES_ARE_KNOWN_MS).await;
    for _ in 0..2 {
        tokio::task::block_in_place(|| {
            server.kill9();
            server.restart().expect("it starts again");
        });
        let lines = world.read("out.jsonl").iter().filter(|byte| **byte == b'\n').count();
        world.until_lines("out.jsonl", lines + 200, 90).await;
    }
    world.until_ended(120).await;
    world.check("out.jsonl");
}
