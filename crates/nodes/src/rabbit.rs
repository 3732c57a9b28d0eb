//! RabbitMQ as two [`Way`]s: AMQP by the unicast exchange, and MQTT by RabbitMQ's own plugin, which meets the rest on
//! `amq.topic`. One connection that comes back by itself; while it is away both say so, and what is heard waits there.
//!
//! What is declared is in [`topology`]. Queues that workers and clients declare as well have no arguments, or theirs
//! would be refused: how much may lie in them is a policy of the server's.

mod topology;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use mutirao_broker::Rabbit;
use mutirao_core::Problem;
use mutirao_core::clock::{Clock, ClockExt};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::names::NodeId;
use crate::preference::Protocol;
use crate::registry::{Proof, Record};
use crate::switchboard::{Heard, Said, Switchboard, Voice};
use crate::way::{NotGiven, Way};
use crate::wire;
use crate::wire::places::{NODE_HEADER, Places, TOPIC_EXCHANGE};

/// After a connection that was lost, or could not be made.
const PAUSE: Duration = Duration::from_secs(2);
/// RabbitMQ confirms within this, or it is taken for away.
const CONFIRM_MAX: Duration = Duration::from_secs(5);
/// What cannot be taken now is given back after this.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
/// Messages in a durable queue outlive the server.
const PERSISTENT: u8 = 2;
/// RabbitMQ's MQTT plugin marks what came that way.
const BY_MQTT: &str = "x-mqtt-publish-qos";
/// Everybody who says nothing of who it is: RabbitMQ let it in, as one of the users of this vhost.
const SOMEBODY: &str = "somebody of the broker";

/// Both ways, open until they are stopped.
pub struct RabbitWays {
    stopping: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl RabbitWays {
    pub fn open(board: &Switchboard, rabbit: Arc<Rabbit>, clock: Arc<dyn Clock>) -> Self {
        let post = Arc::new(Post { channel: Mutex::default(), clock: clock.clone(), places: board.places().clone() });
        board.open(Arc::new(AmqpWay(post.clone())));
        board.open(Arc::new(PluginWay(post.clone())));
        let stopping = CancellationToken::new();
        let task = tokio::spawn(keep_on(board.clone(), rabbit, post, clock, stopping.clone()));
        Self { stopping, task }
    }

    pub async fn stop(self) {
        self.stopping.cancel();
        let _ = self.task.await;
    }
}

async fn keep_on(
    board: Switchboard,
    rabbit: Arc<Rabbit>,
    post: Arc<Post>,
    clock: Arc<dyn Clock>,
    stopping: CancellationToken,
) {
    let mut told = String::new();
    loop {
        let why = tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            why = attached(&board, &rabbit, &post, &clock) => why,
        };
        *post.channel.lock() = None;
        // The same is said once, not every two seconds.
        if told != why {
            tracing::warn!("nodes are not reached by RabbitMQ: {why}; it is tried again");
            told = why;
        }
        tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            () = clock.sleep(PAUSE) => {}
        }
    }
    *post.channel.lock() = None;
}

/// Until the connection is lost. Why.
async fn attached(board: &Switchboard, rabbit: &Rabbit, post: &Post, clock: &Arc<dyn Clock>) -> String {
    let connection: Connection = match rabbit.dial("nodes").await {
        Ok(connection) => connection,
        Err(error) => return error.to_string(),
    };
    let listening = async {
        let places = board.places();
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        topology::declare(&channel, places).await?;
        let ears = topology::listen(&connection, places).await?;
        *post.channel.lock() = Some(channel);
        Ok::<_, lapin::Error>(ears)
    };
    let ears = match clock.timeout(CONFIRM_MAX * 2, listening).await {
        Ok(Ok(ears)) => ears,
        Ok(Err(error)) => return explain(&error),
        Err(_) => return "RabbitMQ does not answer".into(),
    };
    let mut deliveries = futures_util::stream::select_all(ears);
    while let Some(delivery) = deliveries.next().await {
        let delivery = match delivery {
            Ok(delivery) => delivery,
            Err(error) => return explain(&error),
        };
        let (board, post, clock) = (board.clone(), post.channel.lock().clone(), clock.clone());
        let turn = board.turn().await;
        tokio::spawn(async move { take(&delivery, &board, post, &*clock, turn).await });
    }
    "the connection was lost".into()
}

fn explain(error: &lapin::Error) -> String {
    let text = error.to_string();
    match text.contains("ACCESS_REFUSED") || text.contains("access to") {
        true => format!("{text}; the manager's user needs amq.topic and the namespace's names, to read and write"),
        false => text,
    }
}

async fn take(
    delivery: &Delivery,
    board: &Switchboard,
    post: Option<Channel>,
    clock: &dyn Clock,
    turn: Option<OwnedSemaphorePermit>,
) {
    let (exchange, key) = (delivery.exchange.as_str(), delivery.routing_key.as_str());
    // By the key on amq.topic, by the queue's own name, or by that of the exchange: all are names of places.
    let kind = board.places().kind_of(key).or_else(|| board.places().kind_of(exchange));
    let Some(kind) = kind else { return settle(delivery, true).await };
    let headers = delivery.properties.headers().as_ref();
    let by_mqtt = headers.is_some_and(|headers| headers.inner().keys().any(|key| key.as_str() == BY_MQTT));
    let over = if by_mqtt { Protocol::Mqtt } else { Protocol::Amqp };
    // RabbitMQ vouches for it: it refuses messages that name another user than their connection's.
    let user = delivery.properties.user_id().as_ref().map(|user| format!("broker {user}"));
    let proof = Proof::User(user.unwrap_or_else(|| SOMEBODY.into()));
    let voice = Voice { proof, node: None, may_request: true };
    match board.hear(Said { kind, place: key, over, bytes: &delivery.data, voice }).await {
        Ok(heard) => {
            if let (Heard::Registered(ack), Some(channel)) = (heard, post) {
                let (key, text) = (board.places().ack(), wire::written(&ack));
                // Lost, the node registers again.
                let _ = channel
                    .basic_publish(
                        TOPIC_EXCHANGE.into(),
                        key.as_str().into(),
                        BasicPublishOptions::default(),
                        text.as_bytes(),
                        BasicProperties::default(),
                    )
                    .await;
            }
            settle(delivery, true).await;
        }
        Err(problem) => {
            tracing::debug!(%problem, key, "what a node said cannot be taken yet");
            // Whoever waits holds up nobody.
            drop(turn);
            clock.sleep(GIVE_BACK_AFTER).await;
            settle(delivery, false).await;
        }
    }
}

/// On a channel that was lost meanwhile it settles nothing, and comes again.
async fn settle(delivery: &Delivery, taken: bool) {
    let _ = match taken {
        true => delivery.acker.ack(BasicAckOptions::default()).await,
        false => delivery.acker.nack(BasicNackOptions { requeue: true, multiple: false }).await,
    };
}

/// Where messages leave.
struct Post {
    channel: Mutex<Option<Channel>>,
    clock: Arc<dyn Clock>,
    places: Places,
}

enum MustArrive {
    Yes,
    No,
}

impl Post {
    /// Confirmed, and where it must arrive, in some queue.
    async fn send(
        &self,
        exchange: &str,
        key: &str,
        headers: Option<FieldTable>,
        text: &str,
        must: MustArrive,
    ) -> Result<(), String> {
        let channel = self.channel.lock().clone().ok_or("RabbitMQ is away")?;
        let mandatory = matches!(must, MustArrive::Yes);
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let mut properties =
            BasicProperties::default().with_delivery_mode(PERSISTENT).with_content_type("application/json".into());
        if let Some(headers) = headers {
            properties = properties.with_headers(headers);
        }
        let sending = async {
            let sent = channel.basic_publish(exchange.into(), key.into(), options, text.as_bytes(), properties);
            sent.await?.await
        };
        match self.clock.timeout(CONFIRM_MAX, sending).await {
            Ok(Ok(Confirmation::Ack(None) | Confirmation::NotRequested)) => Ok(()),
            Ok(Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)))) => Err("no queue there is its own".into()),
            Ok(Ok(Confirmation::Nack(None))) => Err("RabbitMQ did not take it".into()),
            Ok(Err(error)) => Err(explain(&error)),
            Err(_) => Err("RabbitMQ does not confirm".into()),
        }
    }

    fn unicast(node: &NodeId) -> FieldTable {
        let mut headers = FieldTable::default();
        headers.insert(NODE_HEADER.into(), AMQPValue::LongString(node.as_str().into()));
        headers
    }
}

struct AmqpWay(Arc<Post>);

#[async_trait]
impl Way for AmqpWay {
    fn protocol(&self) -> Protocol {
        Protocol::Amqp
    }

    async fn give(&self, to: &Record, text: &str) -> Result<(), NotGiven> {
        let headers = Some(Post::unicast(&to.node));
        let given = self.0.send(&self.0.places.unicast(), "", headers, text, MustArrive::Yes).await;
        given.map_err(|why| NotGiven::Unreachable(format!("by AMQP: {why}")))
    }

    async fn beat(&self, text: &str) {
        let beats = self.0.places.beats();
        for (exchange, key) in [(beats.as_str(), ""), (TOPIC_EXCHANGE, beats.as_str())] {
            if let Err(why) = self.0.send(exchange, key, None, text, MustArrive::No).await {
                tracing::debug!(why, exchange, "a beat was not told");
            }
        }
    }

    async fn answer(&self, text: &str) -> Result<(), Problem> {
        let finals = self.0.places.finals();
        let told = self.0.send(&finals, &finals, None, text, MustArrive::Yes).await;
        told.map_err(|why| Problem::unavailable(format!("the answer could not be put on {finals}: {why}")))?;
        // For whoever listens on the topic; the queue has it already.
        let _ = self.0.send(TOPIC_EXCHANGE, &finals, None, text, MustArrive::No).await;
        Ok(())
    }
}

/// Devices at RabbitMQ's MQTT plugin.
struct PluginWay(Arc<Post>);

#[async_trait]
impl Way for PluginWay {
    fn protocol(&self) -> Protocol {
        Protocol::Mqtt
    }

    async fn give(&self, to: &Record, text: &str) -> Result<(), NotGiven> {
        let key = self.0.places.device_topic(&to.node).replace('/', ".");
        let given = self.0.send(TOPIC_EXCHANGE, &key, None, text, MustArrive::Yes).await;
        given.map_err(|why| NotGiven::Unreachable(format!("by RabbitMQ's MQTT: {why}")))
    }

    /// The other way tells both.
    async fn beat(&self, _: &str) {}

    async fn answer(&self, _: &str) -> Result<(), Problem> {
        Ok(())
    }
}
