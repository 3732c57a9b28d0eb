//! A user of RabbitMQ for each node that has a key: it can take what is meant for it, hear beats and acknowledgements, and
//! speak as itself, and nothing else. Its queue is made and bound here, for whoever may bind could hear others.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_broker::rabbit::management::Management;
use mutirao_core::node::AmqpPlace;

use super::post::Post;
use super::{explain, topology};
use crate::names::NodeId;
use crate::way::Users;

pub struct NodeUsers {
    pub post: Arc<Post>,
    pub management: Arc<Management>,
}

#[async_trait]
impl Users for NodeUsers {
    async fn admit(&self, node: &NodeId, hash: &str) -> Result<AmqpPlace, String> {
        let (post, places) = (&self.post, &self.post.places);
        let channel = post.making().ok_or("RabbitMQ is away")?;
        let made = topology::node_queue(&channel, places, node, Post::unicast(node)).await;
        made.map_err(|error| explain(&error, places))?;
        let admitted = self.management.admit_node(places.0.as_str(), node.as_str(), hash).await;
        admitted.map(|place| AmqpPlace { url: place.url, user: place.user }).map_err(|error| error.to_string())
    }

    async fn dismiss(&self, node: &NodeId) -> Result<(), String> {
        self.management.dismiss_node(node.as_str()).await.map_err(|error| error.to_string())
    }
}
