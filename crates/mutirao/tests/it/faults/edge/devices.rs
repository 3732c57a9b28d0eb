//! Devices played by the test: words doubled and out of order, and a flood of invented ones.

use std::sync::Arc;

use mutirao_core::{Dice, SystemClock};
use mutirao_mqtt::client::{Received, State};
use mutirao_mqtt::{Client, Options, Qos, TopicFilter, TopicName};
use mutirao_testkit::{Installation, ports};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{begin, ends_well, put};
use crate::devices::json_of;

const RESULTS: &str = "mutirao.task.handler.saida";
const RUNS: usize = 20;

struct Device {
    client: Client,
    heard: mpsc::Receiver<Received>,
}

impl Device {
    async fn connect(mqtt: &str, id: &str, password: Option<String>) -> Self {
        let topic = TopicFilter::new(format!("mutirao/node/{id}/in").as_str()).unwrap();
        let options = Options {
            user: password.is_some().then(|| id.to_owned()),
            password: password.map(Into::into),
            subscriptions: vec![(topic, Qos::AtLeastOnce)],
            ..Options::new(mqtt, format!("esp32-{id}"), SystemClock::shared(), Arc::new(Dice::from_os()))
        };
        let (client, heard) = Client::start(options);
        client.state().wait_for(|state| *state == State::Connected).await.unwrap();
        Self { client, heard }
    }

    async fn say(&self, topic: &str, text: String) {
        self.client.publish(TopicName::new(topic).unwrap(), text.into(), Qos::AtLeastOnce).await.unwrap();
    }

    async fn register(&self, id: &str, action: &str) {
        let actions = [format!("urn:mutirao:Action:{action}")];
        let said = json!({
            "endpoint": "", "layer": "EDGE", "type": "device", "nodeId": id, "forceRegister": true,
            "actions": actions, "slots": 64,
        });
        self.say("mutirao.nodes.register", said.to_string()).await;
    }

    async fn next(&mut self) -> Value {
        let received = self.heard.recv().await.unwrap();
        let message = serde_json::from_slice(&received.payload).unwrap();
        received.accept();
        message
    }
}

fn installation(settings: &[(&str, &str)]) -> (Installation, String) {
    let [port] = ports::free(&Dice::from_os()).unwrap();
    let mqtt = format!("127.0.0.1:{port}");
    let setup = Installation::setup().workers(0).arg("--mqtt-listen").arg(&mqtt);
    let up = settings.iter().fold(setup, |setup, (key, value)| setup.set(key, value)).start();
    (up, mqtt)
}

fn declare(up: &Installation, action: &str) {
    let folder = tempfile::tempdir().unwrap();
    let flow = format!("kind: Flow\nname: one\nsteps:\n  - {{ name: only, action: {action}, input: input }}\n");
    put(&folder.path().join("flow.yaml"), &flow);
    up.ok(&["flow", "apply", "-f", &folder.path().join("flow.yaml").display().to_string()]);
}

fn result_of(message: &Value, data: &str) -> String {
    json!({ "actionTo": message["actionTo"], "requestID": message["requestID"], "messageData": data }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_doubled_and_out_of_order_count_once_each_and_the_first_wins() {
    let (up, mqtt) = tokio::task::spawn_blocking(|| installation(&[])).await.unwrap();
    let password = json_of(&up, &["device", "add", "lamp"])["password"].as_str().unwrap().to_owned();
    let mut lamp = Device::connect(&mqtt, "lamp", Some(password)).await;
    lamp.register("lamp", "blink").await;
    let up = Arc::new(up);
    let runs = tokio::task::spawn_blocking({
        let up = up.clone();
        move || {
            declare(&up, "blink");
            (0..RUNS).map(|n| begin(&up, "one", n)).collect::<Vec<_>>()
        }
    })
    .await
    .unwrap();
    let mut messages = vec![];
    for _ in 0..RUNS {
        messages.push(lamp.next().await);
    }
    // The last first, each twice at once, and all of them once more with another word.
    for message in messages.iter().rev() {
        let first = result_of(message, message["messageData"].as_str().unwrap());
        tokio::join!(lamp.say(RESULTS, first.clone()), lamp.say(RESULTS, first));
    }
    for message in &messages {
        lamp.say(RESULTS, result_of(message, "\"late\"")).await;
    }
    tokio::task::spawn_blocking(move || {
        ends_well(&up, &runs);
        for (n, run) in runs.iter().enumerate() {
            let shown: Value = serde_json::from_str(&up.request(&format!("GET /v1/runs/{run}"), b"").text()).unwrap();
            assert!(shown.to_string().contains(&format!("\"output\":{n}")), "run {n} gave {shown}");
            assert!(!shown.to_string().contains("late"), "{shown}");
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_registrations_is_bounded_and_counted_and_those_that_are_there_go_on() {
    /// By ten that nobody let in: each may ten times at once, and then once a second.
    const FLOOD: usize = 2_000;
    let (up, mqtt) = tokio::task::spawn_blocking(|| installation(&[("mqtt.allow_anonymous", "on")])).await.unwrap();
    let password = json_of(&up, &["device", "add", "lamp"])["password"].as_str().unwrap().to_owned();
    let mut lamp = Device::connect(&mqtt, "lamp", Some(password)).await;
    lamp.register("lamp", "blink").await;
    let flood = tokio::spawn(async move {
        let bot = Device::connect(&mqtt, "bot", None).await;
        for n in 0..FLOOD {
            bot.register(&format!("bot-{}", n % 10), "spam").await;
        }
    });
    let up = Arc::new(up);
    let runs = tokio::task::spawn_blocking({
        let up = up.clone();
        move || {
            declare(&up, "blink");
            (0..RUNS).map(|n| begin(&up, "one", n)).collect::<Vec<_>>()
        }
    })
    .await
    .unwrap();
    for _ in 0..RUNS {
        let message = lamp.next().await;
        lamp.say(RESULTS, result_of(&message, "1")).await;
    }
    flood.await.unwrap();
    tokio::task::spawn_blocking(move || {
        ends_well(&up, &runs);
        let metrics = up.request("GET /metrics", b"").text();
        let count = |series: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(series));
            line.and_then(|rest| rest.trim().parse::<f64>().ok()).unwrap_or_else(|| panic!("no {series}")) as usize
        };
        let refused = count("mutirao_nodes_refused_total{reason=\"flood\"}");
        assert!(refused > FLOOD / 4, "{refused} of {FLOOD} were refused");
        let nodes = json_of(&up, &["node", "list"]);
        let nodes = nodes.as_array().unwrap().iter().filter(|node| !node["runs"].is_null()).count();
        assert!(nodes <= 12, "ten bots, the lamp and the manager: {nodes}");
        let rubbish: Value = serde_json::from_str(&up.ok(&["--json", "node", "rubbish"])).unwrap();
        assert!(rubbish.as_array().unwrap().is_empty(), "a flood pushes out nothing that is worth looking at");
    })
    .await
    .unwrap();
}
