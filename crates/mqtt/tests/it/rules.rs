//! What the standard and our bounds ask of a client, and what becomes of one that does otherwise.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use mutirao_core::clock::ManualClock;
use mutirao_core::{Clock, Timestamp};
use mutirao_mqtt::codec::{self, Answer, Connect, Handling, Packet, Will};
use mutirao_mqtt::{Limits, Qos};
use mutirao_testkit::wait::eventually;

use crate::house::{House, LONG, name, next, text};
use crate::raw::{Raw, hello, once, pid, publish};

#[tokio::test]
async fn bytes_that_come_one_by_one_are_understood() {
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![crate::house::filter("#")], 8);
    let mut all = BytesMut::new();
    codec::encode(&Packet::Connect(hello("slow")), &mut all).unwrap();
    codec::encode(&publish("a", "one by one", once(1)), &mut all).unwrap();
    let mut raw = Raw::dial(house.address).await;
    for byte in all {
        raw.bytes(&[byte]).await;
        tokio::task::yield_now().await;
    }
    let delivery = next(&mut inbox).await;
    assert_eq!(text(&delivery), "one by one");
    delivery.accept();
    assert!(matches!(raw.next().await, Some(Packet::ConnAck { answer: Answer::Accepted, .. })));
    assert_eq!(raw.next().await, Some(Packet::PubAck(pid(1))));
}

#[tokio::test]
async fn whoever_breaks_a_rule_is_cut_off_and_nobody_else() {
    let house = House::with(Limits { packet_bytes_max: 2_048, ..Limits::default() }).await;
    let mut bystander = Raw::enter(house.address, hello("bystander")).await;
    let before: [&[u8]; 4] = [b"GET / HTTP/1.1\r\n\r\n", b"\xc0\x00", b"\x10\xff\xff\xff\x7f", b"\x10\x04\x00\x02MQ"];
    for bytes in before {
        let mut raw = Raw::dial(house.address).await;
        raw.bytes(bytes).await;
        raw.must_be_cut_off().await;
    }
    let mut of_tomorrow = Raw::dial(house.address).await;
    of_tomorrow.bytes(b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00").await;
    let answer = Some(Packet::ConnAck { session_present: false, answer: Answer::WrongProtocol });
    assert_eq!(of_tomorrow.next().await, answer);
    of_tomorrow.must_be_cut_off().await;

    let after = [
        Packet::Connect(hello("twice")),
        Packet::PingResp,
        Packet::PubRec(pid(1)),
        publish("$SYS/mine", "no", Handling::AtMostOnce),
    ];
    for packet in after {
        let mut raw = Raw::enter(house.address, hello("breaker")).await;
        raw.say(packet).await;
        raw.must_be_cut_off().await;
    }
    bystander.nothing_but_a_ping().await;
    assert_eq!(house.listener.refusals().malformed.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn a_packet_of_2048_bytes_passes_and_one_of_2049_does_not() {
    let house = House::with(Limits { packet_bytes_max: 2_048, ..Limits::default() }).await;
    let mut listener = Raw::enter(house.address, hello("listener")).await;
    listener.subscribe("t", Qos::AtMostOnce).await;
    let mut device = Raw::enter(house.address, hello("device")).await;
    device.say(publish("t", vec![b'x'; 2_045], Handling::AtMostOnce)).await;
    assert_eq!(listener.next_publish().await.payload.len(), 2_045);
    device.say(publish("t", vec![b'x'; 2_046], Handling::AtMostOnce)).await;
    device.must_be_cut_off().await;
    listener.nothing_but_a_ping().await;
}

#[tokio::test]
async fn client_ids_are_given_when_they_may_be_and_refused_when_they_cannot() {
    let house = House::open().await;
    let knock = async |client_id: &str, clean| Raw::knock(house.address, Connect { clean, ..hello(client_id) }).await.2;
    assert_eq!(knock("", true).await, Answer::Accepted);
    assert_eq!(knock("", false).await, Answer::ClientIdRejected);
    assert_eq!(knock(&"x".repeat(129), true).await, Answer::ClientIdRejected);
    assert_eq!(knock(&"x".repeat(128), true).await, Answer::Accepted);
}

#[tokio::test]
async fn the_gate_decides_who_comes_in_and_what_they_may_do() {
    let house = House::guarded().await;
    let with = |user: &str, password: &str| Connect {
        user: Some(user.into()),
        password: Some(password.to_owned().into()),
        ..hello("d")
    };
    for (connect, answer) in [
        (hello("d"), Answer::NotAuthorized),
        (with("", ""), Answer::NotAuthorized),
        (with("device", "guess"), Answer::BadCredentials),
    ] {
        let (raw, _, given) = Raw::knock(house.address, connect).await;
        assert_eq!(given, answer);
        raw.must_be_cut_off().await;
    }
    let mut device = Raw::enter(house.address, with("device", "secret")).await;
    let filters = ["#", "other", "device/#"].map(|wanted| (crate::house::filter(wanted), Qos::AtLeastOnce)).into();
    device.say(Packet::Subscribe { pid: pid(1), filters }).await;
    let granted = vec![None, None, Some(Qos::AtLeastOnce)];
    assert_eq!(device.next().await, Some(Packet::SubAck { pid: pid(1), granted }));
    device.say(publish("device/out", "mine", once(2))).await;
    assert!(matches!(device.next().await, Some(Packet::Publish(_) | Packet::PubAck(_))));
    assert!(matches!(device.next().await, Some(Packet::Publish(_) | Packet::PubAck(_))));
    device.say(publish("other", "not mine", once(3))).await;
    device.must_be_cut_off().await;
    assert_eq!(house.listener.refusals().refused.load(Ordering::Relaxed), 3);
    assert_eq!(house.port.counts().publishes_denied, 1);
}

#[tokio::test]
async fn somebody_whose_rights_are_taken_away_is_cut_off_and_forgotten() {
    let house = House::open().await;
    let mut raw = Raw::enter(house.address, hello("x")).await;
    raw.subscribe("t", Qos::AtLeastOnce).await;
    assert_eq!(house.port.expel("anonymous"), 1);
    raw.must_be_cut_off().await;
    let (_, present, _) = Raw::knock(house.address, hello("x")).await;
    assert!(!present);
}

#[tokio::test]
async fn a_second_connection_takes_the_place_of_the_first_and_its_will_is_read() {
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![crate::house::filter("will")], 8);
    let will = Will { topic: name("will"), payload: "gone".into(), qos: Qos::AtLeastOnce, retain: false };
    let first = Raw::enter(house.address, Connect { will: Some(will.clone()), ..hello("device") }).await;
    let (mut second, present, _) = Raw::knock(house.address, hello("device")).await;
    assert!(present);
    first.must_be_cut_off().await;
    let delivery = next(&mut inbox).await;
    assert_eq!((text(&delivery).as_str(), &*delivery.speaker.client_id), ("gone", "device"));
    // Said goodbye: nothing is read. Vanished: it is.
    second.say(Packet::Disconnect).await;
    second.must_be_cut_off().await;
    let mut third = Raw::enter(house.address, Connect { will: Some(will.clone()), ..hello("polite") }).await;
    third.say(Packet::Disconnect).await;
    third.must_be_cut_off().await;
    drop(Raw::enter(house.address, Connect { will: Some(will), ..hello("vanishing") }).await);
    assert_eq!(&*next(&mut inbox).await.speaker.client_id, "vanishing");
}

#[tokio::test]
async fn who_is_silent_for_more_than_one_and_a_half_times_its_keep_alive_is_let_go() {
    let clock = ManualClock::starting_at(Timestamp(0));
    let house = House::on(Limits::default(), clock.clone()).await;
    let mut device = Raw::enter(house.address, Connect { keep_alive_s: 30, ..hello("device") }).await;
    let mut patient = Raw::enter(house.address, hello("no keep alive")).await;
    clock.advance(Duration::from_secs(44));
    device.nothing_but_a_ping().await;
    let heard = clock.monotonic();
    eventually("the silent one is gone", LONG, async || {
        clock.advance(Duration::from_secs(1));
        house.port.gauges().connected == 1
    })
    .await;
    assert!(clock.monotonic().since(heard) >= Duration::from_secs(45));
    device.must_be_cut_off().await;
    patient.nothing_but_a_ping().await;
}

#[tokio::test]
async fn who_does_not_say_who_it_is_or_is_not_answered_for_is_let_go_in_time() {
    let clock = ManualClock::starting_at(Timestamp(0));
    let house = House::on(Limits::default(), clock.clone()).await;
    let silent = Raw::dial(house.address).await;
    let mut half = Raw::dial(house.address).await;
    half.bytes(b"\x10\x0c\x00\x04MQ").await;
    let mut unanswered = Raw::dial(house.address).await;
    unanswered.say(Packet::Connect(Connect { user: Some("slow".into()), ..hello("slow") })).await;
    eventually("all three are gone", LONG, async || {
        clock.advance(Duration::from_secs(1));
        house.listener.refusals().silent.load(Ordering::Relaxed) == 3
    })
    .await;
    silent.must_be_cut_off().await;
    half.must_be_cut_off().await;
    unanswered.must_be_cut_off().await;
    assert_eq!(house.port.gauges().sessions, 0);
}

#[tokio::test]
async fn one_connection_too_many_is_closed_at_once_and_a_place_becomes_free_again() {
    let house = House::with(Limits { connections_max: 2, ..Limits::default() }).await;
    let first = Raw::enter(house.address, hello("1")).await;
    let mut second = Raw::enter(house.address, hello("2")).await;
    Raw::dial(house.address).await.must_be_cut_off().await;
    second.nothing_but_a_ping().await;
    drop(first);
    eventually("a place is free", LONG, async || {
        let mut third = Raw::dial(house.address).await;
        third.say(Packet::Connect(hello("3"))).await;
        third.next().await.is_some()
    })
    .await;
    assert!(house.listener.refusals().full.load(Ordering::Relaxed) >= 1);
}
