//! The program's own place: what it accepts is acknowledged, and what it does not is not.

use mutirao_mqtt::codec::{Handling, Packet};
use mutirao_mqtt::{Limits, Qos, Standing};

use crate::house::{House, filter, name, next, text};
use crate::raw::{Raw, hello, once, pid, publish, within};

#[tokio::test]
async fn a_message_is_acknowledged_when_the_program_has_accepted_it_and_in_order() {
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![filter("in/#")], 8);
    let mut device = Raw::enter(house.address, hello("esp32-1")).await;
    device.say(publish("in/x", "first", once(1))).await;
    device.say(publish("to/nobody", "second", once(2))).await;
    device.say(publish("in/y", "third", once(3))).await;
    device.nothing_but_a_ping().await;
    let (first, third) = (next(&mut inbox).await, next(&mut inbox).await);
    assert_eq!((text(&first).as_str(), text(&third).as_str()), ("first", "third"));
    assert_eq!((&*first.speaker.client_id, first.speaker.standing), ("esp32-1", Standing::Anonymous));
    third.accept();
    device.nothing_but_a_ping().await;
    first.accept();
    for number in 1..=3 {
        assert_eq!(device.next().await, Some(Packet::PubAck(pid(number))));
    }
}

#[tokio::test]
async fn what_the_program_does_not_accept_is_not_acknowledged_and_may_be_said_again() {
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![filter("in")], 8);
    let mut device = Raw::enter(house.address, hello("device")).await;
    device.say(publish("in", "x", once(1))).await;
    drop(next(&mut inbox).await);
    device.must_be_cut_off().await;
    let mut device = Raw::enter(house.address, hello("device")).await;
    device.say(publish("in", "x", Handling::AtLeastOnce { pid: pid(1), dup: true })).await;
    next(&mut inbox).await.accept();
    assert_eq!(device.next().await, Some(Packet::PubAck(pid(1))));
    // Nobody is there any more to accept anything.
    drop(inbox);
    device.say(publish("in", "y", once(2))).await;
    device.must_be_cut_off().await;
}

#[tokio::test]
async fn a_program_that_takes_nothing_holds_back_its_publishers_and_nobody_else_and_loses_nothing() {
    const MESSAGES: u16 = 5_000;
    let house = House::with(Limits { unaccepted_max: 16, ..Limits::default() }).await;
    let mut inbox = house.port.subscribe(vec![filter("in")], 4);
    let mut flooder = Raw::enter(house.address, hello("flooder")).await;
    let (mut one, mut other) =
        (Raw::enter(house.address, hello("one")).await, Raw::enter(house.address, hello("other")).await);
    other.subscribe("chat", Qos::AtMostOnce).await;

    let flood = tokio::spawn(async move {
        for number in 1..=MESSAGES {
            flooder.say(publish("in", number.to_be_bytes(), once(number))).await;
        }
        flooder
    });
    for _ in 0..20 {
        one.say(publish("chat", "hello", Handling::AtMostOnce)).await;
        assert_eq!(&other.next_publish().await.payload[..], b"hello");
    }
    // No more was read from the flooder than the inbox and its bound allow.
    assert!(house.port.counts().received <= 20 + 16 + 4 + 1);
    for number in 1..=MESSAGES {
        let delivery = next(&mut inbox).await;
        assert_eq!(delivery.message.payload[..], number.to_be_bytes());
        delivery.accept();
    }
    let mut flooder = within("the flood", flood).await.unwrap();
    for number in 1..=MESSAGES {
        assert_eq!(flooder.next().await, Some(Packet::PubAck(pid(number))));
    }
}

#[tokio::test]
async fn a_message_of_quality_2_reaches_the_program_once_however_often_it_is_said() {
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![filter("in")], 8);
    let mut device = Raw::enter(house.address, hello("device")).await;
    let twice = |dup| publish("in", "x", Handling::ExactlyOnce { pid: pid(5), dup });
    device.say(twice(false)).await;
    next(&mut inbox).await.accept();
    assert_eq!(device.next().await, Some(Packet::PubRec(pid(5))));
    drop(device);
    let mut device = Raw::enter(house.address, hello("device")).await;
    device.say(twice(true)).await;
    assert_eq!(device.next().await, Some(Packet::PubRec(pid(5))));
    device.say(Packet::PubRel(pid(5))).await;
    assert_eq!(device.next().await, Some(Packet::PubComp(pid(5))));
    // The same number again is another message now.
    device.say(publish("in", "y", Handling::ExactlyOnce { pid: pid(5), dup: false })).await;
    let other = next(&mut inbox).await;
    assert_eq!(text(&other), "y");
}

#[tokio::test]
async fn the_program_is_told_who_will_hear_and_its_inbox_ends_with_the_listener() {
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![filter("#")], 8);
    let mut here = Raw::enter(house.address, hello("here")).await;
    let mut away = Raw::enter(house.address, hello("away")).await;
    for raw in [&mut here, &mut away] {
        raw.subscribe("t", Qos::AtLeastOnce).await;
    }
    away.say(Packet::Disconnect).await;
    away.must_be_cut_off().await;
    let published = house.port.publish(name("t"), "x".into(), Qos::AtLeastOnce).unwrap();
    assert_eq!((published.here, published.away, published.full), (1, 1, 0));
    assert_eq!(&here.next_publish().await.payload[..], b"x");
    within("the end", house.listener.stop()).await;
    here.must_be_cut_off().await;
    assert!(within("the end of the inbox", inbox.next()).await.is_none());
}
