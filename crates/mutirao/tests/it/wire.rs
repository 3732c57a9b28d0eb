//! The document's own names, with a real installation: a device within PubSubClient's limits, that knows nothing of us, and a client
//! that puts Tasks on the request topic. The manager dies in between.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use mutirao_core::{Dice, SystemClock};
use mutirao_mqtt::client::{Received, State};
use mutirao_mqtt::{Client, Options, Qos, TopicFilter, TopicName};
use mutirao_testkit::{Installation, ports, wait};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::devices::json_of;
use crate::said::SOON;

struct Device(Child);

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stand_in(mqtt: &str, password: &str) -> Device {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/esp32/stand_in.py");
    let mut command = Command::new("python3");
    command.arg("-B").arg(path).args(["esp-1", mqtt, "esp-1"]);
    command.env("SPACE", "sapparchi").env("DEVICE_PASSWORD", password);
    Device(command.stdin(Stdio::null()).spawn().unwrap())
}

/// A client that asks for Tasks, and hears their answers.
struct Asker {
    client: Client,
    heard: mpsc::Receiver<Received>,
}

impl Asker {
    async fn connect(mqtt: &str, password: &str) -> Self {
        let finals = TopicFilter::new("sapparchi.task.final.saida").unwrap();
        let options = Options {
            user: Some("desk".into()),
            password: Some(password.to_owned().into()),
            subscriptions: vec![(finals, Qos::AtLeastOnce)],
            ..Options::new(mqtt, "desk", SystemClock::shared(), Arc::new(Dice::from_os()))
        };
        let (client, heard) = Client::start(options);
        client.state().wait_for(|state| *state == State::Connected).await.unwrap();
        Self { client, heard }
    }

    async fn ask(&self, id: &str, actions: &[&str], data: Value) {
        let actions: Vec<_> = actions.iter().map(|name| format!("urn:sapparchi:Action:actions.{name}")).collect();
        let task = json!({
            "id": id, "task_id": "urn:sapparchi:Task:led", "target_actions": actions, "message_data": data.to_string(),
        });
        let topic = TopicName::new("sapparchi.process.request.entrada").unwrap();
        self.client.publish(topic, task.to_string().into(), Qos::AtLeastOnce).await.unwrap();
    }

    async fn answer(&mut self) -> Value {
        let received = self.heard.recv().await.unwrap();
        let answer = serde_json::from_slice(&received.payload).unwrap();
        received.accept();
        answer
    }
}

fn data_of(answer: &Value, field: &str) -> Value {
    serde_json::from_str(answer[field].as_str().unwrap_or_else(|| panic!("{answer}"))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_and_a_client_of_the_document_s_names_do_not_know_whom_they_talk_to() {
    let [port] = ports::free(&Dice::from_os()).unwrap();
    let mqtt = format!("127.0.0.1:{port}");
    let setup = Installation::setup().workers(0).set("nodes.namespace", "sapparchi").arg("--mqtt-listen").arg(&mqtt);
    let mut up = setup.start();
    let password = |args: &[&str]| json_of(&up, args)["password"].as_str().unwrap().to_owned();
    let (device, desk) = (password(&["device", "add", "esp-1"]), password(&["device", "add", "desk", "--requests"]));
    let _device = stand_in(&mqtt, &device);
    let presence = |up: &Installation| {
        let shown = up.cli(&["--json", "node", "show", "esp-1"]).stdout;
        let shown: Value = serde_json::from_slice(&shown).unwrap_or_default();
        shown["runs"]["presence"].as_str().unwrap_or_default().to_owned()
    };
    wait::eventually("it registers", SOON, async || presence(&up) == "registered").await;

    let mut asker = Asker::connect(&mqtt, &desk).await;
    // Of one action: a Message, with the Task's id.
    asker.ask("t1", &["set_led"], json!({"on": true})).await;
    let one = asker.answer().await;
    assert_eq!((&one["requestID"], data_of(&one, "messageData")), (&"t1".into(), json!({"on": true})));
    // Of several: the Task again, with one answer for all.
    asker.ask("t2", &["set_led", "read_sensor"], json!({"on": false})).await;
    let several = asker.answer().await;
    assert_eq!((&several["id"], &several["task_id"]), (&"t2".into(), &"urn:sapparchi:Task:led".into()));
    assert!(several["processing_time"].is_number(), "{several}");
    let all = data_of(&several, "message_data");
    assert_eq!((&all["state"], all["steps"].as_object().unwrap().len()), (&"done".into(), 2), "{all}");

    // Nobody tells the device that the manager died. The client connects anew, as whoever made it would have it do.
    up.kill9();
    up.restart();
    assert_eq!(presence(&up), "unconfirmed");
    wait::eventually("it registers again by itself", SOON, async || presence(&up) == "registered").await;
    asker.ask("t3", &["set_led"], json!({"on": true})).await;
    let again = asker.answer().await;
    assert_eq!((&again["requestID"], data_of(&again, "messageData")), (&"t3".into(), json!({"on": true})));
}
