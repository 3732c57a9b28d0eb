//! One of several nodes hangs: what that costs the others, and for how long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mutirao_core::{Clock, SystemClock};
use mutirao_nodes::NodeId;
use mutirao_nodes::breaker::{Health, Limits};
use mutirao_nodes::errand::{Errand, Reach};
use mutirao_nodes::routing::{Ended, Policy, Rules};
use mutirao_testkit::wait::eventually;

use crate::house::{Device, House, LONG, errand, result};

const RESULTS: &str = "mutirao.task.handler.saida";
/// How long whoever asks waits for an answer. A node that answers does so within this also where much else runs.
const PATIENCE: Duration = Duration::from_millis(300);
/// None of the calls that go elsewhere may take as long as one that hung would, were it waited for to the end of its task.
const QUICK: Duration = Duration::from_secs(20);

/// Answers whatever it is given, unless it hangs.
fn play(mut device: Device, hangs: Arc<AtomicBool>, heard: Arc<AtomicUsize>) {
    tokio::spawn(async move {
        loop {
            let message = device.next("/in").await;
            heard.fetch_add(1, Ordering::SeqCst);
            if !hangs.load(Ordering::SeqCst) {
                device.say(RESULTS, result(message["requestID"].as_str().unwrap(), "1")).await;
            }
        }
    });
}

struct Asker<'a> {
    house: &'a House,
    bad: NodeId,
    asked: usize,
    slowest: Duration,
}

impl Asker<'_> {
    fn health(&self) -> Health {
        self.house.board.node(&self.bad).unwrap().health[0].1
    }

    /// A task, to its end; one that went to the bad one is left with it, under this name.
    async fn ask(&mut self) -> Option<String> {
        self.asked += 1;
        let request = format!("r{}", self.asked);
        let (before, began) = (self.health(), SystemClock.monotonic());
        let gone = self.house.board.send(Errand { timeout: LONG, ..errand(&request, "work") }).await.unwrap();
        if gone.node == self.bad {
            assert_ne!(before, Health::Down, "{request} went there while it was spared");
            return Some(request);
        }
        let answered = async || self.house.desk.returned.lock().iter().any(|one| one.request == request);
        eventually("its answer", LONG, answered).await;
        self.house.board.ended(&request, Ended::Well);
        self.slowest = self.slowest.max(SystemClock.monotonic().since(began));
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_node_never_slows_the_others_beyond_its_breaker_s_window() {
    let folder = tempfile::tempdir().unwrap();
    // Each has its turn, also the bad one, for as long as it is not spared: nothing but the breaker keeps tasks from it.
    let breaker = Limits { pause: Duration::from_secs(2), ..Limits::default() };
    let house = House::routed(folder.path(), Rules { policy: Policy::RoundRobin, breaker, ..Rules::default() }).await;
    let (hangs, heard) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    for name in ["bad", "good-1", "good-2", "good-3"] {
        let mut device = house.device(name).await;
        device.register("work").await;
        device.next("actions-list").await;
        match name {
            "bad" => play(device, hangs.clone(), heard.clone()),
            _ => play(device, Arc::default(), Arc::default()),
        }
    }
    let bad: NodeId = "bad".parse().unwrap();
    let mut asker = Asker { house: &house, bad: bad.clone(), asked: 0, slowest: Duration::ZERO };

    // Until it is spared: whoever asked waits its patience for what went there, and for nothing else.
    let mut left = BTreeSet::new();
    while asker.health() != Health::Down {
        if let Some(request) = asker.ask().await {
            left.insert(request.clone());
            let board = house.board.clone();
            tokio::spawn(async move {
                SystemClock.sleep(PATIENCE).await;
                board.ended(&request, Ended::Badly);
            });
        }
        assert!(left.len() <= 16, "it has no more than its slots, whatever it does not answer");
    }
    assert!(left.len() >= 3, "it had failed that often");

    // While it is spared nothing goes there, which `ask` asserts; and the others do all of it.
    let spared = asker.asked;
    let mut probe = None;
    while probe.is_none() {
        probe = asker.ask().await;
    }
    assert!(asker.asked - spared > 4, "the others had many turns before it had its own again");
    // One task shows how it does, and it has no other meanwhile.
    for _ in 0..20 {
        assert_eq!(asker.ask().await, None);
    }
    house.board.ended(&probe.unwrap(), Ended::Badly);
    assert_eq!(asker.health(), Health::Down, "it hung once more");
    for _ in 0..20 {
        assert_eq!(asker.ask().await, None);
    }
    eventually("it was given what it was asked", LONG, async || heard.load(Ordering::SeqCst) == left.len() + 1).await;
    assert!(asker.slowest < QUICK, "{:?}", asker.slowest);

    // Well again, it has its turns again.
    hangs.store(false, Ordering::SeqCst);
    let mut its = Vec::new();
    while its.len() < 5 {
        if let Some(request) = asker.ask().await {
            let answered = async || house.desk.returned.lock().iter().any(|one| one.request == request);
            eventually("it answers", LONG, answered).await;
            house.board.ended(&request, Ended::Well);
            its.push(request);
        }
    }
    assert_eq!(asker.health(), Health::Ok);
    house.close().await;
}
