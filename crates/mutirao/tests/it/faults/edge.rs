//! Nodes on hosts of an edge, a fog and a cloud, each in a network namespace, and everything that goes wrong between them and
//! their manager: cables cut and mended, a third of all packets lost, nodes killed between receipt and result and in a
//! loop, words doubled and out of order, floods. Runs end well, and every step of every run has left its effect.

mod brokers;
mod devices;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use mutirao_core::Dice;
use mutirao_testkit::hosts::Hosts;
use mutirao_testkit::{Installation, installation::Setup, ports, wait};
use serde_json::{Value, json};

use crate::devices::json_of;

/// For whatever must come to an end over a network that loses a third of what is said.
const LATE: Duration = Duration::from_secs(200);
/// Runs of the flow that goes through all three.
const RUNS: usize = 12;
/// Longer than a task may take, so that some are tried again.
const SILENCE: Duration = Duration::from_secs(8);

/// Each step leaves a line with its run, and gives it on. It waits for as long as there is a file `hold`.
const MARK: &str = "#!/bin/sh\nread -r run\necho \"$(basename $PWD) $run\" >> ../effects\n\
                    while [ -e ../hold ]; do sleep 0.05; done\necho \"$run\"\n";

const FLOW: &str = "kind: Flow\nname: across\nsteps:\n  \
    - { name: sense, action: edge_mark, input: input, timeout: 5s, retries: 100 }\n  \
    - { name: sum, action: fog_mark, input: steps.sense.output, timeout: 5s, retries: 100 }\n  \
    - { name: keep, action: cloud_mark, input: steps.sum.output, timeout: 5s, retries: 100 }\n";

/// A manager, and what its nodes are made of.
struct Field {
    up: Installation,
    mqtt: String,
    folder: tempfile::TempDir,
}

impl Field {
    /// Where the hosts reach it.
    fn open(hosts: &Hosts, setup: Setup) -> Self {
        let [port] = ports::free(&Dice::from_os()).unwrap();
        let mqtt = format!("{}:{port}", hosts.manager());
        let up = setup.workers(0).listen(hosts.manager().into()).arg("--mqtt-listen").arg(&mqtt).start();
        Self { up, mqtt, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A node of this program, on the host of its layer, with the one action of its layer.
    fn node(&self, hosts: &Hosts, layer: &str, transport: &str) -> Node {
        if !self.path(layer).exists() {
            let device = json_of(&self.up, &["device", "add", layer]);
            std::fs::create_dir(self.path(layer)).unwrap();
            std::fs::write(self.path(layer).join("password"), device["password"].as_str().unwrap()).unwrap();
            put(&self.path(layer).join("mark.sh"), MARK);
            let action = format!("kind: Action\nname: {layer}_mark\ncommand: [ ./mark.sh ]\n");
            put(&self.path(layer).join("mark.yaml"), &action);
        }
        let server = match transport {
            "mqtt" => format!("mqtt://{}", self.mqtt),
            _ => self.up.url(),
        };
        let at = |name: &str| self.path(name).display().to_string();
        let (dir, actions, password) = (at(&format!("{layer}-node")), at(layer), at(&format!("{layer}/password")));
        let [port] = ports::free(&Dice::from_os()).unwrap();
        let listen = format!("{}:{port}", hosts.host(layer));
        let args = ["role", "node", "--id", layer, "--layer", layer, "--transport", transport, "--user", layer];
        let more = ["--password-file", &password, "--server", &server, "--dir", &dir, "--actions", &actions];
        let command = self.up.command(&[&args[..], &more[..], &["--slots", "8", "--listen", &listen]].concat());
        let mut command = hosts.on(layer, &command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Node(command.spawn().unwrap())
    }

    fn wait_for_nodes(&self, nodes: &[&str]) {
        for node in nodes {
            wait::until(&format!("{node} to register"), LATE, || self.presence(node) == "registered");
        }
    }

    fn presence(&self, node: &str) -> String {
        let shown = self.up.request(&format!("GET /v1/nodes/{node}"), b"").text();
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        shown["runs"]["presence"].as_str().unwrap_or_default().to_owned()
    }

    fn declare(&self, flow: &str) {
        put(&self.path("flow.yaml"), flow);
        self.up.ok(&["flow", "apply", "-f", &self.path("flow.yaml").display().to_string()]);
    }

    fn begin(&self, flow: &str, runs: usize) -> Vec<u64> {
        (0..runs).map(|n| begin(&self.up, flow, n)).collect()
    }

    /// Lines of one layer, by run.
    fn effects(&self, layer: &str) -> BTreeMap<usize, usize> {
        let mut seen = BTreeMap::new();
        for line in std::fs::read_to_string(self.path("effects")).unwrap_or_default().lines() {
            if let Some(run) = line.strip_prefix(&format!("{layer} ")) {
                *seen.entry(run.parse().unwrap_or_else(|_| panic!("a torn effect: {line:?}"))).or_default() += 1;
            }
        }
        seen
    }

    /// All runs end well, and each of their steps ran.
    fn all_end(&self, runs: &[u64], layers: &[&str]) {
        ends_well(&self.up, runs);
        for layer in layers {
            let seen: Vec<usize> = self.effects(layer).into_keys().collect();
            assert_eq!(seen, (0..runs.len()).collect::<Vec<_>>(), "steps on {layer}");
        }
    }
}

fn begin(up: &Installation, flow: &str, n: usize) -> u64 {
    let answer = up.request(&format!("POST /v1/flows/{flow}/runs"), json!({ "input": n }).to_string().as_bytes());
    assert_eq!(answer.status, 202, "{}", answer.text());
    let line: Value = serde_json::from_str(&answer.text()).unwrap();
    line["run"].as_u64().unwrap()
}

fn ends_well(up: &Installation, runs: &[u64]) {
    let state = |run: u64| {
        let shown = up.request(&format!("GET /v1/runs/{run}"), b"").text();
        let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
        shown["state"].as_str().unwrap_or_default().to_owned()
    };
    for (n, run) in runs.iter().enumerate() {
        let ended = wait::holds_within(LATE, || !matches!(state(*run).as_str(), "running" | ""));
        let explained = || up.cli(&["flow", "explain", &run.to_string()]);
        assert!(ended && state(*run) == "done", "run {n} is {}: {:?}\n{}", state(*run), explained(), up.stderr());
    }
}

fn put(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A node's process. `ip netns exec` becomes it.
struct Node(Child);

impl Node {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn three(field: &Field, hosts: &Hosts) -> [Node; 3] {
    let nodes = [("edge", "mqtt"), ("fog", "mqtt"), ("cloud", "http")].map(|(host, way)| field.node(hosts, host, way));
    field.wait_for_nodes(&["edge", "fog", "cloud"]);
    field.declare(FLOW);
    nodes
}

#[test]
fn runs_over_three_hosts_end_whichever_cable_is_cut_for_a_while() {
    let Some(hosts) = Hosts::lay(&Dice::from_os(), &["edge", "fog", "cloud"]) else { return };
    let field = Field::open(&hosts, Installation::setup());
    let _nodes = three(&field, &hosts);
    let mut runs = vec![];
    for host in ["edge", "fog", "cloud"] {
        runs.extend((0..RUNS).map(|n| begin(&field.up, "across", runs.len() + n)).collect::<Vec<_>>());
        hosts.cut(host).unwrap();
        wait::holds_within(SILENCE, || false);
        hosts.mend(host).unwrap();
    }
    field.all_end(&runs, &["edge", "fog", "cloud"]);
}

#[test]
fn runs_end_though_a_third_of_all_packets_is_lost() {
    let Some(hosts) = Hosts::lay(&Dice::from_os(), &["edge", "fog", "cloud"]) else { return };
    let field = Field::open(&hosts, Installation::setup());
    let _nodes = three(&field, &hosts);
    ["edge", "fog", "cloud"].iter().for_each(|host| hosts.lose(host, 0.3).unwrap());
    let runs = field.begin("across", RUNS);
    field.all_end(&runs, &["edge", "fog", "cloud"]);
}

#[test]
fn a_node_that_vanishes_between_receipt_and_result_loses_no_run() {
    let Some(hosts) = Hosts::lay(&Dice::from_os(), &["edge", "fog", "cloud"]) else { return };
    let field = Field::open(&hosts, Installation::setup());
    let [mut edge, _fog, _cloud] = three(&field, &hosts);
    std::fs::write(field.path("hold"), "").unwrap();
    let runs = field.begin("across", RUNS);
    wait::until("some to be received", LATE, || field.effects("edge").len() >= 4);
    edge.kill();
    std::fs::remove_file(field.path("hold")).unwrap();
    // It stays away for longer than a try may take, and comes back as the same node.
    wait::holds_within(SILENCE, || false);
    let _edge = field.node(&hosts, "edge", "mqtt");
    field.all_end(&runs, &["edge", "fog", "cloud"]);
    assert!(field.effects("edge").values().any(|times| *times > 1), "nothing was received when it vanished");
}

#[test]
fn a_device_that_reboots_in_a_loop_stays_one_node_and_its_runs_end() {
    let Some(hosts) = Hosts::lay(&Dice::from_os(), &["edge", "fog", "cloud"]) else { return };
    let field = Field::open(&hosts, Installation::setup());
    let [mut edge, _fog, _cloud] = three(&field, &hosts);
    let runs = field.begin("across", RUNS);
    for _ in 0..8 {
        edge.kill();
        edge = field.node(&hosts, "edge", "mqtt");
        wait::holds_within(Duration::from_millis(700), || false);
    }
    field.all_end(&runs, &["edge", "fog", "cloud"]);
    let nodes = json_of(&field.up, &["node", "list"]);
    let edges = nodes.as_array().unwrap().iter().filter(|node| node["name"] == "edge").count();
    assert_eq!(edges, 1, "{nodes}");
}
