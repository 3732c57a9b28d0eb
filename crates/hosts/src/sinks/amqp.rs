//! Events published to an AMQP exchange, persistent and confirmed, many on their way at once. Each has its number as
//! `message_id`, by which consumers can know one that comes again.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use mutirao_core::clock::ClockExt;
use mutirao_streams::graph::Address;
use mutirao_streams::part::SinkRow;

use super::{Away, Given, Outlet};
use crate::running::Means;
use crate::sources::Server;

const TOGETHER: usize = 256;
const CONFIRM_MAX: Duration = Duration::from_secs(30);
const PERSISTENT: u8 = 2;
/// What a server takes as a routing key.
const KEY_BYTES_MAX: usize = 255;

pub struct Exchange {
    server: Server,
    exchange: String,
    /// `s7f3k9q2/alarm`
    named: String,
    dotted: bool,
    means: Means,
    open: Option<(Connection, Channel)>,
}

/// `grid/7/alarm` is `grid.7.alarm` to a topic exchange.
fn dotted(topic: &str) -> String {
    let turned = topic.chars().map(|c| match c {
        '/' => '.',
        '.' => '/',
        c => c,
    });
    turned.collect()
}

impl Exchange {
    pub fn of(exchange: String, at: Option<&Address>, named: String, means: &Means) -> Result<Self, String> {
        let server = Server::of(at, means)?;
        Ok(Self { server, exchange, named, dotted: false, means: means.clone(), open: None })
    }

    /// Its key is a topic of MQTT.
    pub fn of_topics(self) -> Self {
        Self { dotted: true, ..self }
    }

    fn key(&self, row: &SinkRow) -> Result<String, String> {
        let name = row.name.as_deref().unwrap_or_default();
        let key = if self.dotted { dotted(name) } else { name.to_owned() };
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("the key is longer than {KEY_BYTES_MAX} bytes"));
        }
        Ok(key)
    }

    async fn channel(&mut self) -> Result<Channel, String> {
        if let Some((_, channel)) = self.open.as_ref().filter(|(_, channel)| channel.status().connected()) {
            return Ok(channel.clone());
        }
        self.open = None;
        let connection = self.server.dial(&self.means).await?;
        let opened = async {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, lapin::Error>(channel)
        };
        let opened = self.means.clock.timeout(CONFIRM_MAX, opened).await;
        let channel = opened.map_err(|_| "the server does not answer")?.map_err(|error| error.to_string())?;
        self.open = Some((connection, channel.clone()));
        Ok(channel)
    }

    async fn send(&self, channel: &Channel, key: &str, number: &str, body: &[u8]) -> Result<(), String> {
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into())
            .with_message_id(format!("{}/{number}", self.named).into());
        // To the default exchange the key is a queue, and one that is not there would swallow it.
        let options = BasicPublishOptions { mandatory: self.exchange.is_empty(), ..Default::default() };
        let sent = channel.basic_publish(self.exchange.as_str().into(), key.into(), options, body, properties).await;
        match sent.map_err(|error| error.to_string())?.await {
            Ok(Confirmation::Ack(None)) => Ok(()),
            Ok(Confirmation::Ack(Some(_))) => Err(format!("there is no queue {key}")),
            Ok(_) => Err("the server did not take it".into()),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[async_trait]
impl Outlet for Exchange {
    async fn give(&mut self, rows: &[SinkRow]) -> Result<Given, Away> {
        let (mut given, mut done) = (Given::default(), 0);
        while done < rows.len() {
            let away = |why: String, given: Given| Away { done, given, why };
            let channel = match self.channel().await {
                Ok(channel) => channel,
                Err(why) => return Err(away(why, given)),
            };
            let until = rows.len().min(done + TOGETHER);
            let (mut keys, mut refused) = (Vec::new(), Vec::new());
            for (n, row) in rows[done..until].iter().enumerate() {
                match self.key(row) {
                    Ok(key) => keys.push((row, key)),
                    Err(why) => refused.push((done + n, why)),
                }
            }
            let sent = keys.iter().map(|(row, key)| {
                let (channel, this, number) = (&channel, &*self, row.place.to_string());
                async move { this.send(channel, key, &number, &row.value).await }
            });
            let all = self.means.clock.timeout(CONFIRM_MAX, join_all(sent)).await;
            let failed = match all {
                Ok(all) => all.into_iter().find_map(Result::err),
                Err(_) => Some("the server confirms nothing".into()),
            };
            if let Some(why) = failed {
                self.open = None;
                return Err(away(why, given));
            }
            given.refused.append(&mut refused);
            done = until;
        }
        Ok(given)
    }
}
