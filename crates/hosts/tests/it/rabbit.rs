//! The same over RabbitMQ, and its queues as sources and sinks. Without a server every test says that it was skipped.

mod long;

use std::collections::BTreeSet;
use std::sync::Arc;

use lapin::options::{BasicGetOptions, QueueDeclareOptions};
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

/// What is in a queue is taken from it once it is safe, and what comes out has a name by which it is known.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_queue_go_through_and_out_to_another_though_a_host_is_killed() {
    let Some(rabbit) = rabbit().await else { return };
    let own = Dice::from_os().u64();
    let text = format!(
        "\
kind: Stream
name: queues
schema: {{ n: int }}
sources:
  - {{ name: readings, amqp: {{ queue: in-{own:x} }} }}
operators:
  - {{ name: some, from: readings, filter: n % 2 == 0 }}
sinks:
  - {{ name: out, from: some, file: {{ path: out.jsonl }} }}
  - {{ name: told, from: some, amqp: {{ key: out-{own:x} }} }}
"
    );
    let mut world = World::of(&text);
    world.ends.amqp = Some(rabbit.clone());
    world.start("a");
    world.chief.place_all(&["a"]);
    let connection = rabbit.dial("test").await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    for queue in [format!("in-{own:x}"), format!("out-{own:x}")] {
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(queue.as_str().into(), durable, Default::default()).await.unwrap();
    }
    for n in 0..400 {
        if n == 200 {
            world.until_lines("out.jsonl", 50, 20).await;
            world.kill("a");
            world.start("b");
            world.chief.place_all(&["b"]);
        }
        let body = format!("{{\"n\":{n}}}");
        let sent = channel.basic_publish(
            "".into(),
            format!("in-{own:x}").as_str().into(),
            Default::default(),
            body.as_bytes(),
            Default::default(),
        );
        sent.await.unwrap().await.unwrap();
    }
    let wanted: BTreeSet<i64> = (0..400).filter(|n| n % 2 == 0).collect();
    let numbers = |world: &World| -> BTreeSet<i64> {
        let text = String::from_utf8(world.read("out.jsonl")).unwrap();
        text.lines().filter_map(|line| line.strip_prefix("{\"n\":")?.strip_suffix('}')?.parse().ok()).collect()
    };
    world.until("all of them in the file", 40, |world| numbers(world) == wanted).await;
    let mut found = BTreeSet::new();
    let mut names = BTreeSet::new();
    while found.len() < wanted.len() {
        let got =
            channel.basic_get(format!("out-{own:x}").as_str().into(), BasicGetOptions { no_ack: true }).await.unwrap();
        let Some(got) = got else {
            pause(50).await;
            continue;
        };
        let value: serde_json::Value = serde_json::from_slice(&got.data).unwrap();
        found.insert(value["n"].as_i64().unwrap());
        names.insert(got.properties.message_id().as_ref().unwrap().to_string());
    }
    assert_eq!(found, wanted);
    assert!(names.iter().all(|name| name.starts_with("s1/told/")), "{names:?}");
}
