//! Nodes of this program that come in by a key of their own: nobody types a password.

use std::path::Path;
use std::process::{Command, Stdio};

use mutirao_core::Dice;
use mutirao_testkit::services::{AMQP_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, ports, wait};

use crate::devices::json_of;
use crate::faults::services_folder;
use crate::said::{SOON, mutirao, run};

fn node(folder: &Path, transport: &str, server: &str, url: &str) -> Command {
    let dir = folder.join("node").display().to_string();
    let args = ["role", "node", "--id", "gate-7", "--layer", "edge", "--transport", transport, "--server", server];
    let mut command = mutirao(&[&args[..], &["--dir", &dir, "--listen", "127.0.0.1:0"]].concat());
    command.env("MUTIRAO_URL", url).stdout(Stdio::null());
    command
}

fn comes_in_by_its_key(transport: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [port] = ports::free(&Dice::from_os()).unwrap();
    let listen = format!("127.0.0.1:{port}");
    let up = Installation::setup().workers(0).arg("--mqtt-listen").arg(&listen).start();
    let server = if transport == "mqtt" { format!("mqtt://{listen}") } else { up.url() };
    let token = json_of(&up, &["node", "invite", "gate-7"])["token"].as_str().unwrap().to_owned();
    let registered = || {
        let shown = up.cli(&["--json", "node", "show", "gate-7"]).stdout;
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap_or_default();
        shown["runs"]["presence"] == "registered" && shown["runs"]["proof"] == "user gate-7"
    };
    let mut first =
        node(folder.path(), transport, &server, &up.url()).env("MUTIRAO_ENROL_TOKEN", &token).spawn().unwrap();
    wait::until("it to register", SOON, registered);
    first.kill().unwrap();
    first.wait().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(folder.path().join("node/key")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    up.ok(&["node", "forget", "gate-7"]);

    // Again, with nothing but its key; and nobody else with the token.
    let mut again = node(folder.path(), transport, &server, &up.url()).spawn().unwrap();
    wait::until("it to register again", SOON, registered);
    let thief = tempfile::tempdir().unwrap();
    let mut stolen = node(thief.path(), transport, &server, &up.url());
    stolen.env("MUTIRAO_ENROL_TOKEN", &token);
    let said = run(stolen);
    assert!(said.code != Some(0) && said.err.contains("does not take the key"), "{said:?}");
    let taken = up.cli(&["node", "invite", "gate-7"]);
    assert!(!taken.status.success(), "an id that somebody has is given to nobody else");

    up.ok(&["device", "rm", "gate-7"]);
    again.kill().unwrap();
    again.wait().unwrap();
    let mut spent = node(folder.path(), transport, &server, &up.url());
    spent.env("MUTIRAO_ENROL_TOKEN", &token);
    for command in [node(folder.path(), transport, &server, &up.url()), spent] {
        let said = run(command);
        assert!(said.code != Some(0) && said.err.contains("mutirao node invite gate-7"), "{said:?}");
    }
    let token = json_of(&up, &["node", "invite", "gate-7"])["token"].as_str().unwrap().to_owned();
    let mut anew =
        node(folder.path(), transport, &server, &up.url()).env("MUTIRAO_ENROL_TOKEN", token).spawn().unwrap();
    wait::until("it to be let in anew", SOON, registered);
    anew.kill().unwrap();
    anew.wait().unwrap();
}

#[test]
fn a_node_gives_its_key_once_and_comes_in_by_it_over_mqtt_until_it_is_removed() {
    comes_in_by_its_key("mqtt");
}

#[test]
fn a_node_gives_its_key_once_and_comes_in_by_it_over_http_until_it_is_removed() {
    comes_in_by_its_key("http");
}

#[test]
fn by_amqp_a_node_that_has_a_key_has_a_user_of_its_own_at_rabbitmq_until_it_is_removed() {
    const USER: &str = "mutirao.node.gate-7";
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let (services, folder) = (services_folder(), tempfile::tempdir().unwrap());
    let broker = Service::rabbitmq(services.path()).unwrap();
    let management = broker.management_url().unwrap();
    let setup = Installation::setup().workers(0).env("MUTIRAO_BROKER", broker.url());
    let up = setup.env("MUTIRAO_BROKER_MANAGEMENT", management).start();
    let token = json_of(&up, &["node", "invite", "gate-7"])["token"].as_str().unwrap().to_owned();
    let dir = folder.path().join("node").display().to_string();
    // Not even where RabbitMQ is has to be said.
    let args = ["role", "node", "--id", "gate-7", "--transport", "amqp", "--dir", &dir];
    let mut node = mutirao(&args);
    node.env("MUTIRAO_URL", up.url()).env("MUTIRAO_ENROL_TOKEN", token).stdout(Stdio::null());
    let mut node = node.spawn().unwrap();
    wait::until("it to register", SOON, || {
        let shown: serde_json::Value =
            serde_json::from_slice(&up.cli(&["--json", "node", "show", "gate-7"]).stdout).unwrap_or_default();
        shown["runs"]["presence"] == "registered" && shown["runs"]["proof"] == "user gate-7"
    });
    let flow = "kind: Flow\nname: sum\nsteps:\n  - name: one\n    action: builtin.cel\n    on: { node: gate-7 }\n    \
                input: { expression: \"'input + 1'\", input: '41' }\n";
    std::fs::write(folder.path().join("flow.yaml"), flow).unwrap();
    up.ok(&["flow", "apply", "-f", &folder.path().join("flow.yaml").display().to_string()]);
    assert!(up.ok(&["flow", "run", "sum", "--input", "{}", "--watch"]).contains("42"));

    let may = broker.rabbitmqctl(&["list_user_permissions", USER]).unwrap();
    assert!(may.contains(r"mutirao\.node\.unicast\.gate-7") && !may.contains(r"mutirao\.node\.unicast|"), "{may}");
    let topics = broker.rabbitmqctl(&["list_user_topic_permissions", USER]).unwrap();
    assert!(topics.contains(r"mutirao\.nodes\.register") && !topics.contains(".*"), "{topics}");
    let connected = || broker.rabbitmqctl(&["list_connections", "user"]).unwrap().contains(USER);
    assert!(connected());
    up.ok(&["device", "rm", "gate-7"]);
    assert!(!broker.rabbitmqctl(&["list_users"]).unwrap().contains(USER));
    assert!(!broker.rabbitmqctl(&["list_queues", "name"]).unwrap().contains("node.unicast.gate-7"));
    // Its process is still there, and tries to come in.
    wait::until("its connections to be ended", SOON, || !connected());
    let known = up.cli(&["node", "show", "gate-7"]);
    assert!(!known.status.success(), "it is no node any more");
    let run = json_of(&up, &["flow", "run", "sum", "--input", "{}"])["run"].to_string();
    wait::until("nobody to be asked", SOON, || up.ok(&["flow", "explain", &run]).contains("waits for a node"));
    assert!(node.try_wait().unwrap().is_none() && !connected());
    node.kill().unwrap();
    node.wait().unwrap();
}
