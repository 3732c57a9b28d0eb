//! Two managers that share a store, each with a listener of its own: what is taken out at one is out at the other.

use std::path::Path;

use mutirao_broker::{Limits, Memory, Shared};
use mutirao_mqtt::client::State;
use mutirao_mqtt::codec::Answer;
use mutirao_nodes::NodeId;
use mutirao_nodes::errand::{NotSent, Reach};
use mutirao_testkit::wait::eventually;

use crate::house::{Device, House, LONG, errand, within};

fn broker() -> Shared {
    Memory::new(None, Limits::default())
}

async fn both(folder: &Path, broker: &Shared) -> (House, House) {
    let one = House::among(folder, broker.clone()).await;
    let other = one.beside(broker.clone()).await;
    (one, other)
}

/// The device is at the second; the first learns of it from the store.
async fn registered_at_the_other(one: &House, other: &House) -> Device {
    let password = one.let_in("lamp").await;
    let lamp = Device::connect(other, "lamp", Some(("lamp", &password))).await;
    lamp.register("blink").await;
    other.board.send(errand("r0", "blink")).await.unwrap();
    eventually("the first has learnt of it", LONG, async || one.board.node(&"lamp".parse().unwrap()).is_some()).await;
    lamp
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_forgotten_at_one_manager_is_forgotten_at_the_other_and_may_come_again() {
    let (folder, broker) = (tempfile::tempdir().unwrap(), broker());
    let (one, other) = both(folder.path(), &broker).await;
    let lamp = registered_at_the_other(&one, &other).await;
    let id: NodeId = "lamp".parse().unwrap();
    one.board.forget(&id).await.unwrap();
    assert!(one.board.node(&id).is_none());
    eventually("the other has heard", LONG, async || other.board.node(&id).is_none()).await;
    assert_eq!(*other.desk.lost.lock(), std::slice::from_ref(&id), "what it had is lost there too");
    lamp.register("blink").await;
    eventually("both have it again", LONG, async || one.board.node(&id).is_some() && other.board.node(&id).is_some())
        .await;
    other.close().await;
    one.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_removed_at_one_manager_is_cut_off_at_the_other_with_its_node() {
    let (folder, broker) = (tempfile::tempdir().unwrap(), broker());
    let (one, other) = both(folder.path(), &broker).await;
    let lamp = registered_at_the_other(&one, &other).await;
    one.board.remove_device("lamp", "test").await.unwrap();
    let mut state = lamp.client.state();
    let refused = State::Refused(Answer::BadCredentials);
    within("cut off", async { state.wait_for(|state| *state == refused).await.map(drop) }).await.unwrap();
    eventually("its node is out", LONG, async || {
        matches!(other.board.send(errand("r1", "blink")).await, Err(NotSent::Nobody(_)))
    })
    .await;
    other.close().await;
    one.close().await;
    let again = House::open(folder.path()).await;
    assert!(again.board.nodes().is_empty(), "and stays out after a restart");
    again.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_that_the_other_manager_missed_is_found_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    // Each has a broker of its own: no word passes between them.
    let one = House::among(folder.path(), broker()).await;
    let other = one.beside(broker()).await;
    let lamp = registered_at_the_other(&one, &other).await;
    let id: NodeId = "lamp".parse().unwrap();
    one.board.forget(&id).await.unwrap();
    eventually("it was looked up", LONG, async || other.board.node(&id).is_none()).await;
    lamp.register("blink").await;
    eventually("it may come again", LONG, async || one.board.node(&id).is_some()).await;
    one.board.remove_device("lamp", "test").await.unwrap();
    let mut state = lamp.client.state();
    let refused = State::Refused(Answer::BadCredentials);
    within("cut off", async { state.wait_for(|state| *state == refused).await.map(drop) }).await.unwrap();
    eventually("with its node", LONG, async || other.board.node(&id).is_none()).await;
    other.close().await;
    one.close().await;
}
