//! What is heard of a part each second: how long its events take, what it uses, and what its host uses as a whole.

use mutirao_streams::wire::{Measures, Part, Usage};
use serde::{Deserialize, Serialize};

use crate::scene::HostId;

/// A control message. What is not known is nought, or `None` where nought would say something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub part: Part,
    pub host: HostId,
    /// Which second it speaks of. One part says one message for it; the same once more is passed over.
    pub at_ms: u64,
    /// Mean of the events that ended in this second, from when the one before the part had sent them until the next received
    /// them. `None` if there were none.
    pub latency_ms: Option<f64>,
    /// The part of it before they were taken in hand.
    pub wait_ms: f64,
    pub events_in: f64,
    pub events_out: f64,
    /// Events that lie before it, unread.
    pub queue: f64,
    /// The share of the second in which it waited for those after it.
    pub held_back: f64,
    pub own: Own,
    pub node: Use,
}

/// What a part uses itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// Cores. It is measured as one figure, whichever cores did it.
    pub cpu: f64,
    pub memory_bytes: f64,
    pub disk_bytes: f64,
    pub network_bytes: f64,
}

/// What is used of a host by everything that runs there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Share of each core that was busy, and that waited for disks.
    pub cpus: Vec<f64>,
    pub io_wait: Vec<f64>,
    pub memory_bytes: f64,
    pub disk_bytes: f64,
    pub network_bytes: f64,
}

impl Use {
    pub fn of(usage: &Usage) -> Self {
        Self {
            cpus: usage.cpus.clone(),
            io_wait: usage.io_wait.clone(),
            memory_bytes: usage.memory_bytes as f64,
            disk_bytes: usage.disk_bytes as f64,
            network_bytes: usage.network_bytes as f64,
        }
    }

    /// Cores that were busy, in all.
    pub fn busy(&self) -> f64 {
        self.cpus.iter().sum()
    }
}

impl Message {
    /// From what hosts say of their parts today.
    pub fn of(part: Part, host: HostId, at_ms: u64, measures: &Measures, usage: &Usage) -> Self {
        let ms = |us: u64| us as f64 / 1_000.0;
        Self {
            part,
            host,
            at_ms,
            latency_ms: (measures.latency_us_mean > 0).then(|| ms(measures.latency_us_mean)),
            wait_ms: ms(measures.wait_us_mean),
            events_in: measures.events_in as f64,
            events_out: measures.events_out as f64,
            queue: queue(measures),
            held_back: measures.held_back,
            own: Own {
                cpu: measures.cpu,
                memory_bytes: measures.memory_bytes as f64,
                disk_bytes: measures.disk_bytes as f64,
                network_bytes: measures.network_bytes as f64,
            },
            node: Use::of(usage),
        }
    }

    /// Whether its figures are figures: one that is not would be in every mean after it.
    pub(crate) fn is_sound(&self) -> bool {
        let own = [self.own.cpu, self.own.memory_bytes, self.own.disk_bytes, self.own.network_bytes];
        let node = [self.node.memory_bytes, self.node.disk_bytes, self.node.network_bytes];
        let flow = [self.wait_ms, self.events_in, self.events_out, self.queue, self.held_back];
        let cores = self.node.cpus.iter().chain(&self.node.io_wait).copied();
        let mut all = own.into_iter().chain(node).chain(flow).chain(self.latency_ms).chain(cores);
        all.all(|figure| figure.is_finite() && figure >= 0.0)
    }
}

/// Hosts count what lies there in records, of any number of events. Whoever waited so long at this rate had so many events before
/// it, says Little's law.
fn queue(measures: &Measures) -> f64 {
    (measures.events_in as f64 * measures.wait_us_mean as f64 / 1e6).max(measures.queue as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_there_is_told_in_events_though_hosts_count_records() {
        let message = |events_in, wait_us_mean, queue| {
            let measures = Measures { events_in, wait_us_mean, queue, ..Measures::default() };
            Message::of(crate::testing::part(0, 0), "a".into(), 0, &measures, &Usage::default())
        };
        assert_eq!(message(1_000, 5_000_000, 12).queue, 5_000.0);
        // Nothing was read, so nothing is known of how long it waits.
        assert_eq!(message(0, 0, 12).queue, 12.0);
    }
}
