//! A server of our own, killed in the middle of work and started again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::rabbit::Config;
use mutirao_broker::suite::cuts::adding_and_reading_through;
use mutirao_broker::suite::{bodies, numbers, publish_patiently, soon};
use mutirao_broker::{Broker, BrokerError, Heard, Limits, Rabbit};
use mutirao_core::SystemClock;
use mutirao_core::clock::{Clock, ClockExt};
use mutirao_testkit::certificates::{Authority, Good};
use mutirao_testkit::services::{self, Service};
use mutirao_tls::{Believe, Trust};
use parking_lot::Mutex;

use super::{config, connect, random_prefix};

/// A server on a busy machine takes a while to start and to recover its queues.
const PATIENCE: Duration = Duration::from_secs(120);

/// RabbitMQ 3.10 keeps the directory of its quorum queues in a file that it flushes now and then: a queue made less than
/// a moment before a kill -9 is not found again, whatever was confirmed. That is its promise, not ours.
const QUEUES_ARE_KNOWN: Duration = Duration::from_secs(4);

/// Only when the run has servers at all.
fn own_server() -> Option<(Service, tempfile::TempDir)> {
    services::shared(services::AMQP_VARIABLE)?;
    let folder = tempfile::tempdir().expect("a folder");
    let server = Service::rabbitmq(folder.path()).expect("a server of our own");
    Some((server, folder))
}

async fn patiently<F: Future + Send>(what: &str, future: F) -> F::Output
where
    F::Output: Send,
{
    SystemClock.timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} took longer than {PATIENCE:?}"))
}

/// Publishes numbers for ever, noting those that were confirmed. The queue may fill before its consumer is back.
async fn publish_on(rabbit: Arc<Rabbit>, confirmed: Arc<Mutex<BTreeSet<usize>>>) {
    for from in (0..).step_by(3) {
        publish_patiently(&*rabbit, "q", bodies(from..from + 3)).await;
        confirmed.lock().extend(from..from + 3);
        SystemClock.sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_confirmed_and_everything_attaches_again() {
    let Some((mut server, _folder)) = own_server() else { return };
    let prefix = random_prefix();
    let (publishing, consuming) =
        (connect(server.url(), &prefix).await.unwrap(), connect(server.url(), &prefix).await.unwrap());
    let logged = publishing.append("log", bodies(0..10)).await.unwrap();
    let mut ear = consuming.subscribe("t").await.unwrap();
    let mut consumer = consuming.consume("q", 8).await.unwrap();
    SystemClock.sleep(QUEUES_ARE_KNOWN).await;
    let confirmed: Arc<Mutex<BTreeSet<usize>>> = Arc::default();
    let seen: Arc<Mutex<BTreeSet<usize>>> = Arc::default();
    let publisher = tokio::spawn(publish_on(publishing.clone(), confirmed.clone()));
    let consumer = tokio::spawn({
        let seen = seen.clone();
        async move {
            loop {
                let batch = consumer.next().await.expect("next");
                seen.lock().extend(numbers(&batch));
                let last = batch.last().map_or(0, |delivery| delivery.tag);
                consumer.ack_through(last).await.expect("ack");
            }
        }
    });
    for _ in 0..2 {
        let before = confirmed.lock().len();
        patiently("some work", async {
            while confirmed.lock().len() < before + 100 {
                SystemClock.sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        tokio::task::block_in_place(|| {
            server.kill9();
            server.restart().expect("restart");
        });
    }
    let before = confirmed.lock().len();
    patiently("work after the last kill", async {
        while confirmed.lock().len() < before + 100 {
            SystemClock.sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    publisher.abort();
    patiently("everything confirmed to arrive", async {
        while !confirmed.lock().is_subset(&seen.lock()) {
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    consumer.abort();
    assert_eq!(soon("the gap", ear.next()).await, Ok(Heard::Gap));
    let read = soon("read", publishing.read("log", logged, 10)).await.unwrap();
    assert_eq!(read[0].offset, logged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_a_log_loses_nothing_confirmed_and_its_reader_goes_on_where_it_was() {
    let Some((mut server, _folder)) = own_server() else { return };
    let config = |url: &str, prefix: &str| Config { limits: Limits::default(), ..config(url, prefix) };
    let prefix = random_prefix();
    let (writer, reader) = (
        Rabbit::connect(config(server.url(), &prefix)).await.unwrap(),
        Rabbit::connect(config(server.url(), &prefix)).await.unwrap(),
    );
    writer.extent("log").await.unwrap();
    SystemClock.sleep(QUEUES_ARE_KNOWN).await;
    adding_and_reading_through(writer.clone(), reader, async {
        for _ in 0..2 {
            SystemClock.sleep(Duration::from_millis(300)).await;
            tokio::task::block_in_place(|| {
                server.kill9();
                server.restart().expect("restart");
            });
            patiently("the log", writer.extent("log")).await.expect("extent");
        }
        SystemClock.sleep(Duration::from_millis(300)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_tls_is_believed_by_its_authority_only() {
    if services::shared(services::AMQP_VARIABLE).is_none() {
        return;
    }
    mutirao_tls::install();
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
    let server = Service::rabbitmq_with_tls(folder.path(), &authority.issue(&["localhost"], Good::ForLong));
    let server = server.expect("a server of our own");
    let prefix = random_prefix();
    let believe = Believe { ca: Some(authority.ca()), pin: None };
    let trust = Trust::for_url(server.url(), &believe).expect("the authority's certificate");
    let believing = |url: &str| Config { trust: trust.clone(), ..config(url, &prefix) };
    let rabbit = Rabbit::connect(believing(server.url())).await.expect("connect");
    patiently("a publish", rabbit.publish("q", bodies(0..1))).await.expect("publish");

    let why = |connected: Result<Arc<Rabbit>, BrokerError>| connected.err().expect("no connection").to_string();
    let stranger = why(connect(server.url(), &prefix).await);
    assert!(stranger.contains("certificate is not trusted") && stranger.contains("set tls.ca"), "{stranger}");
    let misnamed = why(Rabbit::connect(believing(&server.url().replacen("localhost", "127.0.0.1", 1))).await);
    assert!(misnamed.contains("certificate is not trusted"), "{misnamed}");
    let plain = why(connect(&server.url().replacen("amqps", "amqp", 1), &prefix).await);
    assert!(plain.contains("write amqps://"), "{plain}");
    let plain_port = format!("amqps://guest:guest@localhost:{}/%2f", server.address().port());
    let not_tls = why(Rabbit::connect(believing(&plain_port)).await);
    assert!(not_tls.contains("write amqp://"), "{not_tls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_noticed_and_found_again_when_it_wakes() {
    let Some((server, _folder)) = own_server() else { return };
    let rabbit = connect(server.url(), &random_prefix()).await.unwrap();
    rabbit.publish("q", bodies(0..1)).await.unwrap();
    server.freeze();
    let publishing = tokio::spawn({
        let rabbit = rabbit.clone();
        async move { rabbit.publish("q", bodies(1..2)).await }
    });
    patiently("the silence to be noticed", async {
        while rabbit.reachable().is_ok() {
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    server.thaw();
    patiently("the publish", publishing).await.unwrap().expect("publish");
}

/// Stops the process that leads a quorum queue, as when most of its replicas are gone: it is there, and answers nobody.
fn lead(server: &Service, queue: &str, how: &str) {
    server.rabbitmqctl(&["eval", &format!("sys:{how}('%2F_{queue}').")]).expect("rabbitmqctl");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_without_a_leader_is_given_up_after_a_while_and_keeps_no_other_waiting() {
    let Some((server, _folder)) = own_server() else { return };
    let prefix = random_prefix();
    let rabbit = connect(server.url(), &prefix).await.unwrap();
    for queue in ["q", "other"] {
        rabbit.publish(queue, bodies(0..1)).await.unwrap();
    }
    let queue = format!("{prefix}q");
    lead(&server, &queue, "suspend");
    let stuck = tokio::spawn({
        let rabbit = rabbit.clone();
        async move { rabbit.publish("q", bodies(1..2)).await }
    });
    patiently("the other queue", rabbit.publish("other", bodies(1..2))).await.unwrap();
    let published = patiently("the giving up", stuck).await.unwrap();
    assert!(matches!(&published, Err(BrokerError::Unreachable(why)) if why.contains(&queue)), "{published:?}");
    assert_eq!(rabbit.reachable(), Ok(()), "it was the queue, not the server");
    lead(&server, &queue, "resume");
    patiently("the queue again", async { while rabbit.publish("q", bodies(2..3)).await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_without_a_leader_are_given_up_after_a_while() {
    let Some((server, _folder)) = own_server() else { return };
    let prefix = random_prefix();
    let rabbit = connect(server.url(), &prefix).await.unwrap();
    rabbit.publish("q", bodies(0..1)).await.unwrap();
    assert_eq!(rabbit.dead_letters("q", 10).await.unwrap().len(), 0);
    let dead = format!("{prefix}q.dead");
    lead(&server, &dead, "suspend");
    let looked = patiently("the giving up", rabbit.dead_letters("q", 10)).await;
    assert!(matches!(&looked, Err(BrokerError::Unreachable(why)) if why.contains(&dead)), "{looked:?}");
    assert_eq!(rabbit.reachable(), Ok(()), "it was the queue, not the server");
    lead(&server, &dead, "resume");
    patiently("the dead letters again", async { while rabbit.dead_letters("q", 10).await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_batches_than_there_are_ways_of_sending_wait_no_longer_than_a_bound_for_a_queue_without_a_leader() {
    let Some((server, _folder)) = own_server() else { return };
    let prefix = random_prefix();
    let rabbit = connect(server.url(), &prefix).await.unwrap();
    for queue in ["q", "other"] {
        rabbit.publish(queue, bodies(0..1)).await.unwrap();
    }
    let queue = format!("{prefix}q");
    lead(&server, &queue, "suspend");
    let mut stuck = tokio::task::JoinSet::new();
    for _ in 0..120 {
        let rabbit = rabbit.clone();
        stuck.spawn(async move { rabbit.publish("q", bodies(0..24)).await });
    }
    patiently("the other queue", async { while rabbit.publish("other", bodies(0..24)).await.is_err() {} }).await;
    let given_up = patiently("the giving up", stuck.join_all()).await;
    let why = |gave_up: &Result<(), BrokerError>| gave_up.clone().expect_err("nobody takes it").to_string();
    let why: Vec<String> = given_up.iter().map(why).collect();
    assert!(why.iter().all(|why| why.contains(&queue)), "{why:?}");
    assert!(why.iter().any(|why| why.contains("ways of sending are taken")), "{why:?}");
    assert_eq!(rabbit.reachable(), Ok(()));
    lead(&server, &queue, "resume");
    // What it was sent meanwhile may have filled it, which it then says.
    let led = async || !matches!(rabbit.publish("q", bodies(0..1)).await, Err(BrokerError::Unreachable(_)));
    patiently("the queue again", async { while !led().await {} }).await;
}
