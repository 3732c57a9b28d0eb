//! A Task by the wire, from the client's request to its answer: client, manager, node, manager, client, all by one protocol.
//! That is two round trips of the raw kind, with what the manager makes durable between: that the Task was accepted, and
//! what came of it.

use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel};
use mutirao_core::node::DeviceSpec;
use mutirao_core::{Clock, SystemClock};
use mutirao_mqtt::client::{Client, Options as MqttOptions, State};
use mutirao_mqtt::{Qos, TopicFilter, TopicName};
use mutirao_nodes::wire::places::Places;
use mutirao_nodes::wire::{Message, Register, TaskRequest, written};
use mutirao_nodes::{Layer, Namespace, NodeId};

use super::two::registered;
use super::{Bench, raw, shared_dice};

fn task(n: usize, action: &str) -> String {
    written(&TaskRequest {
        id: format!("lab-{n}"),
        task_id: "urn:mutirao:Task:lab".into(),
        target_actions: vec![format!("urn:mutirao:Action:{action}")],
        message_data: format!("{{\"n\":{n}}}"),
        created_at: None,
        processing_time: None,
    })
}

fn is_answer(n: usize, body: &[u8]) -> anyhow::Result<()> {
    let answer: Message = serde_json::from_slice(body)?;
    anyhow::ensure!(answer.request == format!("lab-{n}"), "that is the answer to another: {answer:?}");
    anyhow::ensure!(!answer.data.contains("error"), "it failed: {answer:?}");
    Ok(())
}

/// By the manager's own listener, for a device that has the action.
pub async fn mqtt(bench: &Bench, action: &str, times: usize) -> anyhow::Result<Vec<f64>> {
    let places = Places(Namespace::default());
    let spec = DeviceSpec {
        name: "asker".into(),
        node: None,
        requests: true,
        publish: vec![],
        subscribe: vec![],
        may: Default::default(),
    };
    let device = bench.client.add_device(&spec).await?;
    let mut options = MqttOptions::new(bench.mqtt.clone(), "asker", SystemClock::shared(), shared_dice());
    (options.user, options.password) = (Some("asker".into()), Some(device.password.into()));
    options.clean = true;
    options.subscriptions = vec![(TopicFilter::new(&places.finals())?, Qos::AtLeastOnce)];
    let (client, mut answers) = Client::start(options);
    client.state().wait_for(|state| *state == State::Connected).await?;
    let to = TopicName::new(&places.requests())?;
    raw::timed(times, async |n| {
        let (client, to, task) = (client.clone(), to.clone(), task(n, action));
        tokio::spawn(async move { client.publish(to, task.into(), Qos::AtLeastOnce).await });
        let message = answers.recv().await.context("the answer did not come")?;
        let said = is_answer(n, &message.payload);
        message.accept();
        said
    })
    .await
}

/// By RabbitMQ, for a worker as small as one can be.
pub async fn amqp(bench: &Bench, url: &str, times: usize) -> anyhow::Result<Vec<f64>> {
    let places = Places(Namespace::default());
    let working = tokio::spawn(work(url.to_owned(), places.clone()));
    registered(bench, "lab-bare", "amqp").await?;
    // One that has just come may not be told to every manager yet.
    SystemClock.sleep(Duration::from_millis(500)).await;
    let channel = raw::channel(url).await?;
    let mut answers = channel
        .basic_consume(places.finals().into(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    let took = raw::timed(times, async |n| {
        raw::say(&channel, &places.requests(), task(n, "actions.bare").as_bytes()).await?;
        let delivery = answers.next().await.context("the answer did not come")??;
        delivery.acker.ack(BasicAckOptions::default()).await?;
        is_answer(n, &delivery.data)
    });
    let took = took.await;
    working.abort();
    took
}

/// A worker of the document's time: its own durable queue, registered by a key of `amq.topic`.
async fn work(url: String, places: Places) -> anyhow::Result<()> {
    let node: NodeId = "lab-bare".parse()?;
    let channel = raw::channel(&url).await?;
    let queue = places.unicast_queue(&node);
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(queue.as_str().into(), durable, FieldTable::default()).await?;
    let mut of = FieldTable::default();
    of.insert("x-match".into(), AMQPValue::LongString("all".into()));
    of.insert("nodeId".into(), AMQPValue::LongString(node.as_str().into()));
    channel
        .queue_bind(queue.as_str().into(), places.unicast().into(), "".into(), QueueBindOptions::default(), of)
        .await?;
    let mut asked = channel
        .basic_consume(queue.as_str().into(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    register(&channel, &places, node).await?;
    while let Some(delivery) = asked.next().await {
        let delivery = delivery?;
        // What it was given is its answer, which goes first: it is what is waited for.
        raw::say(&channel, &places.results(), &delivery.data).await?;
        delivery.acker.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}

async fn register(channel: &Channel, places: &Places, node: NodeId) -> anyhow::Result<()> {
    let register = written(&Register {
        endpoint: String::new(),
        layer: Layer::Fog,
        kind: "lab".into(),
        node,
        force_register: true,
        actions: vec!["urn:mutirao:Action:actions.bare".into()],
        parameters: Default::default(),
        labels: Default::default(),
        slots: None,
    });
    let options = BasicPublishOptions::default();
    let key = places.register();
    let properties = BasicProperties::default();
    channel.basic_publish("amq.topic".into(), key.into(), options, register.as_bytes(), properties).await?.await?;
    Ok(())
}
