//! `mutirao role node --transport mqtt`, the process itself, at a real listener.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{Dice, SystemClock};
use mutirao_mqtt::{
    Config, Gate, Guest, Inbox, Knock, Limits, Listener, Qos, Refusal, Rights, Standing, TopicFilter, TopicName,
};
use mutirao_nodes::wire::{Message, Register, Word, written};
use mutirao_testkit::{Installation, wait};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::devices::json_of;
use crate::said::{SOON, mutirao, refused, run};

/// Lets in who knows the password.
struct Doorman;

#[async_trait]
impl Gate for Doorman {
    async fn admit(&self, knock: &Knock) -> Result<Guest, Refusal> {
        let all = || vec![TopicFilter::new("#").unwrap()];
        let rights = Rights { publish: all(), subscribe: all() };
        match (knock.user.as_deref(), knock.password.as_deref()) {
            (Some("gate"), Some(b"s3cret")) => {
                Ok(Guest { who: "gate".into(), standing: Standing::Known, rights, sessions_max: 4 })
            }
            _ => Err(Refusal::BadCredentials),
        }
    }
}

struct House {
    listener: Listener,
    inbox: Inbox,
    asked: HashSet<String>,
}

impl House {
    async fn open() -> (Self, SocketAddr) {
        let config = Config {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            limits: Limits::default(),
            tls: None,
            gate: Arc::new(Doorman),
            clock: SystemClock::shared(),
            dice: Arc::new(Dice::seeded(1)),
        };
        let listener = Listener::start(config).await.unwrap();
        let filters = ["lab.nodes.register", "lab.task.handler.saida"].map(|one| TopicFilter::new(one).unwrap());
        let (address, inbox) = (listener.address(), listener.port().subscribe(filters.into(), 16));
        (Self { listener, inbox, asked: HashSet::new() }, address)
    }

    async fn next(&mut self, topic: &str) -> String {
        loop {
            let delivery = self.inbox.next().await.unwrap();
            let (heard, text) = (delivery.message.topic.clone(), delivery.message.payload.to_vec());
            delivery.accept();
            if heard.as_str() == topic {
                return String::from_utf8(text).unwrap();
            }
        }
    }

    async fn ask(&mut self, request: &str, action: &str, data: &str) -> String {
        let message =
            Message { action: format!("urn:lab:Action:{action}"), request: request.into(), data: data.into() };
        self.asked.insert(request.into());
        let topic = TopicName::new("lab/node/gate-7/in").unwrap();
        let _ = self.listener.port().publish(topic, written(&message).into(), Qos::AtLeastOnce);
        loop {
            let result = Message::read(self.next("lab.task.handler.saida").await.as_bytes()).unwrap();
            if result.request == request {
                return result.data;
            }
            // A node that was killed may say once more what it said just before.
            assert!(self.asked.contains(&result.request), "{}", result.request);
        }
    }
}

struct Node(Child);

impl Node {
    fn start(folder: &Path, address: SocketAddr) -> Self {
        Self::start_with(folder, address, &[])
    }

    fn start_with(folder: &Path, address: SocketAddr, env: &[(&str, String)]) -> Self {
        let (server, dir) = (format!("mqtt://{address}"), folder.join("node").display().to_string());
        let actions = folder.join("actions").display().to_string();
        let args = ["role", "node", "--id", "gate-7", "--layer", "edge", "--transport", "mqtt", "--namespace", "lab"];
        let more =
            ["--server", &server, "--user", "gate", "--dir", &dir, "--actions", &actions, "--label", "zone=north"];
        let mut command = mutirao(&[&args[..], &more[..]].concat());
        command.env("MUTIRAO_NODE_PASSWORD", "s3cret").envs(env.iter().cloned()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_runs_the_programs_of_its_folder_shows_them_no_secret_and_takes_them_along_when_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let stays = "#!/usr/bin/env python3\nimport json, os, sys\nfor line in sys.stdin:\n    a = json.loads(line)\n    \
                 seen = [name for name in os.environ if 'NODE' in name]\n    \
                 print(json.dumps({'id': a['id'], 'output': {'pid': os.getpid(), 'seen': seen}}), flush=True)\n";
    put(&folder.path().join("actions/stays.py"), stays);
    put(
        &folder.path().join("actions/all.yaml"),
        "kind: Action\nname: stays\nversion: 1\nmode: lines\ncommand: [ ./stays.py ]\n---\n\
         kind: Action\nname: upper\ncommand: [ tr, a-z, A-Z ]\n",
    );
    let (mut house, address) = House::open().await;
    let mut node = Node::start(folder.path(), address);
    let register = Register::read(house.next("lab.nodes.register").await.as_bytes()).unwrap();
    for action in ["stays@1", "upper", "builtin.http", "builtin.cel", "builtin.aggregate", "builtin.publish"] {
        assert!(register.actions.contains(&format!("urn:lab:Action:{action}")), "{:?}", register.actions);
    }
    assert_eq!(house.ask("r1", "upper", r#""abc""#).await, r#""ABC""#);
    assert_eq!(house.ask("r2", "builtin.cel", r#"{"expression":"input+1","input":41}"#).await, "42");
    let said: serde_json::Value = serde_json::from_str(&house.ask("r3", "stays", "{}").await).unwrap();
    assert_eq!(said["seen"], serde_json::json!([]));
    let program = Pid::from_raw(said["pid"].as_i64().unwrap() as i32).unwrap();
    assert!(test_kill_process(program).is_ok());
    kill_process(node.pid(), Signal::KILL).unwrap();
    node.0.wait().unwrap();
    wait::until("its program to go", SOON, || test_kill_process(program).is_err());

    let mut node = Node::start(folder.path(), address);
    house.next("lab.nodes.register").await;
    assert_eq!(house.ask("r4", "upper", r#""d""#).await, r#""D""#);
    kill_process(node.pid(), Signal::TERM).unwrap();
    assert_eq!(node.0.wait().unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_of_the_api_reads_and_writes_keys_there() {
    let up = tokio::task::spawn_blocking(|| Installation::setup().workers(0).start()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("actions")).unwrap();
    let (mut house, address) = House::open().await;
    let env = [("MUTIRAO_URL", up.url()), ("MUTIRAO_TOKEN", up.token())];
    let _node = Node::start_with(folder.path(), address, &env);
    house.next("lab.nodes.register").await;
    let mut asked = 0;
    let mut kv = async |action: &str, data: &str| {
        asked += 1;
        let said = house.ask(&format!("r{asked}"), action, data).await;
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    assert_eq!(kv("builtin.kv_get", r#"{"key":"lamp"}"#).await, serde_json::json!({"key": "lamp", "found": false}));
    let put = kv("builtin.kv_put", r#"{"key":"lamp","value":{"on":true},"revision":0}"#).await;
    assert!(put["key"] == "lamp" && put.get("error").is_none(), "{put}");
    let read = kv("builtin.kv_get", r#"{"key":"lamp"}"#).await;
    assert_eq!((&read["found"], &read["value"]["on"]), (&true.into(), &true.into()), "{read}");
    let again = kv("builtin.kv_put", r#"{"key":"lamp","value":1,"revision":0}"#).await;
    assert!(again["error"].as_str().is_some(), "it is there already: {again}");
}

/// Whichever it speaks, a node of this program runs the step of a flow, and says what came of it through a manager's kill.
fn runs_a_step(transport: &str) {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("actions/upper.yaml"), "kind: Action\nname: upper\ncommand: [ tr, a-z, A-Z ]\n");
    put(
        &folder.path().join("flow.yaml"),
        "kind: Flow\nname: loud\nsteps:\n  - name: one\n    action: upper\n    input: input.text\n    on: { layer: edge }\n",
    );
    // The same after a restart.
    let [port] = mutirao_testkit::ports::free(&Dice::from_os()).unwrap();
    let listen = format!("127.0.0.1:{port}");
    let mut up = Installation::setup().workers(0).arg("--mqtt-listen").arg(&listen).start();
    let device = json_of(&up, &["device", "add", "gate-7"]);
    let server = match transport {
        "mqtt" => format!("mqtt://{listen}"),
        _ => up.url(),
    };
    let (dir, actions) = (folder.path().join("node"), folder.path().join("actions"));
    let args = ["role", "node", "--id", "gate-7", "--layer", "edge", "--transport", transport, "--user", "gate-7"];
    let (dir, actions) = (dir.display().to_string(), actions.display().to_string());
    let more = ["--server", &server, "--dir", &dir, "--actions", &actions, "--listen", "127.0.0.1:0"];
    let mut command = mutirao(&[&args[..], &more[..]].concat());
    command.env("MUTIRAO_NODE_PASSWORD", device["password"].as_str().unwrap()).stdout(Stdio::null());
    let _node = Node(command.spawn().unwrap());
    let there = |up: &Installation| up.cli(&["node", "show", "gate-7"]).status.success();
    wait::until("it to be listed", SOON, || there(&up));
    up.ok(&["flow", "apply", "-f", &folder.path().join("flow.yaml").display().to_string()]);
    let said = up.ok(&["flow", "run", "loud", "--input", r#"{"text": "abc"}"#, "--watch"]);
    assert!(said.contains("ABC"), "{said}");
    up.kill9();
    up.restart();
    let said = up.ok(&["flow", "run", "loud", "--input", r#"{"text": "again"}"#, "--watch"]);
    assert!(said.contains("AGAIN"), "{said}");
}

#[test]
fn a_node_runs_a_step_of_a_flow_over_mqtt_also_after_the_manager_was_killed() {
    runs_a_step("mqtt");
}

#[test]
fn a_node_runs_a_step_of_a_flow_over_http_also_after_the_manager_was_killed() {
    runs_a_step("http");
}

#[test]
fn what_a_node_cannot_be_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("n").display().to_string();
    let said = |more: &[&str]| run(mutirao(&[&["role", "node", "--dir", &dir], more].concat()));
    refused(&said(&["--transport", "mqtt", "--server", "http://x"]), 2, &["--server", "mqtt://HOST:1883"]);
    refused(&said(&["--transport", "mqtt", "--user", "a"]), 2, &["MUTIRAO_NODE_PASSWORD"]);
    refused(&said(&["--transport", "amqp", "--server", "mqtt://x"]), 2, &["--server", "amqp://user:password@host"]);
    refused(&said(&["--transport", "mqtt", "--id", "a.b"]), 2, &["a node's id"]);
    refused(&said(&["--transport", "mqtt", "--actions", "/no/such"]), 2, &["there is no folder /no/such"]);
    let no_file = said(&["--transport", "mqtt", "--user", "a", "--password-file", "/no/such"]);
    refused(&no_file, 2, &["--password-file /no/such: there is no such file", "mutirao device add NAME --to FILE"]);
}

#[test]
fn a_node_that_shows_nothing_is_told_once_how_it_is_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let [port] = mutirao_testkit::ports::free(&Dice::from_os()).unwrap();
    let listen = format!("127.0.0.1:{port}");
    let up = Installation::setup().workers(0).arg("--mqtt-listen").arg(&listen).start();
    for (transport, server) in [("mqtt", format!("mqtt://{listen}")), ("http", up.url())] {
        let (dir, log) = (folder.path().join(transport), folder.path().join(format!("{transport}.log")));
        let dir = dir.display().to_string();
        let args = ["role", "node", "--id", "gate-7", "--transport", transport, "--server", &server, "--dir", &dir];
        let mut command = mutirao(&[&args[..], &["--listen", "127.0.0.1:0"]].concat());
        command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
        let _node = Node(command.spawn().unwrap());
        let told = || std::fs::read_to_string(&log).unwrap_or_default();
        wait::until("it to be told", SOON, || {
            told().contains("mutirao node invite ID") && told().contains("device add ID --to")
        });
        assert_eq!(told().matches("shows no credentials;").count(), 1, "{}", told());
    }
}
