//! Nodes at RabbitMQ, by AMQP: the server restarted in the middle of runs, and two managers of which one is killed.

use std::path::Path;
use std::process::Stdio;

use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};
use serde_json::Value;

use super::{LATE, Node, begin, ends_well, put};
use crate::devices::json_of;
use crate::faults::services_folder;

const RUNS: usize = 30;
const FLOW: &str = "kind: Flow\nname: one\nsteps:\n  \
    - { name: first, action: slow_upper, input: input, timeout: 10s, retries: 100 }\n  \
    - { name: second, action: slow_upper, input: steps.first.output, timeout: 10s, retries: 100 }\n";

/// A node by AMQP, with the broker's own credentials, as servers have.
fn node(up: &Installation, broker: &Service, folder: &Path, id: &str) -> Node {
    let actions = folder.join("actions");
    if !actions.exists() {
        std::fs::create_dir(&actions).unwrap();
        put(&actions.join("slow.yaml"), "kind: Action\nname: slow_upper\ncommand: [ sh, -c, 'sleep 0.3; cat' ]\n");
    }
    let (dir, actions) = (folder.join(id).display().to_string(), actions.display().to_string());
    let args = ["role", "node", "--id", id, "--layer", "cloud", "--transport", "amqp", "--server", broker.url()];
    let mut command = up.command(&[&args[..], &["--dir", &dir, "--actions", &actions]].concat());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Node(command.spawn().unwrap())
}

fn is_there(up: &Installation, node: &str) -> bool {
    let shown: Value =
        serde_json::from_str(&up.request(&format!("GET /v1/nodes/{node}"), b"").text()).unwrap_or_default();
    shown["runs"]["presence"] == "registered"
}

fn declare(up: &Installation, folder: &Path) {
    put(&folder.join("flow.yaml"), FLOW);
    up.ok(&["flow", "apply", "-f", &folder.join("flow.yaml").display().to_string()]);
}

#[test]
fn runs_end_though_rabbitmq_is_restarted_in_the_middle() {
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let services = services_folder();
    let mut broker = Service::rabbitmq(services.path()).unwrap();
    let up = Installation::setup().workers(0).env("MUTIRAO_BROKER", broker.url()).start();
    let folder = tempfile::tempdir().unwrap();
    let _nodes = ["n1", "n2"].map(|id| node(&up, &broker, folder.path(), id));
    wait::until("both to register", LATE, || is_there(&up, "n1") && is_there(&up, "n2"));
    declare(&up, folder.path());
    let runs: Vec<u64> = (0..RUNS).map(|n| begin(&up, "one", n)).collect();
    broker.kill9();
    broker.restart().unwrap();
    ends_well(&up, &runs);
}

#[test]
fn with_two_managers_runs_end_though_one_is_killed_and_what_is_taken_out_at_one_is_out_at_the_other() {
    if shared(AMQP_VARIABLE).is_none() || shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let services = services_folder();
    let (database, broker) = (Service::postgres(services.path()).unwrap(), Service::rabbitmq(services.path()).unwrap());
    let manager = || {
        Installation::setup()
            .manager_alone()
            .env("MUTIRAO_DATABASE", database.url())
            .env("MUTIRAO_BROKER", broker.url())
            .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
            .start()
    };
    let (mut one, other) = (manager(), manager());
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = ["n1", "n2", "n3"].map(|id| node(&one, &broker, folder.path(), id));
    for up in [&one, &other] {
        wait::until("all to register", LATE, || ["n1", "n2", "n3"].iter().all(|id| is_there(up, id)));
    }
    nodes[2].kill();
    one.ok(&["node", "forget", "n3"]);
    let listed = |up: &Installation| {
        let nodes = json_of(up, &["node", "list"]);
        nodes.as_array().unwrap().iter().any(|node| node["name"] == "n3")
    };
    assert!(!listed(&one));
    wait::until("the other to have heard", LATE, || !listed(&other));
    declare(&one, folder.path());
    let mut runs: Vec<u64> = (0..RUNS).map(|n| begin(&one, "one", n)).collect();
    one.kill9();
    runs.extend((0..RUNS).map(|n| begin(&other, "one", RUNS + n)));
    ends_well(&other, &runs);
}
