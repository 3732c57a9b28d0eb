//! What only a broker on a server has: refusals with a remedy, topology that is checked, permissions.

use bytes::Bytes;
use lapin::options::{BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use mutirao_broker::suite::{Harness, bodies, counts_become, numbers, soon, take};
use mutirao_broker::{Broker, BrokerError, Counts, Shared};
use mutirao_testkit::services;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{OnRabbit, connect, random_prefix};

async fn channel(url: &str) -> (Connection, lapin::Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("connect");
    let channel = connection.create_channel().await.expect("a channel");
    (connection, channel)
}

async fn why_not(url: &str) -> String {
    match connect(url, &random_prefix()).await {
        Ok(_) => panic!("{url} let us in"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_made_says_why_and_what_to_do() {
    let Some(url) = services::shared(services::AMQP_VARIABLE) else { return };
    let wrong_password = why_not(&url.replacen("guest:guest", "guest:s3cret", 1)).await;
    assert!(wrong_password.contains("no user guest with this password"), "{wrong_password}");
    assert!(!wrong_password.contains("s3cret"));
    let wrong_vhost = why_not(&url.replacen("%2f", "nowhere", 1)).await;
    assert!(wrong_vhost.contains("rabbitmqctl add_vhost nowhere"), "{wrong_vhost}");
    assert!(why_not("amqp//typo:s3cret@").await.contains("amqp://user:password@host"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let unreachable = why_not(&format!("amqp://guest:guest@{nobody}/%2f")).await;
    assert!(unreachable.contains("is RabbitMQ running there"), "{unreachable}");
}

/// A server that says one thing to whoever comes.
async fn saying(words: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(words).await;
            let _ = socket.read(&mut [0; 64]).await;
        }
    });
    format!("amqp://guest:guest@{address}/%2f")
}

#[tokio::test]
async fn what_is_no_rabbitmq_or_too_old_is_refused() {
    let web = why_not(&saying(b"HTTP/1.1 400 Bad Request\r\n\r\n").await).await;
    assert!(web.contains("no AMQP server"), "{web}");
    // connection.start of RabbitMQ 3.8.9, as far as it matters.
    let old = b"\x01\x00\x00\x00\x00\x00\x31\x00\x0a\x00\x0a\x00\x09\x00\x00\x00\x27\
        \x07productS\x00\x00\x00\x08RabbitMQ\x07versionS\x00\x00\x00\x053.8.9\xce";
    let old = why_not(&saying(old).await).await;
    assert!(old.contains("3.8.9 is too old; upgrade it to 3.10"), "{old}");
}

#[tokio::test]
async fn a_queue_with_other_arguments_is_an_error_that_names_it() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let (_connection, channel) = channel(&harness.url).await;
    let name = format!("{}q", harness.prefix);
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    channel.queue_declare(name.as_str().into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
    let rabbit = harness.rabbit().await;
    for refused in [
        rabbit.publish("q", bodies(0..1)).await,
        rabbit.consume("q", 1).await.map(|_| ()),
        rabbit.counts("q").await.map(|_| ()),
    ] {
        let Err(BrokerError::Refused { what, why }) = refused else { panic!("{refused:?}") };
        assert!(what == name && why.contains(&format!("rabbitmqctl delete_queue {name}")), "{what}: {why}");
    }
    rabbit.publish("another", bodies(0..1)).await.expect("the connection goes on");
}

#[tokio::test]
async fn a_queue_deleted_under_us_is_made_anew() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let (_connection, channel) = channel(&harness.url).await;
    let broker: Shared = harness.rabbit().await;
    broker.publish("q", bodies(0..1)).await.unwrap();
    let name = format!("{}q", harness.prefix);
    channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    soon("publish", broker.publish("q", bodies(1..3))).await.unwrap();
    let mut consumer = broker.consume("q", 10).await.unwrap();
    let got = take(&mut consumer, 2).await;
    assert_eq!(numbers(&got), [1, 2]);
    consumer.ack_through(got[1].tag).await.unwrap();
    // Under a consumer: it is told, and comes back to the new one.
    channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    counts_become(&broker, "q", Counts { consumers: 1, ..Counts::default() }).await;
    soon("publish", broker.publish("q", bodies(3..4))).await.unwrap();
    assert_eq!(numbers(&take(&mut consumer, 1).await), [3]);
}

#[tokio::test]
async fn a_message_that_comes_back_too_often_becomes_a_dead_letter() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let broker: Shared = harness.rabbit().await;
    broker.publish("q", bodies(0..1)).await.unwrap();
    for _ in 0..21 {
        let mut consumer = broker.consume("q", 1).await.unwrap();
        take(&mut consumer, 1).await;
    }
    counts_become(&broker, "q", Counts { dead: 1, ..Counts::default() }).await;
    let letters = broker.dead_letters("q", 5).await.unwrap();
    assert_eq!(
        (&letters[0].body[..], letters[0].reason.as_str()),
        (&b"0"[..], "it came back unacknowledged too often")
    );
}

#[tokio::test]
async fn rubbish_from_others_is_delivered_and_can_be_rejected() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let broker: Shared = harness.rabbit().await;
    let mut consumer = broker.consume("q", 10).await.unwrap();
    let (_connection, channel) = channel(&harness.url).await;
    let (name, options) = (format!("{}q", harness.prefix), BasicPublishOptions::default());
    let properties = BasicProperties::default().with_content_encoding("gzip".into());
    channel.basic_publish("".into(), name.as_str().into(), options, b"\xff\x00", properties).await.unwrap();
    let got = take(&mut consumer, 1).await;
    consumer.reject(got[0].tag, &"no envelope ".repeat(1_000)).await.unwrap();
    counts_become(&broker, "q", Counts { dead: 1, consumers: 1, ..Counts::default() }).await;
    let letters = broker.dead_letters("q", 5).await.unwrap();
    assert_eq!(letters[0].body, Bytes::from_static(b"\xff\x00"));
    assert_eq!(letters[0].reason.chars().count(), 1_000, "a reason is bounded");
}

#[tokio::test]
async fn closing_ends_what_waits() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let rabbit = harness.rabbit().await;
    let mut consumer = rabbit.consume("q", 1).await.unwrap();
    let mut ear = rabbit.subscribe("t").await.unwrap();
    let consuming = tokio::spawn(async move { consumer.next().await });
    let hearing = tokio::spawn(async move { ear.next().await });
    rabbit.close();
    assert_eq!(soon("the end", consuming).await.unwrap(), Err(BrokerError::Closed));
    assert_eq!(soon("the end", hearing).await.unwrap(), Err(BrokerError::Closed));
    assert_eq!(rabbit.publish("q", bodies(0..1)).await, Err(BrokerError::Closed));
    assert_eq!(rabbit.extent("log").await, Err(BrokerError::Closed));
    counts_become(&harness.broker().await, "q", Counts::default()).await;
}

#[tokio::test]
async fn while_the_server_is_away_announcing_fails_at_once_and_says_so() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let rabbit = harness.rabbit().await;
    rabbit.announce("t", Bytes::new()).await.unwrap();
    assert_eq!(rabbit.reachable(), Ok(()));
    harness.cut().await;
    let away = soon("the loss", async {
        loop {
            match rabbit.announce("t", Bytes::new()).await {
                Ok(()) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    })
    .await;
    assert!(matches!(away, BrokerError::Unreachable(_)), "{away}");
}

#[tokio::test]
async fn a_log_is_read_whole_over_the_offsets_that_the_server_spends_on_itself() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let rabbit = harness.rabbit().await;
    // Some segments of 20,000 bytes, and less than retention keeps.
    let record = |n: usize| Bytes::from(format!("{n:01000}"));
    for from in (0..70).step_by(7) {
        rabbit.append("log", (from..from + 7).map(record).collect()).await.unwrap();
    }
    let (first, next) = rabbit.extent("log").await.unwrap();
    assert!(first == 0 && next > 70, "no offset was skipped between {first} and {next}: this proves nothing");
    for limit in [1, 50] {
        let (mut at, mut read) = (first, Vec::new());
        while read.len() < 70 {
            let records = soon("read", rabbit.read("log", at, limit)).await.unwrap();
            at = records.last().unwrap().offset + 1;
            read.extend(records.into_iter().map(|record| record.body));
        }
        assert!(read.iter().enumerate().all(|(n, body)| *body == record(n)));
    }
    for offset in first..next {
        assert!(!soon("read", rabbit.read("log", offset, 1)).await.unwrap().is_empty(), "cold, from {offset}");
    }
}
