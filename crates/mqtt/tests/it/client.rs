//! Our own client, over lines that break and to servers that forget.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Dice, SystemClock};
use mutirao_mqtt::client::State;
use mutirao_mqtt::codec::Answer;
use mutirao_mqtt::{Client, Options, Qos};
use mutirao_testkit::certificates::{Authority, Good};
use mutirao_testkit::proxy::Proxy;
use mutirao_tls::{Believe, Serving, Trust};

use crate::house::{House, filter, name, next, text};
use crate::raw::within;

fn options(server: impl ToString, client_id: &str) -> Options {
    let pause = Duration::from_millis(20);
    Options {
        subscriptions: vec![(filter("to/me"), Qos::AtLeastOnce)],
        pause_min: pause,
        pause_max: pause,
        ..Options::new(server.to_string(), client_id, SystemClock::shared(), Arc::new(Dice::seeded(1)))
    }
}

async fn is(client: &Client, wanted: State) {
    let mut state = client.state();
    within("a state", async { state.wait_for(|state| *state == wanted).await.map(|_| ()) }).await.unwrap();
}

/// Numbers as they were heard, without those that came again.
fn first_hearings(heard: &[u32]) -> Vec<u32> {
    let mut seen = std::collections::HashSet::new();
    heard.iter().copied().filter(|number| seen.insert(*number)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_line_that_breaks_everything_arrives_in_order_both_ways() {
    const MESSAGES: u32 = 400;
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![filter("from/me")], 8);
    let proxy = Proxy::to(house.address).unwrap();
    let (client, mut received) = Client::start(options(proxy.address(), "node"));
    is(&client, State::Connected).await;

    let saying = tokio::spawn(async move {
        for number in 0..MESSAGES {
            let payload = number.to_be_bytes().to_vec().into();
            client.publish(name("from/me"), payload, Qos::AtLeastOnce).await.unwrap();
        }
        client
    });
    let port = house.port.clone();
    let telling = tokio::spawn(async move {
        for number in 0..MESSAGES {
            let published =
                port.publish(name("to/me"), number.to_be_bytes().to_vec().into(), Qos::AtLeastOnce).unwrap();
            assert_eq!(published.here + published.away, 1);
            tokio::task::yield_now().await;
        }
    });
    let mut told = vec![];
    let hearing = async {
        while first_hearings(&told).len() < MESSAGES as usize {
            let message = received.recv().await.expect("the client lives");
            told.push(u32::from_be_bytes(message.payload[..].try_into().unwrap()));
            message.accept();
        }
    };
    let mut said = vec![];
    let taking = async {
        while said.last() != Some(&(MESSAGES - 1)) {
            let delivery = next(&mut inbox).await;
            let number = u32::from_be_bytes(delivery.message.payload[..].try_into().unwrap());
            said.push(number);
            if number % 50 == 25 && said.iter().filter(|one| **one == number).count() == 1 {
                // The line breaks before the acknowledgement can go.
                proxy.break_connections();
            }
            delivery.accept();
        }
    };
    within("everything", async { tokio::join!(hearing, taking) }).await;
    let expected: Vec<u32> = (0..MESSAGES).collect();
    assert_eq!(first_hearings(&said), expected);
    assert_eq!(first_hearings(&told), expected);
    assert!(said.len() > expected.len(), "no line broke in the middle");
    telling.await.unwrap();
    drop(saying.await.unwrap());
}

#[tokio::test]
async fn a_server_that_forgot_everything_is_told_again_what_is_wanted() {
    let house = House::open().await;
    let port = house.address.port();
    let (client, mut received) = Client::start(options(house.address, "node"));
    is(&client, State::Connected).await;
    within("the end", house.listener.stop()).await;
    is(&client, State::Connecting).await;
    // Asked while nobody is there: it is said when somebody is.
    let asked = {
        let client = client.clone();
        tokio::spawn(async move { client.publish(name("from/me"), "kept".into(), Qos::AtLeastOnce).await })
    };
    let house = House::at_port(port).await;
    let mut inbox = house.port.subscribe(vec![filter("from/me")], 8);
    let delivery = next(&mut inbox).await;
    assert_eq!(text(&delivery), "kept");
    assert!(!asked.is_finished());
    delivery.accept();
    within("the acknowledgement", asked).await.unwrap().unwrap();
    is(&client, State::Connected).await;
    house.port.publish(name("to/me"), "heard".into(), Qos::AtLeastOnce).unwrap();
    let message = within("a message", received.recv()).await.unwrap();
    assert_eq!(&message.payload[..], b"heard");
}

#[tokio::test]
async fn what_the_program_does_not_accept_comes_again() {
    let house = House::open().await;
    let (client, mut received) = Client::start(options(house.address, "node"));
    is(&client, State::Connected).await;
    house.port.publish(name("to/me"), "once more".into(), Qos::AtLeastOnce).unwrap();
    drop(within("a message", received.recv()).await.unwrap());
    let again = within("it again", received.recv()).await.unwrap();
    assert_eq!(&again.payload[..], b"once more");
    again.accept();
    mutirao_testkit::wait::eventually("it is acknowledged", crate::house::LONG, async || {
        house.port.gauges().waiting_messages == 0
    })
    .await;
    drop(client);
}

#[tokio::test]
async fn whoever_takes_nothing_more_can_say_what_it_has_all_the_same() {
    const MESSAGES: usize = 40;
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![filter("from/me")], 8);
    let full = Options { unaccepted_max: 1, ..options(house.address, "node") };
    let (client, mut received) = Client::start(full);
    is(&client, State::Connected).await;
    for number in 0..MESSAGES {
        house.port.publish(name("to/me"), vec![number as u8].into(), Qos::AtLeastOnce).unwrap();
        house.port.publish(name("to/me"), "and nobody minds".into(), Qos::AtMostOnce).unwrap();
    }
    // Nothing of it is taken until something was said, and acknowledged.
    for number in 0..20u8 {
        let publishing = client.publish(name("from/me"), vec![number].into(), Qos::AtLeastOnce);
        let taking = async {
            let delivery = next(&mut inbox).await;
            assert_eq!(delivery.message.payload[..], [number]);
            delivery.accept();
        };
        within("the acknowledgement", async { tokio::join!(publishing, taking) }).await.0.unwrap();
    }
    let mut told = vec![];
    while told.len() < MESSAGES {
        let message = within("a message", received.recv()).await.unwrap();
        if let [number] = message.payload[..] {
            told.push(number as usize);
        }
        message.accept();
    }
    assert_eq!(told, (0..MESSAGES).collect::<Vec<_>>(), "and nothing was lost, doubled or turned around");
}

#[tokio::test]
async fn a_client_that_is_refused_says_so_and_one_that_goes_says_goodbye() {
    let house = House::guarded().await;
    let guess = Options { user: Some("device".into()), password: Some("guess".into()), ..options(house.address, "d") };
    let (client, _received) = Client::start(guess.clone());
    is(&client, State::Refused(Answer::BadCredentials)).await;
    drop(client);
    let will = mutirao_mqtt::codec::Will {
        topic: name("device/out"),
        payload: "gone".into(),
        qos: Qos::AtMostOnce,
        retain: true,
    };
    let right = Options { password: Some("secret".into()), will: Some(will), subscriptions: vec![], ..guess };
    let (client, _received) = Client::start(right);
    is(&client, State::Connected).await;
    client.publish(name("device/out"), "last words".into(), Qos::AtMostOnce).await.unwrap();
    drop(client);
    mutirao_testkit::wait::eventually("it is gone", crate::house::LONG, async || house.port.gauges().connected == 0)
        .await;
    let gauges = house.port.gauges();
    assert_eq!((gauges.retained_messages, house.port.counts().received), (0, 1));
}

#[tokio::test]
async fn over_tls_the_same_holds_and_a_certificate_of_a_stranger_is_not_believed() {
    let authority = Authority::new();
    let pair = authority.issue(&["localhost"], Good::ForLong);
    let serving = Serving::load(&pair.cert, &pair.key).unwrap();
    let house = House::with_tls(serving.acceptor_for(None)).await;
    let mut inbox = house.port.subscribe(vec![filter("from/me")], 8);
    let server = format!("localhost:{}", house.address.port());
    let over_tls = |believe: Believe| {
        let trust = Trust::for_url("mqtts://localhost", &believe).unwrap();
        let tls = Some((trust.config_for(Some(b"mqtt")), "localhost".try_into().unwrap()));
        Client::start(Options { tls, ..options(&server, "node") })
    };
    let (client, _received) = over_tls(Believe { ca: Some(authority.ca()), ..Believe::default() });
    is(&client, State::Connected).await;
    let publishing = client.publish(name("from/me"), "secretly".into(), Qos::AtLeastOnce);
    let taking = async {
        let delivery = next(&mut inbox).await;
        assert_eq!(text(&delivery), "secretly");
        delivery.accept();
    };
    let (said, ()) = within("a message", async { tokio::join!(publishing, taking) }).await;
    said.unwrap();
    let (stranger, _received) = over_tls(Believe::default());
    mutirao_testkit::wait::eventually("it is refused", crate::house::LONG, async || {
        house.listener.refusals().malformed.load(std::sync::atomic::Ordering::Relaxed) >= 1
    })
    .await;
    assert_eq!(*stranger.state().borrow(), State::Connecting);
    assert_eq!(house.port.gauges().connected, 1);
}
