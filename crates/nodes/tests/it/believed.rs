//! What a node says of itself, and how far it is believed: nobody takes work from those that were meant to have it.

use ed25519_dalek::SigningKey;
use mutirao_core::node::Allowance;
use mutirao_nodes::NodeId;
use mutirao_nodes::errand::{Errand, NotSent, Reach};
use mutirao_nodes::registry::{Presence, Strangers};
use mutirao_nodes::routing::{Ended, Place};
use mutirao_testkit::wait::eventually;
use serde_json::json;

use crate::house::{Device, House, LONG, errand, keyed};

/// All of the best: what a thief of work would say.
async fn boast(device: &mut Device, actions: &[&str], more: serde_json::Value) {
    let urns: Vec<String> = actions.iter().map(|name| format!("urn:mutirao:Action:{name}")).collect();
    let mut said = json!({
        "endpoint": "", "layer": "EDGE", "type": "ESP32", "nodeId": device.node, "forceRegister": true,
        "slots": 256, "actions": urns,
    });
    said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    device.say("mutirao.nodes.register", said.to_string()).await;
}

/// To whom so many tasks went.
async fn given(house: &House, prefix: &str, action: &str, place: Place) -> Vec<String> {
    let mut all = Vec::new();
    for n in 0..10 {
        let request = format!("{prefix}{n}");
        let sent = house.board.send(Errand { place: place.clone(), ..errand(&request, action) }).await;
        house.board.ended(&request, Ended::Recalled);
        all.push(match sent {
            Ok(gone) => gone.node.to_string(),
            Err(NotSent::Nobody(_)) => "nobody".into(),
            Err(why) => why.to_string(),
        });
    }
    all.dedup();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_the_work_of_those_that_are_believed_more() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::with(folder.path(), Strangers::LetIn).await;
    let mut stranger = Device::connect(&house, "stranger", None).await;
    boast(&mut stranger, &["shop.work@99", "own"], json!({})).await;
    assert_eq!(given(&house, "a", "shop.work", Place::default()).await, ["stranger"], "nobody else has it");

    let mut lamp = house.device("lamp").await;
    boast(&mut lamp, &["shop.work@7"], json!({"labels": {"zone": "north"}})).await;
    assert_eq!(given(&house, "b", "shop.work", Place::default()).await, ["lamp"]);

    let id: NodeId = "gate-7".parse().unwrap();
    let password = keyed(&house, &id, &SigningKey::from_bytes(&[7; 32])).await;
    let mut gate = Device::connect(&house, "gate-7", Some(("gate-7", &password))).await;
    boast(&mut gate, &["shop.work@1"], json!({"layer": "FOG"})).await;
    assert_eq!(given(&house, "c", "shop.work", Place::default()).await, ["gate-7"], "in an older version, and further");
    let north = Place { labels: [("zone".into(), "north".into())].into(), ..Place::default() };
    assert_eq!(given(&house, "d", "shop.work", north).await, ["nobody"]);
    let named = Place { node: Some("lamp".parse().unwrap()), ..Place::default() };
    assert_eq!(given(&house, "e", "shop.work", named).await, ["lamp"], "whoever is asked for by its id is nobody else");
    assert_eq!(given(&house, "f", "own", Place::default()).await, ["stranger"], "what nobody else offers it may have");

    // One whose actions were written down is believed as much, for these.
    let may = Allowance { actions: vec!["shop.*".into()], ..Allowance::default() };
    let password = house.let_in_for("meant", may).await;
    let mut meant = Device::connect(&house, "meant", Some(("meant", &password))).await;
    boast(&mut meant, &["shop.work@2", "own"], json!({})).await;
    assert_eq!(given(&house, "g", "shop.work", Place::default()).await, ["meant"]);
    assert_eq!(given(&house, "h", "own", Place::default()).await, ["stranger"], "that it may not offer");
    house.board.forget(&"meant".parse().unwrap()).await.unwrap();
    assert_eq!(given(&house, "i", "shop.work", Place::default()).await, ["gate-7"]);
    house.close().await;

    // Nor in the moment of a restart, when those that were meant to have it have not said so yet.
    let house = House::open(folder.path()).await;
    let password = house.let_in("lamp-2").await;
    let mut lamp = Device::connect(&house, "lamp-2", Some(("lamp-2", &password))).await;
    boast(&mut lamp, &["shop.work@100"], json!({})).await;
    let gate = || house.board.node(&id).unwrap().presence;
    let sent = house.board.send(errand("r", "shop.work")).await;
    assert!(matches!(sent, Err(NotSent::Nobody(_))) && gate() == Presence::Unconfirmed, "{sent:?}");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_held_to_what_it_may_say_of_itself() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let may = Allowance {
        actions: vec!["blink".into(), "meter.*@2".into()],
        layer: Some("edge".into()),
        labels: [("zone".into(), "north".into())].into(),
        slots: Some(2),
    };
    let password = house.let_in_for("lamp", may).await;
    let mut lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
    let told = async |part: &str| {
        eventually(part, LONG, async || house.reasons().await.iter().any(|why| why.contains(part))).await;
    };
    let info = || house.board.node(&"lamp".parse().unwrap());

    boast(&mut lamp, &["blink"], json!({"layer": "FOG"})).await;
    told("it may be in the layer edge only, and says fog").await;
    boast(&mut lamp, &["blink"], json!({"labels": {"zone": "south"}})).await;
    told("zone=south is not among the labels that it may have: zone=north").await;
    boast(&mut lamp, &["shop.work"], json!({})).await;
    told("urn:mutirao:Action:shop.work is not among the actions that it may offer: blink, meter.*@2").await;
    assert!(info().is_none(), "none of that let it in");

    boast(&mut lamp, &["blink", "meter.read@2", "meter.read@3", "shop.work"], json!({"labels": {"zone": "north"}}))
        .await;
    let ack = lamp.next("actions-list").await;
    assert_eq!(ack["actions"], json!(["urn:mutirao:Action:blink", "urn:mutirao:Action:meter.read@2"]));
    let record = info().unwrap().record;
    assert_eq!((record.slots, record.not_allowed, record.not_understood), (2, 2, 0));
    told("urn:mutirao:Action:meter.read@3 is not among").await;
    assert_eq!(info().unwrap().refused, 2, "and counted");
    for (n, goes) in [(0, true), (1, true), (2, false)] {
        assert_eq!(house.board.send(errand(&format!("r{n}"), "blink")).await.is_ok(), goes, "{n}");
    }
    house.close().await;
}
