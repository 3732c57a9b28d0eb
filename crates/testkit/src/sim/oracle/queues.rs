//! What really runs, against what queues let run. Managers go by what they believe, which disasters can make wrong; so this
//! holds only in a world where nothing goes wrong and nobody takes over from anybody.

use std::collections::BTreeMap;

use mutirao_core::id::QueueName;

use super::super::weather::{Climate, Weather};
use super::super::wire::QueueChange;

#[derive(Default)]
pub struct QueueBooks {
    held: bool,
    /// The most that each queue has let run so far; none for as many as there may be.
    most: BTreeMap<QueueName, Option<u32>>,
    running: BTreeMap<QueueName, u32>,
}

impl QueueBooks {
    pub fn of(weather: &Weather) -> Self {
        Self { held: weather.climate == Climate::Fair && weather.managers == 1, ..Self::default() }
    }

    /// From now on another manager may take over.
    pub fn let_go(&mut self) {
        self.held = false;
    }

    pub fn changed(&mut self, change: &QueueChange) {
        let Some(spec) = &change.spec else { return };
        let most = self.most.entry(change.queue.clone()).or_insert(Some(0));
        *most = most.zip(spec.limits.running).map(|(most, running)| most.max(running));
    }

    /// A process starts; what is wrong with that.
    pub fn began(&mut self, queue: &QueueName) -> Option<String> {
        let running = self.running.entry(queue.clone()).or_default();
        *running += 1;
        let most = self.most.get(queue).copied().flatten()?;
        (self.held && *running > most)
            .then(|| format!("{running} tasks of {queue} run, which never let more than {most}"))
    }

    pub fn ended(&mut self, queue: &QueueName) {
        if let Some(running) = self.running.get_mut(queue) {
            *running = running.saturating_sub(1);
        }
    }
}
