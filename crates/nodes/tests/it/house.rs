//! A switchboard with an MQTT listener, somebody who takes what comes back, and devices played by the tests.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use mutirao_broker::Shared;
use mutirao_core::auth::{Principal, Role};
use mutirao_core::node::{NodeEnrol, NodePassword};
use mutirao_core::{Clock, Dice, Problem, SystemClock};
use mutirao_mqtt::client::{Received, State};
use mutirao_mqtt::{Client, Limits, Options, Qos, TopicFilter, TopicName};
use mutirao_nodes::NodeId;
use mutirao_nodes::allowance::Allowance;
use mutirao_nodes::embedded::{self, Embedded};
use mutirao_nodes::endpoint::Loopback;
use mutirao_nodes::errand::{Errand, Returned, Taker};
use mutirao_nodes::pulse::Pace;
use mutirao_nodes::registry::Strangers;
use mutirao_nodes::routing::{Place, Rules};
use mutirao_nodes::switchboard::{Parts, Switchboard};
use mutirao_nodes::topics::OwnTopics;
use mutirao_nodes::wire::TaskRequest;
use mutirao_nodes::{keys, store};
use mutirao_store::{Database, Sqlite};
use parking_lot::Mutex;
use tokio::sync::mpsc;

pub const LONG: Duration = Duration::from_secs(60);

/// Takes what comes back, unless it is told to be in trouble.
#[derive(Default)]
pub struct Desk {
    pub returned: Mutex<Vec<Returned>>,
    pub asked: Mutex<Vec<(TaskRequest, Option<String>)>>,
    pub lost: Mutex<Vec<NodeId>>,
    pub trouble: AtomicBool,
}

#[async_trait]
impl Taker for Desk {
    async fn returned(&self, returned: Returned) -> Result<(), Problem> {
        if self.trouble.load(Ordering::SeqCst) {
            return Err(Problem::unavailable("the test wants it so"));
        }
        self.returned.lock().push(returned);
        Ok(())
    }

    async fn asked(&self, task: TaskRequest, client: Option<&str>) -> Result<(), Problem> {
        if task.task_id == "urn:mutirao:Task:bad" {
            return Err(Problem::invalid("task_id", "there is no such task"));
        }
        self.asked.lock().push((task, client.map(str::to_owned)));
        Ok(())
    }

    fn lost(&self, node: &NodeId) {
        self.lost.lock().push(node.clone());
    }
}

pub struct House {
    pub board: Switchboard,
    pub desk: Arc<Desk>,
    pub mqtt: Embedded,
    pub store: store::SharedNodes,
    database: Database,
    /// Another has the same database.
    guest: bool,
}

impl House {
    pub async fn open(folder: &Path) -> Self {
        Self::with(folder, Strangers::Refused).await
    }

    pub async fn with(folder: &Path, strangers: Strangers) -> Self {
        let database = Database::from(Sqlite::open(&folder.join("store.db"), mutirao_nodes::MIGRATIONS).unwrap());
        Self::build(database, strangers, None, false).await
    }

    /// One of several managers, who hear of each other by this.
    pub async fn among(folder: &Path, broker: Shared) -> Self {
        let database = Database::from(Sqlite::open(&folder.join("store.db"), mutirao_nodes::MIGRATIONS).unwrap());
        Self::build(database, Strangers::Refused, Some(broker), false).await
    }

    /// Another manager on the same store.
    pub async fn beside(&self, broker: Shared) -> Self {
        Self::build(self.database.clone(), Strangers::Refused, Some(broker), true).await
    }

    async fn build(database: Database, strangers: Strangers, others: Option<Shared>, guest: bool) -> Self {
        // Their nodes are on this machine.
        Self::ruled(database, strangers, others, guest, (Loopback::Allowed, Rules::default())).await
    }

    /// One that looks for no node on its own machine.
    pub async fn not_here(folder: &Path) -> Self {
        let database = Database::from(Sqlite::open(&folder.join("store.db"), mutirao_nodes::MIGRATIONS).unwrap());
        Self::ruled(database, Strangers::Refused, None, false, (Loopback::Refused, Rules::default())).await
    }

    pub async fn routed(folder: &Path, routing: Rules) -> Self {
        let database = Database::from(Sqlite::open(&folder.join("store.db"), mutirao_nodes::MIGRATIONS).unwrap());
        Self::ruled(database, Strangers::Refused, None, false, (Loopback::Allowed, routing)).await
    }

    async fn ruled(
        database: Database,
        strangers: Strangers,
        others: Option<Shared>,
        guest: bool,
        (loopback, routing): (Loopback, Rules),
    ) -> Self {
        let (clock, dice) = (SystemClock::shared(), Arc::new(Dice::seeded(3)));
        let store = store::open(&database);
        let pace = Pace { first_after: Duration::from_millis(50), every: Duration::from_millis(200), force_every: 5 };
        let parts = Parts {
            namespace: "mutirao".parse().unwrap(),
            store: store.clone(),
            clock: clock.clone(),
            dice: dice.clone(),
            strangers,
            loopback,
            routing,
            pace,
            others,
        };
        let board = Switchboard::start(parts).await.unwrap();
        let desk = Arc::new(Desk::default());
        board.attend(desk.clone());
        let parts = embedded::Parts {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: None,
            strangers,
            limits: Limits::default(),
            store: store.clone(),
            clock,
            dice,
        };
        let mqtt = Embedded::open(&board, parts).await.unwrap();
        Self { board, desk, mqtt, store, database, guest }
    }

    pub async fn close(self) {
        self.mqtt.stop().await;
        self.board.stop().await;
        if !self.guest {
            self.database.close().await;
        }
    }

    /// Lets a device in that speaks for the node of its own name.
    pub async fn let_in(&self, name: &str) -> String {
        self.let_in_for(name, Default::default()).await
    }

    /// One that may say no more of itself than this.
    pub async fn let_in_for(&self, name: &str, may: mutirao_core::node::Allowance) -> String {
        let may = Allowance::checked(may, &self.board.places().0).unwrap();
        let (node, who) = (name.parse().unwrap(), tester());
        self.board.add_device(name, node, false, OwnTopics::default(), may, &who).await.unwrap().1
    }

    /// A device with its password, connected and listening.
    pub async fn device(&self, name: &str) -> Device {
        let password = self.let_in(name).await;
        Device::connect(self, name, Some((name, &password))).await
    }

    /// Whether records of nodes cannot be written, or can again.
    pub async fn break_store(&self, broken: bool) {
        let Database::Sqlite(sqlite) = &self.database else { unreachable!("houses are on SQLite") };
        let (from, to) = if broken { ("nodes_known", "nodes_away") } else { ("nodes_away", "nodes_known") };
        let sql = format!("ALTER TABLE {from} RENAME TO {to}");
        sqlite.write(move |db| db.execute_batch(&sql)).await.unwrap();
    }

    pub fn reasons(&self) -> impl Future<Output = Vec<String>> {
        let store = self.store.clone();
        async move { store.tossed(1_000).await.unwrap().into_iter().map(|one| one.reason).collect() }
    }
}

/// A node that gives its key, and makes itself a password.
pub async fn keyed(house: &House, node: &NodeId, key: &SigningKey) -> String {
    enrol(&house.board, node, key).await;
    let password = mutirao_nodes::device::new_password();
    house.board.change_password(node, &signed(key, node, 1, &password)).await.unwrap();
    password
}

pub fn signed(key: &SigningKey, node: &NodeId, change: u64, password: &str) -> NodePassword {
    signed_as(key, node, change, password, None)
}

/// With what RabbitMQ is to keep of it.
pub fn signed_as(key: &SigningKey, node: &NodeId, change: u64, password: &str, rabbit: Option<String>) -> NodePassword {
    let digest = keys::written(node, password);
    let signature = key.sign(&NodePassword::signed_bytes(node.as_str(), change, &digest, rabbit.as_deref()));
    NodePassword { change, digest, rabbit, signature: STANDARD.encode(signature.to_bytes()) }
}

/// A node gives its key.
pub async fn enrol(board: &Switchboard, node: &NodeId, key: &SigningKey) {
    let token = board.invite_node(node, Allowance::default(), &tester()).await.unwrap().token;
    let public_key = STANDARD.encode(key.verifying_key().to_bytes());
    board.enrol_node(&NodeEnrol { token, public_key }).await.unwrap();
}

pub fn tester() -> Principal {
    Principal { id: "t1".into(), name: "test".into(), role: Role::Admin, namespace: "default".into() }
}

pub struct Device {
    pub client: Client,
    pub heard: mpsc::Receiver<(String, Bytes)>,
    pub node: String,
}

impl Device {
    pub async fn connect(house: &House, node: &str, user: Option<(&str, &str)>) -> Self {
        Self::start(options(house, node, user), node).await
    }

    /// One for whom nothing is kept once it is gone.
    pub async fn passing_by(house: &House, node: &str) -> Self {
        let password = house.let_in(node).await;
        Self::start(Options { clean: true, ..options(house, node, Some((node, &password))) }, node).await
    }

    async fn start(options: Options, node: &str) -> Self {
        let (client, heard) = Client::start(options);
        let mut state = client.state();
        within("it is let in", async { state.wait_for(|state| *state == State::Connected).await.map(drop) })
            .await
            .unwrap();
        Self { client, heard: drained(heard), node: node.into() }
    }

    pub async fn say(&self, topic: &str, text: impl Into<String>) {
        let topic = TopicName::new(topic).unwrap();
        within("it is taken", self.client.publish(topic, text.into().into(), Qos::AtLeastOnce)).await.unwrap();
    }

    pub async fn register(&self, action: &str) {
        self.say("mutirao.nodes.register", registration(&self.node, action)).await;
    }

    /// The next message on a topic that ends so; others are passed over.
    pub async fn next(&mut self, ending: &str) -> serde_json::Value {
        let next = async {
            loop {
                let (topic, payload) = self.heard.recv().await.unwrap();
                if topic.ends_with(ending) {
                    return serde_json::from_slice(&payload).unwrap();
                }
            }
        };
        within(&format!("a message on …{ending} for {}", self.node), next).await
    }
}

/// Everything it hears is accepted at once: whoever stops reading hears no acknowledgement either.
pub fn drained(mut heard: mpsc::Receiver<Received>) -> mpsc::Receiver<(String, Bytes)> {
    let (give, take) = mpsc::channel(10_000);
    tokio::spawn(async move {
        while let Some(received) = heard.recv().await {
            let _ = give.try_send((received.topic.as_str().to_owned(), received.payload.clone()));
            received.accept();
        }
    });
    take
}

pub fn options(house: &House, node: &str, user: Option<(&str, &str)>) -> Options {
    let filters = [
        format!("mutirao/node/{node}/in"),
        "mutirao.manager.available".into(),
        "mutirao/manager/available".into(),
        "mutirao.nodes.actions-list".into(),
    ];
    let pause = Duration::from_millis(20);
    Options {
        user: user.map(|(user, _)| user.into()),
        password: user.map(|(_, password)| password.to_owned().into()),
        subscriptions: filters.iter().map(|one| (TopicFilter::new(one).unwrap(), Qos::AtLeastOnce)).collect(),
        pause_min: pause,
        pause_max: pause,
        ..Options::new(
            house.mqtt.address().to_string(),
            format!("esp32-{node}"),
            SystemClock::shared(),
            Arc::new(Dice::seeded(1)),
        )
    }
}

pub fn registration(node: &str, action: &str) -> String {
    serde_json::json!({
        "endpoint": "", "layer": "EDGE", "type": "ESP32", "nodeId": node, "forceRegister": true,
        "actions": [format!("urn:mutirao:Action:{action}")],
    })
    .to_string()
}

pub fn result(request: &str, data: &str) -> String {
    serde_json::json!({ "actionTo": "urn:mutirao:Action:x", "requestID": request, "messageData": data }).to_string()
}

pub fn errand(request: &str, action: &str) -> Errand {
    Errand {
        request: request.into(),
        action: format!("urn:mutirao:Action:{action}").parse().unwrap(),
        data: r#"{"n":1}"#.into(),
        place: Place::default(),
        timeout: LONG,
        not: None,
    }
}

pub async fn within<F: Future<Output: Send> + Send>(what: &str, future: F) -> F::Output {
    use mutirao_core::clock::ClockExt;
    let clock: Arc<dyn Clock> = SystemClock::shared();
    clock.timeout(LONG, future).await.unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"))
}
