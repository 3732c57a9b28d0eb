//! Messages of an AMQP queue, acknowledged once what came of them is durable. A queue that is not there is made; one of topics
//! is the source's own, bound to the topic exchange, where MQTT messages of RabbitMQ come by too.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer};
use mutirao_broker::{Rabbit, rabbit};
use mutirao_core::clock::ClockExt;
use mutirao_streams::graph::Address;
use mutirao_tls::Trust;
use tokio::sync::watch;

use super::{Came, Feed, Taken};
use crate::running::Means;

const PREFETCH: u16 = 1_000;
const TOGETHER_MAX: usize = 512;
const OPEN_MAX: Duration = Duration::from_secs(15);
const TOPICS: &str = "amq.topic";

/// A server, to be connected to as often as it takes.
#[derive(Clone)]
pub enum Server {
    Own(Arc<Rabbit>),
    Other { url: String, trust: Trust },
}

impl Server {
    pub fn of(at: Option<&Address>, means: &Means) -> Result<Self, String> {
        let Some(at) = at else {
            let own = means.ends.amqp.clone();
            return own.map(Server::Own).ok_or_else(|| {
                "this host has no RabbitMQ of the installation's own; give it a url: amqp://host:5672".to_owned()
            });
        };
        let found = super::address(at, &means.ends.trust)?;
        let mut url = found.url;
        let whole = || format!("{}: it takes no user", at.url);
        if let Some(user) = &found.user {
            url.set_username(user).map_err(|()| whole())?;
        }
        if let Some(password) = &found.password {
            url.set_password(Some(password)).map_err(|()| whole())?;
        }
        Ok(Server::Other { url: url.to_string(), trust: found.trust })
    }

    pub async fn dial(&self, means: &Means) -> Result<Connection, String> {
        let dialled = async {
            match self {
                Server::Own(rabbit) => rabbit.dial("streams").await,
                Server::Other { url, trust } => {
                    rabbit::dial(url, trust, "streams", means.clock.clone(), means.dice.clone()).await
                }
            }
        };
        let dialled = means.clock.timeout(OPEN_MAX, dialled).await;
        dialled.map_err(|_| "the server does not answer".to_owned())?.map_err(|error| error.to_string())
    }
}

enum Of {
    Queue,
    /// Routing keys, as the topic exchange knows them.
    Topics(Vec<String>),
}

pub struct Queue {
    server: Server,
    queue: String,
    of: Of,
    means: Means,
    open: Option<Open>,
    ticket: u64,
}

struct Open {
    _connection: Connection,
    messages: Consumer,
    /// Up to which tag everything is settled.
    settled: watch::Sender<u64>,
    /// Tickets of this connection are greater than this, by their tag.
    from: u64,
}

impl Queue {
    pub fn of(queue: &str, at: Option<&Address>, means: &Means) -> Result<Self, String> {
        let server = Server::of(at, means)?;
        Ok(Self { server, queue: queue.into(), of: Of::Queue, means: means.clone(), open: None, ticket: 0 })
    }

    /// Of the topic exchange of the installation's own server, in a queue of this name.
    pub fn of_topics(topics: &[String], queue: String, means: &Means) -> Result<Self, String> {
        let server = Server::of(None, means)?;
        let keys = topics.iter().map(|topic| routing_key(topic)).collect();
        Ok(Self { server, queue, of: Of::Topics(keys), means: means.clone(), open: None, ticket: 0 })
    }

    async fn open(&self) -> Result<Open, String> {
        let connection = self.server.dial(&self.means).await?;
        let opened = self.means.clock.timeout(OPEN_MAX, self.consume(&connection)).await;
        let opened = opened.map_err(|_| "the server does not answer".to_owned())?;
        let (channel, messages) = opened.map_err(|error| format!("the queue {}: {error}", self.queue))?;
        let (settled, told) = watch::channel(0);
        tokio::spawn(acknowledge(channel, told));
        Ok(Open { _connection: connection, messages, settled, from: self.ticket })
    }

    async fn consume(&self, connection: &Connection) -> lapin::Result<(Channel, Consumer)> {
        let mut channel = connection.create_channel().await?;
        let (name, none) = (|| self.queue.as_str().into(), FieldTable::default);
        // Whoever made it may have made it in another way than we would.
        if channel
            .queue_declare(name(), QueueDeclareOptions { passive: true, ..Default::default() }, none())
            .await
            .is_err()
        {
            channel = connection.create_channel().await?;
            let durable = QueueDeclareOptions { durable: true, ..Default::default() };
            channel.queue_declare(name(), durable, none()).await?;
        }
        if let Of::Topics(keys) = &self.of {
            for key in keys {
                let bound = QueueBindOptions::default();
                channel.queue_bind(name(), TOPICS.into(), key.as_str().into(), bound, none()).await?;
            }
        }
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let messages = channel.basic_consume(name(), "".into(), BasicConsumeOptions::default(), none()).await?;
        Ok((channel, messages))
    }
}

/// `grid/+/reading` is `grid.*.reading` there.
fn routing_key(topic: &str) -> String {
    let levels = topic.split('/').map(|level| if level == "+" { "*".to_owned() } else { level.replace('.', "/") });
    levels.collect::<Vec<_>>().join(".")
}

#[async_trait]
impl Feed for Queue {
    async fn next(&mut self) -> Result<Taken, String> {
        if self.open.is_none() {
            self.open = Some(self.open().await?);
        }
        let Some(open) = &mut self.open else { return Err("there is no connection".into()) };
        let mut next = open.messages.next().await;
        let mut messages = Vec::new();
        loop {
            match next {
                Some(Ok(Delivery { delivery_tag, data, .. })) => {
                    self.ticket = open.from + delivery_tag;
                    messages.push(Bytes::from(data));
                }
                ended => {
                    self.open = None;
                    let why = match ended {
                        Some(Err(error)) => error.to_string(),
                        _ => "the connection ended".into(),
                    };
                    // What came before it will come again, and is known then only by what it says.
                    if messages.is_empty() {
                        return Err(why);
                    }
                    break;
                }
            }
            let more = if messages.len() < TOGETHER_MAX { open.messages.next().now_or_never() } else { None };
            let Some(more) = more else { break };
            next = more;
        }
        Ok(Taken { came: Came::Messages(messages), ticket: self.ticket, at_us: self.means.clock.now().0 * 1_000 })
    }

    fn settle(&mut self, ticket: u64) {
        let Some(open) = &self.open else { return };
        // Tags of a connection that is gone mean nothing on this one.
        let Some(tag) = ticket.checked_sub(open.from).filter(|tag| *tag > 0) else { return };
        open.settled.send_if_modified(|known| {
            let is_new = tag > *known;
            *known = tag.max(*known);
            is_new
        });
    }
}

/// One after the other, the last that is known each time: to a server a tag before one that it has is a fault, and it ends the
/// channel. What was on its way then comes again.
async fn acknowledge(channel: Channel, mut settled: watch::Receiver<u64>) {
    while settled.changed().await.is_ok() {
        let tag = *settled.borrow_and_update();
        // Should it be lost, so is the channel, and they come again.
        if channel.basic_ack(tag, BasicAckOptions { multiple: true }).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_routing_keys_as_the_server_writes_them() {
        assert_eq!(routing_key("grid/+/reading"), "grid.*.reading");
        assert_eq!(routing_key("grid/#"), "grid.#");
        assert_eq!(routing_key("a.b/c"), "a/b.c");
    }
}
