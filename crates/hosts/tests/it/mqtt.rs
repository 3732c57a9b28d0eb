//! Devices that speak MQTT, through the listener of the installation and through another one.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{Dice, SystemClock};
use mutirao_mqtt::{
    Client, Config, Gate, Guest, Knock, Limits, Listener, Options, Qos, Refusal, Rights, Standing, TopicFilter,
    TopicName,
};

use crate::world::{World, pause};

struct Open;

#[async_trait]
impl Gate for Open {
    async fn admit(&self, knock: &Knock) -> Result<Guest, Refusal> {
        let all = || vec![TopicFilter::new("#").unwrap()];
        let rights = Rights { publish: all(), subscribe: all() };
        let who = knock.client_id.as_str().into();
        Ok(Guest { who, standing: Standing::Known, rights, sessions_max: 10 })
    }
}

async fn listener() -> Listener {
    let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::from_os()));
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = Config { listen, limits: Limits::default(), tls: None, gate: Arc::new(Open), clock, dice };
    Listener::start(config).await.unwrap()
}

fn device(listener: &Listener) -> Client {
    let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::from_os()));
    Client::start(Options::new(listener.address().to_string(), "device", clock, dice)).0
}

fn definition(at: &str) -> String {
    format!(
        "\
kind: Stream
name: house
schema: {{ n: int }}
sources:
  - name: readings
    mqtt: {{ topic: house/+/reading{at} }}
operators:
  - name: some
    from: readings
    filter: n % 2 == 0
sinks:
  - name: out
    from: some
    file: {{ path: out.jsonl }}
  - name: told
    from: some
    mqtt: {{ topic: 'house/{{n}}/told'{at} }}
"
    )
}

async fn say(device: &Client, numbers: std::ops::Range<usize>) {
    for n in numbers {
        let topic = TopicName::new(&format!("house/{}/reading", n % 5)).unwrap();
        device.publish(topic, format!("{{\"n\":{n}}}").into(), Qos::AtLeastOnce).await.unwrap();
    }
}

fn numbers(world: &World) -> BTreeSet<usize> {
    let text = String::from_utf8(world.read("out.jsonl")).unwrap();
    let one = |line: &str| line.strip_prefix("{\"n\":")?.strip_suffix('}')?.parse().ok();
    text.lines().filter_map(one).collect()
}

/// What was acknowledged comes out, though the host that took it is killed.
async fn nothing_acknowledged_is_lost(listener: Listener, mut world: World) {
    let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::from_os()));
    let subscriptions = vec![(TopicFilter::new("house/+/told").unwrap(), Qos::AtLeastOnce)];
    let options = Options::new(listener.address().to_string(), "lamp", clock, dice);
    let (_lamp, mut told) = Client::start(Options { subscriptions, ..options });
    world.start("a");
    world.chief.place_all(&["a"]);
    let device = device(&listener);
    world.until("the source", 15, |world| world.chief.reports().len() == 4).await;
    pause(1_000).await;
    say(&device, 0..200).await;
    let saying = tokio::spawn(async move { say(&device, 200..400).await });
    pause(50).await;
    world.kill("a");
    world.start("b");
    world.chief.place_all(&["b"]);
    saying.await.unwrap();
    let wanted: BTreeSet<usize> = (0..400).filter(|n| n % 2 == 0).collect();
    world.until("all of them", 30, |world| numbers(world) == wanted).await;
    let first = told.recv().await.unwrap();
    assert_eq!(first.topic.as_str(), "house/0/told");
    assert_eq!(&first.payload[..], b"{\"n\":0}");
    listener.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_installations_own_listener_nothing_acknowledged_is_lost() {
    let listener = listener().await;
    let mut world = World::of(&definition(""));
    world.ends.mqtt = Some(listener.port());
    nothing_acknowledged_is_lost(listener, world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_another_broker_nothing_acknowledged_is_lost() {
    let listener = listener().await;
    let world = World::of(&definition(&format!(", url: 'mqtt://{}'", listener.address())));
    nothing_acknowledged_is_lost(listener, world).await;
}
