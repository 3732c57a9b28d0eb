//! Everybody who works under `up`, and how they are sent home: the fixed crew, and the nodes of the resource manager with
//! the workers on them.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::SystemClock;
use mutirao_core::clock::ClockExt;
use mutirao_resource::local::Haste;

use super::crew::{Crew, Order};
use crate::role::elastic::Nodes;
use crate::signals::Asked;

/// How long workers that were told to stop now may take: their tasks get SIGTERM, then SIGKILL.
const NOW_WAIT: Duration = Duration::from_secs(20);
/// How long a killed process may take to be gone.
const KILL_WAIT: Duration = Duration::from_secs(5);

pub struct Household {
    pub crew: Crew,
    pub nodes: Option<Arc<Nodes>>,
}

impl Household {
    /// First kindly, then at once, then by force. Being asked again takes the next step.
    pub async fn dismiss(mut self, drain: Duration, asked: &mut Asked) {
        let steps = [(Order::Drain, drain), (Order::Now, NOW_WAIT), (Order::Kill, KILL_WAIT)];
        for (order, patience) in steps {
            if self.is_empty() {
                return;
            }
            let (workers, nodes) = (self.crew.left(), self.nodes_left());
            tracing::info!(order = order.as_str(), workers, nodes, patience_s = patience.as_secs(), "workers, go home");
            self.crew.order(order);
            tokio::select! {
                gone = SystemClock.timeout(patience, self.gone(order)) => if gone.is_ok() { return },
                () = asked.next() => {}
            }
        }
        let (workers, nodes) = (self.crew.left(), self.nodes_left());
        tracing::error!(workers, nodes, "workers are left behind; they end by themselves");
    }

    fn nodes_left(&self) -> usize {
        self.nodes.as_ref().map_or(0, |nodes| nodes.left())
    }

    fn is_empty(&mut self) -> bool {
        self.crew.left() == 0 && self.nodes_left() == 0
    }

    async fn gone(&mut self, order: Order) {
        let nodes = async {
            if let (Some(nodes), Some(haste)) = (&self.nodes, haste(order)) {
                nodes.leave(haste).await;
            }
        };
        tokio::join!(self.crew.gone(), nodes);
    }
}

fn haste(order: Order) -> Option<Haste> {
    match order {
        Order::Work => None,
        Order::Drain => Some(Haste::Drain),
        Order::Now => Some(Haste::Now),
        Order::Kill => Some(Haste::Kill),
    }
}
