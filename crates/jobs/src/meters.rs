//! What jobs measure. Recorded for each message or batch, never looked up for each task.

use std::collections::BTreeSet;

use mutirao_core::QueueName;
use mutirao_core::meters::{DEAD_LETTERS_MADE, Kind, Meter};

pub const SUBMITTED: &str = "mutirao_jobs_submitted_total";
pub const SUBMIT: &str = "mutirao_submit_duration_seconds";
pub const ENDED: &str = "mutirao_tasks_ended_total";
pub const OPEN: &str = "mutirao_tasks_open";
pub const DEPTH: &str = "mutirao_queue_tasks_open";
pub const WORKERS: &str = "mutirao_workers";
pub const PARCELS: &str = "mutirao_parcels_sent_total";
pub const WAIT: &str = "mutirao_task_wait_seconds";
pub const RUN: &str = "mutirao_task_run_seconds";
pub const SETTLE: &str = "mutirao_settle_duration_seconds";

pub const LETTERS: &str = "mutirao_dead_letters";

/// All of them. The texts are those of the table in docs/operations.md.
pub const METERS: &[Meter] = &[
    counter(SUBMITTED, &[], "Jobs accepted."),
    histogram(SUBMIT, "From a job's arrival until it is durable and the client can hear yes."),
    counter(ENDED, &["state"], "Tasks that ended, by how: ok, failed, timed_out, cancelled, lost, dead."),
    gauge(OPEN, &[], "Tasks that have not ended."),
    gauge(DEPTH, &["queue"], "Tasks that have not ended, by queue; past 50 queues the rest are counted as other."),
    gauge(WORKERS, &[], "Sessions of workers that are alive."),
    counter(PARCELS, &[], "Parcels of tasks handed to the broker."),
    histogram(WAIT, "From a task's handing out until its command started, of one task in each parcel."),
    histogram(RUN, "How long tasks ran."),
    gauge(
        LETTERS,
        &["way"],
        "Dead letters that lie with the broker, by the way they came; past 50 ways of tasks the rest are counted as other.",
    ),
    counter(
        DEAD_LETTERS_MADE,
        &["reason"],
        "Dead letters made: unreadable or unvouched reports, and rejected: what workers rejected or gave back too often.",
    ),
    histogram(SETTLE, "How long it took to write what a batch of reports came to."),
];

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Meter {
    Meter { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Meter {
    Meter { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Meter {
    Meter { name, kind: Kind::Histogram, labels: &[], help }
}

/// Queues that have a label of their own. Who has one keeps it: a label that came and went would leave gaps in graphs.
#[derive(Debug, Default)]
pub struct Depths {
    named: BTreeSet<QueueName>,
}

/// Those of dead letters, likewise.
#[derive(Debug, Default)]
pub struct LetterDepths(Depths);

impl LetterDepths {
    /// Ways of tasks by their queues; ways that are not among these have none.
    pub fn show<'a>(&mut self, letters: impl IntoIterator<Item = (&'a QueueName, u64)>) {
        for (queue, letters) in self.0.shared_out(letters) {
            metrics::gauge!(LETTERS, "way" => format!("tasks.{queue}")).set(letters as f64);
        }
    }
}

const QUEUES_NAMED_MAX: usize = 50;
const OTHER: &str = "other";

impl Depths {
    /// Queues that are not among these have nothing open.
    pub fn show<'a>(&mut self, open: impl IntoIterator<Item = (&'a QueueName, u64)>) {
        for (queue, tasks) in self.shared_out(open) {
            metrics::gauge!(DEPTH, "queue" => queue).set(tasks as f64);
        }
    }

    fn shared_out<'a>(&mut self, open: impl IntoIterator<Item = (&'a QueueName, u64)>) -> Vec<(String, u64)> {
        let (mut own, mut others) = (std::collections::BTreeMap::new(), 0);
        for (queue, tasks) in open {
            if self.named.contains(queue) || self.named.len() < QUEUES_NAMED_MAX {
                self.named.insert(queue.clone());
                own.insert(queue.clone(), tasks);
            } else {
                others += tasks;
            }
        }
        let named = self.named.iter().map(|queue| (queue.to_string(), own.get(queue).copied().unwrap_or(0)));
        let mut shown: Vec<(String, u64)> = named.collect();
        if self.named.len() >= QUEUES_NAMED_MAX {
            shown.push((OTHER.into(), others));
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_queues_share_one_label_and_an_emptied_one_shows_nothing_open() {
        let queues: Vec<QueueName> = (0..60).map(|n| format!("q{n:02}").parse().unwrap()).collect();
        let mut depths = Depths::default();
        let shown = depths.shared_out(queues.iter().map(|queue| (queue, 2)));
        assert_eq!(shown.len(), QUEUES_NAMED_MAX + 1);
        assert_eq!(shown.last(), Some(&(OTHER.into(), 20)));
        let shown = depths.shared_out([(&queues[0], 7), (&queues[59], 5)]);
        assert_eq!((shown[0].clone(), shown[1].clone()), (("q00".into(), 7), ("q01".into(), 0)));
        assert_eq!(shown.last(), Some(&(OTHER.into(), 5)));
    }

    #[test]
    fn names_say_what_they_count_in_and_every_meter_says_what_it_is() {
        for meter in METERS {
            assert!(meter.name.starts_with("mutirao_") && meter.help.ends_with('.'), "{}", meter.name);
            assert_eq!(meter.kind == Kind::Counter, meter.name.ends_with("_total"), "{}", meter.name);
            assert!(meter.kind != Kind::Histogram || meter.name.ends_with("_seconds"), "{}", meter.name);
        }
    }
}
