//! Nobody waits at a busy worker while a neighbour who could run it has nothing to do, for longer than a moment. Looked at
//! only where nothing goes wrong: a worker that is frozen or cut off cannot give anything back.

use std::collections::BTreeMap;

use mutirao_core::id::QueueName;
use mutirao_worker::sim::Try;

use super::super::ground::{MS, SECOND};
use super::super::weather::{Climate, Weather};
use super::super::wire::Pid;
use super::super::worker::Worker;

/// For what waits to be given back, handed out again, and to arrive.
const WAIT_US_MAX: u64 = SECOND;
/// Between two looks.
const LOOK_US: u64 = 100 * MS;

#[derive(Default)]
pub struct Neighbours {
    watched: bool,
    look_at_us: u64,
    /// Since when somebody waits while a neighbour is free.
    since_us: BTreeMap<(Pid, Try), u64>,
}

impl Neighbours {
    pub fn of(weather: &Weather) -> Self {
        Self { watched: weather.climate == Climate::Fair, ..Self::default() }
    }

    /// What is wrong, if something is.
    pub fn look(&mut self, workers: &BTreeMap<Pid, Worker>, now_us: u64) -> Option<String> {
        if !self.watched || now_us < self.look_at_us {
            return None;
        }
        self.look_at_us = now_us + LOOK_US;
        let before = std::mem::take(&mut self.since_us);
        for (pid, worker) in workers {
            let Some((id, needs)) = worker.first_waiting() else { continue };
            let is_free = |other: &Worker| other.queue == worker.queue && other.is_free_for(needs);
            if let Some(free) = workers.values().find(|other| is_free(other)) {
                let since_us = before.get(&(*pid, id)).copied().unwrap_or(now_us);
                if now_us - since_us > WAIT_US_MAX {
                    return Some(waits(&worker.queue, id, worker, free));
                }
                self.since_us.insert((*pid, id), since_us);
            }
        }
        None
    }
}

fn waits(queue: &QueueName, (task, _): Try, busy: &Worker, free: &Worker) -> String {
    format!("{task} of {queue} waits at {} though {} has nothing to do", busy.session, free.session)
}
