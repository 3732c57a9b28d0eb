//! How much each queue has to do. For whoever watches; no decision is made by it.

use std::collections::BTreeMap;

use mutirao_core::QueueName;

use super::Desk;

impl Desk {
    /// Tasks that have not ended, by queue, empty queues among them.
    pub fn depths(&self) -> BTreeMap<&QueueName, u64> {
        self.lines.iter().map(|(queue, line)| (queue, line.open)).collect()
    }
}
