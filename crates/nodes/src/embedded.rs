//! The manager's own MQTT listener as a [`Way`]: who is let in, with which topics, and what is heard from them.
//!
//! Every device comes in under its own name, and what is meant for a node is given to sessions of that name only, whatever
//! else is subscribed. Devices that show nothing, where they are let in, share one name: they can hear and take each
//! other's place, and never that of one that has credentials. Who is let in, [`door`] says.

mod door;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::clock::Clock;
use mutirao_core::{Dice, Problem};
use mutirao_mqtt::port::TooLong;
use mutirao_mqtt::{Config, Delivery, Inbox, Limits, Listener, Port, Qos, Speaker, TopicName, Wanted};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::meters;
use crate::preference::Protocol;
use crate::registry::{Presence, Proof, Record, Strangers};
use crate::store::SharedNodes;
use crate::switchboard::{Heard, Said, Switchboard, Voice};
use crate::way::{NotGiven, Outstanding, Parcel, Told, Waits, Way};
use crate::wire;
use door::{Devices, Doorkeeper, NOBODY, Topics, both, filters, who_is};

/// What clients said and was not looked at yet.
const INBOX: usize = 256;
/// What a message that waits costs beside its text, at most.
const ENVELOPE_BYTES: usize = 256;
/// Looked at, or waiting to be looked at again, of all clients together: of what has quality 0 nobody's window bounds it.
const AT_HAND_MAX: usize = 256;
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
        let way = Arc::new(MqttWay { port, limits, topics, devices, clock: clock.clone() });
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

pub struct MqttWay {
    port: Port,
    limits: Limits,
    topics: Topics,
    devices: Arc<Devices>,
    clock: Arc<dyn Clock>,
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
        let known =
            speaker.who.strip_prefix("device ").and_then(|name| Some(Voice::of_device(self.devices.read().get(name)?)));
        known.unwrap_or_else(Voice::nobody)
    }

    /// Less waits for it than may: then it is all of them together that have no room.
    fn has_room(&self, who: &str, bytes: usize) -> bool {
        let waiting = self.port.waiting_for(who);
        waiting.messages < self.limits.queue_messages_max
            && waiting.bytes + bytes + ENVELOPE_BYTES <= self.limits.queue_bytes_max
    }

    /// How many will hear it.
    fn publish(&self, who: Option<&str>, dotted: &str, text: &str, qos: Qos) -> Result<usize, TooLong> {
        let mut hearers = 0;
        for topic in both(dotted) {
            let (Ok(topic), payload) = (TopicName::new(&topic), Bytes::copy_from_slice(text.as_bytes())) else {
                continue;
            };
            let published = match who {
                Some(who) => self.port.publish_to(who, topic, payload, qos),
                None => self.port.publish(topic, payload, qos),
            }?;
            hearers += published.here + published.away;
        }
        Ok(hearers)
    }
}

#[async_trait]
impl Way for MqttWay {
    fn protocol(&self) -> Protocol {
        Protocol::Mqtt
    }

    async fn give(&self, parcel: Parcel<'_>) -> Result<(), NotGiven> {
        let Parcel { to, text, wanted_for, given_up } = parcel;
        let unreachable = |why: &str| NotGiven::Unreachable(format!("by MQTT: {why}"));
        let who = Self::who(to).ok_or_else(|| unreachable("it did not come in here"))?;
        let topic = self.topics.0.device_topic(&to.node);
        // It would drop the packet without a word, and look as if it failed.
        if let Some(why) = to.is_too_small_for(&topic, text) {
            return Err(NotGiven::TooLong(why));
        }
        let topic = TopicName::new(&topic).map_err(|_| unreachable("its id is no part of a topic"))?;
        let payload = Bytes::copy_from_slice(text.as_bytes());
        let wanted = Wanted { until: self.clock.monotonic().plus(wanted_for), given_up: given_up.clone() };
        let published = self.port.task_to(&who, topic, payload, wanted);
        match published.map_err(|long| NotGiven::TooLong(long.to_string()))? {
            published if published.here + published.away > 0 => Ok(()),
            published if published.full > 0 && self.has_room(&who, text.len()) => {
                Err(NotGiven::NoRoom("by MQTT: as much waits for all devices together as may".into()))
            }
            published if published.full > 0 => Err(unreachable("as much waits for it as may")),
            _ => Err(unreachable("it does not listen")),
        }
    }

    async fn beat(&self, text: &str) {
        // A beat is short, and the next comes soon.
        let _ = self.publish(None, &self.topics.0.beats(), text, Qos::AtMostOnce);
        let gauges = self.port.gauges();
        meters::mqtt(gauges.connected, gauges.waiting_bytes);
    }

    /// One that is too long for any packet is told to be so: whoever waits must not wait for ever.
    async fn answer(&self, text: &str, client: Option<&str>) -> Result<Told, Problem> {
        let (finals, who) = (self.topics.0.finals(), client.map(who_is));
        let told = self.publish(who.as_deref(), &finals, text, Qos::AtLeastOnce).or_else(|long| {
            let instead = wire::too_long(text, long.bytes, long.most);
            self.publish(who.as_deref(), &finals, &instead, Qos::AtLeastOnce)
        });
        match told {
            Ok(hearers) if hearers > 0 => Ok(Told::Safe),
            Ok(_) => Ok(Told::NobodyListens),
            // Its id alone would have to be longer than a packet, and it was read from one.
            Err(long) => Err(Problem::invalid("answer", long.to_string())),
        }
    }

    fn waiting(&self, node: &Record, _: Presence, _: Outstanding) -> Option<Waits> {
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

async fn listen_to(mut inbox: Inbox, board: Switchboard, way: Arc<MqttWay>, clock: Arc<dyn Clock>) {
    let at_hand = Arc::new(Semaphore::new(AT_HAND_MAX));
    while let Some(delivery) = inbox.next().await {
        let (board, way, clock) = (board.clone(), way.clone(), clock.clone());
        // Nobody closes it. Past it clients wait, each at its own connection.
        let Ok(place) = at_hand.clone().acquire_owned().await else { return };
        let turn = board.turn().await;
        tokio::spawn(async move {
            take(delivery, &board, &way, &*clock, turn).await;
            drop(place);
        });
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
                    let (place, ack) = (board.places().ack(), wire::written(&ack));
                    if let Err(error) = way.publish(Some(&speaker.who), &place, &ack, Qos::AtLeastOnce) {
                        tracing::warn!(%error, who = %speaker.who, "an acknowledgement was too long to be sent");
                    }
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
