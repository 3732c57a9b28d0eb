//! Sessions that are kept: what is said while a client is away, or does not read, within bounds that show.

use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::clock::ManualClock;
use mutirao_mqtt::codec::{Connect, Handling, Packet};
use mutirao_mqtt::{Limits, Qos};
use mutirao_testkit::wait::eventually;

use crate::house::{House, LONG, name};
use crate::raw::{Raw, hello};

#[tokio::test]
async fn what_was_not_acknowledged_comes_again_marked_and_what_was_said_meanwhile_follows() {
    let house = House::open().await;
    let mut device = Raw::enter(house.address, hello("device")).await;
    device.subscribe("in", Qos::AtLeastOnce).await;
    let say = |payload: &'static str| house.port.publish(name("in"), payload.into(), Qos::AtLeastOnce).unwrap();
    say("first");
    say("second");
    let first = device.next_publish().await;
    let second = device.next_publish().await;
    let (Handling::AtLeastOnce { pid: first_pid, .. }, Handling::AtLeastOnce { pid, dup: false }) =
        (first.handling, second.handling)
    else {
        panic!("{first:?} {second:?}")
    };
    device.say(Packet::PubAck(first_pid)).await;
    device.nothing_but_a_ping().await;
    drop(device);
    eventually("it is seen to be away", LONG, async || house.port.gauges().connected == 0).await;
    assert_eq!(say("third").away, 1);

    let (mut device, present, _) = Raw::knock(house.address, hello("device")).await;
    assert!(present);
    let again = device.next_publish().await;
    assert_eq!(again.handling, Handling::AtLeastOnce { pid, dup: true });
    assert_eq!(&again.payload[..], b"second");
    let third = device.next_publish().await;
    assert_eq!(&third.payload[..], b"third");
    let Handling::AtLeastOnce { pid: third_pid, dup: false } = third.handling else { panic!("{third:?}") };
    device.say(Packet::PubAck(pid)).await;
    device.say(Packet::PubAck(third_pid)).await;
    device.nothing_but_a_ping().await;
    assert_eq!(house.port.gauges().waiting_bytes, 0);
}

#[tokio::test]
async fn what_waits_for_one_that_is_away_is_bounded_and_the_publisher_is_told() {
    let house = House::with(Limits { queue_messages_max: 10, ..Limits::default() }).await;
    let mut device = Raw::enter(house.address, hello("device")).await;
    device.subscribe("in", Qos::AtLeastOnce).await;
    drop(device);
    eventually("it is seen to be away", LONG, async || house.port.gauges().connected == 0).await;
    let told: Vec<_> = (0..12u8)
        .map(|number| house.port.publish(name("in"), vec![number].into(), Qos::AtLeastOnce).unwrap())
        .map(|published| (published.away, published.full))
        .collect();
    assert_eq!((told[9], told[10], told[11]), ((1, 0), (0, 1), (0, 1)));
    assert_eq!(house.port.counts().dropped_full, 2);
    let mut device = Raw::enter(house.address, hello("device")).await;
    for number in 0..10 {
        let publish = device.next_publish().await;
        assert_eq!(publish.payload[..], [number]);
        if let Handling::AtLeastOnce { pid, .. } = publish.handling {
            device.say(Packet::PubAck(pid)).await;
        }
    }
    device.nothing_but_a_ping().await;
}

#[tokio::test]
async fn who_does_not_read_fills_only_its_own_queue_and_is_let_go() {
    let clock = ManualClock::starting_at(Timestamp(0));
    let house = House::on(Limits::default(), clock.clone()).await;
    let mut stuck = Raw::enter(house.address, Connect { clean: true, ..hello("stuck") }).await;
    stuck.subscribe("big", Qos::AtMostOnce).await;
    let mut reader = Raw::enter(house.address, hello("reader")).await;
    reader.subscribe("small", Qos::AtMostOnce).await;
    let big = bytes::Bytes::from(vec![0; 200 << 10]);
    eventually("its queue is full", LONG, async || {
        house.port.publish(name("big"), big.clone(), Qos::AtMostOnce).unwrap();
        house.port.counts().dropped_full >= 10
    })
    .await;
    assert!(house.port.gauges().waiting_bytes <= Limits::default().queue_bytes_max);
    house.port.publish(name("small"), "still heard".into(), Qos::AtMostOnce).unwrap();
    assert_eq!(&reader.next_publish().await.payload[..], b"still heard");
    eventually("it is let go", LONG, async || {
        clock.advance(Duration::from_secs(1));
        house.port.gauges().connected == 1
    })
    .await;
    assert_eq!(house.port.gauges().waiting_bytes, 0);
    reader.nothing_but_a_ping().await;
}

#[tokio::test]
async fn one_that_is_kept_busy_reading_is_still_heard() {
    let house = House::open().await;
    let mut busy = Raw::enter(house.address, Connect { keep_alive_s: 1, ..hello("busy") }).await;
    busy.subscribe("t", Qos::AtMostOnce).await;
    let port = house.port.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let publisher = tokio::spawn(async move {
        while !stopped.is_cancelled() {
            port.publish(name("t"), vec![0; 64].into(), Qos::AtMostOnce).unwrap();
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..50 {
        busy.say(Packet::PingReq).await;
        while busy.next().await.expect("it is connected") != Packet::PingResp {}
    }
    stop.cancel();
    publisher.await.unwrap();
}
