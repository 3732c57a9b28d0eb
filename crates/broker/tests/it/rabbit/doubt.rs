//! What a sender and a taker may rely on when a connection goes at the worst moment.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::suite::{bodies, numbers, publish_patiently, soon, take};
use mutirao_broker::{Broker, BrokerError};
use mutirao_core::SystemClock;
use mutirao_core::clock::Clock;

use super::faults::{lead, own_server, patiently};
use super::{OnRabbit, connect, random_prefix, url_through};
use crate::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_closed_gives_back_what_it_held_before_anybody_takes_what_comes_after() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let staying = harness.rabbit().await;
    for round in 0..16 {
        let (queue, leaving) = (format!("kv.{round}"), harness.rabbit().await);
        staying.publish(&queue, bodies(0..64)).await.unwrap();
        let mut first = leaving.consume(&queue, 16).await.unwrap();
        take(&mut first, 16).await;
        let mut second = staying.consume(&queue, 16).await.unwrap();
        // Whoever stops lets go of its queues, and of the broker, at the same moment, or of the broker only.
        if round % 2 == 0 {
            drop(first);
        }
        leaving.close();
        let got = numbers(&take(&mut second, 16).await);
        assert_eq!(got[..16], (0..16).collect::<Vec<_>>(), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_taken_before_the_queue_was_full_is_not_told_to_be_refused() {
    let Some((server, _folder)) = own_server() else { return };
    let (prefix, proxy) = (random_prefix(), Proxy::to(server.address()).await);
    let filling = connect(server.url(), &prefix).await.unwrap();
    let sending = connect(&url_through(server.url(), proxy.address), &prefix).await.unwrap();
    sending.publish("q", bodies(0..1)).await.unwrap();
    while filling.publish("q", bodies(0..1)).await.is_ok() {}
    // There is room for one more.
    let mut consumer = filling.consume("q", 1).await.unwrap();
    let one = take(&mut consumer, 1).await;
    consumer.ack_through(one[0].tag).await.unwrap();
    drop(consumer);
    publish_patiently(&*sending, "other", bodies(0..1)).await;

    let queue = format!("{prefix}q");
    lead(&server, &queue, "suspend");
    let published = tokio::spawn({
        let sending: Arc<_> = sending.clone();
        async move { sending.publish("q", bodies(7..8)).await }
    });
    // It reaches the queue, which says nothing; then the connection goes.
    SystemClock.sleep(Duration::from_secs(2)).await;
    proxy.cut();
    proxy.ended().await;
    lead(&server, &queue, "resume");
    SystemClock.sleep(Duration::from_millis(500)).await;
    proxy.heal();
    let told = patiently("the answer", published).await.unwrap();
    let mut consumer = filling.consume("q", 200).await.unwrap();
    let all = soon("all of it", async { take(&mut consumer, 200).await }).await;
    let there = numbers(&all).contains(&7);
    assert!(there, "it was there when the queue was full: otherwise this shows nothing");
    assert!(matches!(told, Err(BrokerError::Unreachable(_))), "{told:?}, and it is in the queue");
}
