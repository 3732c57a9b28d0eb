//! A node that speaks AMQP: it declares its own queue, durable and bound by its id, and hears beats and acknowledgements on the
//! topic exchange. Results are persistent and confirmed. One that has a user of its own there finds its queue made, and may do
//! no more than take from it, hear those, and speak as itself, where its manager said ([`Own`]).
//!
//! A server ends a channel on which something was asked that may not be. What is said, and what actions publish, have one each;
//! one that was ended is opened anew, on the same connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Consumer, ExchangeKind};
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice};
use mutirao_nodes::wire::places::{Kind, MATCH_ALL, NODE_HEADER, PREFETCH, Places, TOPIC_EXCHANGE};
use mutirao_nodes::{Namespace, NodeId};
use mutirao_tls::Trust;
use tokio::sync::{Notify, mpsc, watch};

use super::{Heard, Line};
use crate::builtin::Publish;

const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const CONFIRM_MAX: Duration = Duration::from_secs(30);
const HEARD_MAX: usize = 16;
/// How often it is looked whether a channel that owes a confirmation is still there.
const LOOK: Duration = Duration::from_millis(200);
const PERSISTENT: u8 = 2;

/// Where to, and as whom.
#[derive(Clone)]
pub struct Options {
    /// `amqp://user:password@host:5672/vhost`
    pub url: String,
    pub trust: Trust,
    pub namespace: Namespace,
    pub node: NodeId,
    pub own: Option<Own>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

/// What a node has there for itself alone: its queue was made for it, and it says who it is.
#[derive(Clone, Debug)]
pub struct Own {
    pub user: String,
    /// Where it speaks.
    pub exchange: String,
}

pub struct Amqp {
    places: Places,
    own: Option<Own>,
    /// While there is a connection.
    channels: watch::Receiver<Option<Channels>>,
    /// One of them was found to be ended.
    ended: Arc<Notify>,
    clock: Arc<dyn Clock>,
}

/// To publish on.
#[derive(Clone)]
struct Channels {
    saying: Channel,
    publishing: Channel,
}

impl Amqp {
    /// Connects, and goes on connecting for as long as somebody listens.
    pub fn start(options: Options) -> (Self, mpsc::Receiver<Heard>) {
        let (tell, heard) = mpsc::channel(HEARD_MAX);
        let (opened, channels) = watch::channel(None);
        let (places, clock, own) = (Places(options.namespace.clone()), options.clock.clone(), options.own.clone());
        let ended = Arc::new(Notify::new());
        tokio::spawn(stay(options, opened, ended.clone(), tell));
        (Self { places, own, channels, ended, clock }, heard)
    }

    /// What nodes say to managers.
    async fn say(&self, key: &str, text: String) -> Result<(), String> {
        let exchange = self.own.as_ref().map_or(TOPIC_EXCHANGE, |own| &own.exchange);
        let channel = self.channels.borrow().as_ref().map(|channels| channels.saying.clone());
        self.put(channel, exchange, key, text).await
    }

    async fn put(&self, channel: Option<Channel>, exchange: &str, key: &str, text: String) -> Result<(), String> {
        let channel = channel.ok_or("there is no connection")?;
        let mut properties =
            BasicProperties::default().with_delivery_mode(PERSISTENT).with_content_type("application/json".into());
        if let Some(own) = &self.own {
            properties = properties.with_user_id(own.user.as_str().into());
        }
        let said = async {
            let options = BasicPublishOptions::default();
            let sent = channel.basic_publish(exchange.into(), key.into(), options, text.as_bytes(), properties);
            sent.await?.await
        };
        // What was said as its channel ended may never be confirmed, nor refused.
        let ended = async {
            while channel.status().connected() {
                self.clock.sleep(LOOK).await;
            }
            self.clock.sleep(LOOK).await;
        };
        let said = tokio::select! {
            biased;
            said = self.clock.timeout(CONFIRM_MAX, said) => said,
            () = ended => {
                self.ended.notify_one();
                return Err("the server ended the channel".into());
            }
        };
        if !channel.status().connected() {
            self.ended.notify_one();
        }
        match said {
            Ok(Ok(Confirmation::Ack(None))) => Ok(()),
            Ok(Ok(_)) => Err("the server did not take it".into()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the server did not confirm it in time".into()),
        }
    }
}

#[async_trait]
impl Line for Amqp {
    async fn register(&self, text: String) -> Result<(), String> {
        self.say(&self.places.register(), text).await
    }

    async fn result(&self, text: String) -> Result<(), String> {
        self.say(&self.places.results(), text).await
    }
}

#[async_trait]
impl Publish for Amqp {
    async fn publish(&self, to: &str, text: String) -> Result<(), String> {
        let channel = self.channels.borrow().as_ref().map(|channels| channels.publishing.clone());
        self.put(channel, TOPIC_EXCHANGE, to, text).await
    }
}

async fn stay(
    options: Options,
    opened: watch::Sender<Option<Channels>>,
    ended: Arc<Notify>,
    tell: mpsc::Sender<Heard>,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let (clock, dice) = (options.clock.clone(), options.dice.clone());
        match mutirao_broker::rabbit::dial(&options.url, &options.trust, "node", clock, dice).await {
            Ok(connection) => match Session::open(connection, &options).await {
                Ok(session) => {
                    pause = PAUSE_MIN;
                    opened.send_replace(Some(session.channels.clone()));
                    let listening = session.listen(&opened, &ended, &tell, &*options.clock);
                    if tell.send(Heard::Connected).await.is_err() || listening.await == Over::NobodyListens {
                        return;
                    }
                    opened.send_replace(None);
                    if tell.send(Heard::Disconnected).await.is_err() {
                        return;
                    }
                }
                Err(error) => tracing::warn!("the node's queue cannot be used: {error}"),
            },
            Err(error) => tracing::warn!("{error}"),
        }
        tokio::select! {
            () = options.clock.sleep(options.dice.jitter(pause)) => {}
            () = tell.closed() => return,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[derive(PartialEq, Eq)]
enum Over {
    Broke,
    NobodyListens,
}

struct Session {
    /// It closes when it is dropped.
    connection: Connection,
    channels: Channels,
    messages: Consumer,
    news: Consumer,
    places: Places,
}

impl Session {
    async fn open(connection: Connection, options: &Options) -> lapin::Result<Self> {
        let places = Places(options.namespace.clone());
        let channels = Channels { saying: to_publish(&connection).await?, publishing: to_publish(&connection).await? };
        let hearing = connection.create_channel().await?;
        hearing.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let (none, bound) = (FieldTable::default, QueueBindOptions::default);
        let own = places.unicast_queue(&options.node);
        if options.own.is_none() {
            let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
            hearing.exchange_declare(places.unicast().into(), ExchangeKind::Headers, durable, none()).await?;
            let durable = QueueDeclareOptions { durable: true, ..Default::default() };
            hearing.queue_declare(own.as_str().into(), durable, none()).await?;
            let mut binding = none();
            binding.insert(MATCH_ALL.0.into(), AMQPValue::LongString(MATCH_ALL.1.into()));
            binding.insert(NODE_HEADER.into(), AMQPValue::LongString(options.node.as_str().into()));
            hearing.queue_bind(own.as_str().into(), places.unicast().into(), "".into(), bound(), binding).await?;
        }
        let exclusive = QueueDeclareOptions { exclusive: true, auto_delete: true, ..Default::default() };
        let news = hearing.queue_declare("".into(), exclusive, none()).await?.name().clone();
        for key in [places.ack(), places.beats()] {
            hearing.queue_bind(news.clone(), TOPIC_EXCHANGE.into(), key.into(), bound(), none()).await?;
        }
        let consume = BasicConsumeOptions::default;
        let no_ack = BasicConsumeOptions { no_ack: true, ..Default::default() };
        let messages = hearing.basic_consume(own.as_str().into(), "".into(), consume(), none()).await?;
        let news = hearing.basic_consume(news, "".into(), no_ack, none()).await?;
        Ok(Self { connection, channels, messages, news, places })
    }

    /// In place of those that the server ended.
    async fn open_again(&mut self) -> lapin::Result<()> {
        for channel in [&mut self.channels.saying, &mut self.channels.publishing] {
            if !channel.status().connected() {
                *channel = to_publish(&self.connection).await?;
            }
        }
        Ok(())
    }

    async fn listen(
        mut self,
        opened: &watch::Sender<Option<Channels>>,
        ended: &Notify,
        tell: &mpsc::Sender<Heard>,
        clock: &dyn Clock,
    ) -> Over {
        loop {
            let heard = tokio::select! {
                delivery = self.messages.next() => match delivery {
                    Some(Ok(delivery)) => Some(message(delivery)),
                    _ => return Over::Broke,
                },
                delivery = self.news.next() => match delivery {
                    Some(Ok(delivery)) => match self.places.kind_of(delivery.routing_key.as_str()) {
                        Some(Kind::Ack) => Some(Heard::Ack(delivery.data.into())),
                        Some(Kind::Beat) => Some(Heard::Beat(delivery.data.into())),
                        _ => None,
                    },
                    _ => return Over::Broke,
                },
                () = ended.notified() => {
                    if !matches!(clock.timeout(CONFIRM_MAX, self.open_again()).await, Ok(Ok(()))) {
                        return Over::Broke;
                    }
                    opened.send_replace(Some(self.channels.clone()));
                    None
                }
                () = tell.closed() => return Over::NobodyListens,
            };
            if let Some(heard) = heard
                && tell.send(heard).await.is_err()
            {
                return Over::NobodyListens;
            }
        }
    }
}

async fn to_publish(connection: &Connection) -> lapin::Result<Channel> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

fn message(delivery: Delivery) -> Heard {
    let Delivery { data, acker, .. } = delivery;
    let accept = move || {
        // On a connection that broke it comes again, and is known.
        tokio::spawn(async move { acker.ack(BasicAckOptions::default()).await });
    };
    Heard::Message(Bytes::from(data), Box::new(accept))
}
