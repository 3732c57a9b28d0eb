//! A node that speaks MQTT: to the listener of an installation, or to RabbitMQ's.

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_mqtt::client::{Received, State};
use mutirao_mqtt::{Client, Options, Qos, TopicFilter, TopicName};
use mutirao_nodes::wire::places::{Kind, Places};
use mutirao_nodes::{Namespace, NodeId};
use tokio::sync::mpsc;

use super::{Heard, Line, remedy};
use crate::builtin::Publish;

const HEARD_MAX: usize = 16;

/// What a node listens to.
pub fn subscriptions(namespace: &Namespace, node: &NodeId) -> Vec<(TopicFilter, Qos)> {
    let places = Places(namespace.clone());
    let wanted = [
        (places.device_topic(node), Qos::AtLeastOnce),
        (places.ack(), Qos::AtMostOnce),
        (places.beats(), Qos::AtMostOnce),
        (places.beats_topic(), Qos::AtMostOnce),
    ];
    // Made of names that hold nothing a filter would take for a sign.
    wanted.into_iter().filter_map(|(topic, qos)| Some((TopicFilter::new(topic.as_str()).ok()?, qos))).collect()
}

pub struct Mqtt {
    client: Client,
    places: Places,
}

impl Mqtt {
    /// Connects, and goes on connecting. `options` must have [`subscriptions`].
    pub fn start(options: Options, namespace: &Namespace) -> (Self, mpsc::Receiver<Heard>) {
        let user = options.user.clone();
        let (client, received) = Client::start(options);
        let (tell, heard) = mpsc::channel(HEARD_MAX);
        let places = Places(namespace.clone());
        tokio::spawn(pass_on(client.clone(), received, tell, places.clone(), user));
        (Self { client, places }, heard)
    }

    async fn say(&self, topic: &str, text: String) -> Result<(), String> {
        let name = TopicName::new(topic).map_err(|error| error.to_string())?;
        self.client.publish(name, text.into(), Qos::AtLeastOnce).await.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Line for Mqtt {
    async fn register(&self, text: String) -> Result<(), String> {
        self.say(&self.places.register(), text).await
    }

    async fn result(&self, text: String) -> Result<(), String> {
        self.say(&self.places.results(), text).await
    }
}

#[async_trait]
impl Publish for Mqtt {
    /// Once, with quality 0: one that the listener does not allow would else be said again with every connection.
    async fn publish(&self, to: &str, text: String) -> Result<(), String> {
        let topic = TopicName::new(to).map_err(|error| format!("to: {error}"))?;
        let said = self.client.publish(topic, text.into(), Qos::AtMostOnce).await;
        said.map_err(|error| error.to_string())
    }
}

async fn pass_on(
    client: Client,
    mut received: mpsc::Receiver<Received>,
    tell: mpsc::Sender<Heard>,
    places: Places,
    user: Option<String>,
) {
    let mut state = client.state();
    // Else it would hold itself up for ever.
    drop(client);
    let (mut connected, mut told) = (false, false);
    loop {
        let heard = tokio::select! {
            changed = state.changed() => {
                if changed.is_err() {
                    return;
                }
                let now = *state.borrow_and_update();
                if let State::Refused(answer) = now
                    && !std::mem::replace(&mut told, true)
                {
                    let remedy = remedy(user.as_deref());
                    tracing::warn!("the server does not let this node in ({answer:?}): {remedy}");
                }
                // One that goes on trying says it once.
                told &= now != State::Connected;
                let before = std::mem::replace(&mut connected, now == State::Connected);
                match (before, connected) {
                    (false, true) => Heard::Connected,
                    (true, false) => Heard::Disconnected,
                    _ => continue,
                }
            }
            message = received.recv() => match message {
                None => return,
                Some(message) => match heard_in(message, &places) {
                    Some(heard) => heard,
                    None => continue,
                },
            },
            () = tell.closed() => return,
        };
        if tell.send(heard).await.is_err() {
            return;
        }
    }
}

fn heard_in(message: Received, places: &Places) -> Option<Heard> {
    let payload: Bytes = message.payload.clone();
    match places.kind_of(message.topic.as_str()) {
        // What the server kept from long ago is no beat.
        Some(Kind::Beat) if !message.retained => {
            message.accept();
            Some(Heard::Beat(payload))
        }
        Some(Kind::Ack) => {
            message.accept();
            Some(Heard::Ack(payload))
        }
        Some(Kind::In(_)) => Some(Heard::Message(payload, Box::new(move || message.accept()))),
        _ => {
            message.accept();
            None
        }
    }
}
