//! Logs.

use std::time::Duration;

use mutirao_core::limits::MESSAGE_BYTES_MAX;
use tokio::task::JoinSet;

use super::*;

pub async fn records_have_consecutive_offsets_and_read_back(harness: &dyn Harness) {
    let broker = harness.broker().await;
    assert_eq!(broker.extent("log.a").await, Ok((0, 0)));
    assert_eq!(broker.append("log.a", bodies(0..3)).await, Ok(0));
    assert_eq!(broker.append("log.a", bodies(3..5)).await, Ok(3));
    assert_eq!(broker.extent("log.a").await, Ok((0, 5)));
    let mut read = Vec::new();
    while read.len() < 4 {
        let from = 1 + read.len() as u64;
        read.extend(soon("read", broker.read("log.a", from, 4)).await.expect("read"));
    }
    assert!(read.iter().all(|record| number(&record.body) as u64 == record.offset));
    assert_eq!(read.iter().map(|record| record.offset).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(broker.read("log.a", 0, 2).await.expect("read").len() <= 2, "the limit holds");
    assert_eq!(broker.extent("log.b").await, Ok((0, 0)), "logs are apart");
}

pub async fn a_read_at_the_end_waits_for_the_next_record(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.append("log", bodies(0..2)).await.expect("append");
    assert!(not_yet(broker.read("log", 2, 10)).await);
    let reader = {
        let broker = broker.clone();
        tokio::spawn(async move { broker.read("log", 2, 10).await })
    };
    assert_eq!(broker.append("log", bodies(2..3)).await, Ok(2));
    let read = soon("the waiting read", reader).await.expect("the reader").expect("read");
    assert_eq!((read[0].offset, number(&read[0].body)), (2, 2));
}

pub async fn offsets_that_are_not_there_are_an_error_that_says_what_is(harness: &dyn Harness) {
    let broker = harness.broker().await;
    broker.append("log", bodies(0..2)).await.expect("append");
    let missing = soon("read", broker.read("log", 3, 1)).await;
    assert_eq!(missing, Err(BrokerError::NoSuchOffset { name: "log".into(), offset: 3, first: 0, next: 2 }));
}

pub async fn concurrent_appends_lose_nothing_and_tell_where_they_begin(harness: &dyn Harness) {
    let mut appends = JoinSet::new();
    for n in 0..20 {
        let broker = harness.broker().await;
        appends.spawn(async move { (n, broker.append("log", bodies(n * 10..n * 10 + 3)).await.expect("append")) });
    }
    let broker = harness.broker().await;
    let firsts: Vec<(usize, u64)> = soon("appending", appends.join_all()).await;
    assert_eq!(broker.extent("log").await, Ok((0, 60)));
    let mut read = Vec::new();
    while read.len() < 60 {
        read.extend(soon("read", broker.read("log", read.len() as u64, 7)).await.expect("read"));
    }
    assert!(read.iter().zip(0..).all(|(record, offset)| record.offset == offset));
    let numbers: Vec<usize> = read.iter().map(|record| number(&record.body)).collect();
    for (n, first) in firsts {
        let own: Vec<usize> = numbers.iter().copied().filter(|number| number / 10 == n).collect();
        assert_eq!(own, [n * 10, n * 10 + 1, n * 10 + 2], "all of a batch, in order");
        assert_eq!(numbers[first as usize], n * 10, "it begins where its append says");
    }
}

/// Not for RabbitMQ, where the records of several writers may be interleaved.
pub async fn concurrent_appends_keep_their_batches_together(harness: &dyn Harness) {
    let mut appends = JoinSet::new();
    for n in 0..20 {
        let broker = harness.broker().await;
        appends.spawn(async move { (n, broker.append("log", bodies(n * 10..n * 10 + 3)).await.expect("append")) });
    }
    let broker = harness.broker().await;
    while let Some(append) = appends.join_next().await {
        let (n, first) = append.expect("an append");
        let mut read = Vec::new();
        while read.len() < 3 {
            let from = first + read.len() as u64;
            let more = soon("read", broker.read("log", from, 3 - read.len() as u32)).await.expect("read");
            read.extend(more.iter().map(|record| number(&record.body)));
        }
        assert_eq!(read, [n * 10, n * 10 + 1, n * 10 + 2]);
    }
    assert_eq!(broker.extent("log").await, Ok((0, 60)));
}

pub async fn retention_takes_the_oldest_and_says_so(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let body = Bytes::from(vec![1; 1_000]);
    let records = harness.bounds().log_bytes / body.len() + 1;
    for _ in 0..records.div_ceil(10) {
        broker.append("log", vec![body.clone(); 10]).await.expect("append");
    }
    let gone = soon("read", broker.read("log", 0, 1)).await;
    assert!(matches!(gone, Err(BrokerError::NoSuchOffset { offset: 0, .. })), "{gone:?}");
    // A broker may still be at it: its first record is asked for until it stays.
    for _ in 0..400 {
        let (first, next) = broker.extent("log").await.expect("extent");
        assert!(first > 0 && first < next, "{first} to {next}");
        match soon("read", broker.read("log", first, 1)).await {
            Ok(read) => return assert!((first..next).contains(&read[0].offset)),
            Err(BrokerError::NoSuchOffset { .. }) => SystemClock.sleep(Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the first record is never there");
}

/// Everything from an offset on, up to the end.
async fn read_from(broker: &Shared, log: &Name, from: u64) -> Vec<usize> {
    let (_, end) = soon("extent", broker.extent(log)).await.expect("extent");
    let (mut at, mut read) = (from, Vec::new());
    while at < end {
        let records = soon("read", broker.read(log, at, 50)).await.expect("read");
        at = records.last().map_or(end, |last| last.offset + 1);
        read.extend(records.iter().map(|record| number(&record.body)));
    }
    read
}

pub async fn what_is_added_is_there_in_the_order_of_each_writer(harness: &dyn Harness) {
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let broker = harness.broker().await;
        writers.spawn(async move {
            for n in 0..20 {
                let from = writer * 1_000 + n * 2;
                soon("adding", broker.add("log", bodies(from..from + 2))).await.expect("add");
            }
        });
    }
    soon("the writers", writers.join_all()).await;
    let read = read_from(&harness.broker().await, "log", 0).await;
    assert_eq!(read.len(), 160);
    for writer in 0..4 {
        let own: Vec<usize> = read.iter().copied().filter(|number| number / 1_000 == writer).collect();
        assert_eq!(own, (writer * 1_000..writer * 1_000 + 40).collect::<Vec<_>>());
    }
}

pub async fn what_is_needed_survives_trimming(harness: &dyn Harness) {
    let broker = harness.broker().await;
    // Some segments, and less than retention takes.
    let body = |n: usize| Bytes::from(format!("{n:01000}"));
    let mut firsts = Vec::new();
    for from in (0..60).step_by(6) {
        firsts.push(broker.append("log", (from..from + 6).map(body).collect()).await.expect("append"));
    }
    let (_, next) = broker.extent("log").await.expect("extent");
    let from = firsts[8];
    for before in [from, from, 3] {
        soon("trim", broker.trim("log", before)).await.expect("trim");
        let (first, now) = soon("extent", broker.extent("log")).await.expect("extent");
        assert!(first <= from && now == next, "{first} to {now}");
        assert_eq!(read_from(&broker, "log", from).await, (48..60).collect::<Vec<_>>());
    }
    soon("trim", broker.trim("log", next + 100)).await.expect("past the end is all of it");
    assert_eq!(soon("extent", broker.extent("log")).await.expect("extent").1, next, "and it goes on where it was");
    assert!(broker.append("log", bodies(60..61)).await.expect("append") >= next);
    soon("trim", broker.trim("log.unknown", 7)).await.expect("one that is not there has nothing to lose");
    assert_eq!(broker.extent("log.unknown").await, Ok((0, 0)));
}

pub async fn a_forgotten_log_begins_anew_and_forgetting_it_again_changes_nothing(harness: &dyn Harness) {
    let (broker, other) = (harness.broker().await, harness.broker().await);
    soon("forget", broker.forget("log")).await.expect("one that was never there is gone");
    for round in 0..3 {
        assert_eq!(soon("append", other.append("log", bodies(0..3))).await, Ok(0), "round {round}");
        assert_eq!(read_from(&broker, "log", 0).await, [0, 1, 2]);
        soon("forget", broker.forget("log")).await.expect("forget");
        soon("forget", other.forget("log")).await.expect("forget again");
        assert_eq!(soon("extent", broker.extent("log")).await, Ok((0, 0)));
        assert_eq!(soon("extent", other.extent("log")).await, Ok((0, 0)));
    }
    other.append("log.a", bodies(0..1)).await.expect("append");
    soon("forget", broker.forget("log")).await.expect("forget");
    assert_eq!(read_from(&broker, "log.a", 0).await, [0], "others stay");
}

pub async fn a_read_that_waits_goes_on_with_the_log_that_is_made_anew(harness: &dyn Harness) {
    let (broker, other) = (harness.broker().await, harness.broker().await);
    broker.append("log", bodies(0..2)).await.expect("append");
    let waiting = |offset| {
        let broker = broker.clone();
        tokio::spawn(async move { broker.read("log", offset, 10).await })
    };
    let behind = waiting(2);
    SystemClock.sleep(MOMENT).await;
    soon("forget", other.forget("log")).await.expect("forget");
    let gone = soon("the waiting read", behind).await.expect("the reader");
    assert_eq!(gone, Err(BrokerError::NoSuchOffset { name: "log".into(), offset: 2, first: 0, next: 0 }));
    let beginning = waiting(0);
    SystemClock.sleep(MOMENT).await;
    soon("forget", other.forget("log")).await.expect("forget");
    // Somebody who did not know may be told once that it is gone.
    let append = async { while other.append("log", bodies(7..8)).await.is_err() {} };
    soon("append", append).await;
    let read = soon("the waiting read", beginning).await.expect("the reader").expect("read");
    assert_eq!((read[0].offset, number(&read[0].body)), (0, 7));
}

pub async fn a_wait_for_records_that_is_given_up_loses_nothing(harness: &dyn Harness) {
    const RECORDS: usize = 60;
    let (broker, other) = (harness.broker().await, harness.broker().await);
    broker.add("log", bodies(0..1)).await.expect("add");
    let writer = tokio::spawn(async move {
        for n in 1..RECORDS {
            other.add("log", bodies(n..n + 1)).await.expect("add");
        }
    });
    let (mut at, mut read, mut given_up) = (0, Vec::new(), 0);
    while read.len() < RECORDS {
        // Given up at every moment there is: before it is asked, on its way, and when it is about to be answered.
        let patience = Duration::from_micros(37 * (given_up % 100) as u64);
        match SystemClock.timeout(patience, broker.read("log", at, 3)).await {
            Ok(records) => {
                let records = records.expect("read");
                at = records.last().map_or(at, |last| last.offset + 1);
                read.extend(records.iter().map(|record| number(&record.body)));
            }
            Err(_) => given_up += 1,
        }
        assert!(given_up < 200_000, "nothing ever comes");
    }
    soon("the writer", writer).await.expect("the writer");
    assert_eq!(read, (0..RECORDS).collect::<Vec<_>>());
}

pub async fn many_reads_that_wait_hold_nobody_up(harness: &dyn Harness) {
    const LOGS: usize = 100;
    let broker = harness.broker().await;
    let mut waiting = JoinSet::new();
    for n in 0..LOGS {
        let broker = broker.clone();
        waiting.spawn(async move { (n, broker.read(&format!("log.{n}"), 0, 9).await) });
    }
    SystemClock.sleep(MOMENT).await;
    soon("another log", broker.add("other", bodies(0..1))).await.expect("add");
    assert_eq!(soon("reading it", broker.read("other", 0, 9)).await.expect("read").len(), 1);
    for n in (0..LOGS).rev() {
        soon("add", broker.add(&format!("log.{n}"), bodies(n..n + 1))).await.expect("add");
    }
    let heard = soon("all who wait", waiting.join_all()).await;
    assert!(heard.iter().all(|(n, read)| number(&read.as_ref().expect("read")[0].body) == *n));
}

pub async fn records_as_large_as_a_message_pass_and_larger_ones_do_not(harness: &dyn Harness) {
    let broker = harness.broker().await;
    let large = |n: u8, len: usize| Bytes::from(vec![n; len]);
    let largest = large(1, MESSAGE_BYTES_MAX);
    assert!(matches!(
        broker.add("log", vec![large(2, MESSAGE_BYTES_MAX + 1)]).await,
        Err(BrokerError::TooLarge { .. })
    ));
    let two = vec![largest.clone(), bodies(0..1)[0].clone()];
    assert!(matches!(broker.add("log", two).await, Err(BrokerError::TooLarge { .. })), "what does not travel together");
    soon("the largest", broker.add("log", vec![largest.clone()])).await.expect("add");
    let read = soon("reading it", broker.read("log", 0, 9)).await.expect("read");
    assert!(read[0].body == largest, "it came back changed");
    let from = read[0].offset + 1;
    soon("a smaller one", broker.add("log", vec![large(3, 3 << 20)])).await.expect("add");
    let read = soon("reading on", broker.read("log", from, 9)).await.expect("read");
    assert!(read[0].body == large(3, 3 << 20));
}
