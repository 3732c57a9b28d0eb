//! Workers that are not of this program, as people write them: the Python package's example, and what stands in for a
//! microcontroller. Both against a real listener.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use mutirao_nodes::Layer;
use serde_json::json;

use crate::agent::Manager;

/// Ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn python(args: &[&str], env: &[(&str, String)]) -> Program {
    let mut command = Command::new("python3");
    command.arg("-B").args(args).current_dir(root()).envs(env.iter().cloned());
    Program(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

#[test]
fn the_python_package_passes_its_own_tests() {
    let run = Command::new("python3")
        .args(["-B", "-m", "unittest", "discover", "-s", "clients/python/tests"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_of_ten_lines_registers_works_and_comes_back() {
    let mut manager = Manager::at(0).await;
    let url = format!("mqtt://{}", manager.address);
    let path = root().join("clients/python").display().to_string();
    let example = "clients/python/examples/power_factor.py";
    let _worker = python(&[example], &[("WORKER_URL", url), ("PYTHONPATH", path)]);
    let register = manager.registered().await;
    let node = register.node.to_string();
    assert_eq!((register.layer, node.as_str()), (Layer::Fog, "python-worker-01"));
    assert_eq!(register.actions, ["urn:mutirao:Action:actions.power_factor"]);

    let input = json!({"watt": 900, "volt": 230, "ampere": 5}).to_string();
    manager.ask_of(&node, "r1", "actions.power_factor", &input);
    let (request, said) = manager.result().await;
    assert_eq!((request.as_str(), said["power_factor"].as_f64().unwrap() > 0.78), ("r1", true));
    manager.ask_of(&node, "r2", "actions.power_factor", r#"{"watt": 1, "volt": 0, "ampere": 1}"#);
    assert!(manager.result().await.1["error"].as_str().unwrap().starts_with("ZeroDivisionError"));
    manager.ask_of(&node, "r3", "actions.other", "{}");
    assert!(manager.result().await.1["error"].as_str().unwrap().starts_with("this node has no"));

    let port = manager.end().await;
    let mut manager = Manager::at(port).await;
    manager.registered().await;
    manager.ask_of(&node, "r1", "actions.power_factor", &input);
    assert_eq!(manager.result().await.0, "r1", "remembered over the manager's end, and answered again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_within_its_limits_registers_works_and_passes_over_what_it_cannot_hold() {
    let mut manager = Manager::at(0).await;
    let node = "24:6F:28:AA:01:02";
    let _device = python(&["examples/esp32/stand_in.py", node, &manager.address.to_string()], &[]);
    let register = manager.registered().await;
    assert_eq!((register.layer, register.node.as_str(), register.actions.len()), (Layer::Edge, node, 2));

    let long = json!({"on": true, "more": "x".repeat(3_000)}).to_string();
    manager.ask_of(node, "long", "actions.set_led", &long);
    manager.ask_of(node, "r1", "actions.set_led", r#"{"on": true}"#);
    assert_eq!(manager.result().await, ("r1".into(), json!({"on": true})), "the long one was passed over");
    manager.ask_of(node, "r1", "actions.set_led", r#"{"on": true}"#);
    manager.ask_of(node, "r2", "actions.read_sensor", "{}");
    let (request, said) = manager.result().await;
    assert_eq!((request.as_str(), &said["value"]), ("r2", &json!(1234)), "r1 was not done twice");
}
