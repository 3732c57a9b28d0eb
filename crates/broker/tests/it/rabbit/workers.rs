//! Workers as users of RabbitMQ: what their credentials are good for, and everything that they must not be.

use std::sync::Arc;

use async_trait::async_trait;
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
    ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ErrorKind, ExchangeKind};
use mutirao_broker::rabbit::management::{Management, ManagementError};
use mutirao_broker::rabbit::{Config, Part, Renew};
use mutirao_broker::suite::{bodies, counts_become, soon, take};
use mutirao_broker::{Broker, BrokerError, Counts, Heard, Rabbit, Shared};
use mutirao_core::WorkerId;
use mutirao_core::auth::Duty;
use mutirao_testkit::services;
use mutirao_tls::{Believe, Trust};
use parking_lot::Mutex;

use super::{config, connect, random_prefix};

const RESULTS: &str = "results.jobs.0";

fn tasks_of_a() -> Duty {
    Duty::Tasks("a".parse().unwrap())
}

/// A manager on the shared server, and the means to let workers in.
pub(super) struct House {
    pub prefix: String,
    pub manager: Arc<Rabbit>,
    pub management: Arc<Management>,
}

fn management(broker: &str, at: &str, prefix: &str) -> Management {
    Management::new(broker, at, prefix, &Trust::for_url(at, &Believe::default()).unwrap()).unwrap()
}

impl House {
    /// `None` when the test run has no server.
    pub async fn new() -> Option<Self> {
        let url = services::shared(services::AMQP_VARIABLE)?;
        let at = services::shared(services::AMQP_MANAGEMENT_VARIABLE)?;
        let prefix = random_prefix();
        let manager = connect(&url, &prefix).await.expect("connect");
        let management = Arc::new(management(&url, &at, &prefix));
        for queue in ["tasks.a", "tasks.b", RESULTS] {
            manager.counts(queue).await.expect("a queue");
        }
        Some(Self { prefix, manager, management })
    }

    async fn admit(&self, worker: &str) -> String {
        self.management.admit(&WorkerId(worker.into()), &tasks_of_a()).await.expect("a user")
    }

    async fn admit_checker(&self, worker: &str, kinds: &str) -> String {
        let duty = Duty::Checks(kinds.parse().unwrap());
        self.management.admit(&WorkerId(worker.into()), &duty).await.expect("a user")
    }

    pub async fn worker(&self, url: &str) -> Arc<Rabbit> {
        Rabbit::connect(Config { part: Part::Worker, ..config(url, &self.prefix) }).await.expect("connect")
    }

    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

fn report(worker: &str) -> String {
    format!(r#"{{"v":1,"session":"s","worker":"{worker}"}}"#)
}

pub(super) async fn raw(url: &str) -> Connection {
    Connection::connect(url, ConnectionProperties::default()).await.expect("connect")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_hears_reports_and_rejects_as_a_user_of_its_own() {
    let Some(house) = House::new().await else { return };
    let worker = house.worker(&house.admit("w1").await).await;
    let mut ear = worker.subscribe("control.a").await.unwrap();
    house.manager.announce("control.a", "stop".into()).await.unwrap();
    assert_eq!(soon("control", ear.next()).await, Ok(Heard::Message("stop".into())));

    house.manager.publish("tasks.a", bodies(0..2)).await.unwrap();
    let mut consumer = worker.consume("tasks.a", 10).await.unwrap();
    let got = take(&mut consumer, 2).await;
    consumer.reject(got[1].tag, "no parcel").await.unwrap();
    consumer.ack_through(got[0].tag).await.unwrap();
    let manager: Shared = house.manager.clone();
    counts_become(&manager, "tasks.a", Counts { dead: 1, consumers: 1, ..Counts::default() }).await;
    let letters = manager.dead_letters("tasks.a", 5).await.unwrap();
    assert_eq!(&letters[0].body[..], b"1");
    assert!(letters[0].reason.contains("could not read it: not an envelope of ours"), "{letters:?}");

    soon("the report", worker.publish(RESULTS, vec![report("w1").into()])).await.unwrap();
    let mut results = manager.consume(RESULTS, 10).await.unwrap();
    assert_eq!(take(&mut results, 1).await[0].body, report("w1"));
    let elsewhere = worker.publish("tasks.a", bodies(0..1)).await;
    assert!(matches!(elsewhere, Err(BrokerError::Refused { .. })), "{elsewhere:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_have_users_are_listed_and_no_worker_takes_more_than_its_share() {
    let Some(house) = House::new().await else { return };
    let url = house.admit("w1").await;
    house.admit("w2").await;
    let listed = async || {
        let mut admitted = house.management.admitted().await.unwrap();
        admitted.sort_by(|a, b| a.0.cmp(&b.0));
        admitted.into_iter().map(|worker| worker.0).collect::<Vec<_>>()
    };
    // Those of other tests on the same server have other prefixes, and are nobody's here.
    assert_eq!(listed().await, ["w1", "w2"]);
    house.management.dismiss(&WorkerId("w2".into())).await.unwrap();
    assert_eq!(listed().await, ["w1"]);

    let connection = raw(&url).await;
    let mut channels = Vec::new();
    let refused = loop {
        match connection.create_channel().await {
            Ok(channel) => channels.push(channel),
            Err(error) => break error,
        }
        assert!(channels.len() < 2_000, "nobody keeps count: {}", channels.len());
    };
    assert!(channels.len() >= 64, "a worker needs more than {}: {refused}", channels.len());
}

/// Asks something that must be refused for want of permission, on a channel of its own since the refusal closes it.
pub(super) async fn forbidden<T, F>(connection: &Connection, what: &str, ask: impl FnOnce(Channel) -> F)
where
    F: Future<Output = lapin::Result<T>>,
{
    let channel = connection.create_channel().await.expect("a channel");
    let Err(error) = ask(channel).await else { panic!("{what} was allowed") };
    let code = match error.kind() {
        ErrorKind::ProtocolError(said) => said.get_id(),
        _ => panic!("{what}: {error}"),
    };
    assert_eq!(code, 403, "{what}: {error}");
}

/// The refusal of a publish comes in place of its confirm.
pub(super) async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    properties: BasicProperties,
) -> lapin::Result<()> {
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (options, body) = (BasicPublishOptions { mandatory: true, immediate: false }, report("w1").into_bytes());
    channel.basic_publish(exchange.into(), key.into(), options, &body, properties).await?.await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_s_credentials_open_nothing_else() {
    let Some(house) = House::new().await else { return };
    let thief = raw(&house.admit("w1").await).await;
    let name = |name: &str| house.name(name);

    for queue in ["tasks.b", RESULTS, "tasks.a.dead", "tasks.b.dead"].map(name) {
        forbidden(&thief, &format!("consuming {queue}"), |channel| async move {
            let options = BasicConsumeOptions::default();
            channel.basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default()).await
        })
        .await;
    }
    for queue in ["tasks.b", RESULTS].map(name) {
        let get = |channel: Channel| {
            let queue = queue.clone();
            async move { channel.basic_get(queue.as_str().into(), BasicGetOptions::default()).await }
        };
        forbidden(&thief, &format!("getting from {queue}"), get).await;
        let purge = |channel: Channel| {
            let queue = queue.clone();
            async move { channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await }
        };
        forbidden(&thief, &format!("emptying {queue}"), purge).await;
        let delete = |channel: Channel| async move {
            channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await
        };
        forbidden(&thief, "deleting a queue", delete).await;
    }
    let (tasks, results, fanout) = (name("tasks.a"), name(RESULTS), name("fanout"));
    for (exchange, key) in
        [("", &tasks), ("", &results), ("amq.topic", &tasks), (&fanout, &"control.a".into()), (&fanout, &"x".into())]
    {
        let what = format!("publishing to {exchange}/{key}");
        forbidden(&thief, &what, |channel| async move {
            publish(&channel, exchange, key, BasicProperties::default()).await
        })
        .await;
    }
    for queue in [name("tasks.new"), name("ear.mine"), "mine".into()] {
        forbidden(&thief, &format!("making {queue}"), |channel| async move {
            channel.queue_declare(queue.as_str().into(), QueueDeclareOptions::default(), FieldTable::default()).await
        })
        .await;
    }
    forbidden(&thief, "making an exchange", |channel| async move {
        let (options, name) = (ExchangeDeclareOptions::default(), "mine".into());
        channel.exchange_declare(name, ExchangeKind::Topic, options, FieldTable::default()).await
    })
    .await;
    let mark = name("installation");
    forbidden(&thief, "marking the vhost", |channel| {
        let options = ExchangeDeclareOptions { durable: true, internal: true, ..Default::default() };
        channel_declares(channel, mark.clone(), options)
    })
    .await;
    forbidden(&thief, "taking the mark away", |channel| async move {
        channel.exchange_delete(mark.into(), ExchangeDeleteOptions::default()).await
    })
    .await;
}

async fn channel_declares(channel: Channel, name: String, options: ExchangeDeclareOptions) -> lapin::Result<()> {
    channel.exchange_declare(name.into(), ExchangeKind::Fanout, options, FieldTable::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_s_ear_hears_its_own_queue_only() {
    let Some(house) = House::new().await else { return };
    house.manager.announce("control.a", "first".into()).await.unwrap();
    let thief = raw(&house.admit("w1").await).await;
    let ear = house.name("ear.0123456789abcdef");
    let channel = thief.create_channel().await.unwrap();
    let made = channel.queue_declare(ear.as_str().into(), QueueDeclareOptions::exclusive(), FieldTable::default());
    made.await.expect("an ear of its own");
    let bindings = [
        ("fanout", "control.b"),
        ("fanout", "control.#"),
        ("fanout", "#"),
        ("fanout", "answers.m1"),
        ("results", "x"),
        ("results.jobs.0", "x"),
    ];
    for (exchange, key) in bindings {
        let (exchange, ear) = (house.name(exchange), ear.clone());
        forbidden(&thief, &format!("hearing {key} of {exchange}"), |channel| async move {
            let (queue, from) = (ear.as_str().into(), exchange.as_str().into());
            channel.queue_bind(queue, from, key.into(), QueueBindOptions::default(), FieldTable::default()).await
        })
        .await;
    }
    // Another worker of the same queue cannot listen at it.
    let other = raw(&house.admit("w2").await).await;
    let channel = other.create_channel().await.unwrap();
    let peeped = channel.basic_get(ear.as_str().into(), BasicGetOptions::default()).await;
    assert!(peeped.is_err(), "another's ear can be read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reports_in_another_s_name() {
    let Some(house) = House::new().await else { return };
    let url = house.admit("w1").await;
    let (thief, entrance, key) = (raw(&url).await, house.name("results"), house.name(RESULTS));
    let other = house.worker(&house.admit("w2").await).await;
    let as_user = |user: String| BasicProperties::default().with_user_id(user.as_str().into());

    // RabbitMQ itself refuses the user of somebody else.
    for user in ["guest".into(), house.name("worker.w2")] {
        let channel = thief.create_channel().await.unwrap();
        assert!(publish(&channel, &entrance, &key, as_user(user)).await.is_err());
    }
    // What it lets pass is seen by nobody: without a user, and in the name of another.
    let channel = thief.create_channel().await.unwrap();
    publish(&channel, &entrance, &key, BasicProperties::default()).await.unwrap();
    house.worker(&url).await.publish(RESULTS, vec![report("w2").into()]).await.unwrap();
    other.publish(RESULTS, vec![report("w2").into()]).await.unwrap();

    let manager: Shared = house.manager.clone();
    let mut results = manager.consume(RESULTS, 10).await.unwrap();
    let got = take(&mut results, 1).await;
    assert_eq!(got[0].body, report("w2"));
    results.ack_through(got[0].tag).await.unwrap();
    counts_become(&manager, RESULTS, Counts { dead: 2, consumers: 1, ..Counts::default() }).await;
    let letters = manager.dead_letters(RESULTS, 5).await.unwrap();
    let reasons: Vec<&str> = letters.iter().map(|letter| letter.reason.as_str()).collect();
    assert!(reasons[0].contains("which user"), "{reasons:?}");
    assert!(reasons[1].contains("only in its own name"), "{reasons:?}");
    // What a manager passes on for a worker on the link is believed: it was vetted there.
    house.manager.publish(RESULTS, vec![report("w3").into()]).await.unwrap();
    assert_eq!(take(&mut results, 1).await[0].body, report("w3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dismissed_worker_is_cut_off_and_does_not_come_back() {
    let Some(house) = House::new().await else { return };
    let url = house.admit("w1").await;
    let worker = house.worker(&url).await;
    let mut consumer = worker.consume("tasks.a", 1).await.unwrap();
    let manager: Shared = house.manager.clone();
    counts_become(&manager, "tasks.a", Counts { consumers: 1, ..Counts::default() }).await;
    let consuming = tokio::spawn(async move { consumer.next().await });
    house.management.dismiss(&WorkerId("w1".into())).await.unwrap();
    house.management.dismiss(&WorkerId("w1".into())).await.expect("again is no error");
    counts_become(&manager, "tasks.a", Counts::default()).await;
    let back = Rabbit::connect(config(&url, &house.prefix)).await.map(drop);
    assert!(matches!(back, Err(BrokerError::Refused { .. })), "{back:?}");
    consuming.abort();
}

/// Gives the worker what the house gives.
struct AskHouse(Arc<Management>, Mutex<u32>);

#[async_trait]
impl Renew for AskHouse {
    async fn renew(&self) -> Result<String, BrokerError> {
        *self.1.lock() += 1;
        let admitted = self.0.admit(&WorkerId("w1".into()), &tasks_of_a()).await;
        admitted.map_err(|error| BrokerError::Unreachable(error.to_string()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_credentials_became_worthless_gets_new_ones() {
    let Some(house) = House::new().await else { return };
    let first = house.admit("w1").await;
    let renew = Arc::new(AskHouse(house.management.clone(), Mutex::new(0)));
    let config = Config { part: Part::Worker, renew: Some(renew.clone()), ..config(&first, &house.prefix) };
    let worker = Rabbit::connect(config).await.unwrap();
    let mut consumer = worker.consume("tasks.a", 1).await.unwrap();
    // As when the server is set up anew: user and connections are gone.
    house.management.dismiss(&WorkerId("w1".into())).await.unwrap();
    house.manager.publish("tasks.a", bodies(7..8)).await.unwrap();
    assert_eq!(&take(&mut consumer, 1).await[0].body[..], b"7");
    soon("the report", worker.publish(RESULTS, vec![report("w1").into()])).await.unwrap();
    assert!(*renew.1.lock() >= 1);
    // And without a pause in between: one dial is all that this does.
    let config = Config { part: Part::Worker, renew: Some(renew.clone()), ..super::config(&first, &house.prefix) };
    Rabbit::connect(config).await.expect("what was told on the refusal lets it in");
    let old = Rabbit::connect(super::config(&first, &house.prefix)).await.map(drop);
    assert!(matches!(old, Err(BrokerError::Refused { .. })), "the first password is still good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_users_cannot_be_made_the_remedy_is_named() {
    let Some(house) = House::new().await else { return };
    house.management.check().await.expect("the tests' own user is an administrator");
    let url = services::shared(services::AMQP_VARIABLE).unwrap();
    let at = services::shared(services::AMQP_MANAGEMENT_VARIABLE).unwrap();
    let nobody = management(&url, "http://127.0.0.1:1", &house.prefix).check().await.unwrap_err();
    assert!(matches!(nobody, ManagementError::Unreachable { .. }), "{nobody}");
    assert!(nobody.to_string().contains("rabbitmq-plugins enable rabbitmq_management"), "{nobody}");
    // A worker's own user, tried on the management.
    let thief = management(&house.admit("w1").await, &at, &house.prefix);
    for tried in [thief.check().await, thief.admit(&WorkerId("w9".into()), &tasks_of_a()).await.map(drop)] {
        let refused = tried.unwrap_err();
        assert!(refused.to_string().contains("set_user_tags"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checker_takes_checks_of_its_kinds_and_tells_how_they_ended_and_nothing_else() {
    let Some(house) = House::new().await else { return };
    let (placed, outcomes) = ("checks.http.00112233445566ff", "results.monitors.3");
    for queue in ["checks.http", "checks.tcp", placed, outcomes] {
        house.manager.counts(queue).await.expect("a queue");
    }
    let url = house.admit_checker("c1", "http").await;
    let checker = house.worker(&url).await;
    for queue in ["checks.http", placed] {
        house.manager.publish(queue, bodies(0..1)).await.unwrap();
        let mut consumer = checker.consume(queue, 1).await.unwrap();
        let got = take(&mut consumer, 1).await;
        consumer.ack_through(got[0].tag).await.unwrap();
    }
    let mut ear = checker.subscribe("places.checks").await.unwrap();
    house.manager.announce("places.checks", "zone=a".into()).await.unwrap();
    assert_eq!(soon("the places", ear.next()).await, Ok(Heard::Message("zone=a".into())));
    soon("the outcome", checker.publish(outcomes, vec![report("c1").into()])).await.unwrap();
    let mut told = house.manager.consume(outcomes, 10).await.unwrap();
    assert_eq!(take(&mut told, 1).await[0].body, report("c1").into_bytes());

    let thief = raw(&url).await;
    for queue in ["checks.tcp", "tasks.a", outcomes, RESULTS].map(|queue| house.name(queue)) {
        forbidden(&thief, &format!("getting from {queue}"), |channel| async move {
            channel.basic_get(queue.as_str().into(), BasicGetOptions::default()).await
        })
        .await;
    }
    let (results, checks, result) = (house.name("results"), house.name("checks"), house.name(RESULTS));
    for (exchange, key) in [(&results, result.as_str()), (&checks, "check.http")] {
        forbidden(&thief, &format!("publishing to {exchange}/{key}"), |channel| async move {
            publish(&channel, exchange, key, BasicProperties::default()).await
        })
        .await;
    }
    let worker = raw(&house.admit("w1").await).await;
    let (entrance, queue) = (house.name("outcomes"), house.name(outcomes));
    forbidden(&worker, "a worker that speaks of checks", |channel| async move {
        publish(&channel, &entrance, &queue, BasicProperties::default()).await
    })
    .await;
}
