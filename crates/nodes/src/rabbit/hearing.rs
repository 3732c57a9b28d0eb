//! What comes from RabbitMQ: who said it, over what, and how it is settled.

use std::time::Duration;

use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use mutirao_broker::rabbit::management::nodes::node_of;
use tokio::sync::OwnedSemaphorePermit;

use super::post::{ACK_LASTS, Letter, MustArrive, Post};
use crate::preference::Protocol;
use crate::registry::Proof;
use crate::switchboard::{Heard, Said, Switchboard, Voice};
use crate::wire;
use crate::wire::places::TOPIC_EXCHANGE;

/// What cannot be taken now is given back after this.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
/// RabbitMQ's MQTT plugin marks what came that way.
const BY_MQTT: &str = "x-mqtt-publish-qos";
/// Everybody who says nothing of who it is: RabbitMQ let it in, as one of the users of this vhost.
const SOMEBODY: &str = "somebody of the broker";

pub async fn take(delivery: &Delivery, board: &Switchboard, post: &Post, turn: Option<OwnedSemaphorePermit>) {
    let (exchange, key) = (delivery.exchange.as_str(), delivery.routing_key.as_str());
    // By the key on amq.topic, by the queue's own name, or by that of the exchange: all are names of places.
    let kind = board.places().kind_of(key).or_else(|| board.places().kind_of(exchange));
    let Some(kind) = kind else { return settle(delivery, true).await };
    let headers = delivery.properties.headers().as_ref();
    let by_mqtt = headers.is_some_and(|headers| headers.inner().keys().any(|key| key.as_str() == BY_MQTT));
    let over = if by_mqtt { Protocol::Mqtt } else { Protocol::Amqp };
    // RabbitMQ vouches for it: it refuses messages that name another user than their connection's.
    let voice = voice(delivery.properties.user_id().as_ref().map(|user| user.as_str()));
    match board.hear(Said { kind, place: key, over, bytes: &delivery.data, voice }).await {
        Ok(heard) => {
            if let Heard::Registered(ack) = heard {
                let (key, text) = (board.places().ack(), wire::written(&ack));
                let must = MustArrive::No;
                // Lost, the node registers again.
                let _ = post
                    .send(Letter {
                        exchange: TOPIC_EXCHANGE,
                        key: &key,
                        headers: None,
                        text: &text,
                        must,
                        lasts: ACK_LASTS,
                    })
                    .await;
            }
            settle(delivery, true).await;
        }
        Err(problem) => {
            tracing::debug!(%problem, key, "what a node said cannot be taken yet");
            // Whoever waits holds up nobody.
            drop(turn);
            post.clock.sleep(GIVE_BACK_AFTER).await;
            settle(delivery, false).await;
        }
    }
}

fn voice(user: Option<&str>) -> Voice {
    // One that has a user of its own, made for its key, speaks for itself and nobody else.
    let node = user.and_then(node_of).and_then(|node| node.parse().ok());
    let may_request = node.is_none();
    Voice {
        proof: Proof::User(user.map_or_else(|| SOMEBODY.into(), |user| format!("broker {user}"))),
        node,
        may_request,
    }
}

/// Whether a node came in by RabbitMQ.
pub fn came_here(proof: &Proof) -> bool {
    matches!(proof, Proof::User(user) if user == SOMEBODY || user.starts_with("broker "))
}

/// On a channel that was lost meanwhile it settles nothing, and comes again.
async fn settle(delivery: &Delivery, taken: bool) {
    let _ = match taken {
        true => delivery.acker.ack(BasicAckOptions::default()).await,
        false => delivery.acker.nack(BasicNackOptions { requeue: true, multiple: false }).await,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_was_made_for_a_node_speaks_for_that_node_only() {
        let of = |user: &str| voice(Some(user)).node.map(|node| node.to_string());
        assert_eq!(of("mutirao.node.gate-7").as_deref(), Some("gate-7"));
        assert_eq!((of("guest"), of("mutirao.worker.w1"), of("node.gate-7")), (None, None, None));
        assert!(!voice(Some("mutirao.node.gate-7")).may_request && voice(None).may_request);
    }
}
