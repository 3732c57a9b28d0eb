//! How many requests to nodes may be under way: so many in all, so many to one node, and never more to one than are still
//! free. So one node that takes its time has at most its own bound, ten that do leave a share for the next, and whoever has
//! none under way gets in for as long as there is any room at all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::names::NodeId;

#[derive(Debug)]
pub struct Room {
    all_max: usize,
    each_max: usize,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    all: usize,
    of: HashMap<NodeId, usize>,
}

/// One request's. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    node: NodeId,
}

impl Room {
    pub fn new(all_max: usize, each_max: usize) -> Arc<Self> {
        Arc::new(Self { all_max, each_max, under_way: Mutex::default() })
    }

    /// None: it has as many under way as it may.
    pub fn enter(self: &Arc<Self>, node: &NodeId) -> Option<Place> {
        let mut under_way = self.under_way.lock();
        let its = under_way.of.get(node).copied().unwrap_or_default();
        let free = self.all_max.saturating_sub(under_way.all);
        if its >= self.each_max.min(free) {
            return None;
        }
        under_way.all += 1;
        under_way.of.insert(node.clone(), its + 1);
        Some(Place { room: self.clone(), node: node.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut under_way = self.room.under_way.lock();
        under_way.all = under_way.all.saturating_sub(1);
        match under_way.of.get_mut(&self.node) {
            Some(its) if *its > 1 => *its -= 1,
            _ => drop(under_way.of.remove(&self.node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(n: usize) -> NodeId {
        format!("n{n}").parse().unwrap()
    }

    #[test]
    fn one_that_takes_its_time_has_its_own_bound_and_the_others_the_rest() {
        let room = Room::new(256, 32);
        let slow: Vec<Place> = std::iter::from_fn(|| room.enter(&node(0))).collect();
        assert_eq!(slow.len(), 32);
        assert!(room.enter(&node(1)).is_some());
        drop(slow);
        assert!(room.enter(&node(0)).is_some() && room.under_way.lock().all == 0);
        assert!(room.under_way.lock().of.is_empty(), "nothing is kept of who has none");
    }

    proptest! {
        /// However many take their time, and however often each asks: whoever has none under way gets in while anything is
        /// free, and something is free until there are as many nodes as places.
        #[test]
        fn slow_ones_never_keep_out_whoever_has_none(slow in 1usize..60, all in 4usize..300, each in 1usize..64) {
            let room = Room::new(all, each);
            let mut held = vec![];
            let nodes = slow.min(all - 1);
            let mut grew = true;
            while grew {
                let before = held.len();
                held.extend((0..nodes).filter_map(|n| room.enter(&node(n))));
                grew = held.len() > before;
            }
            prop_assert!(held.len() <= all);
            prop_assert!(room.enter(&node(1_000)).is_some(), "{} of {} are held by {} nodes", held.len(), all, nodes);
        }
    }
}
