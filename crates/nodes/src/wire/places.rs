//! Where words travel, by namespace. On RabbitMQ devices and servers meet on `amq.topic`, whose MQTT side takes a slash in
//! a topic for a dot in a key; a topic written with dots is the key itself.

use super::Rubbish;
use crate::names::{Namespace, NodeId};

/// The topic exchange that RabbitMQ brings.
pub const TOPIC_EXCHANGE: &str = "amq.topic";
/// The header by which the unicast exchange finds a node, and how a queue is bound to it.
pub const NODE_HEADER: &str = "nodeId";
pub const MATCH_ALL: (&str, &str) = ("x-match", "all");
/// What workers take at once unless they say otherwise.
pub const PREFETCH: u16 = 16;

/// What a message is about, by where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Register,
    Result,
    Request,
    Beat,
    Ack,
    Final,
    /// For one node.
    In(NodeId),
}

/// The names of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places(pub Namespace);

impl Places {
    pub fn register(&self) -> String {
        format!("{}.nodes.register", self.0)
    }

    /// Of acknowledgements.
    pub fn ack(&self) -> String {
        format!("{}.nodes.actions-list", self.0)
    }

    /// Of step results: the key, an exchange and a queue of that name.
    pub fn results(&self) -> String {
        format!("{}.task.handler.saida", self.0)
    }

    /// The same, as one table of the document prints it.
    pub fn results_misprinted(&self) -> String {
        format!("{}.task.handler_saida", self.0)
    }

    /// The queue that managers share, as a consumer group of the original's framework names it.
    pub fn results_group(&self) -> String {
        format!("{}.{}.manager", self.results(), self.0)
    }

    pub fn requests(&self) -> String {
        format!("{}.process.request.entrada", self.0)
    }

    pub fn finals(&self) -> String {
        format!("{}.task.final.saida", self.0)
    }

    /// The exchange of nodes that have a user of their own at RabbitMQ: whatever comes by it names that user.
    pub fn vouched(&self) -> String {
        format!("{}.nodes.vouched", self.0)
    }

    /// Of beats: the fanout exchange, and the key and topic.
    pub fn beats(&self) -> String {
        format!("{}.manager.available", self.0)
    }

    pub fn beats_topic(&self) -> String {
        format!("{}/manager/available", self.0)
    }

    /// The headers exchange.
    pub fn unicast(&self) -> String {
        format!("{}.node.unicast", self.0)
    }

    /// A node's own queue. The node declares it: nobody else may, lest the arguments differ.
    pub fn unicast_queue(&self, node: &NodeId) -> String {
        format!("{}.node.unicast.{node}", self.0)
    }

    pub fn device_topic(&self, node: &NodeId) -> String {
        format!("{}/node/{node}/in", self.0)
    }

    /// Where a node takes messages by HTTP.
    pub fn http_url(&self, endpoint: &str) -> Result<String, Rubbish> {
        let endpoint = endpoint.trim_end_matches('/');
        let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
        match host {
            Some(host) if !host.is_empty() && !host.contains(['?', '#', ' ']) => {
                Ok(format!("{endpoint}/{}/messages", self.0))
            }
            _ => Err(super::unreadable("an endpoint", "write it like http://192.168.1.20:8080")),
        }
    }

    /// What a key or a topic is for; none: it is not ours.
    pub fn kind_of(&self, place: &str) -> Option<Kind> {
        let key = place.replace('/', ".");
        let rest = key.strip_prefix(self.0.as_str())?.strip_prefix('.')?;
        match rest {
            "nodes.register" => Some(Kind::Register),
            "nodes.actions-list" => Some(Kind::Ack),
            "task.handler.saida" | "task.handler_saida" => Some(Kind::Result),
            "process.request.entrada" => Some(Kind::Request),
            "task.final.saida" => Some(Kind::Final),
            "manager.available" => Some(Kind::Beat),
            _ => rest.strip_prefix("node.")?.strip_suffix(".in")?.parse().ok().map(Kind::In),
        }
    }
}
