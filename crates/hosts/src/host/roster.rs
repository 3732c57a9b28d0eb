//! What is to be started and stopped, given what runs and what is ordered. A rule without I/O.

use std::collections::BTreeMap;

use mutirao_streams::wire::{Order, Part};

#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// To be stopped; what takes its place is started once it has ended.
    pub stop: Vec<Part>,
    pub start: Vec<Order>,
    /// Those that go on, and what is said of them now.
    pub go_on: Vec<Order>,
}

/// `running`: the epoch of each, and of those that were told to stop and have not ended, nothing.
pub fn changes(running: &BTreeMap<Part, Option<u64>>, orders: &[Order]) -> Changes {
    let mut found = Changes::default();
    // Should a part be named twice, the later epoch is meant.
    let mut wanted: BTreeMap<&Part, &Order> = BTreeMap::new();
    for order in orders {
        let there = wanted.entry(&order.part).or_insert(order);
        if order.epoch > there.epoch {
            *there = order;
        }
    }
    for (part, epoch) in running {
        let Some(epoch) = epoch else { continue };
        // An order from before, that was late, stops nothing that is newer.
        if wanted.get(part).is_none_or(|order| order.epoch > *epoch) {
            found.stop.push(part.clone());
        }
    }
    for (part, order) in wanted {
        match running.get(part) {
            None => found.start.push(order.clone()),
            Some(Some(epoch)) if *epoch >= order.epoch => found.go_on.push(order.clone()),
            // It is started when its former self has ended.
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use mutirao_streams::wire::{Mode, StreamId, What};

    use super::*;

    fn part(replica: u32) -> Part {
        Part { stream: StreamId("s".into()), what: What::Stage(0), replica }
    }

    fn order(replica: u32, epoch: u64) -> Order {
        Order { part: part(replica), epoch, mode: Mode::Run, snapshots: vec![], needed: vec![] }
    }

    #[test]
    fn what_is_not_ordered_stops_and_what_has_a_new_epoch_begins_anew_once_it_has_stopped() {
        let mut running = BTreeMap::from([(part(0), Some(1)), (part(1), Some(1)), (part(2), Some(5))]);
        let orders = [order(0, 1), order(1, 2), order(3, 1)];
        let found = changes(&running, &orders);
        assert_eq!(found.stop, [part(1), part(2)]);
        assert_eq!(found.start, [order(3, 1)]);
        assert_eq!(found.go_on, [order(0, 1)]);
        running.insert(part(1), None);
        assert!(!changes(&running, &orders).start.contains(&order(1, 2)), "the former is still there");
        running.remove(&part(1));
        assert!(changes(&running, &orders).start.contains(&order(1, 2)));
    }

    #[test]
    fn an_order_that_came_late_changes_nothing() {
        let running = BTreeMap::from([(part(0), Some(3))]);
        let found = changes(&running, &[order(0, 2)]);
        assert!(found.stop.is_empty() && found.start.is_empty());
    }
}
