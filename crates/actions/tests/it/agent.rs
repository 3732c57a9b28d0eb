//! A node over MQTT, with a real listener and somebody who does what a manager does.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_actions::agent::mqtt::{self, Mqtt};
use mutirao_actions::agent::spool::Spool;
use mutirao_actions::agent::{Agent, Me};
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_mqtt::{
    Config, Gate, Guest, Inbox, Knock, Limits, Listener, Options, Port, Qos, Refusal, Rights, Standing, TopicFilter,
    TopicName,
};
use mutirao_nodes::wire::places::{Kind, Places};
use mutirao_nodes::wire::{Ack, Heartbeat, Message, Register, Word, written};
use mutirao_nodes::{Layer, Namespace};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::stage::{Stage, eventually};

pub const NODE: &str = "gate-7";

struct Open;

#[async_trait]
impl Gate for Open {
    async fn admit(&self, _: &Knock) -> Result<Guest, Refusal> {
        let all = || vec![TopicFilter::new("#").unwrap()];
        let rights = Rights { publish: all(), subscribe: all() };
        Ok(Guest { who: "anybody".into(), standing: Standing::Anonymous, rights, sessions_max: 10 })
    }
}

/// What a manager does, as far as a node can see.
pub struct Manager {
    listener: Listener,
    pub address: SocketAddr,
    pub port: Port,
    pub inbox: Inbox,
}

impl Manager {
    pub async fn at(port: u16) -> Self {
        let config = Config {
            listen: (Ipv4Addr::LOCALHOST, port).into(),
            limits: Limits::default(),
            tls: None,
            gate: Arc::new(Open),
            clock: SystemClock::shared(),
            dice: Arc::new(Dice::seeded(1)),
        };
        let listener = Listener::start(config).await.unwrap();
        let (address, port) = (listener.address(), listener.port());
        let filters = ["mutirao.nodes.register", "mutirao.task.handler.saida", "elsewhere"];
        let inbox = port.subscribe(filters.iter().map(|one| TopicFilter::new(one).unwrap()).collect(), 16);
        Self { listener, address, port, inbox }
    }

    fn say(&self, topic: &str, text: String, qos: Qos) {
        let _ = self.port.publish(TopicName::new(topic).unwrap(), text.into(), qos);
    }

    pub fn ask(&self, request: &str, action: &str, data: &str) {
        self.ask_of(NODE, request, action, data);
    }

    pub fn ask_of(&self, node: &str, request: &str, action: &str, data: &str) {
        let message = message(request, action, data);
        self.say(&Places(Namespace::default()).device_topic(&node.parse().unwrap()), message, Qos::AtLeastOnce);
    }

    /// What is heard next of one kind; the rest is passed over, and acknowledged like it.
    async fn next(&mut self, kind: Kind) -> String {
        loop {
            let delivery = self.inbox.next().await.unwrap();
            let heard = Places(Namespace::default()).kind_of(delivery.message.topic.as_str());
            let text = String::from_utf8(delivery.message.payload.to_vec()).unwrap();
            delivery.accept();
            if heard.as_ref() == Some(&kind) {
                return text;
            }
        }
    }

    pub async fn registered(&mut self) -> Register {
        let register = Register::read(self.next(Kind::Register).await.as_bytes()).unwrap();
        let ack = Ack { token: "t".into(), node: register.node.clone(), actions: register.actions.clone() };
        self.say("mutirao.nodes.actions-list", written(&ack), Qos::AtMostOnce);
        register
    }

    pub async fn result(&mut self) -> (String, Value) {
        read_result(&self.next(Kind::Result).await)
    }

    pub async fn end(self) -> u16 {
        let port = self.address.port();
        self.listener.stop().await;
        port
    }
}

pub fn message(request: &str, action: &str, data: &str) -> String {
    let action = format!("urn:mutirao:Action:{action}");
    written(&Message { action, request: request.into(), data: data.into() })
}

pub fn read_result(text: &str) -> (String, Value) {
    let message = Message::read(text.as_bytes()).unwrap();
    (message.request, serde_json::from_str(&message.data).unwrap())
}

pub fn me(slots: usize) -> Me {
    Me {
        node: NODE.parse().unwrap(),
        layer: Layer::Edge,
        namespace: Namespace::default(),
        endpoint: String::new(),
        labels: [("zone".to_owned(), "north".to_owned())].into(),
        slots,
    }
}

pub struct Node {
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Node {
    pub fn start(stage: &Stage, address: SocketAddr, slots: usize) -> Self {
        let me = me(slots);
        let pause = Duration::from_millis(50);
        let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::seeded(2)));
        let options = Options {
            subscriptions: mqtt::subscriptions(&me.namespace, &me.node),
            pause_min: pause,
            pause_max: pause,
            ..Options::new(address.to_string(), format!("node-{NODE}"), clock.clone(), dice.clone())
        };
        let (line, heard) = Mqtt::start(options, &me.namespace);
        let spool = Spool::open(&spool_of(stage)).unwrap();
        let agent = Agent::new(me, stage.table.clone(), Arc::new(line), spool, clock, dice);
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(agent.run(heard, async move { drop(stopped.await) }));
        Self { stop: Some(stop), running }
    }

    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.running.await.unwrap();
    }

    /// As a power cut would: nothing of it goes on.
    pub async fn cut(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

pub fn spool_of(stage: &Stage) -> std::path::PathBuf {
    stage.folder.path().join("spool")
}

pub fn count(file: &Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// An action that leaves a line for each run, and waits for a file where told.
pub fn counting(stage: &Stage) -> std::path::PathBuf {
    stage.write("count.sh", "#!/bin/sh\necho x >> runs\nwhile [ -e hold ]; do sleep 0.02; done\ncat\n");
    stage.define(json!({"kind": "Action", "name": "count", "version": 3, "command": ["./count.sh"]}));
    stage.folder.path().join("runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_registers_runs_what_it_is_sent_and_answers_twice_what_was_asked_twice() {
    let stage = Stage::new();
    let runs = counting(&stage);
    let mut manager = Manager::at(0).await;
    let node = Node::start(&stage, manager.address, 2);
    let register = manager.registered().await;
    assert_eq!((register.layer, register.slots, register.node.as_str()), (Layer::Edge, Some(2), NODE));
    assert_eq!((register.actions, register.force_register), (vec!["urn:mutirao:Action:count@3".to_owned()], true));
    assert_eq!(register.labels["zone"], "north");

    manager.ask("r1", "count", r#"{"n":1}"#);
    assert_eq!(manager.result().await, ("r1".into(), json!({"n": 1})));
    // Once the node knows that its answer was taken; before, that answer is the copy's as well.
    SystemClock.sleep(Duration::from_millis(250)).await;
    manager.ask("r1", "count", r#"{"n":1}"#);
    assert_eq!(manager.result().await, ("r1".into(), json!({"n": 1})));
    assert_eq!(count(&runs), 1, "it was run once");
    manager.ask("r2", "count@3", "7");
    assert_eq!(manager.result().await, ("r2".into(), json!(7)));
    manager.ask("r3", "nothing", "{}");
    let (request, data) = manager.result().await;
    assert_eq!((request.as_str(), &data["error"]), ("r3", &json!("this node has no urn:mutirao:Action:nothing")));

    stage.define(json!({"kind": "Action", "name": "more", "command": ["true"]}));
    assert_eq!(manager.registered().await.actions.len(), 2, "what it has now is told at once");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_while_nobody_was_there_is_sent_after_a_power_cut_and_not_run_again() {
    let stage = Stage::new();
    let runs = counting(&stage);
    let mut manager = Manager::at(0).await;
    let node = Node::start(&stage, manager.address, 2);
    manager.registered().await;
    let hold = stage.folder.path().join("hold");
    std::fs::write(&hold, "").unwrap();
    manager.ask("r1", "count", r#""kept""#);
    eventually("it to run", async || count(&runs) == 1).await;
    let port = manager.end().await;
    std::fs::remove_file(&hold).unwrap();
    let spooled = || std::fs::metadata(spool_of(&stage)).map_or(0, |about| about.len()) > 0;
    eventually("its result on disk", async || spooled()).await;
    node.cut().await;

    let mut manager = Manager::at(port).await;
    let node = Node::start(&stage, manager.address, 2);
    let told = || ("r1".to_owned(), json!("kept"));
    assert_eq!(manager.result().await, told());
    // It may come twice: what the first connection still had to say is said too, and taking it again is a manager's part.
    let again = async {
        loop {
            assert_eq!(manager.result().await, told());
        }
    };
    tokio::select! {
        () = eventually("it is crossed out", async || !spooled()) => {}
        () = again => {}
    }
    manager.ask("r1", "count", r#""kept""#);
    assert_eq!(manager.result().await, ("r1".into(), json!("kept")));
    assert_eq!(count(&runs), 1);
    node.stop().await;
}

/// However much it is: more than is remembered of what was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_run_again_whose_result_is_still_to_be_sent() {
    let stage = Stage::new();
    let runs = counting(&stage);
    let mut manager = Manager::at(0).await;
    let node = Node::start(&stage, manager.address, 2);
    manager.registered().await;
    node.stop().await;
    let large = json!("x".repeat(100 << 10)).to_string();
    let mut spool = Spool::open(&spool_of(&stage)).unwrap();
    for n in 0..20 {
        spool.put(message(&format!("r{n}"), "count", &large)).unwrap();
    }
    drop(spool);
    // All of them are asked for again before the first is taken.
    (0..20).for_each(|n| manager.ask(&format!("r{n}"), "count", "1"));
    assert_eq!(manager.port.waiting_for("anybody").messages, 20);
    let node = Node::start(&stage, manager.address, 2);
    eventually("all are accepted", async || manager.port.waiting_for("anybody").messages == 0).await;
    let mut left: BTreeSet<String> = (0..20).map(|n| format!("r{n}")).collect();
    while !left.is_empty() {
        let (request, data) = manager.result().await;
        assert_eq!(data.as_str().map(str::len), Some(100 << 10), "{request} was run again");
        left.remove(&request);
    }
    assert_eq!(count(&runs), 0);
    manager.ask("new", "count", "7");
    // Whoever asked again is answered again: those come first.
    while let (request, data) = manager.result().await
        && request != "new"
    {
        assert_eq!(data.as_str().map(str::len), Some(100 << 10), "{request} was run again");
    }
    assert_eq!(count(&runs), 1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_not_finished_when_the_power_went_comes_again() {
    let stage = Stage::new();
    let runs = counting(&stage);
    let mut manager = Manager::at(0).await;
    let node = Node::start(&stage, manager.address, 1);
    manager.registered().await;
    let hold = stage.folder.path().join("hold");
    std::fs::write(&hold, "").unwrap();
    manager.ask("r1", "count", "1");
    eventually("it to run", async || count(&runs) == 1).await;
    node.cut().await;
    std::fs::remove_file(&hold).unwrap();
    let node = Node::start(&stage, manager.address, 1);
    assert_eq!(manager.result().await, ("r1".into(), json!(1)));
    assert_eq!(count(&runs), 2, "the first was never finished");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_run_at_once_than_there_are_slots_and_a_forced_beat_registers_anew() {
    let stage = Stage::new();
    let runs = counting(&stage);
    let mut manager = Manager::at(0).await;
    let node = Node::start(&stage, manager.address, 2);
    manager.registered().await;
    std::fs::write(stage.folder.path().join("hold"), "").unwrap();
    (0..5).for_each(|n| manager.ask(&format!("r{n}"), "count", &n.to_string()));
    eventually("two to run", async || count(&runs) == 2).await;
    SystemClock.sleep(Duration::from_millis(300)).await;
    assert_eq!(count(&runs), 2);
    std::fs::remove_file(stage.folder.path().join("hold")).unwrap();
    let mut ended = vec![];
    for _ in 0..5 {
        ended.push(manager.result().await.0);
    }
    ended.sort();
    assert_eq!(ended, ["r0", "r1", "r2", "r3", "r4"]);
    // Beats go on until it has been long enough since the last time.
    let beating = async {
        for ts in 1.. {
            let beat = Heartbeat { available: true, force_register: true, ts, schema: Heartbeat::SCHEMA };
            let _ = manager.port.publish(
                TopicName::new("mutirao/manager/available").unwrap(),
                written(&beat).into(),
                Qos::AtMostOnce,
            );
            SystemClock.sleep(Duration::from_millis(500)).await;
        }
    };
    let heard = async { Register::read(next_of(&mut manager.inbox).await.as_bytes()).unwrap() };
    let register = tokio::select! {
        () = beating => unreachable!("beats never end"),
        register = heard => register,
    };
    assert_eq!(register.node.as_str(), NODE);
    node.stop().await;
}

async fn next_of(inbox: &mut Inbox) -> String {
    let delivery = inbox.next().await.unwrap();
    let text = String::from_utf8(delivery.message.payload.to_vec()).unwrap();
    delivery.accept();
    text
}
