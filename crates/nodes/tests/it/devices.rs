//! Devices at the manager's own listener: the whole way of a task, and what each may and may not do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use ed25519_dalek::SigningKey;
use mutirao_core::Timestamp;
use mutirao_mqtt::client::State;
use mutirao_mqtt::codec::Answer;
use mutirao_mqtt::{Client, Qos, TopicFilter, TopicName};
use mutirao_nodes::allowance::Allowance;
use mutirao_nodes::breaker::Health;
use mutirao_nodes::errand::{End, Errand, NotSent, Reach, Returned};
use mutirao_nodes::hands::Hands;
use mutirao_nodes::preference::Protocol;
use mutirao_nodes::registry::{Presence, Proof, Strangers};
use mutirao_nodes::routing::{Ended, Place};
use mutirao_nodes::topics::OwnTopics;
use mutirao_nodes::{ActionName, Layer, Offer};
use mutirao_testkit::wait::eventually;

use crate::house::{
    Device, House, LONG, drained, errand, keyed, options, registration, result, signed, tester, within,
};

const RESULTS: &str = "mutirao.task.handler.saida";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_registers_is_acknowledged_hears_beats_and_runs_a_task() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let mut lamp = house.device("lamp").await;
    let beat = lamp.next("manager.available").await;
    assert_eq!((&beat["available"], &beat["schema"]), (&true.into(), &1.into()));
    lamp.next("manager/available").await;
    lamp.register("blink").await;
    let ack = lamp.next("actions-list").await;
    assert_eq!((&ack["nodeId"], &ack["actions"][0]), (&"lamp".into(), &"urn:mutirao:Action:blink".into()));

    let gone = house.board.send(errand("r1", "blink")).await.unwrap();
    assert_eq!((gone.node.as_str(), gone.layer, gone.over), ("lamp", Layer::Edge, Protocol::Mqtt));
    let message = lamp.next("/in").await;
    let expected = serde_json::json!({
        "actionTo": "urn:mutirao:Action:blink", "requestID": "r1", "messageData": "{\"n\":1}"
    });
    assert_eq!(message, expected);
    lamp.say(RESULTS, result("r1", r#"{"lit":true}"#)).await;
    let end = End::Ok(r#"{"lit":true}"#.into());
    let returned = Returned { request: "r1".into(), end, node: Some("lamp".parse().unwrap()) };
    assert_eq!(*house.desk.returned.lock(), [returned], "it was taken before it was acknowledged");
    house.board.ended("r1", Ended::Well);
    let info = house.board.node(&"lamp".parse().unwrap()).unwrap();
    assert_eq!((info.presence, info.in_flight, info.waits.unwrap().connected), (Presence::Registered, 0, true));
    house.close().await;
}

/// It is the first thing that everybody mistypes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_that_is_spelt_wrongly_is_told_with_what_was_meant_and_the_others_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let mut lamp = house.device("lamp").await;
    let said = |actions: &[&str]| {
        let mut registration: serde_json::Value = serde_json::from_str(&registration("lamp", "x")).unwrap();
        registration["actions"] = actions.into();
        registration.to_string()
    };
    let refused = || house.board.node(&"lamp".parse().unwrap()).map_or(0, |info| info.refused);
    let told = async |part: &str| {
        eventually(part, LONG, async || {
            house.board.rubbish(100).await.unwrap().iter().any(|one| one.reason.contains(part))
        })
        .await;
    };
    // Nothing of it is understood: it is not registered.
    lamp.say("mutirao.nodes.register", said(&["blink", "urn:sapparchi:Action:blink"])).await;
    told("none of its 2 actions is understood; the first: \"blink\" is not an action").await;
    assert!(house.board.node(&"lamp".parse().unwrap()).is_none());

    let one_good = ["urn:mutirao:Action:blink", "urn:mutirao:action:dim", "urn:sapparchi:Action:glow"];
    for _ in 0..3 {
        lamp.say("mutirao.nodes.register", said(&one_good)).await;
        assert_eq!(lamp.next("actions-list").await["actions"], serde_json::json!(["urn:mutirao:Action:blink"]));
    }
    told("urn:mutirao:Action:dim may have been meant").await;
    told("is of the namespace sapparchi, and this manager's is mutirao; urn:mutirao:Action:glow may").await;
    let info = house.board.node(&"lamp".parse().unwrap()).unwrap();
    assert_eq!((info.record.offers.len(), info.record.not_understood), (1, 2));
    assert_eq!(refused(), 2, "each once, however often it registers");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_manager_knows_who_was_registered_and_sends_as_soon_as_it_says_so_again() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let password = house.let_in("lamp").await;
    let lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
    lamp.register("blink").await;
    drop(lamp);
    house.close().await;

    let house = House::open(folder.path()).await;
    assert_eq!(house.board.catalogue().len(), 1, "flows may name it");
    let id = "lamp".parse().unwrap();
    assert_eq!(house.board.node(&id).unwrap().presence, Presence::Unconfirmed);
    for n in 0..5 {
        let sent = house.board.send(errand(&format!("early-{n}"), "blink")).await;
        assert!(matches!(sent, Err(NotSent::Nobody(_))), "{sent:?}");
    }
    let mut lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
    assert_eq!(lamp.next("manager.available").await["forceRegister"], true, "the first beat asks for it");
    lamp.register("blink").await;
    let info = house.board.node(&id).unwrap();
    assert_eq!((info.presence, info.health[0].1), (Presence::Registered, Health::Ok), "nothing was held against it");
    house.board.send(errand("r1", "blink")).await.unwrap();
    assert_eq!(lamp.next("/in").await["requestID"], "r1");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_to_a_device_that_is_away_waits_for_it_and_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let password = house.let_in("lamp").await;
    let lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
    lamp.register("blink").await;
    drop(lamp);
    eventually("it is gone", LONG, async || house.mqtt.port().gauges().connected == 0).await;
    house.board.send(errand("r1", "blink")).await.unwrap();
    house.board.send(errand("r2", "blink")).await.unwrap();
    let waits = house.board.node(&"lamp".parse().unwrap()).unwrap().waits.unwrap();
    assert!(!waits.connected && waits.messages >= 2 && waits.bytes <= waits.bytes_max, "{waits:?}");
    let mut lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
    assert_eq!(lamp.next("/in").await["requestID"], "r1");
    assert_eq!(lamp.next("/in").await["requestID"], "r2");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_was_given_up_while_its_device_was_away_is_not_run_when_it_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let password = house.let_in("lamp").await;
    let lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
    lamp.register("blink").await;
    drop(lamp);
    eventually("it is gone", LONG, async || house.mqtt.port().gauges().connected == 0).await;
    let brief = Errand { timeout: Duration::from_millis(300), ..errand("late", "blink") };
    house.board.send(brief).await.unwrap();
    for request in ["cancelled", "wanted"] {
        house.board.send(errand(request, "blink")).await.unwrap();
    }
    house.board.ended("cancelled", Ended::Recalled);
    let clock = mutirao_core::SystemClock::shared();
    clock.sleep(Duration::from_millis(400)).await;
    let mut lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
    assert_eq!(lamp.next("/in").await["requestID"], "wanted");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_long_for_a_microcontroller_goes_to_whoever_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let (lamp, mut desk) = (house.device("lamp").await, house.device("desk").await);
    lamp.register("blink").await;
    let long = |request: &str| Errand { data: format!("\"{}\"", "x".repeat(3_000)), ..errand(request, "blink") };
    let never = house.board.send(long("r0")).await;
    assert!(matches!(&never, Err(NotSent::Impossible(why)) if why.contains("microcontroller")), "{never:?}");
    desk.say("mutirao.nodes.register", registration("desk", "blink").replace("ESP32", "Python")).await;
    for n in 0..4 {
        let gone = house.board.send(long(&format!("r{n}"))).await.unwrap();
        assert_eq!(gone.node.as_str(), "desk");
        desk.next("/in").await;
    }
    // It is away, and will take it when it is back: nothing is impossible.
    house.board.forget(&"desk".parse().unwrap()).await.unwrap();
    let never = house.board.send(long("r9")).await;
    assert!(matches!(never, Err(NotSent::Impossible(_))), "{never:?}");
    let lamp = house.board.node(&"lamp".parse().unwrap()).unwrap();
    assert_eq!((lamp.health[0].1, lamp.in_flight), (Health::Ok, 0), "nothing was held against it");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_hears_is_kept_until_somebody_does_also_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let (_, password) = house
        .board
        .add_device("desk", "desk".parse().unwrap(), true, OwnTopics::default(), Allowance::default(), &tester())
        .await
        .unwrap();
    let answer = |request: &str, data: String| {
        serde_json::json!({ "actionTo": "a", "requestID": request, "messageData": data }).to_string()
    };
    // One that never comes for its answers keeps nobody else from theirs.
    house.board.answer(answer("t0", "0".into()), Some("gone")).await.unwrap();
    house.board.answer(answer("t1", "1".into()), None).await.unwrap();
    // No packet holds it.
    house.board.answer(answer("t2", "x".repeat(300 << 10)), None).await.unwrap();
    house.close().await;
    let house = House::open(folder.path()).await;
    let mut asking = options(&house, "desk", Some(("desk", &password)));
    asking.subscriptions.push((TopicFilter::new("mutirao.task.final.saida").unwrap(), Qos::AtLeastOnce));
    let (client, heard) = Client::start(asking);
    let mut desk = Device { client, heard: drained(heard), node: "desk".into() };
    let first = desk.next("final.saida").await;
    assert_eq!((&first["requestID"], &first["messageData"]), (&"t1".into(), &"1".into()));
    let second = desk.next("final.saida").await;
    let data: serde_json::Value = serde_json::from_str(second["messageData"].as_str().unwrap()).unwrap();
    assert_eq!((&second["requestID"], &data["state"]), (&"t2".into(), &"too_long".into()));
    assert!(data["error"].as_str().unwrap().contains("/v1/runs"), "{data}");
    let store = house.store.clone();
    eventually("they are told once", LONG, async || store.answers(None, 10).await.unwrap().is_empty()).await;
    let gone = Some("gone".to_owned());
    assert_eq!(store.answered_clients().await.unwrap(), std::slice::from_ref(&gone));
    assert_eq!(store.answers(gone, 10).await.unwrap().len(), 1);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_told_to_who_asked_and_to_nobody_else_who_may_ask() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let mut desks = Vec::new();
    for name in ["desk", "other"] {
        let (_, password) = house
            .board
            .add_device(name, name.parse().unwrap(), true, OwnTopics::default(), Allowance::default(), &tester())
            .await
            .unwrap();
        let mut asking = options(&house, name, Some((name, &password)));
        asking.subscriptions.push((TopicFilter::new("mutirao.task.final.saida").unwrap(), Qos::AtLeastOnce));
        let (client, heard) = Client::start(asking);
        client.state().wait_for(|state| *state == State::Connected).await.unwrap();
        desks.push(Device { client, heard: drained(heard), node: name.into() });
    }
    let task = r#"{"id":"t1","task_id":"x","target_actions":["urn:mutirao:Action:a"],"message_data":"{}"}"#;
    desks[0].say("mutirao.process.request.entrada", task).await;
    assert_eq!(house.desk.asked.lock()[0].1.as_deref(), Some("desk"));
    // Who asked is told, and who did not hears first what is for everybody.
    house.board.answer(r#"{"id":"hers"}"#.into(), Some("desk")).await.unwrap();
    house.board.answer(r#"{"id":"all"}"#.into(), None).await.unwrap();
    assert_eq!(desks[0].next("final.saida").await["id"], "hers");
    assert_eq!(desks[1].next("final.saida").await["id"], "all");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_that_it_is_registered_before_the_store_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let mut lamp = house.device("lamp").await;
    house.break_store(true).await;
    let calm = registration("lamp", "blink").replace("\"forceRegister\":true", "\"forceRegister\":false");
    // The second is like the first, which is known and not kept. Neither is acknowledged, nor is its packet.
    let saying = [0, 1].map(|_| {
        let (client, calm) = (lamp.client.clone(), calm.clone());
        let topic = TopicName::new("mutirao.nodes.register").unwrap();
        tokio::spawn(async move { client.publish(topic, calm.into(), Qos::AtLeastOnce).await })
    });
    let clock = mutirao_core::SystemClock::shared();
    clock.sleep(Duration::from_millis(1_500)).await;
    assert!(saying.iter().all(|one| !one.is_finished()));
    while let Ok((topic, _)) = lamp.heard.try_recv() {
        assert!(!topic.ends_with("actions-list"), "it was told what is not kept");
    }
    house.break_store(false).await;
    assert_eq!(lamp.next("actions-list").await["nodeId"], "lamp");
    assert_eq!(house.store.records(Timestamp(0)).await.unwrap().len(), 1);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_taken_yet_is_bounded_whatever_its_quality() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let lamp = house.device("lamp").await;
    house.desk.trouble.store(true, Ordering::SeqCst);
    let (flood, tasks) = (3_000, tokio::runtime::Handle::current().metrics());
    let topic = TopicName::new("mutirao.task.handler.saida").unwrap();
    for n in 0..flood {
        lamp.client.publish(topic.clone(), result(&format!("r{n}"), "1").into(), Qos::AtMostOnce).await.unwrap();
    }
    let (clock, mut most) = (mutirao_core::SystemClock::shared(), 0);
    for _ in 0..50 {
        clock.sleep(Duration::from_millis(20)).await;
        most = most.max(tasks.num_alive_tasks());
    }
    assert!((200..600).contains(&most), "{most} of {flood} were at hand");
    house.desk.trouble.store(false, Ordering::SeqCst);
    eventually("they are taken", LONG, async || house.desk.returned.lock().len() > 1_000).await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_signature_is_refused_counted_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let id: mutirao_nodes::NodeId = "lamp".parse().unwrap();
    let (right, wrong) = (SigningKey::from_bytes(&[7; 32]), SigningKey::from_bytes(&[8; 32]));
    let password = keyed(&house, &id, &right).await;
    let lamp = Device::connect(&house, "lamp", Some(("lamp", &password))).await;
    lamp.register("blink").await;
    for n in 1..=3 {
        let refused = house.board.change_password(&id, &signed(&wrong, &id, 2, "stolen")).await.unwrap_err();
        assert_eq!(refused.status, 401);
        assert_eq!(house.board.node(&id).unwrap().refused, n);
    }
    let kept = async || house.reasons().await.iter().filter(|why| why.contains("its signature is wrong")).count();
    eventually("they are kept", LONG, async || kept().await == 3).await;
    let key = house.board.node_key(&id).await.unwrap();
    assert_eq!(key.changes, 1, "nothing was changed");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_speaks_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let (lamp, thief) = (house.device("lamp").await, house.device("thief").await);
    lamp.register("blink").await;
    thief.say("mutirao.nodes.register", registration("lamp", "steal")).await;
    let stolen = house.board.node(&"lamp".parse().unwrap()).unwrap();
    assert_eq!(stolen.record.proof, Proof::User("lamp".into()));
    assert!(stolen.record.offers.iter().all(|offer| offer.action.short() == "blink"));

    house.board.send(errand("r1", "blink")).await.unwrap();
    thief.say(RESULTS, result("r1", "\"mine\"")).await;
    assert!(house.desk.returned.lock().is_empty());
    lamp.say(RESULTS, result("r1", "\"true\"")).await;
    assert_eq!(house.desk.returned.lock().len(), 1);
    let reasons = || async { house.reasons().await.join("\n") };
    eventually("both are kept", LONG, async || {
        let all = reasons().await;
        all.contains("belongs to another") && all.contains("another node was given")
    })
    .await;

    // Another's topic is not heard, and publishing elsewhere ends the connection.
    let mut spying = options(&house, "thief", None);
    let password = house.let_in("spy").await;
    (spying.user, spying.password) = (Some("spy".into()), Some(password.into()));
    spying.subscriptions = vec![(TopicFilter::new("mutirao/node/lamp/in").unwrap(), Qos::AtLeastOnce)];
    let before = house.mqtt.port().counts().subscriptions_denied;
    let (_spy, heard) = Client::start(spying);
    let mut heard = drained(heard);
    eventually("it was denied", LONG, async || house.mqtt.port().counts().subscriptions_denied > before).await;
    house.board.send(errand("r2", "blink")).await.unwrap();
    assert!(heard.try_recv().is_err());
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_and_a_removed_device_are_kept_out() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let lamp = house.device("lamp").await;
    for (user, password) in [("lamp", "wrong"), ("nobody", "x")] {
        let (client, _heard) = Client::start(options(&house, "x", Some((user, password))));
        let mut state = client.state();
        let refused = State::Refused(Answer::BadCredentials);
        within("refused", async { state.wait_for(|state| *state == refused).await.map(drop) }).await.unwrap();
    }
    let (client, _heard) = Client::start(options(&house, "x", None));
    let mut state = client.state();
    let refused = State::Refused(Answer::NotAuthorized);
    within("refused", async { state.wait_for(|state| *state == refused).await.map(drop) }).await.unwrap();

    house.board.remove_device("lamp", "test").await.unwrap();
    let mut state = lamp.client.state();
    let refused = State::Refused(Answer::BadCredentials);
    within("cut off", async { state.wait_for(|state| *state == refused).await.map(drop) }).await.unwrap();
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_shows_nothing_is_marked_and_hears_nothing_that_is_meant_for_a_known_one() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::with(folder.path(), Strangers::LetIn).await;
    let mut lamp = house.device("lamp").await;
    lamp.register("blink").await;
    let mut stray = Device::connect(&house, "stray", None).await;
    stray.register("roam").await;
    assert_eq!(house.board.node(&"stray".parse().unwrap()).unwrap().record.proof, Proof::Nothing);
    let mut spying = options(&house, "lamp", None);
    spying.client_id = "spy".into();
    let (spy, heard) = Client::start(spying);
    let mut heard = drained(heard);
    let mut state = spy.state();
    within("let in", async { state.wait_for(|state| *state == State::Connected).await.map(drop) }).await.unwrap();

    house.board.send(errand("r1", "blink")).await.unwrap();
    house.board.send(errand("r2", "roam")).await.unwrap();
    assert_eq!(lamp.next("/in").await["requestID"], "r1");
    assert_eq!(stray.next("/in").await["requestID"], "r2");
    stray.say(RESULTS, result("r1", "\"mine\"")).await;
    assert!(house.desk.returned.lock().is_empty(), "one that shows nothing does not answer for one that does");
    while let Ok((topic, _)) = heard.try_recv() {
        assert!(!topic.ends_with("/in"), "{topic}");
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_cannot_be_taken_now_is_taken_later_and_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let lamp = house.device("lamp").await;
    lamp.register("blink").await;
    house.board.send(errand("r1", "blink")).await.unwrap();
    house.desk.trouble.store(true, Ordering::SeqCst);
    let saying = tokio::spawn(async move { lamp.say(RESULTS, result("r1", "1")).await });
    tokio::task::yield_now().await;
    assert!(house.desk.returned.lock().is_empty());
    house.desk.trouble.store(false, Ordering::SeqCst);
    within("it is taken in the end", saying).await.unwrap();
    assert_eq!(house.desk.returned.lock().len(), 1);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_may_asks_for_tasks_and_what_is_no_task_is_kept_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let (_, password) = house
        .board
        .add_device("desk", "desk".parse().unwrap(), true, OwnTopics::default(), Allowance::default(), &tester())
        .await
        .unwrap();
    let mut asking = options(&house, "desk", Some(("desk", &password)));
    asking.subscriptions.push((TopicFilter::new("mutirao.task.final.saida").unwrap(), Qos::AtLeastOnce));
    let (client, heard) = Client::start(asking);
    let mut desk = Device { client, heard: drained(heard), node: "desk".into() };
    let task = |urn: &str| {
        serde_json::json!({ "id": "t1", "task_id": urn, "target_actions": ["urn:mutirao:Action:a"], "message_data": "{}" })
            .to_string()
    };
    desk.say("mutirao.process.request.entrada", task("urn:mutirao:Task:good")).await;
    assert_eq!(house.desk.asked.lock().len(), 1);
    desk.say("mutirao.process.request.entrada", task("urn:mutirao:Task:bad")).await;
    eventually("kept", LONG, async || house.reasons().await.iter().any(|why| why.contains("no such task"))).await;
    house.board.answer(r#"{"id":"t1"}"#.into(), None).await.unwrap();
    assert_eq!(desk.next("final.saida").await["id"], "t1");
    house.close().await;
}

struct Two;

#[async_trait]
impl Hands for Two {
    fn offers(&self) -> std::collections::BTreeSet<Offer> {
        ["urn:mutirao:Action:add".parse().unwrap()].into()
    }

    async fn run(&self, _: &ActionName, data: &str) -> End {
        End::Ok(data.to_uppercase())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manager_s_own_hands_run_what_they_can_and_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    assert!(matches!(house.board.send(errand("r0", "add")).await, Err(NotSent::Nobody(_))));
    house.board.host("here".parse().unwrap(), Arc::new(Two));
    let gone = house.board.send(errand("r1", "add")).await.unwrap();
    assert_eq!((gone.over, gone.layer), (Protocol::Here, Layer::Cloud));
    eventually("it ran", LONG, async || house.desk.returned.lock().len() == 1).await;
    assert_eq!(house.desk.returned.lock()[0].end, End::Ok(r#"{"N":1}"#.into()));
    let thief = house.device("here").await;
    thief.register("add").await;
    assert_ne!(house.board.node(&"here".parse().unwrap()).unwrap().record.proof, Proof::User("here".into()));
    let place = Place { layer: Some(Layer::Cloud), ..Place::default() };
    house.board.send(mutirao_nodes::errand::Errand { place, ..errand("r2", "add") }).await.unwrap();
    let store = house.store.clone();
    house.close().await;
    drop(store);
    let house = House::open(folder.path()).await;
    assert!(house.board.nodes().is_empty(), "who is here is here");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_has_topics_of_its_own_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    let topics = |publish: &[&str], subscribe: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        OwnTopics { publish: owned(publish), subscribe: owned(subscribe) }
    };
    let let_in = async |name: &str, topics| {
        house
            .board
            .add_device(name, name.parse().unwrap(), false, topics, Allowance::default(), &tester())
            .await
            .unwrap()
            .1
    };
    let meter = let_in("meter-1", topics(&["grid/meter-1/#"], &[])).await;
    let desk = let_in("desk", topics(&[], &["grid/+/reading"])).await;
    let mut hearing = options(&house, "desk", Some(("desk", &desk)));
    hearing.subscriptions.push((TopicFilter::new("grid/+/reading").unwrap(), Qos::AtLeastOnce));
    let (client, heard) = Client::start(hearing);
    let mut state = client.state();
    state.wait_for(|state| *state == State::Connected).await.unwrap();
    let mut desk = Device { client, heard: drained(heard), node: "desk".into() };
    let meter = Device::connect(&house, "meter-1", Some(("meter-1", &meter))).await;
    // Whoever says what it may not is cut off, and heard by nobody.
    let thief = house.device("thief").await;
    let stolen = TopicName::new("grid/meter-1/reading").unwrap();
    let stealing = tokio::spawn(async move { thief.client.publish(stolen, "{}".into(), Qos::AtLeastOnce).await });
    let port = house.mqtt.port().clone();
    eventually("it is cut off", LONG, async || port.counts().publishes_denied > 0).await;
    stealing.abort();
    meter.say("grid/meter-1/reading", r#"{"watts":7}"#).await;
    assert_eq!(desk.next("reading").await, serde_json::json!({ "watts": 7 }));
    house.close().await;
}
