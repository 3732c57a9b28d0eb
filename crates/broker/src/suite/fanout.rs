//! Fanout.

use super::*;
use crate::{Heard, Subscription};

async fn next(subscription: &mut Box<dyn Subscription>) -> Heard {
    soon("an announcement", subscription.next()).await.expect("next")
}

pub async fn every_subscriber_hears_what_is_announced_after_it_came(harness: &dyn Harness) {
    let (one, other) = (harness.broker().await, harness.broker().await);
    one.announce("t", "before".into()).await.expect("nobody hears, and that is no error");
    let mut ears = Vec::new();
    for broker in [&one, &one, &other] {
        ears.push(broker.subscribe("t").await.expect("subscribe"));
    }
    let mut elsewhere = one.subscribe("u").await.expect("subscribe");
    drop(other.subscribe("t").await.expect("subscribe"));
    for n in 0..20 {
        soon("announce", other.announce("t", bodies(n..n + 1).remove(0))).await.expect("announce");
    }
    for ear in &mut ears {
        for n in 0..20 {
            assert_eq!(next(ear).await, Heard::Message(n.to_string().into()));
        }
    }
    assert!(not_yet(elsewhere.next()).await, "topics are apart");
}

pub async fn a_subscriber_that_falls_behind_hears_of_the_gap_and_then_the_newest(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let mut ear = broker.subscribe("t").await.expect("subscribe");
    let last = harness.bounds().backlog_messages + 1;
    for n in 0..=last {
        soon("announce", broker.announce("t", bodies(n..n + 1).remove(0))).await.expect("announce");
    }
    let mut gaps = 0;
    let mut heard = Vec::new();
    while heard.last() != Some(&last) {
        match next(&mut ear).await {
            Heard::Gap => gaps += 1,
            Heard::Message(body) => heard.push(number(&body)),
        }
    }
    assert!(gaps > 0, "it missed {} and was not told", last + 1 - heard.len());
    assert!(heard.len() <= last, "nothing was missed, so nothing was bounded");
    assert!(heard.is_sorted(), "what is heard is in order");
}
