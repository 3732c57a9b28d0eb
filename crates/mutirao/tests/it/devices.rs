//! The walk of docs/nodes.md with a real installation and the clients that everybody has.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use mutirao_testkit::{Installation, wait};
use serde_json::Value;

use crate::said::{SOON, Said};

pub fn json_of(up: &Installation, args: &[&str]) -> Value {
    let text = up.ok(&[&["--json"], args].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Where the installation says that it listens.
pub fn mqtt_port(up: &Installation) -> String {
    // Said a moment after it is ready.
    let said = || {
        let out = up.stdout();
        let line = out.lines().find_map(|line| line.trim().strip_prefix("MQTT"))?;
        Some(line.rsplit(':').next()?.trim().to_owned())
    };
    wait::some("it to say where it listens for MQTT", SOON, said)
}

fn mosquitto(program: &str, port: &str, user: &str, password: &str, rest: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["-h", "localhost", "-p", port, "-u", user, "-P", password, "-q", "1"]).args(rest);
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_password_goes_to_a_file_that_only_its_owner_reads_and_nobody_is_let_in_without_one() {
    let up = Installation::setup().workers(0).start();
    let file = |name: &str| up.data().join(name);
    let add = |name: &str, to: &Path| Said::from(up.cli(&["device", "add", name, "--to", to.to_str().unwrap()]));
    let said = add("lamp", &file("lamp.password"));
    assert!(said.code == Some(0) && said.err.contains("lamp.password, and nowhere else"), "{said:?}");
    assert_eq!(said.out, "", "nothing that a script would read");
    let mode = std::fs::metadata(file("lamp.password")).unwrap().permissions().mode();
    let password = std::fs::read_to_string(file("lamp.password")).unwrap();
    assert_eq!((mode & 0o777, password.trim().len()), (0o600, 40));
    assert!(!said.out.contains(password.trim()) && !said.err.contains(password.trim()), "{said:?}");
    let said = add("other", &file("lamp.password"));
    assert!(said.code == Some(2) && said.err.contains("it is there already"), "{said:?}");
    assert_eq!(std::fs::read_to_string(file("lamp.password")).unwrap(), password);
    let said = add("lamp", &file("again.password"));
    assert!(said.code != Some(0) && !file("again.password").exists(), "{said:?}");
    assert_eq!(json_of(&up, &["device", "list"])["items"].as_array().unwrap().len(), 1, "the other was not let in");
}

#[test]
fn what_a_device_may_offer_is_said_when_it_is_let_in() {
    let up = Installation::setup().workers(0).start();
    let may = ["--action", "blink", "--action", "meter.*", "--layer", "edge", "--label", "zone=north", "--slots", "2"];
    let created = json_of(&up, &[&["device", "add", "lamp"], &may[..]].concat());
    let expected = serde_json::json!({
        "actions": ["blink", "meter.*"], "layer": "edge", "labels": {"zone": "north"}, "slots": 2,
    });
    assert_eq!(created["may"], expected);
    assert!(up.ok(&["device", "list"]).contains("blink, meter.*"));
    let said = Said::from(up.cli(&["device", "add", "x", "--action", "a b"]));
    assert!(said.code == Some(2) && said.err.contains("write blink, meter.*, or blink@2"), "{said:?}");
    let invited = json_of(&up, &[&["node", "invite", "gate-7"], &may[..]].concat());
    assert_eq!(invited["node"], "gate-7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_let_in_registers_with_mosquitto_and_is_listed_also_after_a_restart() {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("mosquitto_pub").exists()));
    if !found {
        eprintln!("skipped: there is no mosquitto_pub; run ./scripts/test without --fast");
        return;
    }
    let mut up = Installation::setup().workers(0).arg("--mqtt-listen").arg("127.0.0.1:0").start();
    let created = json_of(&up, &["device", "add", "lamp"]);
    let (password, port) = (created["password"].as_str().unwrap(), mqtt_port(&up));
    assert_eq!((&created["node"], password.len()), (&"lamp".into(), 40));
    assert_eq!(json_of(&up, &["device", "list"])["items"][0]["name"], "lamp");

    let topics = ["-t", "mutirao.nodes.actions-list", "-C", "1", "-W", "50"];
    let mut ear = mosquitto("mosquitto_sub", &port, "lamp", password, &topics);
    let mut ear = ear.stdout(Stdio::piped()).spawn().unwrap();
    let registration = r#"{"endpoint":"","layer":"EDGE","type":"ESP32","nodeId":"lamp","forceRegister":true,"actions":["urn:mutirao:Action:blink"]}"#;
    let register = ["-t", "mutirao.nodes.register", "-m", registration];
    // Said again until the ear, which takes its time to listen, has heard an answer.
    wait::eventually("it is listed, and told so", SOON, async || {
        let said: Said = mosquitto("mosquitto_pub", &port, "lamp", password, &register).output().unwrap().into();
        assert_eq!(said.code, Some(0), "{said:?}");
        let nodes = json_of(&up, &["node", "list"]);
        let is_it = |node: &Value| node["name"] == "lamp" && node["runs"]["presence"] == "registered";
        nodes.as_array().unwrap().iter().any(is_it) && ear.try_wait().unwrap().is_some()
    })
    .await;
    let heard: Said = ear.wait_with_output().unwrap().into();
    assert!(heard.out.contains(r#""nodeId":"lamp""#), "{heard:?}");

    let wrong: Said = mosquitto("mosquitto_pub", &port, "lamp", "wrong", &register).output().unwrap().into();
    assert_ne!(wrong.code, Some(0));
    let shown = up.ok(&["node", "show", "lamp"]);
    for part in ["ESP32", "user lamp", "edge", "urn:mutirao:Action:blink", "mqtt"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let rubbish = ["-t", "mutirao.nodes.register", "-m", "{"];
    mosquitto("mosquitto_pub", &port, "lamp", password, &rubbish).status().unwrap();
    wait::eventually("it is kept", SOON, async || {
        up.ok(&["node", "rubbish"]).contains("a registration cannot be read")
    })
    .await;

    up.kill9();
    up.restart();
    assert_eq!(json_of(&up, &["node", "show", "lamp"])["runs"]["kind"], "ESP32");
    up.ok(&["node", "forget", "lamp"]);
    up.ok(&["device", "rm", "lamp"]);
    assert!(json_of(&up, &["device", "list"])["items"].as_array().unwrap().is_empty());
    let health = up.request("GET /actuator/health", b"");
    assert_eq!(health.status, 200);
}
