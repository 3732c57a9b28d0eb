//! Connections that break. At least once: nothing is lost, and what comes twice is marked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::*;
use crate::Heard;

pub async fn a_publish_that_was_cut_off_is_settled_and_nothing_is_lost(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let publisher = {
        let broker = broker.clone();
        tokio::spawn(async move {
            for n in 0..100 {
                broker.publish("q", bodies(n..n + 1)).await.expect("a publish just takes longer");
            }
        })
    };
    harness.cut().await;
    assert!(not_yet(broker.publish("q", bodies(100..101))).await, "nothing is confirmed while cut off");
    harness.heal().await;
    soon("publishing", publisher).await.expect("the publisher");
    let mut consumer = soon("consume", broker.consume("q", 1_000)).await.expect("consume");
    let mut got = BTreeSet::new();
    // The one that was given up may have arrived or not.
    while !(0..100).all(|n| got.contains(&n)) {
        got.extend(numbers(&soon("a delivery", consumer.next()).await.expect("next")));
    }
}

pub async fn a_consumer_is_restored_and_what_it_held_comes_again_marked(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..4)).await.expect("publish");
    let mut consumer = broker.consume("q", 3).await.expect("consume");
    take(&mut consumer, 3).await;
    harness.cut().await;
    harness.heal().await;
    let again = take(&mut consumer, 3).await;
    assert_eq!(numbers(&again), [0, 1, 2]);
    assert!(again.iter().all(|delivery| delivery.redelivered));
    consumer.ack_through(again[2].tag).await.expect("ack");
    let last = take(&mut consumer, 1).await;
    assert_eq!((numbers(&last), last[0].redelivered), (vec![3], false));
}

pub async fn an_acknowledgement_from_before_a_cut_settles_nothing_after_it(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..2)).await.expect("publish");
    let mut consumer = broker.consume("q", 2).await.expect("consume");
    let before = take(&mut consumer, 2).await;
    harness.cut().await;
    consumer.ack_through(before[1].tag).await.expect("a late ack is no error");
    harness.heal().await;
    let after = take(&mut consumer, 2).await;
    consumer.ack_through(before[1].tag).await.expect("ack");
    consumer.reject(before[0].tag, "stale").await.expect("reject");
    SystemClock.sleep(MOMENT).await;
    counts_become(&broker, "q", Counts { unacked: 2, consumers: 1, ..Counts::default() }).await;
    consumer.ack_through(after[1].tag).await.expect("ack");
    counts_become(&broker, "q", Counts { consumers: 1, ..Counts::default() }).await;
}

pub async fn one_that_retires_while_cut_off_takes_nothing_more_when_the_line_is_back(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.publish("q", bodies(0..3)).await.expect("publish");
    let mut one = broker.consume("q", 2).await.expect("consume");
    let held = take(&mut one, 2).await;
    harness.cut().await;
    SystemClock.sleep(MOMENT).await;
    soon("retire", one.retire(held[1].tag)).await.expect("retire");
    harness.heal().await;
    let mut other = soon("consume", harness.broker().await.consume("q", 10)).await.expect("consume");
    let mut got = numbers(&take(&mut other, 3).await);
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2], "all of it is for others");
    drop(one);
}

pub async fn a_subscription_is_restored_and_hears_of_the_gap(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let mut ear = broker.subscribe("t").await.expect("subscribe");
    harness.cut().await;
    harness.heal().await;
    assert_eq!(soon("the gap", ear.next()).await, Ok(Heard::Gap));
    // The gap can be heard before the subscription stands again; what is announced from then on arrives.
    for _ in 0..400 {
        let _ = soon("announce", broker.announce("t", "later".into())).await;
        if !not_yet(async { assert_eq!(ear.next().await, Ok(Heard::Message("later".into()))) }).await {
            return;
        }
    }
    panic!("the subscription was not restored");
}

pub async fn a_read_that_waits_outlives_a_cut(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.append("log", bodies(0..1)).await.expect("append");
    let reader = {
        let broker = broker.clone();
        tokio::spawn(async move { broker.read("log", 1, 10).await })
    };
    SystemClock.sleep(MOMENT).await;
    harness.cut().await;
    harness.heal().await;
    let other = harness.broker().await;
    soon("append", other.append("log", bodies(1..2))).await.expect("append");
    let read = soon("the waiting read", reader).await.expect("the reader").expect("read");
    assert_eq!(number(&read[0].body), 1);
}

pub async fn a_stream_of_work_survives_many_cuts(harness: &dyn Harness) {
    const MESSAGES: usize = 1_000;
    let (publishing, consuming) = (harness.broker().await, harness.broker().await);
    let publisher = tokio::spawn(async move {
        for from in (0..MESSAGES).step_by(5) {
            publish_patiently(&*publishing, "q", bodies(from..from + 5)).await;
            SystemClock.sleep(Duration::from_millis(2)).await;
        }
    });
    let consumer = tokio::spawn(async move {
        let mut consumer = consuming.consume("q", 16).await.expect("consume");
        let mut firsts = BTreeSet::new();
        while firsts.len() < MESSAGES {
            let batch = consumer.next().await.expect("next");
            firsts.extend(numbers(&batch));
            let last = batch.last().map_or(0, |delivery| delivery.tag);
            consumer.ack_through(last).await.expect("ack");
        }
    });
    for _ in 0..4 {
        SystemClock.sleep(Duration::from_millis(150)).await;
        harness.cut().await;
        SystemClock.sleep(Duration::from_millis(30)).await;
        harness.heal().await;
    }
    soon("publishing", publisher).await.expect("the publisher");
    soon("consuming", consumer).await.expect("the consumer");
}

/// Adds numbers one after the other until it is told to stop, each once, and says which were confirmed. Whether another one
/// arrived is not known.
async fn add_on(broker: Shared, stop: Arc<AtomicBool>) -> Vec<usize> {
    let mut confirmed = Vec::new();
    for n in 0.. {
        match broker.add("log", bodies(n..n + 1)).await {
            Ok(()) => confirmed.push(n),
            Err(BrokerError::Unreachable(_)) => {}
            Err(error) => panic!("{n}: {error}"),
        }
        if stop.load(Ordering::SeqCst) && confirmed.last() == Some(&n) {
            break;
        }
        SystemClock.sleep(Duration::from_millis(1)).await;
    }
    confirmed
}

/// Reads on from the beginning until this number comes by.
async fn read_on(broker: Shared, mut last: watch::Receiver<Option<usize>>) -> Vec<usize> {
    let (mut at, mut read) = (0, Vec::new());
    loop {
        let until = *last.borrow_and_update();
        if until.is_some_and(|until| read.last() == Some(&until)) {
            return read;
        }
        tokio::select! {
            records = broker.read("log", at, 10) => {
                let records = records.expect("a read just takes longer");
                at = records.last().map_or(at, |last| last.offset + 1);
                read.extend(records.iter().map(|record| number(&record.body)));
            }
            _ = last.changed() => {}
        }
    }
}

/// One who adds and one who reads go on while `trouble` lasts; then everything is compared.
pub async fn adding_and_reading_through<F: Future<Output = ()> + Send>(writer: Shared, reader: Shared, trouble: F) {
    writer.extent("log").await.expect("a log");
    let (stop, (said, last)) = (Arc::new(AtomicBool::new(false)), watch::channel(None));
    let adding = tokio::spawn(add_on(writer, stop.clone()));
    let reading = tokio::spawn(read_on(reader, last));
    trouble.await;
    stop.store(true, Ordering::SeqCst);
    let confirmed = soon("the last addition", adding).await.expect("the writer");
    said.send_replace(confirmed.last().copied());
    let read = soon("the reader", reading).await.expect("the reader");
    assert!(read.is_sorted_by(|one, next| one < next), "twice, or out of order: {read:?}");
    let read: BTreeSet<usize> = read.into_iter().collect();
    let missing: Vec<&usize> = confirmed.iter().filter(|n| !read.contains(n)).collect();
    assert!(missing.is_empty(), "confirmed and not read: {missing:?}");
    assert!(confirmed.len() > 20, "{} were confirmed: that shows nothing", confirmed.len());
}

pub async fn what_is_confirmed_amid_cuts_is_in_the_log_once_and_in_its_order(harness: &dyn Harness) {
    adding_and_reading_through(harness.broker().await, harness.broker().await, async {
        for _ in 0..4 {
            SystemClock.sleep(Duration::from_millis(150)).await;
            harness.cut().await;
            SystemClock.sleep(Duration::from_millis(30)).await;
            harness.heal().await;
        }
        SystemClock.sleep(Duration::from_millis(300)).await;
    })
    .await;
}
