//! With the clients that everybody has: `mosquitto_pub` and `mosquitto_sub`.

use std::process::{Output, Stdio};

use mutirao_mqtt::Qos;
use mutirao_testkit::certificates::{Authority, Good};
use mutirao_testkit::wait::eventually;
use mutirao_tls::Serving;
use tokio::process::{Child, Command};

use crate::house::{House, LONG, filter, name, next, text};
use crate::raw::within;

/// Is the program there? Without packages (`--fast`) it may not be.
fn installed() -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("mosquitto_sub").exists()));
    if !found {
        eprintln!("skipped: there is no mosquitto_sub; run ./scripts/test without --fast");
    }
    found
}

fn start(program: &str, house: &House, args: &[&str]) -> Child {
    let port = house.address.port().to_string();
    Command::new(program)
        .args(["-h", "localhost", "-p", &port])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn done(child: Child) -> Output {
    within("a mosquitto client", child.wait_with_output()).await.unwrap()
}

/// Publishes, and must succeed.
async fn publish(house: &House, args: &[&str]) {
    let output = done(start("mosquitto_pub", house, args)).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Subscribes, and is subscribed when this returns.
async fn subscribe(house: &House, args: &[&str]) -> Child {
    let before = house.port.gauges().subscriptions;
    let child = start("mosquitto_sub", house, args);
    eventually("it has subscribed", LONG, async || house.port.gauges().subscriptions > before).await;
    child
}

async fn lines(child: Child) -> Vec<String> {
    let output = done(child).await;
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn messages_of_every_quality_reach_a_subscriber_and_the_program() {
    if !installed() {
        return;
    }
    let house = House::open().await;
    let mut inbox = house.port.subscribe(vec![filter("room/#")], 8);
    let program = tokio::spawn(async move {
        let mut heard = vec![];
        for _ in 0..3 {
            let delivery = next(&mut inbox).await;
            heard.push((text(&delivery), delivery.message.qos));
            delivery.accept();
        }
        heard
    });
    let subscriber = subscribe(&house, &["-t", "room/+/light", "-q", "2", "-C", "3", "-F", "%q %r %t %p"]).await;
    for quality in ["0", "1", "2"] {
        publish(&house, &["-t", "room/1/light", "-q", quality, "-m", quality]).await;
    }
    let expected = ["0 0 room/1/light 0", "1 0 room/1/light 1", "1 0 room/1/light 2"];
    assert_eq!(lines(subscriber).await, expected);
    let heard = within("the program", program).await.unwrap();
    let expected = [("0", Qos::AtMostOnce), ("1", Qos::AtLeastOnce), ("2", Qos::ExactlyOnce)];
    assert_eq!(heard, expected.map(|(payload, qos)| (payload.to_owned(), qos)));
}

#[tokio::test]
async fn what_is_retained_meets_who_comes_later_and_an_empty_one_takes_it_back() {
    if !installed() {
        return;
    }
    let house = House::open().await;
    publish(&house, &["-t", "state/1", "-r", "-q", "1", "-m", "on"]).await;
    publish(&house, &["-t", "state/2", "-r", "-q", "1", "-m", "off"]).await;
    publish(&house, &["-t", "state/2", "-r", "-q", "1", "-n"]).await;
    let subscriber = subscribe(&house, &["-t", "state/#", "-C", "2", "-F", "%r %p"]).await;
    publish(&house, &["-t", "state/3", "-m", "live"]).await;
    assert_eq!(lines(subscriber).await, ["1 on", "0 live"]);
}

#[tokio::test]
async fn a_kept_session_finds_what_was_said_while_it_was_away() {
    if !installed() {
        return;
    }
    let house = House::open().await;
    let keeper = ["-c", "-i", "keeper", "-q", "1", "-t", "in"];
    let first = done(start("mosquitto_sub", &house, &[&keeper[..], &["-E"]].concat())).await;
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    eventually("it is away", LONG, async || house.port.gauges().connected == 0).await;
    for payload in ["one", "two"] {
        assert_eq!(house.port.publish(name("in"), payload.into(), Qos::AtLeastOnce).unwrap().away, 1);
    }
    let again = start("mosquitto_sub", &house, &[&keeper[..], &["-C", "2"]].concat());
    assert_eq!(lines(again).await, ["one", "two"]);
}

#[tokio::test]
async fn the_will_of_a_client_that_is_killed_is_read() {
    if !installed() {
        return;
    }
    let house = House::open().await;
    let heir = subscribe(&house, &["-t", "gone", "-C", "1"]).await;
    let will = ["--will-topic", "gone", "--will-payload", "it was killed", "--will-qos", "1"];
    let mut victim = subscribe(&house, &[&["-t", "x"], &will[..]].concat()).await;
    victim.start_kill().unwrap();
    assert_eq!(lines(heir).await, ["it was killed"]);
}

#[tokio::test]
async fn a_message_of_two_hundred_kilobytes_arrives_whole() {
    if !installed() {
        return;
    }
    let house = House::open().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..200 << 10).map(|at: u32| (at * 7) as u8).collect();
    std::fs::write(file.path(), &bytes).unwrap();
    let subscriber = subscribe(&house, &["-t", "big", "-q", "1", "-C", "1", "-N"]).await;
    publish(&house, &["-t", "big", "-q", "1", "-f", file.path().to_str().unwrap()]).await;
    assert_eq!(done(subscriber).await.stdout, bytes);
}

#[tokio::test]
async fn a_wrong_password_or_another_version_of_the_protocol_is_refused_in_its_own_words() {
    if !installed() {
        return;
    }
    let house = House::guarded().await;
    publish(&house, &["-u", "device", "-P", "secret", "-t", "device/out", "-q", "1", "-m", "x"]).await;
    for (args, said) in [
        (&["-u", "device", "-P", "guess"][..], "bad user name or password"),
        (&[], "not authorised"),
        (&["-V", "mqttv31", "-u", "device", "-P", "secret"], "unacceptable protocol version"),
    ] {
        let args = [args, &["-t", "device/out", "-q", "1", "-m", "x"]].concat();
        let output = done(start("mosquitto_pub", &house, &args)).await;
        let complaint = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(!output.status.success() && complaint.contains(said), "{args:?}: {complaint}");
    }
}

#[tokio::test]
async fn over_tls_it_is_the_same() {
    if !installed() {
        return;
    }
    let authority = Authority::new();
    let pair = authority.issue(&["localhost"], Good::ForLong);
    let serving = Serving::load(&pair.cert, &pair.key).unwrap();
    let house = House::with_tls(serving.acceptor_for(None)).await;
    let ca = authority.ca();
    let tls = ["--cafile", ca.to_str().unwrap()];
    let subscriber = subscribe(&house, &[&tls[..], &["-t", "t", "-q", "1", "-C", "1"]].concat()).await;
    publish(&house, &[&tls[..], &["-t", "t", "-q", "1", "-m", "secretly"]].concat()).await;
    assert_eq!(lines(subscriber).await, ["secretly"]);
}
