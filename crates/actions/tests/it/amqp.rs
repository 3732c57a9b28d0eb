//! A node over AMQP, at a real RabbitMQ.

use std::sync::Arc;

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Consumer};
use mutirao_actions::agent::amqp::{Amqp, Options};
use mutirao_actions::agent::spool::Spool;
use mutirao_actions::agent::{Agent, Heard, Line};
use mutirao_actions::builtin::Publish;
use mutirao_core::{Dice, SystemClock};
use mutirao_nodes::Namespace;
use mutirao_nodes::wire::{Ack, Register, Word, written};
use mutirao_testkit::services::{self, Service};
use mutirao_tls::Trust;
use serde_json::json;
use tokio::sync::oneshot;

use crate::agent::{me, message, read_result};
use crate::stage::{Stage, eventually};

const TOPIC: &str = "amq.topic";

async fn next(consumer: &mut Consumer) -> (String, String) {
    let delivery = consumer.next().await.unwrap().unwrap();
    delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
    (delivery.routing_key.to_string(), String::from_utf8(delivery.data).unwrap())
}

async fn publish(channel: &Channel, exchange: &str, key: &str, text: &str, headers: FieldTable) {
    let properties = BasicProperties::default().with_headers(headers);
    let options = BasicPublishOptions::default();
    channel
        .basic_publish(exchange.into(), key.into(), options, text.as_bytes(), properties)
        .await
        .unwrap()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_declares_its_queue_registers_and_answers_on_the_topic_exchange() {
    let Some(url) = services::shared("MUTIRAO_TEST_AMQP") else { return };
    let namespace: Namespace = format!("ns{:x}", mutirao_core::dice::name() as u64).parse().unwrap();
    let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::seeded(3)));
    let connection =
        mutirao_broker::rabbit::dial(&url, &Trust::nobody(), "test", clock.clone(), dice.clone()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let exclusive = QueueDeclareOptions { exclusive: true, auto_delete: true, ..Default::default() };
    let queue = channel.queue_declare("".into(), exclusive, FieldTable::default()).await.unwrap().name().clone();
    for place in ["nodes.register", "task.handler.saida"] {
        let key = format!("{namespace}.{place}");
        let bind = QueueBindOptions::default();
        channel.queue_bind(queue.clone(), TOPIC.into(), key.into(), bind, FieldTable::default()).await.unwrap();
    }
    let consume = BasicConsumeOptions::default();
    let mut heard = channel.basic_consume(queue, "".into(), consume, FieldTable::default()).await.unwrap();

    let stage = Stage::new();
    stage.define(json!({"kind": "Action", "name": "echo", "command": ["cat"]}));
    let me = mutirao_actions::agent::Me { namespace: namespace.clone(), ..me(2) };
    let node = me.node.clone();
    let (line, events) = Amqp::start(Options {
        url,
        trust: Trust::nobody(),
        namespace: namespace.clone(),
        node: node.clone(),
        own: None,
        clock: clock.clone(),
        dice: dice.clone(),
    });
    let spool = Spool::open(&stage.folder.path().join("spool")).unwrap();
    let agent = Agent::new(me, stage.table.clone(), Arc::new(line), spool, clock, dice);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(agent.run(events, async move { drop(stopped.await) }));

    let (key, text) = next(&mut heard).await;
    assert!(key.ends_with(".nodes.register"), "{key}");
    let register = Register::read(text.as_bytes()).unwrap();
    let ack = Ack { token: "t".into(), node: register.node.clone(), actions: register.actions };
    publish(&channel, TOPIC, &format!("{namespace}.nodes.actions-list"), &written(&ack), FieldTable::default()).await;

    let mut headers = FieldTable::default();
    headers.insert("nodeId".into(), AMQPValue::LongString(node.as_str().into()));
    let unicast = format!("{namespace}.node.unicast");
    publish(&channel, &unicast, "", &message("r1", "echo", r#"{"a":1}"#), headers.clone()).await;
    let (key, text) = next(&mut heard).await;
    assert!(key.ends_with(".task.handler.saida"), "{key}");
    assert_eq!(read_result(&text), ("r1".into(), json!({"a": 1})));
    publish(&channel, &unicast, "", &message("r1", "echo", r#"{"a":1}"#), headers).await;
    assert_eq!(read_result(&next(&mut heard).await.1), ("r1".into(), json!({"a": 1})));
    drop(stop);
    running.await.unwrap();
    let queue = format!("{namespace}.node.unicast.{node}");
    channel.queue_delete(queue.into(), Default::default()).await.unwrap();
    channel.exchange_delete(unicast.into(), Default::default()).await.unwrap();
}

/// What may not be published ends the channel on which it was tried, and none of what is asked afterwards may be lost for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_the_server_ends_is_opened_anew_for_what_is_said_next() {
    if services::shared("MUTIRAO_TEST_AMQP").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Service::rabbitmq(folder.path()).unwrap();
    for args in [
        &["add_user", "limited", "secret"][..],
        &["set_permissions", "limited", ".*", ".*", ".*"],
        &["set_topic_permissions", "limited", "amq.topic", "^allowed\\..*", ".*"],
    ] {
        server.rabbitmqctl(args).unwrap();
    }
    let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::seeded(3)));
    let (line, mut heard) = Amqp::start(Options {
        url: server.url().replace("guest:guest", "limited:secret"),
        trust: Trust::nobody(),
        namespace: Namespace::default(),
        node: "n1".parse().unwrap(),
        own: None,
        clock,
        dice,
    });
    assert!(matches!(heard.recv().await, Some(Heard::Connected)));
    for _ in 0..3 {
        assert!(line.publish("forbidden.key", "1".into()).await.is_err());
        eventually("what may be published is", async || line.publish("allowed.key", "1".into()).await.is_ok()).await;
    }
    // Nor does a result that may not be given keep others from being so.
    assert!(line.result("1".into()).await.is_err());
    server.rabbitmqctl(&["set_topic_permissions", "limited", "amq.topic", ".*", ".*"]).unwrap();
    eventually("results are given", async || line.result("1".into()).await.is_ok()).await;
    assert!(heard.try_recv().is_err(), "it was connected all the while");
}
