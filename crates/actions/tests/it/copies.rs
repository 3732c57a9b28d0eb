//! Messages that come again while their first copy runs, actions that break, and results that nobody takes: none of it
//! may lose a message, keep one for ever, or stop what has nothing to do with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_actions::Action;
use mutirao_actions::agent::spool::Spool;
use mutirao_actions::table::Entry;
use mutirao_mqtt::Delivery;
use mutirao_nodes::Offer;
use mutirao_testkit::proxy::Proxy;
use serde_json::json;

use crate::agent::{Manager, Node, count, counting, message, spool_of};
use crate::stage::{Stage, eventually, named};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_again_while_it_runs_is_not_acknowledged_before_it_has_ended() {
    let stage = Stage::new();
    let runs = counting(&stage);
    let mut manager = Manager::at(0).await;
    let proxy = Proxy::to(manager.address).unwrap();
    let node = Node::start(&stage, proxy.address(), 2);
    manager.registered().await;
    let hold = stage.folder.path().join("hold");
    std::fs::write(&hold, "").unwrap();
    manager.ask("r1", "count", "1");
    eventually("it to run", async || count(&runs) == 1).await;
    proxy.break_connections();
    // Behind its second copy: when this is answered, that was looked at.
    manager.ask("r2", "nothing", "2");
    assert_eq!(manager.result().await.0, "r2");
    assert_eq!(count(&runs), 1, "the copy waits with the first");
    node.cut().await;
    std::fs::remove_file(&hold).unwrap();

    let node = Node::start(&stage, manager.address, 2);
    loop {
        let (request, data) = manager.result().await;
        if request == "r1" {
            assert_eq!(data, json!(1));
            break;
        }
    }
    assert_eq!(count(&runs), 2, "the power went before it had ended");
    eventually("all is acknowledged", async || manager.port.gauges().waiting_messages == 0).await;
    node.stop().await;
}

struct Breaks;

#[async_trait]
impl Action for Breaks {
    async fn run(&self, data: &str) -> Result<String, String> {
        panic!("of {data}, on purpose");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_that_breaks_has_failed_and_its_message_is_not_kept_for_ever() {
    let stage = Stage::new();
    counting(&stage);
    stage.table.put(Entry::new(Offer { action: named("breaks"), version: 0 }, Arc::new(Breaks))).unwrap();
    let mut manager = Manager::at(0).await;
    let node = Node::start(&stage, manager.address, 1);
    manager.registered().await;
    for _ in 0..2 {
        manager.ask("r1", "breaks", "1");
        let (request, data) = manager.result().await;
        assert_eq!(request, "r1");
        assert!(data["error"].as_str().unwrap().contains("broke down"), "{data}");
    }
    manager.ask("r2", "count", "2");
    assert_eq!(manager.result().await, ("r2".into(), json!(2)), "its only slot is free again");
    eventually("all is acknowledged", async || manager.port.gauges().waiting_messages == 0).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_left_from_before_take_no_room_of_what_is_in_hand() {
    const LEFT: usize = 400;
    let stage = Stage::new();
    let runs = counting(&stage);
    let mut spool = Spool::open(&spool_of(&stage)).unwrap();
    for n in 0..LEFT {
        spool.put(message(&format!("old{n}"), "count", "0")).unwrap();
    }
    drop(spool);
    let mut manager = Manager::at(0).await;
    let node = Node::start(&stage, manager.address, 2);
    // A manager that hears registrations and does not come to take results.
    let mut results: Vec<Delivery> = vec![];
    loop {
        let delivery = manager.inbox.next().await.unwrap();
        match delivery.message.topic.as_str().ends_with("nodes.register") {
            true => break delivery.accept(),
            false => results.push(delivery),
        }
    }
    manager.ask("r1", "count", "1");
    eventually("what is asked now runs", async || count(&runs) == 1).await;
    let held = results.len();
    results.into_iter().for_each(Delivery::accept);
    let mut left = BTreeSet::new();
    while left.len() < LEFT + 1 - held {
        left.insert(manager.result().await.0);
    }
    assert!(left.contains("r1"));
    node.stop().await;
}
