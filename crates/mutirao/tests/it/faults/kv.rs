//! kill -9 of the manager while many write: what was answered is there, in the order in which it was answered, and a watcher
//! that begins before it all is told of it once.

mod disasters;
mod queued;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mutirao_client::kv::{OnlyIf, Seen, Until};
use mutirao_client::{Client, Credentials};
use mutirao_core::{Clock, SystemClock};
use mutirao_kv::service::WriteView;
use mutirao_kv::view::EntriesView;
use mutirao_testkit::{Installation, wait};

use crate::said::SOON;

const WRITERS: usize = 8;
const KILLS: u64 = 3;

/// What one writer was told: each value that was answered, with its revision.
type Answered = Vec<(u64, u64)>;

/// Writes to its own key until it is over. Whatever is not answered is not written again: the next is another value.
async fn writes(client: Client, writer: usize, over: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Answered {
    let key = format!("own/{writer}");
    let mut answered = Vec::new();
    for n in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        match client
            .put_entry::<WriteView>(&key, n.to_string().into(), None, None, OnlyIf::Always, Until::Durable)
            .await
        {
            Ok(view) => {
                answered.push((n, view.revision.unwrap()));
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => SystemClock.sleep(Duration::from_millis(50)).await,
        }
    }
    answered
}

#[test]
fn a_manager_killed_while_many_write_loses_no_answered_write_and_tells_each_once() {
    let mut up = Installation::setup().workers(0).start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = Client::new(&up.url(), Credentials::Token(up.token())).unwrap();
    let page: EntriesView = runtime.block_on(client.entries("", false, None, None)).unwrap();
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| runtime.spawn(writes(client.clone(), writer, over.clone(), count.clone()))).collect();
    for kill in 1..=KILLS {
        wait::until("more writes", SOON, || count.load(Ordering::Relaxed) >= kill * 200);
        up.kill9();
        up.restart();
    }
    wait::until("writes after the last kill", SOON, || count.load(Ordering::Relaxed) >= (KILLS + 1) * 200);
    over.store(true, Ordering::Relaxed);

    let mut expected: BTreeMap<String, Answered> = BTreeMap::new();
    for (writer, task) in writers.into_iter().enumerate() {
        let answered = runtime.block_on(task).unwrap();
        assert!(answered.windows(2).all(|two| two[0].1 < two[1].1), "a key's revision only grows");
        expected.insert(format!("own/{writer}"), answered);
    }
    let mut told = runtime.block_on(history(&client, &page.watch, &expected));
    for (key, answered) in &expected {
        let read = runtime.block_on(client.entry(key, Seen::default())).unwrap();
        let value: u64 = std::str::from_utf8(&read.bytes).unwrap().parse().unwrap();
        let (last, _) = *answered.last().unwrap();
        // The very last may have been written without an answer.
        assert!(value >= last, "{key} is {value}, and {last} was answered");
        let told = told.remove(key).unwrap();
        assert!(told.windows(2).all(|two| two[0].1 < two[1].1 && two[0].0 < two[1].0), "{key}: each once, in order");
        let told: BTreeSet<(u64, u64)> = told.into_iter().collect();
        let missing: Vec<_> = answered.iter().filter(|write| !told.contains(write)).collect();
        assert!(missing.is_empty(), "{key}: answered and never told: {missing:?}");
    }
}

/// Every put since the cursor, by key, until the last that was answered of each key was told.
async fn history(client: &Client, cursor: &str, expected: &BTreeMap<String, Answered>) -> BTreeMap<String, Answered> {
    let mut told: BTreeMap<String, Answered> = BTreeMap::new();
    let mut changes = client.entry_changes("own/", Some(cursor)).await.unwrap();
    let reached = |told: &BTreeMap<String, Answered>| {
        expected.iter().all(|(key, answered)| {
            told.get(key).and_then(|told| told.last()).is_some_and(|last| last.1 >= answered.last().unwrap().1)
        })
    };
    while !reached(&told) {
        let change = changes.next().await.unwrap().unwrap();
        if change.what == "put" {
            let entry = &change.data["entry"];
            let value = entry["value"].as_str().unwrap().parse().unwrap();
            told.entry(change.data["key"].as_str().unwrap().into())
                .or_default()
                .push((value, entry["revision"].as_u64().unwrap()));
        }
    }
    told
}
