//! The program's own place at the hub. It publishes without a socket, and takes what clients say into a bounded
//! [`Inbox`], one by one.
//!
//! A message of quality 1 or 2 that reaches an inbox is acknowledged to its client only once [`Delivery::accept`] was
//! called. A full inbox keeps publishers waiting, each at its own connection; those who are read from least are not read
//! before others, since the channel is fair. A delivery that is dropped ends its client's connection without an
//! acknowledgement: the client says it again.

use std::sync::Arc;

use bytes::Bytes;
use mutirao_core::clock::Clock;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::acks::NotTaken;
use crate::codec::Qos;
use crate::gate::Standing;
use crate::hub::{Counts, Gauges, Hub, PortId, Routed, Waiting};
use crate::session::{Message, Wanted};
use crate::topics::{TopicFilter, TopicName};

pub(crate) type SharedHub = Arc<Mutex<Hub<mpsc::Sender<Delivery>>>>;

/// Cheap to clone.
#[derive(Clone)]
pub struct Port {
    pub(crate) hub: SharedHub,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) packet_bytes_max: usize,
}

/// Who said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    pub who: Arc<str>,
    pub client_id: Arc<str>,
    pub standing: Standing,
}

/// A message for the program, until it is accepted.
#[derive(Debug)]
pub struct Delivery {
    pub message: Arc<Message>,
    pub speaker: Speaker,
    done: Option<oneshot::Sender<()>>,
}

/// What became of a message of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Connected clients that will be given it.
    pub here: usize,
    /// Clients that are away and will find it within the bounds of age.
    pub away: usize,
    /// Clients for whom there was no room.
    pub full: usize,
}

/// Longer than a packet may be, to clients as from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes is longer than a packet may be, {most}")]
pub struct TooLong {
    pub bytes: usize,
    pub most: usize,
}

impl Port {
    /// Publishes to clients. It waits for nobody: who has no room is counted in the answer.
    pub fn publish(&self, topic: TopicName, payload: Bytes, qos: Qos) -> Result<Published, TooLong> {
        self.send(Message { topic, payload, qos, retain: false, wanted: None }, None)
    }

    /// Publishes to those who came in under one name, whoever else listens.
    pub fn publish_to(&self, who: &str, topic: TopicName, payload: Bytes, qos: Qos) -> Result<Published, TooLong> {
        self.send(Message { topic, payload, qos, retain: false, wanted: None }, Some(who))
    }

    /// With quality 1, to those who came in under one name. Once nobody wants it any more it is not given to them.
    pub fn task_to(&self, who: &str, topic: TopicName, payload: Bytes, wanted: Wanted) -> Result<Published, TooLong> {
        let (qos, wanted) = (Qos::AtLeastOnce, Some(wanted));
        self.send(Message { topic, payload, qos, retain: false, wanted }, Some(who))
    }

    /// Publishes to clients, also to those that subscribe later. An empty payload takes back what was kept.
    pub fn retain(&self, topic: TopicName, payload: Bytes, qos: Qos) -> Result<Published, TooLong> {
        self.send(Message { topic, payload, qos, retain: true, wanted: None }, None)
    }

    /// Hears whatever matches from now on, and nothing that was retained before. These topics are the program's from now on: when the inbox is dropped, what is published
    /// to them is no longer acknowledged, until [`Inbox::leave`] or the end of the listener.
    pub fn subscribe(&self, filters: Vec<TopicFilter>, messages_max: usize) -> Inbox {
        let (sender, messages) = mpsc::channel(messages_max.max(1));
        let id = self.hub.lock().open_port(&filters, sender);
        Inbox { hub: self.hub.clone(), id, filters, messages }
    }

    /// Cuts off whoever came in under this name and forgets their sessions. How many there were.
    pub fn expel(&self, who: &str) -> usize {
        self.hub.lock().expel(who)
    }

    pub fn counts(&self) -> Counts {
        self.hub.lock().counts()
    }

    pub fn gauges(&self) -> Gauges {
        self.hub.lock().gauges()
    }

    /// What waits for those who came in under a name.
    pub fn waiting_for(&self, who: &str) -> Waiting {
        self.hub.lock().waiting_for(who)
    }

    fn send(&self, message: Message, audience: Option<&str>) -> Result<Published, TooLong> {
        // The topic with its length, and the packet's number.
        let bytes = message.topic.as_str().len() + message.payload.len() + 4;
        if bytes > self.packet_bytes_max {
            return Err(TooLong { bytes, most: self.packet_bytes_max });
        }
        let now = self.clock.monotonic();
        let Routed { here, away, full, .. } = self.hub.lock().publish_from_program(message, audience, now);
        Ok(Published { here, away, full })
    }
}

/// What clients have said to the program and it has not taken yet.
pub struct Inbox {
    hub: SharedHub,
    id: PortId,
    filters: Vec<TopicFilter>,
    messages: mpsc::Receiver<Delivery>,
}

impl Inbox {
    /// The next one. Nothing when the listener has ended.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.messages.recv().await
    }

    /// The next one, if it is there already.
    pub fn at_hand(&mut self) -> Option<Delivery> {
        self.messages.try_recv().ok()
    }

    /// These topics are nobody's from now on.
    pub fn leave(self) {
        self.hub.lock().close_port(self.id, &self.filters);
    }
}

impl Delivery {
    /// It is safe with the program: its client may forget it.
    pub fn accept(self) {
        if let Some(done) = self.done {
            // The client may be gone; then it will say it again.
            let _ = done.send(());
        }
    }
}

/// Gives a message to the inboxes that matched, waiting for room, and gives back what is to be waited for before it is
/// acknowledged. An inbox that is gone is an error.
pub(crate) async fn deliver(
    routed: Routed<mpsc::Sender<Delivery>>,
    speaker: &Speaker,
) -> Result<Vec<oneshot::Receiver<()>>, NotTaken> {
    let mut waits = vec![];
    if routed.port_gone {
        return Err(NotTaken);
    }
    for port in routed.ports {
        let done = match routed.message.qos {
            Qos::AtMostOnce => None,
            Qos::AtLeastOnce | Qos::ExactlyOnce => {
                let (done, wait) = oneshot::channel();
                waits.push(wait);
                Some(done)
            }
        };
        let delivery = Delivery { message: routed.message.clone(), speaker: speaker.clone(), done };
        port.send(delivery).await.map_err(|_| NotTaken)?;
    }
    Ok(waits)
}
