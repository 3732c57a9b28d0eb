//! Events published to MQTT topics with quality 1: through the installation's own listener, its RabbitMQ, which speaks MQTT
//! beside AMQP, or another broker.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use mutirao_core::clock::ClockExt;
use mutirao_mqtt::{Client, Port, Qos, TopicName};
use mutirao_streams::graph::Address;
use mutirao_streams::part::SinkRow;

use super::{Away, Given, Outlet, amqp};
use crate::running::Means;
use crate::sources::mqtt_options;

/// Messages on their way together.
const TOGETHER: usize = 64;
const ACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

pub fn open(at: Option<&Address>, client: String, means: &Means) -> Result<Box<dyn Outlet>, String> {
    if let Some(at) = at {
        let options = mqtt_options(at, client, means)?;
        let server = options.server.clone();
        let options = mutirao_mqtt::Options { clean: true, in_flight_max: TOGETHER, messages_max: TOGETHER, ..options };
        let (client, _nothing) = Client::start(options);
        return Ok(Box::new(Remote { client, server, means: means.clone() }));
    }
    match (&means.ends.mqtt, &means.ends.amqp) {
        (Some(port), _) => Ok(Box::new(Own { port: port.clone() })),
        (None, Some(_)) => {
            let exchange = amqp::Exchange::of("amq.topic".into(), None, client, means)?;
            Ok(Box::new(exchange.of_topics()))
        }
        (None, None) => Err("this host has no MQTT of the installation's own; give the sink a url".into()),
    }
}

fn topic_of(row: &SinkRow) -> Result<TopicName, String> {
    let text = row.name.as_deref().unwrap_or_default();
    TopicName::new(text).map_err(|error| format!("the topic \"{text}\": {error}"))
}

struct Own {
    port: Port,
}

#[async_trait]
impl Outlet for Own {
    async fn give(&mut self, rows: &[SinkRow]) -> Result<Given, Away> {
        let mut given = Given::default();
        for (n, row) in rows.iter().enumerate() {
            let said = topic_of(row).and_then(|topic| {
                let value = row.value.clone().into();
                self.port.publish(topic, value, Qos::AtLeastOnce).map_err(|error| error.to_string())
            });
            given.refused.extend(said.err().map(|why| (n, why)));
        }
        Ok(given)
    }
}

struct Remote {
    client: Client,
    server: String,
    means: Means,
}

#[async_trait]
impl Outlet for Remote {
    async fn give(&mut self, rows: &[SinkRow]) -> Result<Given, Away> {
        let (mut given, mut done) = (Given::default(), 0);
        while done < rows.len() {
            let until = rows.len().min(done + TOGETHER);
            let mut sent = Vec::new();
            for (n, row) in rows[done..until].iter().enumerate() {
                match topic_of(row) {
                    Ok(topic) => sent.push(self.client.publish(topic, row.value.clone().into(), Qos::AtLeastOnce)),
                    Err(why) => given.refused.push((done + n, why)),
                }
            }
            // They are asked in order, and so they go.
            let all = self.means.clock.timeout(ACKNOWLEDGED_MAX, join_all(sent)).await;
            let away = |why: String, given: Given| Away { done, given, why };
            match all {
                Ok(all) => {
                    if let Some(error) = all.into_iter().find_map(Result::err) {
                        given.refused.retain(|(row, _)| *row < done);
                        return Err(away(error.to_string(), given));
                    }
                }
                Err(_) => {
                    given.refused.retain(|(row, _)| *row < done);
                    return Err(away(format!("{} acknowledges nothing", self.server), given));
                }
            }
            done = until;
        }
        Ok(given)
    }
}
