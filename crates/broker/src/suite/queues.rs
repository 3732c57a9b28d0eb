//! Work queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::SystemClock;
use mutirao_core::clock::Clock;
use mutirao_core::limits::MESSAGE_BYTES_MAX;
use tokio::task::JoinSet;

use super::*;

pub async fn messages_arrive_in_the_order_of_publication(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let mut consumer = broker.consume("q", 1_000).await.expect("consume");
    for start in (0..60).step_by(3) {
        soon("publish", broker.publish("q", bodies(start..start + 3))).await.expect("publish");
    }
    let got = take(&mut consumer, 60).await;
    assert_eq!(numbers(&got), (0..60).collect::<Vec<_>>());
    assert!(got.iter().all(|delivery| !delivery.redelivered));
    assert!(got.windows(2).all(|two| two[0].tag < two[1].tag), "tags grow");
}

pub async fn no_more_than_the_credit_is_unacknowledged(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..10)).await.expect("publish");
    let mut consumer = broker.consume("q", 3).await.expect("consume");
    let first = take(&mut consumer, 3).await;
    assert!(not_yet(consumer.next()).await, "a fourth came past the credit");
    counts_become(&broker, "q", Counts { ready: 7, unacked: 3, dead: 0, consumers: 1 }).await;
    consumer.ack_through(first[1].tag).await.expect("ack");
    assert_eq!(numbers(&take(&mut consumer, 2).await), [3, 4]);
    assert!(not_yet(consumer.next()).await, "a third came past the credit");
}

pub async fn what_a_dropped_consumer_held_returns_in_order_and_marked(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..6)).await.expect("publish");
    let mut one = broker.consume("q", 4).await.expect("consume");
    let held = take(&mut one, 4).await;
    one.ack_through(held[0].tag).await.expect("ack");
    // Credit was freed, so it gets one more.
    take(&mut one, 1).await;
    drop(one);
    counts_become(&broker, "q", Counts { ready: 5, ..Counts::default() }).await;
    let mut other = broker.consume("q", 10).await.expect("consume");
    let again = take(&mut other, 5).await;
    assert_eq!(numbers(&again), [1, 2, 3, 4, 5], "back at the head, in order");
    assert_eq!(again.iter().map(|d| d.redelivered).collect::<Vec<_>>(), [true, true, true, true, false]);
}

/// One consumer follows another while there is more to take: what the first had comes before what nobody had.
pub async fn from_a_queue_in_order_one_takes_at_a_time(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let queue = "kv.3";
    let mut first = broker.consume(queue, 4).await.expect("consume");
    broker.publish(queue, bodies(0..4)).await.expect("publish");
    let held = take(&mut first, 4).await;
    let mut second = broker.consume(queue, 4).await.expect("consume");
    broker.publish(queue, bodies(4..6)).await.expect("publish");
    assert!(not_yet(second.next()).await, "the first is still there");
    first.ack_through(held[0].tag).await.expect("ack");
    drop(first);
    let mut got = take(&mut second, 4).await;
    second.ack_through(got[3].tag).await.expect("ack");
    got.extend(take(&mut second, 5 - got.len()).await);
    assert_eq!(numbers(&got), [1, 2, 3, 4, 5]);
}

pub async fn ack_through_settles_everything_up_to_its_tag_and_nothing_after(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..5)).await.expect("publish");
    let mut consumer = broker.consume("q", 5).await.expect("consume");
    let got = take(&mut consumer, 5).await;
    consumer.ack_through(got[2].tag).await.expect("ack");
    // A second time, and an older tag, change nothing.
    consumer.ack_through(got[2].tag).await.expect("ack");
    consumer.ack_through(got[0].tag).await.expect("ack");
    counts_become(&broker, "q", Counts { unacked: 2, consumers: 1, ..Counts::default() }).await;
    drop(consumer);
    counts_become(&broker, "q", Counts { ready: 2, ..Counts::default() }).await;
    let mut other = broker.consume("q", 5).await.expect("consume");
    assert_eq!(numbers(&take(&mut other, 2).await), [3, 4]);
}

pub async fn what_is_acknowledged_one_by_one_is_settled_and_nothing_before_it(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..6)).await.expect("publish");
    let mut consumer = broker.consume("q", 5).await.expect("consume");
    let got = take(&mut consumer, 5).await;
    consumer.ack_each(&[got[1].tag, got[3].tag]).await.expect("ack");
    // A second time changes nothing.
    consumer.ack_each(&[got[3].tag]).await.expect("ack");
    // The credit of those is free again.
    assert_eq!(numbers(&take(&mut consumer, 1).await), [5]);
    counts_become(&broker, "q", Counts { unacked: 4, consumers: 1, ..Counts::default() }).await;
    drop(consumer);
    counts_become(&broker, "q", Counts { ready: 4, ..Counts::default() }).await;
    let mut other = broker.consume("q", 10).await.expect("consume");
    assert_eq!(numbers(&take(&mut other, 4).await), [0, 2, 4, 5]);
}

pub async fn what_came_after_one_retired_goes_to_others_and_what_it_saw_is_its_own(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..6)).await.expect("publish");
    let mut one = broker.consume("q", 4).await.expect("consume");
    let got = take(&mut one, 4).await;
    one.retire(got[1].tag).await.expect("retire");
    // Whether it still counts as a consumer while it holds something differs.
    soon("the rest to go back", async {
        while broker.counts("q").await.map(|counts| (counts.ready, counts.unacked)) != Ok((4, 2)) {
            SystemClock.sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let mut other = broker.consume("q", 10).await.expect("consume");
    let mut taken = numbers(&take(&mut other, 4).await);
    taken.sort_unstable();
    assert_eq!(taken, [2, 3, 4, 5]);
    broker.publish("q", bodies(6..8)).await.expect("publish");
    assert_eq!(numbers(&take(&mut other, 2).await), [6, 7]);
    one.ack_each(&[got[0].tag]).await.expect("ack");
    assert!(not_yet(one.next()).await, "it takes nothing more");
    // What was not settled by then goes back with it.
    drop(one);
    assert_eq!(numbers(&take(&mut other, 1).await), [1]);
}

pub async fn a_rejected_message_becomes_a_dead_letter_and_its_neighbours_go_on(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..4)).await.expect("publish");
    let mut consumer = broker.consume("q", 3).await.expect("consume");
    let got = take(&mut consumer, 3).await;
    consumer.reject(got[1].tag, "cannot be read").await.expect("reject");
    // The credit of the rejected one is free again.
    let more = take(&mut consumer, 1).await;
    consumer.ack_through(more[0].tag).await.expect("ack");
    counts_become(&broker, "q", Counts { dead: 1, consumers: 1, ..Counts::default() }).await;
    for _ in 0..2 {
        let letters = broker.dead_letters("q", 10).await.expect("dead letters");
        assert_eq!(letters.len(), 1, "they stay");
        assert_eq!((number(&letters[0].body), letters[0].reason.as_str()), (1, "cannot be read"));
    }
    assert!(broker.dead_letters("q", 0).await.expect("dead letters").is_empty());
}

/// More than the few among which any broker would find its way.
const DEAD: usize = 100;

/// Dead letters, numbered from 0.
async fn bury(broker: &Shared) {
    broker.publish("q", bodies(0..DEAD)).await.expect("publish");
    let mut consumer = broker.consume("q", DEAD as u32).await.expect("consume");
    for delivery in take(&mut consumer, DEAD).await {
        consumer.reject(delivery.tag, "cannot be read").await.expect("reject");
    }
    drop(consumer);
    counts_become(broker, "q", Counts { dead: DEAD as u64, ..Counts::default() }).await;
}

async fn dead_numbers(broker: &Shared, limit: u32) -> Vec<usize> {
    let letters = broker.dead_letters("q", limit).await.expect("dead letters");
    letters.iter().map(|letter| number(&letter.body)).collect()
}

pub async fn dead_letters_stay_in_their_order_however_often_and_how_many_of_them_are_looked_at(harness: &dyn Harness) {
    let broker = harness.broker().await;
    assert_eq!(broker.count_dead_letters("q").await, Ok(0));
    bury(&broker).await;
    for limit in [2, 1, 50, 99, 2, 200, 4, 200] {
        let shown = (limit as usize).min(DEAD);
        assert_eq!(dead_numbers(&broker, limit).await, (0..shown).collect::<Vec<_>>(), "{limit} looked at");
        counts_become(&broker, "q", Counts { dead: DEAD as u64, ..Counts::default() }).await;
        assert_eq!(broker.count_dead_letters("q").await, Ok(DEAD as u64));
    }
}

pub async fn dead_letters_are_removed_one_by_its_id_or_all_and_the_others_keep_their_order(harness: &dyn Harness) {
    let broker = harness.broker().await;
    assert_eq!(broker.remove_dead_letters("q", &Letters::All).await, Ok(0));
    bury(&broker).await;
    let third = broker.dead_letters("q", 3).await.expect("dead letters")[2].id();
    assert_eq!(broker.remove_dead_letters("q", &Letters::One(third.clone())).await, Ok(1));
    let rest: Vec<usize> = (0..DEAD).filter(|number| *number != 2).collect();
    assert_eq!(dead_numbers(&broker, 200).await, rest);
    assert_eq!(broker.remove_dead_letters("q", &Letters::One(third)).await, Ok(0), "it is gone");
    assert_eq!(broker.remove_dead_letters("q", &Letters::All).await, Ok(DEAD as u64 - 1));
    assert_eq!(broker.count_dead_letters("q").await, Ok(0));
    bury(&broker).await;
}

pub async fn counts_follow_what_happens(harness: &dyn Harness) {
    let broker = harness.broker().await;
    assert_eq!(broker.counts("q").await, Ok(Counts::default()));
    broker.publish("q", bodies(0..5)).await.expect("publish");
    assert_eq!(broker.counts("q").await, Ok(Counts { ready: 5, ..Counts::default() }));
    let mut consumer = broker.consume("q", 2).await.expect("consume");
    let got = take(&mut consumer, 2).await;
    counts_become(&broker, "q", Counts { ready: 3, unacked: 2, dead: 0, consumers: 1 }).await;
    consumer.reject(got[1].tag, "no").await.expect("reject");
    counts_become(&broker, "q", Counts { ready: 2, unacked: 2, dead: 1, consumers: 1 }).await;
    drop(consumer);
    counts_become(&broker, "q", Counts { ready: 4, unacked: 0, dead: 1, consumers: 0 }).await;
    assert_eq!(broker.counts("another").await, Ok(Counts::default()), "queues are apart");
}

pub async fn work_is_shared_between_consumers_with_credit(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(broker.consume("q", 10).await.expect("consume"));
    }
    broker.publish("q", bodies(0..30)).await.expect("publish");
    let mut all = Vec::new();
    for consumer in &mut consumers {
        all.extend(numbers(&take(consumer, 10).await));
    }
    all.sort_unstable();
    assert_eq!(all, (0..30).collect::<Vec<_>>());
}

pub async fn a_slow_consumer_loses_nothing_and_the_queue_stays_within_its_bound(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let bound = harness.bounds().queue_messages;
    let mut consumer = broker.consume("q", 2).await.expect("consume");
    let mut accepted = 0;
    let full = loop {
        match soon("publish", broker.publish("q", bodies(accepted..accepted + 1))).await {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted <= bound + 2, "the queue grew past its bound of {bound}");
    };
    assert!(matches!(full, BrokerError::Full { .. }), "{full}");
    assert!(accepted >= bound, "it was full at {accepted}, before its bound of {bound}");
    let mut got = Vec::new();
    while got.len() < accepted {
        let batch = soon("a delivery", consumer.next()).await.expect("next");
        got.extend(numbers(&batch));
        let last = batch.last().map_or(0, |delivery| delivery.tag);
        consumer.ack_through(last).await.expect("ack");
    }
    assert_eq!(got, (0..accepted).collect::<Vec<_>>());
    counts_become(&broker, "q", Counts { consumers: 1, ..Counts::default() }).await;
    broker.publish("q", bodies(0..1)).await.expect("there is room again");
}

pub async fn many_publishers_and_consumers_lose_and_double_nothing(harness: &dyn Harness) {
    const PUBLISHERS: usize = 8;
    const EACH: usize = 200;
    let queue = "q.many";
    let mut publishers = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let broker = harness.broker().await;
        publishers.spawn(async move {
            for n in (0..EACH).step_by(4) {
                let from = publisher * EACH + n;
                publish_patiently(&*broker, queue, bodies(from..from + 4)).await;
            }
        });
    }
    let seen: Arc<parking_lot::Mutex<BTreeMap<usize, usize>>> = Arc::default();
    let mut consumers = JoinSet::new();
    for _ in 0..3 {
        let (broker, seen) = (harness.broker().await, seen.clone());
        consumers.spawn(async move {
            let mut consumer = broker.consume(queue, 7).await.expect("consume");
            loop {
                let batch = consumer.next().await.expect("next");
                let last = batch.last().map_or(0, |delivery| delivery.tag);
                batch.iter().for_each(|delivery| *seen.lock().entry(number(&delivery.body)).or_default() += 1);
                consumer.ack_through(last).await.expect("ack");
            }
        });
    }
    soon("publishing", async { while publishers.join_next().await.transpose().expect("a publisher").is_some() {} })
        .await;
    soon("consuming", async {
        while seen.lock().len() < PUBLISHERS * EACH {
            SystemClock.sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(seen.lock().values().all(|times| *times == 1), "a message came twice though nothing was cut");
    assert_eq!(seen.lock().len(), PUBLISHERS * EACH);
}

pub async fn a_message_too_large_is_refused_and_the_rest_goes_on(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let over = soon("publish", broker.publish("q", vec![vec![0; MESSAGE_BYTES_MAX + 1].into()])).await;
    assert_eq!(over, Err(BrokerError::TooLarge { bytes: MESSAGE_BYTES_MAX + 1, bound: MESSAGE_BYTES_MAX }));
    let over = soon("announce", broker.announce("t", vec![0; MESSAGE_BYTES_MAX + 1].into())).await;
    assert!(matches!(over, Err(BrokerError::TooLarge { .. })));
    soon("publish", broker.publish("q", vec![vec![7; MESSAGE_BYTES_MAX].into(), Bytes::new()]))
        .await
        .expect("the largest");
    let mut consumer = broker.consume("q", 10).await.expect("consume");
    let got = take(&mut consumer, 2).await;
    assert!(got[0].body.len() == MESSAGE_BYTES_MAX && got[0].body.iter().all(|byte| *byte == 7));
    assert!(got[1].body.is_empty());
}

pub async fn a_batch_past_what_travels_at_once_arrives_whole_and_in_order(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let batch: Vec<Bytes> = (0..5u8).map(|n| vec![n; 6 << 20].into()).collect();
    soon("publish", broker.publish("q", batch.clone())).await.expect("publish");
    let mut consumer = broker.consume("q", 10).await.expect("consume");
    let got = take(&mut consumer, 5).await;
    assert!(got.iter().map(|delivery| &delivery.body).eq(&batch));
}

pub async fn a_wait_for_deliveries_that_is_given_up_loses_nothing(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let mut consumer = broker.consume("q", 100).await.expect("consume");
    let publisher = {
        let broker = broker.clone();
        tokio::spawn(async move {
            for n in 0..50 {
                broker.publish("q", bodies(n..n + 1)).await.expect("publish");
                tokio::task::yield_now().await;
            }
        })
    };
    let mut got = Vec::new();
    while got.len() < 50 {
        let mut given_up = 0;
        tokio::select! {
            biased;
            () = async { while given_up < 3 { given_up += 1; tokio::task::yield_now().await; } } => {}
            batch = consumer.next() => got.extend(numbers(&batch.expect("next"))),
        }
        tokio::task::yield_now().await;
    }
    publisher.await.expect("the publisher");
    assert_eq!(got, (0..50).collect::<Vec<_>>());
}

pub async fn a_deleted_queue_is_gone_with_all_that_lay_in_it_and_one_in_use_stays(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let deleted = async || soon("delete", broker.delete("q")).await.expect("delete");
    assert_eq!(deleted().await, Deletion::Gone, "it was never there");
    soon("publish", broker.publish("q", bodies(0..5))).await.expect("publish");
    let mut consumer = broker.consume("q", 1).await.expect("consume");
    let first = take(&mut consumer, 1).await;
    consumer.reject(first[0].tag, "why not").await.expect("reject");
    take(&mut consumer, 1).await;
    counts_become(&broker, "q", Counts { ready: 3, unacked: 1, dead: 1, consumers: 1 }).await;
    assert_eq!(deleted().await, Deletion::InUse);
    counts_become(&broker, "q", Counts { ready: 3, unacked: 1, dead: 1, consumers: 1 }).await;
    drop(consumer);
    // That it went travels.
    while deleted().await == Deletion::InUse {
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
    counts_become(&broker, "q", Counts::default()).await;
    soon("publish", broker.publish("q", bodies(5..6))).await.expect("publish");
    let mut consumer = broker.consume("q", 1).await.expect("consume");
    assert_eq!(numbers(&take(&mut consumer, 1).await), [5], "it came into being again");
}
