//! Workers and clients as the document has them, at a real RabbitMQ: AMQP by the exchanges, MQTT by the plugin.

use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer, ExchangeKind};
use mutirao_broker::Rabbit;
use mutirao_broker::rabbit::Config;
use mutirao_broker::rabbit::management::Management;
use mutirao_core::{Dice, SystemClock};
use mutirao_mqtt::client::State;
use mutirao_mqtt::{Client, Options, Qos, TopicFilter, TopicName};
use mutirao_nodes::NodeId;
use mutirao_nodes::endpoint::Loopback;
use mutirao_nodes::errand::{End, Errand, Reach};
use mutirao_nodes::preference::Protocol;
use mutirao_nodes::pulse::Pace;
use mutirao_nodes::rabbit::{Bounds, RabbitWays};
use mutirao_nodes::registry::Strangers;
use mutirao_nodes::routing::{Ended, Place, Rules};
use mutirao_nodes::store;
use mutirao_nodes::switchboard::{Parts, Switchboard};
use mutirao_store::{Database, Sqlite};
use mutirao_testkit::services::{AMQP_VARIABLE, Service, shared};
use mutirao_testkit::wait::eventually;

use crate::house::{Desk, LONG, drained, enrol, within};

const NAMESPACE: &str = "sapparchi";

pub struct Yard {
    pub board: Switchboard,
    pub desk: Arc<Desk>,
    ways: RabbitWays,
    rabbit: Arc<Rabbit>,
    channel: Channel,
    _connection: Connection,
    namespace: String,
    _folder: tempfile::TempDir,
}

impl Yard {
    pub async fn at(url: &str, namespace: &str) -> Self {
        Self::within(url, namespace, Bounds::default()).await
    }

    /// Where nodes get users of their own.
    pub async fn managed(url: &str, namespace: &str, management: Arc<Management>) -> Self {
        Self::build(url, namespace, Bounds::default(), Some(management)).await
    }

    async fn within(url: &str, namespace: &str, bounds: Bounds) -> Self {
        Self::build(url, namespace, bounds, None).await
    }

    async fn build(url: &str, namespace: &str, bounds: Bounds, management: Option<Arc<Management>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::from_os()));
        let sqlite = Sqlite::open(&folder.path().join("store.db"), mutirao_nodes::MIGRATIONS).unwrap();
        let parts = Parts {
            namespace: namespace.parse().unwrap(),
            store: store::open(&Database::from(sqlite)),
            clock: clock.clone(),
            dice: dice.clone(),
            strangers: Strangers::Refused,
            loopback: Loopback::Refused,
            routing: Rules::default(),
            pace: Pace { first_after: Duration::from_millis(50), every: Duration::from_millis(200), force_every: 5 },
            others: None,
        };
        let board = Switchboard::start(parts).await.unwrap();
        let desk = Arc::new(Desk::default());
        board.attend(desk.clone());
        let rabbit = Rabbit::connect(Config::new(url, clock.clone(), dice)).await.unwrap();
        let ways = RabbitWays::open(&board, rabbit.clone(), management, clock, bounds);
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let namespace = namespace.to_owned();
        Self { board, desk, ways, rabbit, channel, _connection: connection, namespace, _folder: folder }
    }

    pub fn name(&self, rest: &str) -> String {
        format!("{}.{rest}", self.namespace)
    }

    async fn queue(&self, name: &str, durable: bool) {
        let options = QueueDeclareOptions { durable, auto_delete: !durable, ..Default::default() };
        self.channel.queue_declare(name.into(), options, FieldTable::default()).await.unwrap();
    }

    async fn bind(&self, queue: &str, exchange: &str, key: &str, arguments: FieldTable) {
        let options = QueueBindOptions::default();
        self.channel.queue_bind(queue.into(), exchange.into(), key.into(), options, arguments).await.unwrap();
    }

    async fn consume(&self, queue: &str) -> Consumer {
        let options = BasicConsumeOptions::default();
        self.channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await.unwrap()
    }

    pub async fn publish(&self, exchange: &str, key: &str, text: String) {
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let sent = self.channel.basic_publish(exchange.into(), key.into(), options, text.as_bytes(), properties);
        sent.await.unwrap();
    }

    pub fn errand(&self, request: &str, action: &str) -> Errand {
        Errand {
            request: request.into(),
            action: format!("urn:{}:Action:{action}", self.namespace).parse().unwrap(),
            data: "{}".into(),
            place: Place::default(),
            timeout: LONG,
            not: None,
        }
    }

    /// Of a worker that is gone.
    pub async fn delete_queue(&self, name: &str) {
        let _ = self.channel.queue_delete(name.into(), Default::default()).await;
    }

    pub async fn enrol(&self, node: &NodeId, key: &SigningKey) {
        enrol(&self.board, node, key).await;
    }

    pub fn registration(&self, node: &str, layer: &str, action: &str) -> String {
        let action = format!("urn:{}:Action:{action}", self.namespace);
        serde_json::json!({
            "endpoint": "", "layer": layer, "type": "Python", "nodeId": node, "forceRegister": true, "actions": [action],
        })
        .to_string()
    }

    pub async fn close(self) {
        let places = ["manager.available", "node.unicast", "task.handler.saida", "process.request.entrada"];
        let more = ["task.final.saida", "nodes.vouched"];
        let names: Vec<String> = places.iter().chain(&more).map(|rest| self.name(rest)).collect();
        self.ways.stop().await;
        self.board.stop().await;
        for name in names {
            let _ = self.channel.queue_delete(name.as_str().into(), Default::default()).await;
            let _ = self.channel.exchange_delete(name.as_str().into(), Default::default()).await;
        }
        self.rabbit.close();
    }
}

pub async fn next(consumer: &mut Consumer) -> serde_json::Value {
    let delivery = within("a message", consumer.next()).await.unwrap().unwrap();
    delivery.ack(BasicAckOptions::default()).await.unwrap();
    serde_json::from_slice(&delivery.data).unwrap()
}

pub fn result(request: &str) -> String {
    serde_json::json!({ "actionTo": "x", "requestID": request, "messageData": "{\"ok\":1}" }).to_string()
}

/// The document's Python worker and its client, step by step, in a namespace of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_and_a_client_of_the_document_s_time_work_by_amqp() {
    let Some(server) = shared(AMQP_VARIABLE) else { return };
    let namespace = format!("t{:x}", Dice::from_os().u64());
    let yard = Yard::at(&server, &namespace).await;
    let unicast = yard.name("node.unicast.w1.python");
    let declared = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let exchange = yard.name("node.unicast");
    let headers = ExchangeKind::Headers;
    yard.channel.exchange_declare(exchange.as_str().into(), headers, declared, FieldTable::default()).await.unwrap();
    yard.queue(&unicast, true).await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-match".into(), AMQPValue::LongString("all".into()));
    arguments.insert("nodeId".into(), AMQPValue::LongString("w1".into()));
    yard.bind(&unicast, &exchange, "", arguments).await;
    let (acks, beats) = (yard.name("test.acks"), yard.name("test.beats"));
    for (queue, key) in [(&acks, "nodes.actions-list"), (&beats, "manager.available")] {
        yard.queue(queue, false).await;
        yard.bind(queue, "amq.topic", &yard.name(key), FieldTable::default()).await;
    }
    let (mut heard, mut acks) = (yard.consume(&beats).await, yard.consume(&acks).await);
    assert_eq!(next(&mut heard).await["available"], true, "it beats once it is attached");

    yard.publish("amq.topic", &yard.name("nodes.register"), yard.registration("w1", "CLOUD", "sum")).await;
    assert_eq!(next(&mut acks).await["nodeId"], "w1");
    let gone = yard.board.send(yard.errand("r1", "sum")).await.unwrap();
    assert_eq!((gone.node.as_str(), gone.over), ("w1", Protocol::Amqp));
    let mut inbox = yard.consume(&unicast).await;
    assert_eq!(next(&mut inbox).await["requestID"], "r1");
    // By the key, by the exchange, and straight into the queue.
    let results = yard.name("task.handler.saida");
    for (exchange, key) in [("amq.topic", results.as_str()), (&results, "any"), ("", &results)] {
        yard.publish(exchange, key, result("r1")).await;
    }
    eventually("all came", LONG, async || yard.desk.returned.lock().len() == 3).await;
    let first = yard.desk.returned.lock()[0].clone();
    assert_eq!((first.end, first.node.unwrap().as_str()), (End::Ok("{\"ok\":1}".into()), "w1"));

    let task =
        serde_json::json!({ "id": "t1", "task_id": "urn:x:Task:t", "target_actions": ["a"], "message_data": "{}" });
    let requests = yard.name("process.request.entrada");
    for (exchange, key) in [("amq.topic", requests.as_str()), (&requests, "any"), ("", &requests)] {
        yard.publish(exchange, key, task.to_string()).await;
    }
    eventually("asked", LONG, async || yard.desk.asked.lock().len() == 3).await;
    yard.board.answer(r#"{"id":"t1"}"#.into(), None).await.unwrap();
    let mut finals = yard.consume(&yard.name("task.final.saida")).await;
    assert_eq!(next(&mut finals).await["id"], "t1");
    let _ = yard.channel.queue_delete(unicast.as_str().into(), Default::default()).await;
    yard.close().await;
}

impl Yard {
    /// A worker's own queue, as the document's declares it.
    async fn worker_queue(&self, node: &str) -> String {
        let (exchange, queue) = (self.name("node.unicast"), self.name(&format!("node.unicast.{node}")));
        let (declared, headers) =
            (ExchangeDeclareOptions { durable: true, ..Default::default() }, ExchangeKind::Headers);
        let none = FieldTable::default();
        self.channel.exchange_declare(exchange.as_str().into(), headers, declared, none).await.unwrap();
        self.queue(&queue, true).await;
        let mut arguments = FieldTable::default();
        arguments.insert("x-match".into(), AMQPValue::LongString("all".into()));
        arguments.insert("nodeId".into(), AMQPValue::LongString(node.into()));
        self.bind(&queue, &exchange, "", arguments).await;
        queue
    }

    async fn lie_in(&self, queue: &str) -> u32 {
        let looking = QueueDeclareOptions { passive: true, ..Default::default() };
        self.channel.queue_declare(queue.into(), looking, FieldTable::default()).await.unwrap().message_count()
    }

    async fn register(&self, node: &str, action: &str) {
        let (key, registration) = (self.name("nodes.register"), self.registration(node, "FOG", action));
        eventually("it registers", LONG, async || {
            self.publish("amq.topic", &key, registration.clone()).await;
            self.board.node(&node.parse().unwrap()).is_some()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_node_that_is_away_is_bounded_and_goes_when_nobody_wants_it() {
    let Some(server) = shared(AMQP_VARIABLE) else { return };
    let namespace = format!("t{:x}", Dice::from_os().u64());
    let yard = Yard::at(&server, &namespace).await;
    let queue = yard.worker_queue("w1").await;
    yard.register("w1", "sum").await;
    // It takes sixteen at once, and is not there to take any.
    let brief = |n: u32| Errand { timeout: Duration::from_secs(3), ..yard.errand(&format!("r{n}"), "sum") };
    let mut full = 0;
    for n in 0..20 {
        full += u32::from(yard.board.send(brief(n)).await.is_err());
    }
    assert_eq!((full, yard.lie_in(&queue).await), (4, 16));
    let waits = yard.board.node(&"w1".parse().unwrap()).unwrap().waits.unwrap();
    assert_eq!((waits.messages, waits.messages_max, waits.age_max_ms), (16, 16, 86_400_000));
    eventually("nobody waits for them any more", LONG, async || yard.lie_in(&queue).await == 0).await;
    let _ = yard.channel.queue_delete(queue.as_str().into(), Default::default()).await;
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_are_bounded_by_number_and_by_age() {
    let Some(server) = shared(AMQP_VARIABLE) else { return };
    let namespace = format!("t{:x}", Dice::from_os().u64());
    let yard = Yard::within(&server, &namespace, Bounds { answers_max: 50, ..Bounds::default() }).await;
    let finals = yard.name("task.final.saida");
    eventually("it is attached", LONG, async || yard.board.answer(r#"{"id":"first"}"#.into(), None).await.is_ok())
        .await;
    for n in 0..300 {
        yard.board.answer(format!(r#"{{"id":"t{n}"}}"#), None).await.unwrap();
    }
    eventually("the oldest go", LONG, async || {
        yard.board.answer(r#"{"id":"last"}"#.into(), None).await.unwrap();
        yard.lie_in(&finals).await <= 50 + 64
    })
    .await;
    let mut reading = yard.consume(&finals).await;
    let first = next(&mut reading).await["id"].as_str().unwrap().to_owned();
    assert!(first.trim_start_matches('t').parse().is_ok_and(|n: u32| n > 150), "{first} is the oldest left");
    yard.close().await;

    let bounds = Bounds { answers_age: Duration::from_millis(500), ..Bounds::default() };
    let yard = Yard::within(&server, &namespace, bounds).await;
    eventually("it is attached", LONG, async || yard.board.answer(r#"{"id":"first"}"#.into(), None).await.is_ok())
        .await;
    eventually("it is gone after a while", LONG, async || yard.lie_in(&finals).await == 0).await;
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_queue_is_not_reached_and_says_so() {
    let Some(server) = shared(AMQP_VARIABLE) else { return };
    let namespace = format!("t{:x}", Dice::from_os().u64());
    let yard = Yard::at(&server, &namespace).await;
    let key = yard.name("nodes.register");
    let registration = yard.registration("ghost", "FOG", "haunt");
    eventually("it registers", LONG, async || {
        yard.publish("amq.topic", &key, registration.clone()).await;
        yard.board.nodes().len() == 1
    })
    .await;
    let why = yard.board.send(yard.errand("r1", "haunt")).await.unwrap_err().to_string();
    assert!(why.contains("ghost could not be reached") && why.contains("no queue"), "{why}");
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_the_server_ends_and_a_queue_that_somebody_deletes_mute_nobody() {
    let Some(server) = shared(AMQP_VARIABLE) else { return };
    let namespace = format!("t{:x}", Dice::from_os().u64());
    let yard = Yard::at(&server, &namespace).await;
    let queue = yard.worker_queue("w1").await;
    yard.register("w1", "sum").await;
    yard.board.send(yard.errand("r1", "sum")).await.unwrap();
    // What is published to an exchange that is not there ends its channel.
    yard.channel.exchange_delete(yard.name("node.unicast").into(), Default::default()).await.unwrap();
    let why = yard.board.send(yard.errand("r2", "sum")).await.unwrap_err().to_string();
    assert!(why.contains("could not be reached"), "{why}");
    yard.board.ended("r1", Ended::Well);
    yard.worker_queue("w1").await;
    eventually("it is sent again", LONG, async || yard.board.send(yard.errand("r3", "sum")).await.is_ok()).await;
    let mut inbox = yard.consume(&queue).await;
    assert_eq!(
        [next(&mut inbox).await["requestID"].clone(), next(&mut inbox).await["requestID"].clone()],
        ["r1", "r3"]
    );

    // Whoever read from it hears nothing more, and the connection goes on.
    let results = yard.name("task.handler.saida");
    yard.channel.queue_delete(results.as_str().into(), Default::default()).await.unwrap();
    eventually("results are heard again", LONG, async || {
        yard.publish("amq.topic", &results, result("r3")).await;
        !yard.desk.returned.lock().is_empty()
    })
    .await;
    let finals = yard.name("task.final.saida");
    yard.channel.queue_delete(finals.as_str().into(), Default::default()).await.unwrap();
    eventually("answers are kept again", LONG, async || yard.board.answer(r#"{"id":"t1"}"#.into(), None).await.is_ok())
        .await;
    assert_eq!(next(&mut yard.consume(&finals).await).await["id"], "t1");
    let _ = yard.channel.queue_delete(queue.as_str().into(), Default::default()).await;
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_at_rabbitmq_s_mqtt_plugin_works_like_any_other() {
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let service = Service::rabbitmq_with_mqtt(folder.path()).unwrap();
    let yard = Yard::at(service.url(), NAMESPACE).await;
    let address = service.mqtt_address().unwrap();
    let filters = ["sapparchi/node/lamp/in", "sapparchi.manager.available", "sapparchi.nodes.actions-list"];
    let pause = Duration::from_millis(100);
    let options = Options {
        user: Some("guest".into()),
        password: Some("guest".into()),
        subscriptions: filters.iter().map(|one| (TopicFilter::new(one).unwrap(), Qos::AtLeastOnce)).collect(),
        pause_min: pause,
        pause_max: pause,
        ..Options::new(address.to_string(), "esp32-lamp", SystemClock::shared(), Arc::new(Dice::seeded(1)))
    };
    let (client, heard) = Client::start(options);
    let mut heard = drained(heard);
    let mut state = client.state();
    within("let in", async { state.wait_for(|state| *state == State::Connected).await.map(drop) }).await.unwrap();
    let mut wait_for = async |ending: &str| loop {
        let (topic, payload) = within(ending, heard.recv()).await.unwrap();
        if topic.ends_with(ending) {
            return serde_json::from_slice::<serde_json::Value>(&payload).unwrap();
        }
    };
    assert_eq!(wait_for("manager/available").await["schema"], 1);
    let say = |topic: &str, text: String| {
        let topic = TopicName::new(topic).unwrap();
        client.publish(topic, text.into(), Qos::AtLeastOnce)
    };
    within("said", say("sapparchi.nodes.register", yard.registration("lamp", "EDGE", "blink"))).await.unwrap();
    assert_eq!(wait_for("nodes/actions-list").await["nodeId"], "lamp");
    let gone = yard.board.send(yard.errand("r1", "blink")).await.unwrap();
    assert_eq!(gone.over, Protocol::Mqtt);
    assert_eq!(wait_for("node/lamp/in").await["requestID"], "r1");
    within("said", say("sapparchi.task.handler.saida", result("r1"))).await.unwrap();
    eventually("it came", LONG, async || yard.desk.returned.lock().len() == 1).await;
    yard.close().await;
}
