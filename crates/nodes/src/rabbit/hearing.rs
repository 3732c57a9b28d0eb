//! What comes from RabbitMQ: who said it, over what, and how it is settled.

use std::sync::Arc;
use std::time::Duration;

use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use mutirao_broker::rabbit::management::nodes::node_of;
use tokio::sync::OwnedSemaphorePermit;

use super::channels::Purpose;
use super::post::{ACK_LASTS, Letter, MustArrive, Post};
use crate::names::NodeId;
use crate::preference::Protocol;
use crate::registry::Proof;
use crate::switchboard::{Heard, Said, Standing, Switchboard, Voice};
use crate::wire;
use crate::wire::places::TOPIC_EXCHANGE;

/// What cannot be taken now is given back after this.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
/// RabbitMQ's MQTT plugin marks what came that way.
const BY_MQTT: &str = "x-mqtt-publish-qos";

pub async fn take(delivery: &Delivery, board: &Switchboard, post: &Post, turn: Option<OwnedSemaphorePermit>) {
    let (exchange, key) = (delivery.exchange.as_str(), delivery.routing_key.as_str());
    // By the key on amq.topic, by the queue's own name, or by that of the exchange: all are names of places.
    let kind = board.places().kind_of(key).or_else(|| board.places().kind_of(exchange));
    let Some(kind) = kind else { return settle(delivery, true).await };
    let headers = delivery.properties.headers().as_ref();
    let by_mqtt = headers.is_some_and(|headers| headers.inner().keys().any(|key| key.as_str() == BY_MQTT));
    let over = if by_mqtt { Protocol::Mqtt } else { Protocol::Amqp };
    // RabbitMQ vouches for it: it refuses messages that name another user than their connection's.
    let user = delivery.properties.user_id().as_ref().map(|user| user.as_str());
    let voice = voice(user, exchange == board.places().vouched());
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
                        on: Purpose::Telling,
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

/// `must_say`: it came where only those speak who have a user of their own.
fn voice(user: Option<&str>, must_say: bool) -> Voice {
    // One that has a user of its own, made for its key, speaks for itself and nobody else, as by any other way.
    let node: Option<NodeId> = user.and_then(node_of).and_then(|node| node.parse().ok());
    let standing = match &node {
        Some(_) => Standing::ByKey,
        None if must_say => Standing::Unnamed,
        None => Standing::Plain,
    };
    let proof = match (&node, user) {
        (Some(node), _) => Proof::User(node.to_string()),
        (None, Some(user)) => Proof::of_broker(user),
        (None, None) => Proof::somebody(),
    };
    Voice { proof, may_request: node.is_none(), node, standing, warrant: Arc::default(), near: false }
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
    fn a_user_that_was_made_for_a_node_is_that_node_and_nobody_else_is() {
        let of = |user: &str| voice(Some(user), false);
        let gate = of("mutirao.node.gate-7");
        assert_eq!((gate.node.as_ref().map(NodeId::as_str), gate.standing), (Some("gate-7"), Standing::ByKey));
        assert_eq!(gate.proof, Proof::User("gate-7".into()), "as by MQTT and HTTP");
        for other in ["guest", "mutirao.worker.w1", "node.gate-7", "mutirao.node.", "mutirao.node.a/b"] {
            assert_eq!((of(other).node, of(other).standing), (None, Standing::Plain), "{other}");
        }
        assert!(!gate.may_request && voice(None, false).may_request);
        assert_eq!(voice(None, true).standing, Standing::Unnamed);
        assert_eq!(voice(Some("guest"), true).standing, Standing::Unnamed);
    }
}
