//! Anomalies of a power grid: simulated meters speak MQTT, means slide, and an alarm starts a flow.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_mqtt::client::State;
use mutirao_mqtt::{Client, Options, Qos, TopicFilter, TopicName};
use mutirao_streams::time;
use mutirao_testkit::{Installation, wait};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::example;
use crate::devices::json_of;
use crate::said::Said;
use crate::streams::apart::Apart;
use crate::streams::running::{deploy, health, lines, read, written};

/// A window, how late it speaks, and a busy machine.
const A_WINDOW: Duration = Duration::from_secs(60);
/// Between two readings of a meter.
const PAUSE: Duration = Duration::from_millis(400);

#[derive(Clone, Debug)]
struct Reading {
    meter: &'static str,
    volts: f64,
    factor: f64,
    at_us: i64,
}

/// Each is as it is all the time, but for a ripple.
fn readings(n: u32, at_us: i64) -> [Reading; 3] {
    let ripple = f64::from(n % 5);
    let meter = |meter, volts: f64, factor| Reading { meter, volts: volts + ripple, factor, at_us };
    [meter("calm", 219.0, 0.97), meter("high", 248.5, 0.97), meter("weak", 219.0, 0.8)]
}

/// A meter that says what the three of them read, for as long as it lives.
async fn speak(client: Client, said: Arc<Mutex<Vec<Reading>>>) {
    for n in 0.. {
        for reading in readings(n, SystemClock.now().0 * 1_000) {
            let Reading { meter, volts, factor, at_us } = &reading;
            let text = json!({"meter": meter, "volts": volts, "amps": 5, "factor": factor, "at": at_us}).to_string();
            // Before anybody can have heard it.
            said.lock().push(reading.clone());
            let topic = TopicName::new(&format!("grid/{meter}/reading")).unwrap();
            client.publish(topic, text.into(), Qos::AtLeastOnce).await.unwrap();
        }
        SystemClock.sleep(PAUSE).await;
    }
}

fn mqtt_port(up: &Installation) -> String {
    crate::devices::mqtt_port(up)
}

/// What the stream said last of a meter is what comes of its readings.
fn check(up: &Installation, meter: &str, said: &[Reading]) {
    let mean = read(&up.ok(&["kv", "get", &format!("grid/{meter}")]));
    let time = |field: &str| time::parse(mean[field].as_str().unwrap()).unwrap();
    let (start, end) = (time("start"), time("end"));
    assert_eq!((end - start, end % 10_000_000), (60_000_000, 0), "{mean}");
    let of = |one: &&Reading| one.meter == meter && (start..end).contains(&one.at_us);
    let seen: Vec<&Reading> = said.iter().filter(of).collect();
    assert_eq!(mean["events"], json!(seen.len()), "{mean}");
    let average = |value: fn(&Reading) -> f64| seen.iter().map(|one| value(one)).sum::<f64>() / seen.len() as f64;
    let off = |one: &Reading| (one.volts - 220.0).abs() / 220.0;
    let worst = seen.iter().map(|one| off(one)).fold(0.0, f64::max);
    for (field, expected) in [
        ("volts", average(|one| one.volts)),
        ("off", average(|one| (one.volts - 220.0).abs() / 220.0)),
        ("factor", average(|one| one.factor)),
        ("watts", average(|one| one.volts * 5.0 * one.factor)),
        ("worst", worst),
    ] {
        let found = mean[field].as_f64().unwrap();
        assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{field}: {found}, not {expected}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn meters_that_are_off_start_the_flow_of_their_alarm_and_means_are_what_was_measured() {
    let setup = || Installation::setup().workers(0).arg("--mqtt-listen").arg("127.0.0.1:0").start();
    let up = tokio::task::spawn_blocking(setup).await.unwrap();
    // Two replicas want two hosts.
    let _beside = Apart::start(&up, "beside", &[]);
    let flow = written(&up, "flow.yaml", &example("flows/grid-alarm.yaml"));
    up.ok(&["flow", "apply", "-f", flow.to_str().unwrap()]);
    let device = json_of(&up, &["device", "add", "meters", "--publish", "grid/#", "--subscribe", "grid/+/alarm"]);
    let stream = written(&up, "grid.yaml", &example("streams/power-grid.yaml"));
    assert_eq!(deploy(&up, &[], &stream).code, Some(0));
    wait::eventually("all of it to run", A_WINDOW, async || health(&up, "power-grid") == "good").await;

    let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::from_os()));
    let options = Options::new(format!("127.0.0.1:{}", mqtt_port(&up)), "meters", clock, dice);
    let (user, password) = (Some("meters".into()), device["password"].as_str().map(|text| text.to_owned().into()));
    let subscriptions = vec![(TopicFilter::new("grid/+/alarm").unwrap(), Qos::AtLeastOnce)];
    let (client, mut alarms) = Client::start(Options { user, password, subscriptions, ..options });
    client.state().wait_for(|state| *state == State::Connected).await.unwrap();
    let rubbish = TopicName::new("grid/odd/reading").unwrap();
    client.publish(rubbish, "no reading at all".into(), Qos::AtLeastOnce).await.unwrap();
    let said: Arc<Mutex<Vec<Reading>>> = Arc::default();
    let speaking = tokio::spawn(speak(client, said.clone()));

    let alarm = |meter: &str| Said::from(up.cli(&["kv", "get", &format!("alarms/{meter}")])).out.trim().to_owned();
    let told =
        async || alarm("high").contains("high: voltage is high") && alarm("weak").contains("weak: power factor is low");
    wait::eventually("both alarms", A_WINDOW, told).await;
    assert_eq!(alarm("calm"), "");
    let runs = json_of(&up, &["flow", "runs", "grid-alarm"]);
    assert!(runs.as_array().unwrap().iter().any(|run| run["state"] == "done"), "{runs}");
    let heard = alarms.recv().await.unwrap();
    let event: Value = serde_json::from_slice(&heard.payload).unwrap();
    assert_eq!(heard.topic.as_str(), format!("grid/{}/alarm", event["meter"].as_str().unwrap()));
    for meter in ["calm", "high", "weak"] {
        check(&up, meter, &said.lock());
    }
    let unfit = lines(&up, "unfit.jsonl");
    assert_eq!((unfit.len(), &unfit[0]["event"]), (1, &json!("no reading at all")), "{unfit:?}");
    assert_eq!(lines(&up, "late.jsonl"), [] as [Value; 0]);
    speaking.abort();
}
