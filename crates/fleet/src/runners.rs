//! Nodes that run actions, whoever knows them. Given to the fleet, so that it lists them with those that carry workers.

use mutirao_elastic::view::NodeView;

pub trait Runners: Send + Sync + 'static {
    fn nodes(&self) -> Vec<NodeView>;
}
