//! A RabbitMQ user for each node that has a key, with permissions for its own queue and for words of its own, and nothing else.
//! Its password is with the node: what comes here is RabbitMQ's own hash of it.
//!
//! | node `n` of namespace `mutirao` may | because of |
//! |---|---|
//! | take what is meant for it | read `mutirao.node.unicast.n`, which its manager made and bound: to bind it itself, it would have to be let near everybody's messages |
//! | hear beats and acknowledgements | queues that the server names, for itself; read `amq.topic`, of its keys these two |
//! | register, and give results | write an exchange that is for those who have a user of their own, of its keys these two |
//!
//! RabbitMQ vouches for the user that a message names, and cannot be told to demand one. Managers do, of all that comes by that
//! exchange, and nothing else lets such a user speak.

use reqwest::Method;
use serde_json::json;

use super::{CHANNELS_MAX, CONNECTIONS_MAX, Management, ManagementError, NOTHING};
use crate::rabbit::dial::written;
use crate::rabbit::names::{PREFIX_DEFAULT, escaped};

const NODE: &str = "node.";
/// Queues that the server names.
const NAMED_BY_SERVER: &str = r"amq\.gen-.*";
const TOPIC: &str = "amq.topic";

/// Where a node comes in, and as whom. The password is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// `amqp://host:5672/vhost`
    pub url: String,
    pub user: String,
}

/// The node that a user is of, if it is one that was made here.
pub fn node_of(user: &str) -> Option<&str> {
    user.strip_prefix(PREFIX_DEFAULT)?.strip_prefix(NODE)
}

impl Management {
    /// A node can come in from now on, with the password of this hash and no other. Its queue must be there, and the exchange
    /// on which it `speaks`.
    pub async fn admit_node(
        &self,
        namespace: &str,
        node: &str,
        hash: &str,
        speaks: &str,
    ) -> Result<NodePlace, ManagementError> {
        let (user, vhost) = (self.names.whole(&format!("{NODE}{node}")), self.broker.vhost.as_str());
        let hashed =
            json!({ "password_hash": hash, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": "" });
        let name = |rest: &str| escaped(&format!("{namespace}.{rest}"));
        let hears = json!({
            "exchange": TOPIC,
            "write": NOTHING,
            "read": format!("^({}|{})$", name("nodes.actions-list"), name("manager.available")),
        });
        let says = json!({
            "exchange": speaks,
            "write": format!("^({}|{})$", name("nodes.register"), name("task.handler.saida")),
            "read": NOTHING,
        });
        let (topic, speaks) = (escaped(TOPIC), escaped(speaks));
        let permissions = json!({
            "configure": format!("^{NAMED_BY_SERVER}$"),
            "write": format!("^({NAMED_BY_SERVER}|{speaks})$"),
            "read": format!("^({NAMED_BY_SERVER}|{topic}|{})$", name(&format!("node.unicast.{node}"))),
        });
        self.put(&["users", &user], hashed).await?;
        self.put(&["user-limits", &user, "max-connections"], json!({ "value": CONNECTIONS_MAX })).await?;
        self.put(&["user-limits", &user, "max-channels"], json!({ "value": CHANNELS_MAX })).await?;
        self.put(&["topic-permissions", vhost, &user], hears).await?;
        self.put(&["topic-permissions", vhost, &user], says).await?;
        self.put(&["permissions", vhost, &user], permissions).await?;
        Ok(NodePlace { url: self.place(), user })
    }

    /// The node's connections end, and it does not come in again.
    pub async fn dismiss_node(&self, node: &str) -> Result<(), ManagementError> {
        let user = self.names.whole(&format!("{NODE}{node}"));
        match self.send(self.request(Method::DELETE, &["users", &user]), "delete a node's user").await {
            // One that never came in has no user.
            Err(ManagementError::Said { why, .. }) if why.starts_with("404") => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// Nodes that have a user here, in our vhost.
    pub async fn admitted_nodes(&self) -> Result<Vec<String>, ManagementError> {
        let users = self.users().await?;
        Ok(users.iter().filter_map(|user| node_of(user)).map(str::to_owned).collect())
    }

    /// The broker's address without anybody's credentials.
    fn place(&self) -> String {
        let authority = &self.broker.authority;
        format!("{}://{}/{}", self.scheme(), written(&authority.host, authority.port), self.vhost_in_url())
    }
}
