//! Nodes of this program: each a connection of its own, in the words of the wire, as a device would be. As devices are told to,
//! one that is asked the same again while it has it at hand, or after, does not do it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_mqtt::client::{Client, Options};
use mutirao_mqtt::{Qos, TopicFilter, TopicName};
use mutirao_nodes::wire::places::{Kind, Places};
use mutirao_nodes::wire::{Heartbeat, Message, Register, written};
use mutirao_nodes::{Layer, Namespace, NodeId};

use super::effects::{Before, Effects, Lately};

/// Devices say again what they have when they are asked to, this far apart at most.
const SPREAD_MS: u64 = 300;

#[derive(Default)]
pub struct Seen {
    /// Messages that were answered.
    pub answered: AtomicU64,
    /// Acknowledgements of registrations, and when the last first one of a device came.
    pub registered: AtomicU64,
    /// What was done, for experiments that look at it.
    pub effects: Option<Effects>,
}

#[derive(Clone)]
pub struct Fleet {
    pub server: String,
    pub seen: Arc<Seen>,
    pub dice: Arc<Dice>,
    pub places: Places,
}

impl Fleet {
    pub fn new(server: &str, dice: Arc<Dice>) -> Self {
        let places = Places(Namespace::default());
        Self { server: server.into(), seen: Arc::default(), dice, places }
    }

    /// One that keeps account of what its devices do.
    pub fn accounting(server: &str, dice: Arc<Dice>) -> Self {
        let seen = Arc::new(Seen { effects: Some(Effects::default()), ..Seen::default() });
        Self { seen, ..Self::new(server, dice) }
    }

    /// A device that answers each message after `takes`, with what it was given.
    pub fn device(&self, name: &str, layer: Layer, action: &str, takes: Duration) -> anyhow::Result<Device> {
        let node: NodeId = name.parse()?;
        let mut options =
            Options::new(self.server.clone(), format!("esp32-{node}"), SystemClock::shared(), self.dice.clone());
        let (inbox, beats) = (self.places.device_topic(&node), self.places.beats_topic());
        options.subscriptions = vec![
            (TopicFilter::new(&inbox)?, Qos::AtLeastOnce),
            (TopicFilter::new(&beats)?, Qos::AtMostOnce),
            (TopicFilter::new(&self.places.ack())?, Qos::AtMostOnce),
        ];
        (options.clean, options.pause_min, options.pause_max) =
            (true, Duration::from_millis(100), Duration::from_millis(500));
        let (client, mut received) = Client::start(options);
        let register = Register {
            endpoint: String::new(),
            layer,
            kind: "lab".into(),
            node: node.clone(),
            force_register: true,
            actions: vec![format!("urn:{}:Action:{action}", self.places.0)],
            parameters: Default::default(),
            labels: Default::default(),
            slots: Some(64),
        };
        let (fleet, mut state) = (self.clone(), client.state());
        let register: Bytes = written(&register).into();
        let task = tokio::spawn(async move {
            let mut lately = Lately::default();
            let say = |topic: String, body: Bytes| {
                let client = client.clone();
                async move {
                    if let Ok(topic) = TopicName::new(&topic) {
                        // Whoever is not heard says it again when asked.
                        let _ = client.publish(topic, body, Qos::AtLeastOnce).await;
                    }
                }
            };
            loop {
                tokio::select! {
                    changed = state.changed() => {
                        if changed.is_err() { return }
                        let connected = *state.borrow_and_update() == mutirao_mqtt::client::State::Connected;
                        if connected {
                            tokio::spawn(say(fleet.places.register(), register.clone()));
                        }
                    }
                    message = received.recv() => {
                        let Some(message) = message else { return };
                        let (kind, body) = (fleet.places.kind_of(message.topic.as_str()), message.payload.clone());
                        message.accept();
                        match kind {
                            Some(Kind::Beat) => {
                                let forced = serde_json::from_slice::<Heartbeat>(&body).is_ok_and(|beat| beat.force_register);
                                if forced {
                                    let (say, wait) = (say(fleet.places.register(), register.clone()), fleet.dice.below(SPREAD_MS));
                                    tokio::spawn(async move {
                                        SystemClock.sleep(Duration::from_millis(wait)).await;
                                        say.await;
                                    });
                                }
                            }
                            Some(Kind::Ack) if body.windows(node.as_str().len()).any(|part| part == node.as_str().as_bytes()) => {
                                fleet.seen.registered.fetch_add(1, Ordering::Relaxed);
                            }
                            Some(Kind::In(_)) => {
                                let Ok(mut message) = serde_json::from_slice::<Message>(&body) else { continue };
                                match lately.of(&message.request) {
                                    Before::No => {}
                                    // Its answer is on its way.
                                    Before::Doing => continue,
                                    Before::Done(answer) => {
                                        tokio::spawn(say(fleet.places.results(), answer));
                                        continue;
                                    }
                                }
                                if let Some(effects) = &fleet.seen.effects {
                                    message.data = effects.of(&message.data);
                                }
                                let answer: Bytes = written(&message).into();
                                lately.doing(message.request, answer.clone(), takes);
                                let say = say(fleet.places.results(), answer);
                                let seen = fleet.seen.clone();
                                tokio::spawn(async move {
                                    if !takes.is_zero() {
                                        SystemClock.sleep(takes).await;
                                    }
                                    say.await;
                                    seen.answered.fetch_add(1, Ordering::Relaxed);
                                });
                            }
                            _ => {}
                        }
                    }
                }
            }
        });
        Ok(Device(task))
    }
}

/// Gone when dropped.
pub struct Device(tokio::task::JoinHandle<()>);

impl Drop for Device {
    fn drop(&mut self) {
        self.0.abort();
    }
}
