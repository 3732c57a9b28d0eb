//! Many at once.

use mutirao_mqtt::codec::{Connect, Handling, Packet};
use mutirao_mqtt::{Limits, Qos};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::house::{House, filter, name, next};
use crate::raw::{Raw, hello, once, pid, publish};

/// Both ends of each connection are here.
fn raise_the_limit_of_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_devices_each_hear_their_own_and_are_heard() {
    const DEVICES: usize = 1_000;
    raise_the_limit_of_open_files();
    let house = House::with(Limits { connections_max: DEVICES, ..Limits::default() }).await;
    let mut inbox = house.port.subscribe(vec![filter("out")], 64);
    let before = resident_kb();
    let mut devices = vec![];
    for number in 0..DEVICES {
        let connect = Connect { keep_alive_s: 30, ..hello(&format!("esp32-{number}")) };
        let mut device = Raw::enter(house.address, connect).await;
        device.subscribe(&format!("node/{number}/in"), Qos::AtLeastOnce).await;
        devices.push(device);
    }
    let each = (resident_kb() - before) as f64 / DEVICES as f64;
    println!("{DEVICES} connections: {each:.1} KB resident for each, both ends and its session included");

    for number in 0..DEVICES {
        let topic = name(&format!("node/{number}/in"));
        let published = house.port.publish(topic, number.to_string().into(), Qos::AtLeastOnce).unwrap();
        assert_eq!((published.here, published.full), (1, 0));
    }
    for (number, device) in devices.iter_mut().enumerate() {
        let heard = device.next_publish().await;
        assert_eq!(heard.payload, number.to_string());
        let Handling::AtLeastOnce { pid, .. } = heard.handling else { panic!("{heard:?}") };
        device.say(Packet::PubAck(pid)).await;
        device.say(publish("out", number.to_string(), once(7))).await;
    }
    let mut heard = std::collections::HashSet::new();
    for _ in 0..DEVICES {
        let delivery = next(&mut inbox).await;
        assert_eq!(*delivery.speaker.client_id, *format!("esp32-{}", crate::house::text(&delivery)));
        assert!(heard.insert(delivery.speaker.client_id.clone()), "heard twice");
        delivery.accept();
    }
    for device in &mut devices {
        assert_eq!(device.next().await, Some(Packet::PubAck(pid(7))));
    }
    let gauges = house.port.gauges();
    assert_eq!((gauges.connected, gauges.sessions, gauges.waiting_messages), (DEVICES, DEVICES, 0));
}

/// A device that reboots in a loop: each time it takes its own place, and nothing gathers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_comes_back_a_thousand_times_leaves_nothing_behind() {
    let house = House::open().await;
    let mut last = None;
    for _ in 0..1_000 {
        let mut device = Raw::enter(house.address, hello("esp32-1")).await;
        device.subscribe("in", Qos::AtLeastOnce).await;
        last = Some(device);
    }
    mutirao_testkit::wait::eventually("one is left", crate::house::LONG, async || house.port.gauges().connected == 1)
        .await;
    house.port.publish(name("in"), "x".into(), Qos::AtLeastOnce).unwrap();
    assert_eq!(&last.unwrap().next_publish().await.payload[..], b"x");
    let gauges = house.port.gauges();
    assert_eq!((gauges.sessions, gauges.subscriptions), (1, 1));
}
