//! The other side: a node that speaks MQTT. It comes back by itself, with growing pauses and jitter, subscribes again when
//! the server has forgotten it, and keeps what it was asked to say with quality 1 until the server has acknowledged it,
//! over any number of connections. What it is told it acknowledges once the program has accepted it.
//!
//! What is *not* here: anything that outlives the process. Who must not lose a message to a power cut keeps it until
//! [`Client::publish`] returns.

mod outgoing;
mod run;
mod talk;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::clock::Clock;
use mutirao_core::dice::Dice;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{mpsc, oneshot, watch};

use crate::codec::{Answer, Qos, Will};
use crate::session::{Message, Telling};
use crate::topics::{TopicFilter, TopicName};

#[derive(Clone)]
pub struct Options {
    /// `host:port`.
    pub server: String,
    /// With whom and whom to believe; plain TCP without.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub client_id: String,
    pub user: Option<String>,
    pub password: Option<Bytes>,
    /// Forget everything with each connection. Else the server keeps what is said while this is away.
    pub clean: bool,
    pub keep_alive: Duration,
    pub will: Option<Will>,
    pub subscriptions: Vec<(TopicFilter, Qos)>,
    pub packet_bytes_max: usize,
    /// Messages that wait to be sent or acknowledged; then [`Client::publish`] waits.
    pub messages_max: usize,
    /// Of these, sent and unacknowledged.
    pub in_flight_max: usize,
    /// Messages for the program that it has not taken. More of quality 1 wait, as many as the server sends without an
    /// acknowledgement; more of quality 0 are dropped.
    pub unaccepted_max: usize,
    /// Until a connection is there and answered.
    pub connect_wait_max: Duration,
    /// Between tries: it doubles from the first to the last, and half of it is chance.
    pub pause_min: Duration,
    pub pause_max: Duration,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

impl Options {
    pub fn new(
        server: impl Into<String>,
        client_id: impl Into<String>,
        clock: Arc<dyn Clock>,
        dice: Arc<Dice>,
    ) -> Self {
        Self {
            server: server.into(),
            tls: None,
            client_id: client_id.into(),
            user: None,
            password: None,
            clean: false,
            keep_alive: Duration::from_secs(30),
            will: None,
            subscriptions: vec![],
            packet_bytes_max: 256 << 10,
            messages_max: 64,
            in_flight_max: 16,
            unaccepted_max: 16,
            connect_wait_max: Duration::from_secs(10),
            pause_min: Duration::from_millis(250),
            pause_max: Duration::from_secs(30),
            clock,
            dice,
        }
    }
}

/// Where the client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// On its way, for the first time or again.
    Connecting,
    /// Let in, and its subscriptions answered.
    Connected,
    /// The server said no. It is tried again nevertheless: people mend passwords.
    Refused(Answer),
}

/// Cheap to clone. When the last is gone, the client says goodbye and ends.
#[derive(Clone)]
pub struct Client {
    orders: mpsc::Sender<Order>,
    state: watch::Receiver<State>,
}

/// What the program asked to be said.
struct Order {
    message: Arc<Message>,
    telling: Telling,
    done: oneshot::Sender<()>,
}

/// A message that the server sent, until it is accepted.
#[derive(Debug)]
pub struct Received {
    pub topic: TopicName,
    pub payload: Bytes,
    /// It was kept for whoever would subscribe.
    pub retained: bool,
    done: Option<oneshot::Sender<()>>,
}

impl Received {
    /// The program has it: the server may forget it. One that is dropped instead is sent again after a reconnect.
    pub fn accept(self) {
        if let Some(done) = self.done {
            let _ = done.send(());
        }
    }
}

/// The message was not sent, or not acknowledged, and will not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSaid {
    #[error("the connection broke before a message of quality 0 was sent")]
    Broke,
    #[error("the client has ended")]
    Ended,
}

impl Client {
    /// Begins at once. The second is where what the server sends arrives. Whoever does not read it can publish all the same.
    pub fn start(options: Options) -> (Self, mpsc::Receiver<Received>) {
        let (orders, taken) = mpsc::channel(options.messages_max.max(1));
        let (incoming, received) = mpsc::channel(options.unaccepted_max.max(1));
        let (told, state) = watch::channel(State::Connecting);
        tokio::spawn(run::run(options, taken, incoming, told));
        (Self { orders, state }, received)
    }

    /// Publishes. It returns when the server has acknowledged (quality 1), or when it was written (quality 0), however
    /// many connections that takes. Dropping the wait does not take the message back.
    pub async fn publish(&self, topic: TopicName, payload: Bytes, qos: Qos) -> Result<(), NotSaid> {
        self.order(
            Message { topic, payload, qos: qos.min(Qos::AtLeastOnce), retain: false, wanted: None },
            Telling::Live,
        )
        .await
    }

    /// Publishes, and asks the server to keep it for those who subscribe later.
    pub async fn retain(&self, topic: TopicName, payload: Bytes, qos: Qos) -> Result<(), NotSaid> {
        self.order(
            Message { topic, payload, qos: qos.min(Qos::AtLeastOnce), retain: true, wanted: None },
            Telling::Retained,
        )
        .await
    }

    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    async fn order(&self, message: Message, telling: Telling) -> Result<(), NotSaid> {
        let (done, said) = oneshot::channel();
        let order = Order { message: Arc::new(message), telling, done };
        self.orders.send(order).await.map_err(|_| NotSaid::Ended)?;
        said.await.map_err(|_| if self.orders.is_closed() { NotSaid::Ended } else { NotSaid::Broke })
    }
}
