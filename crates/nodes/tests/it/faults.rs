//! What goes wrong out there: rubbish, floods, devices that reboot in a loop, words doubled and out of order.

use mutirao_nodes::errand::Reach;
use mutirao_nodes::registry::Presence;
use mutirao_testkit::wait::eventually;

use crate::house::{Device, House, LONG, errand, registration, result};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_on_every_topic_is_kept_with_its_reason_and_hurts_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let lamp = house.device("lamp").await;
    lamp.register("blink").await;
    let long = format!(r#"{{"requestID":"{}"}}"#, "x".repeat(200_000));
    let deep = "[".repeat(5_000);
    let rubbish = [
        "",
        "{",
        "null",
        "[]",
        "7",
        "\u{0}",
        &long,
        &deep,
        r#"{"nodeId":"a/b"}"#,
        r#"{"nodeId":"lamp","layer":"SKY"}"#,
    ];
    for text in rubbish {
        for topic in ["mutirao.nodes.register", "mutirao/task/handler/saida", "mutirao.task.handler_saida"] {
            lamp.say(topic, text).await;
        }
    }
    eventually("some are kept", LONG, async || house.reasons().await.len() >= 10).await;
    assert!(house.reasons().await.iter().all(|why| !why.is_empty() && why.len() < 1_000));
    assert!(house.desk.returned.lock().is_empty());
    house.board.send(errand("r1", "blink")).await.unwrap();
    lamp.say("mutirao/task/handler/saida", result("r1", "1")).await;
    assert_eq!(house.desk.returned.lock().len(), 1);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_registrations_of_one_never_slows_what_others_say() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let (lamp, noisy) = (house.device("lamp").await, house.device("noisy").await);
    noisy.register("shout").await;
    let flood = tokio::spawn(async move {
        for _ in 0..300 {
            noisy.register("shout").await;
        }
        noisy
    });
    lamp.register("blink").await;
    house.board.send(errand("r1", "blink")).await.unwrap();
    lamp.say("mutirao.task.handler.saida", result("r1", "1")).await;
    flood.await.unwrap();
    assert_eq!(house.board.nodes().len(), 2);
    assert!(house.reasons().await.is_empty(), "a flood is counted, and pushes out nothing");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_reboots_in_a_loop_stays_one_node() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let password = house.let_in("lamp").await;
    for _ in 0..8 {
        let lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
        lamp.register("blink").await;
    }
    let nodes = house.board.nodes();
    assert_eq!((nodes.len(), nodes[0].presence), (1, Presence::Registered));
    assert!(house.mqtt.port().gauges().sessions <= 4, "its sessions are bounded");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubled_and_reordered_words_are_told_as_they_came_and_nobody_is_confused() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let lamp = house.device("lamp").await;
    lamp.say("mutirao.task.handler.saida", result("never-sent", "1")).await;
    lamp.register("blink").await;
    lamp.say("mutirao.nodes.register", registration("lamp", "blink")).await;
    for request in ["r1", "r2"] {
        house.board.send(errand(request, "blink")).await.unwrap();
    }
    for request in ["r2", "r1", "r2", "r2"] {
        lamp.say("mutirao.task.handler.saida", result(request, "1")).await;
    }
    // Which of them count, whoever has the tasks decides; each says who it is from.
    let returned = house.desk.returned.lock().clone();
    assert_eq!(returned.len(), 5);
    assert!(returned.iter().all(|one| one.node.as_ref().is_some_and(|node| node.as_str() == "lamp")));
    house.close().await;
}
