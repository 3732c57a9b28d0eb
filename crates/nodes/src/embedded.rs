//! The manager's own MQTT listener as a [`Way`]: who is let in, with which topics, and what is heard from them.
//!
//! Every device comes in under its own name, and what is meant for a node is given to sessions of that name only, whatever
//! else is subscribed. Devices that show nothing, where they are let in, share one name: they can hear and take each
//! other's place, and never that of one that has credentials.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::clock::Clock;
use mutirao_core::{Dice, Problem};
use mutirao_mqtt::{
    Config, Delivery, Gate, Guest, Inbox, Knock, Limits, Listener, Port, Qos, Refusal, Rights, Speaker, Standing,
    TopicFilter, TopicName,
};
use parking_lot::RwLock;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;

use crate::meters;
use crate::names::NodeId;
use crate::preference::Protocol;
use crate::registry::{Proof, Record, Strangers};
use crate::store::SharedNodes;
use crate::switchboard::{Heard, Said, Switchboard, Voice};
use crate::way::{NotGiven, Waits, Way};
use crate::wire::places::Places;
use crate::wire::{self, fits_device};

/// Whoever shows nothing.
const NOBODY: &str = "anonymous";
/// Sessions of one device: its own, and one for whoever looks over its shoulder.
const SESSIONS_OF_A_DEVICE: usize = 4;
const SESSIONS_OF_NOBODY: usize = 2_048;
/// What clients said and was not looked at yet.
const INBOX: usize = 256;
/// What cannot be taken now is tried again so often, then its client has to say it again.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

pub struct Parts {
    pub listen: SocketAddr,
    pub tls: Option<TlsAcceptor>,
    pub strangers: Strangers,
    pub limits: Limits,
    pub store: SharedNodes,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

/// The listener, open.
pub struct Embedded {
    listener: Listener,
    way: Arc<MqttWay>,
}

impl Embedded {
    /// Listens, and tells the switchboard of this way.
    pub async fn open(board: &Switchboard, parts: Parts) -> io::Result<Self> {
        let Parts { listen, tls, strangers, limits, store, clock, dice } = parts;
        let devices = Arc::new(Devices::default());
        let places = board.places().clone();
        let gate = Doorkeeper { store, strangers, devices: devices.clone(), topics: Topics(places.clone()) };
        let config = Config { listen, limits: limits.clone(), tls, gate: Arc::new(gate), clock: clock.clone(), dice };
        let listener = Listener::start(config).await?;
        let port = listener.port();
        let topics = Topics(places);
        let inbox = port.subscribe(filters(topics.heard()), INBOX);
        let way = Arc::new(MqttWay { port, limits, topics, devices });
        board.open(way.clone());
        // Ends with the listener, whose inbox it reads.
        tokio::spawn(listen_to(inbox, board.clone(), way.clone(), clock));
        Ok(Self { listener, way })
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    pub fn port(&self) -> &Port {
        &self.way.port
    }

    pub async fn stop(self) {
        self.listener.stop().await;
    }
}

/// Devices that came in, by the name of their user.
type Devices = RwLock<HashMap<Arc<str>, (NodeId, bool)>>;

fn who_is(device: &str) -> Arc<str> {
    format!("device {device}").into()
}

/// Each with dots, as the document has it, and with slashes, as MQTT would.
struct Topics(Places);

fn both(dotted: &str) -> [String; 2] {
    [dotted.to_owned(), dotted.replace('.', "/")]
}

fn filters(topics: impl IntoIterator<Item = String>) -> Vec<TopicFilter> {
    topics.into_iter().filter_map(|topic| TopicFilter::new(&topic).ok()).collect()
}

impl Topics {
    fn said_by_nodes(&self) -> Vec<String> {
        let places = &self.0;
        [places.register(), places.results(), places.results_misprinted()].iter().flat_map(|one| both(one)).collect()
    }

    /// All that the manager listens to.
    fn heard(&self) -> Vec<String> {
        self.said_by_nodes().into_iter().chain(both(&self.0.requests())).collect()
    }

    /// `node`: its own topic and no other; without, any.
    fn rights(&self, node: Option<&NodeId>, may_request: bool) -> Rights {
        let inbox = match node {
            Some(node) => self.0.device_topic(node),
            None => format!("{}/node/+/in", self.0.0),
        };
        let mut publish = self.said_by_nodes();
        let mut subscribe: Vec<String> =
            std::iter::once(inbox).chain(both(&self.0.beats())).chain(both(&self.0.ack())).collect();
        if may_request {
            publish.extend(both(&self.0.requests()));
            subscribe.extend(both(&self.0.finals()));
        }
        Rights { publish: filters(publish), subscribe: filters(subscribe) }
    }
}

struct Doorkeeper {
    store: SharedNodes,
    strangers: Strangers,
    devices: Arc<Devices>,
    topics: Topics,
}

#[async_trait]
impl Gate for Doorkeeper {
    async fn admit(&self, knock: &Knock) -> Result<Guest, Refusal> {
        let Some(user) = &knock.user else {
            let let_in = self.strangers == Strangers::LetIn && knock.password.is_none();
            let rights = || self.topics.rights(None, false);
            let standing = Standing::Anonymous;
            let guest = || Guest { who: NOBODY.into(), standing, rights: rights(), sessions_max: SESSIONS_OF_NOBODY };
            return let_in.then(guest).ok_or(Refusal::NotAuthorized);
        };
        let device = self.store.device(user).await.map_err(|error| {
            tracing::warn!(%error, "a device cannot be let in: who it is cannot be looked up");
            Refusal::Unavailable
        })?;
        let password = knock.password.as_deref().unwrap_or_default();
        let device = device.filter(|device| device.is_opened_by(password)).ok_or(Refusal::BadCredentials)?;
        let rights = self.topics.rights(Some(&device.node), device.may_request);
        self.devices.write().insert(device.name.as_str().into(), (device.node, device.may_request));
        let standing = Standing::Known;
        Ok(Guest { who: who_is(&device.name), standing, rights, sessions_max: SESSIONS_OF_A_DEVICE })
    }
}

pub struct MqttWay {
    port: Port,
    limits: Limits,
    topics: Topics,
    devices: Arc<Devices>,
}

impl MqttWay {
    /// Under which name a node's sessions are; none: it does not come in here.
    fn who(record: &Record) -> Option<Arc<str>> {
        match &record.proof {
            Proof::User(user) => Some(who_is(user)),
            Proof::Nothing => Some(NOBODY.into()),
            Proof::Key(_) => None,
        }
    }

    fn voice(&self, speaker: &Speaker) -> Voice {
        let known = speaker.who.strip_prefix("device ").and_then(|name| {
            let (node, may_request) = self.devices.read().get(name)?.clone();
            Some(Voice { proof: Proof::User(name.into()), node: Some(node), may_request })
        });
        known.unwrap_or(Voice { proof: Proof::Nothing, node: None, may_request: false })
    }

    fn publish(&self, who: Option<&str>, dotted: &str, text: &str, qos: Qos) {
        for topic in both(dotted) {
            let (Ok(topic), payload) = (TopicName::new(&topic), Bytes::copy_from_slice(text.as_bytes())) else {
                continue;
            };
            let published = match who {
                Some(who) => self.port.publish_to(who, topic, payload, qos),
                None => self.port.publish(topic, payload, qos),
            };
            if let Err(error) = published {
                tracing::warn!(%error, dotted, "something was too long to be published");
            }
        }
    }
}

#[async_trait]
impl Way for MqttWay {
    fn protocol(&self) -> Protocol {
        Protocol::Mqtt
    }

    async fn give(&self, to: &Record, text: &str) -> Result<(), NotGiven> {
        let unreachable = |why: &str| NotGiven::Unreachable(format!("by MQTT: {why}"));
        let who = Self::who(to).ok_or_else(|| unreachable("it did not come in here"))?;
        let topic = self.topics.0.device_topic(&to.node);
        // It would drop the packet without a word, and look as if it failed.
        if is_small(&to.kind) && !fits_device(&topic, text) {
            let why = format!("{} bytes are more than a microcontroller takes, {}", text.len(), wire::DEVICE_BYTES_MAX);
            return Err(NotGiven::TooLong(why));
        }
        let topic = TopicName::new(&topic).map_err(|_| unreachable("its id is no part of a topic"))?;
        let payload = Bytes::copy_from_slice(text.as_bytes());
        let published = self.port.publish_to(&who, topic, payload, Qos::AtLeastOnce);
        match published.map_err(|long| NotGiven::TooLong(long.to_string()))? {
            published if published.here + published.away > 0 => Ok(()),
            published if published.full > 0 => Err(unreachable("as much waits for it as may")),
            _ => Err(unreachable("it does not listen")),
        }
    }

    async fn beat(&self, text: &str) {
        self.publish(None, &self.topics.0.beats(), text, Qos::AtMostOnce);
        let gauges = self.port.gauges();
        meters::mqtt(gauges.connected, gauges.waiting_bytes);
    }

    async fn answer(&self, text: &str) -> Result<(), Problem> {
        self.publish(None, &self.topics.0.finals(), text, Qos::AtLeastOnce);
        Ok(())
    }

    fn waiting(&self, node: &Record) -> Option<Waits> {
        if !node.heard_over.contains(&Protocol::Mqtt) {
            return None;
        }
        let waiting = self.port.waiting_for(&Self::who(node)?);
        Some(Waits {
            connected: waiting.connected > 0,
            messages: waiting.messages,
            bytes: waiting.bytes,
            messages_max: self.limits.queue_messages_max,
            bytes_max: self.limits.queue_bytes_max,
            age_max_ms: u64::try_from(self.limits.queue_age_max.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn expel(&self, device: &str) {
        self.devices.write().remove(device);
        self.port.expel(&who_is(device));
    }
}

/// Of the kinds that the document's devices call themselves.
fn is_small(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    ["esp", "arduino"].iter().any(|small| kind.starts_with(small))
}

async fn listen_to(mut inbox: Inbox, board: Switchboard, way: Arc<MqttWay>, clock: Arc<dyn Clock>) {
    while let Some(delivery) = inbox.next().await {
        let (board, way, clock) = (board.clone(), way.clone(), clock.clone());
        let turn = board.turn().await;
        tokio::spawn(async move { take(delivery, &board, &way, &*clock, turn).await });
    }
}

/// Dropped, it is not acknowledged, and its client says it again.
async fn take(
    delivery: Delivery,
    board: &Switchboard,
    way: &MqttWay,
    clock: &dyn Clock,
    mut turn: Option<OwnedSemaphorePermit>,
) {
    let message = delivery.message.clone();
    let place = message.topic.as_str();
    let Some(kind) = board.places().kind_of(place) else { return delivery.accept() };
    let (speaker, over) = (&delivery.speaker, Protocol::Mqtt);
    for _ in 0..TRIES {
        let (kind, voice) = (kind.clone(), way.voice(speaker));
        match board.hear(Said { kind, place, over, bytes: &message.payload, voice }).await {
            Ok(heard) => {
                if let Heard::Registered(ack) = heard {
                    way.publish(Some(&speaker.who), &board.places().ack(), &wire::written(&ack), Qos::AtLeastOnce);
                }
                return delivery.accept();
            }
            Err(problem) => {
                tracing::debug!(%problem, place, "what a device said cannot be taken yet");
                // Whoever waits holds up nobody.
                drop(turn.take());
                clock.sleep(PAUSE).await;
                turn = board.turn().await;
            }
        }
    }
}
