//! A user of RabbitMQ for each node that has a key: it can take what is meant for it, hear beats and acknowledgements, and
//! speak as itself, and nothing else. Its queue is made and bound here, for whoever may bind could hear others; it goes with the
//! user.

use std::sync::Arc;

use async_trait::async_trait;
use lapin::options::QueueDeleteOptions;
use mutirao_broker::rabbit::management::Management;
use mutirao_broker::rabbit::management::nodes::NodePlace;
use mutirao_core::node::AmqpPlace;

use super::channels::Purpose;
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
        let channel = post.channel(Purpose::Making).await?;
        let made = topology::node_queue(&channel, places, node, Post::unicast(node)).await;
        made.map_err(|error| explain(&error, places))?;
        let speaks = places.vouched();
        let admitted = self.management.admit_node(places.0.as_str(), node.as_str(), hash, &speaks).await;
        let NodePlace { url, user } = admitted.map_err(|error| error.to_string())?;
        Ok(AmqpPlace { url, user, exchange: Some(speaks) })
    }

    async fn dismiss(&self, node: &NodeId) -> Result<(), String> {
        self.management.dismiss_node(node.as_str()).await.map_err(|error| error.to_string())?;
        // What lies in its queue is for nobody.
        let (channel, own) = (self.post.channel(Purpose::Making).await?, self.post.places.unicast_queue(node));
        let deleted = channel.queue_delete(own.into(), QueueDeleteOptions::default()).await;
        deleted.map(drop).map_err(|error| explain(&error, &self.post.places))
    }

    async fn admitted(&self) -> Result<Vec<NodeId>, String> {
        let nodes = self.management.admitted_nodes().await.map_err(|error| error.to_string())?;
        Ok(nodes.iter().filter_map(|node| node.parse().ok()).collect())
    }
}
