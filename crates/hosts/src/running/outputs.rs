//! All logs that a part appends to. What it says goes to each log of those who read it, in the same order; how far they are,
//! they announce.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::Heard;
use mutirao_streams::part::Said;
use mutirao_streams::wire::{Part, Progress, What, log_of, progress_of};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pressure::Pressure;
use super::writer::Writer;
use super::{Job, Means};
use crate::measure::Meter;

const PAUSE: Duration = Duration::from_millis(500);

pub struct Outputs {
    writers: Vec<(What, Writer)>,
    moved: Arc<Notify>,
    meter: Arc<Meter>,
    _stop: DropGuard,
}

/// What was given to each log up to some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(Vec<u64>);

impl Mark {
    /// Of those that append to no log.
    pub fn none() -> Self {
        Self(Vec::new())
    }
}

impl Outputs {
    /// Looks how full the logs are, for as long as that takes; why it takes long is told.
    pub async fn open(job: &Job) -> Self {
        let (stop, moved, meter) = (CancellationToken::new(), Arc::new(Notify::new()), job.status.meter.clone());
        let feeds = job.plan.part(job.part.what).map(|part| part.feeds.clone()).unwrap_or_default();
        let mut writers = Vec::new();
        for what in feeds {
            let Some(log) = log_of(&job.part.stream, what) else { continue };
            let (first, end) = extent(job, &log).await;
            let order = job.order();
            let known = order.needed.iter().find(|(of, _)| *of == log).map(|(_, needed)| *needed);
            let needed = known.unwrap_or(first).clamp(first, end);
            let pressure = Pressure::of(job.means.log_bytes, writers_of(job, what), readers_of(job, what), needed, end);
            let writer = Writer::start(log, pressure, &job.means, meter.clone(), moved.clone(), stop.clone());
            writers.push((what, writer));
        }
        if !writers.is_empty() {
            let listening = listen(job.part.clone(), writers.clone(), job.means.clone(), meter.clone());
            let stopped = stop.clone();
            tokio::spawn(async move { stopped.run_until_cancelled(listening).await });
        }
        Self { writers, moved, meter, _stop: stop.drop_guard() }
    }

    pub fn give(&self, said: Vec<Said>) {
        for Said { to, rows, bytes, .. } in said {
            self.meter.events_out(u64::from(rows));
            let bytes = Bytes::from(bytes);
            for (_, writer) in self.writers.iter().filter(|(what, _)| to.contains(what)) {
                writer.give(bytes.clone());
            }
        }
    }

    /// By whom they are read.
    pub fn writers(&self) -> impl Iterator<Item = (What, &Writer)> {
        self.writers.iter().map(|(what, writer)| (*what, writer))
    }

    pub fn has_room(&self) -> bool {
        self.writers.iter().all(|(_, writer)| writer.has_room())
    }

    /// Nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.writers.iter().all(|(_, writer)| writer.is_idle())
    }

    pub fn mark(&self) -> Mark {
        Mark(self.writers.iter().map(|(_, writer)| writer.given()).collect())
    }

    /// Whether all that was given until then is in the logs.
    pub fn is_durable(&self, mark: &Mark) -> bool {
        self.writers.iter().zip(&mark.0).all(|((_, writer), given)| writer.durable() >= *given)
    }

    /// Something became durable since this was asked for last. Cancel-safe.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    pub async fn room(&self) {
        while !self.has_room() {
            self.moved().await;
        }
    }

    pub async fn durable(&self, mark: &Mark) {
        while !self.is_durable(mark) {
            self.moved().await;
        }
    }

    pub fn trouble(&self) -> Option<String> {
        self.writers.iter().find_map(|(_, writer)| writer.trouble())
    }

    /// What the manager knows of readers that may be gone.
    pub fn ordered(&self, needed: &[(String, u64)]) {
        for (_, writer) in &self.writers {
            if let Some((_, needed)) = needed.iter().find(|(log, _)| log == writer.log()) {
                writer.pressure().lock().ordered(*needed);
                writer.ease();
            }
        }
    }
}

/// How many append to a log: all replicas of all that feed it, and each manager that takes what is pushed.
fn writers_of(job: &Job, what: What) -> u64 {
    let fed_by = job.plan.part(what).map(|part| part.fed_by.as_slice()).unwrap_or_default();
    fed_by.iter().filter_map(|feeder| job.plan.part(*feeder)).map(|part| u64::from(part.replicas)).sum::<u64>().max(1)
}

fn readers_of(job: &Job, what: What) -> Vec<Part> {
    let replicas = job.plan.part(what).map_or(1, |part| part.replicas);
    (0..replicas).map(|replica| Part { stream: job.part.stream.clone(), what, replica }).collect()
}

pub async fn extent(job: &Job, log: &str) -> (u64, u64) {
    loop {
        match job.means.broker.extent(log).await {
            Ok(extent) => return extent,
            Err(error) => job.status.trouble_is(Some(error.to_string())),
        }
        job.means.clock.sleep(job.means.dice.jitter(PAUSE)).await;
    }
}

/// Hears how far readers are, and what they say of us.
async fn listen(part: Part, writers: Vec<(What, Writer)>, means: Means, meter: Arc<Meter>) {
    let topic = progress_of(&part.stream);
    loop {
        match means.broker.subscribe(&topic).await {
            Ok(mut told) => loop {
                match told.next().await {
                    Ok(Heard::Message(bytes)) => {
                        // What cannot be read is of another version; whoever it is says it again.
                        let Ok(progress) = postcard::from_bytes::<Progress>(&bytes) else { continue };
                        hear(&part, progress, &writers, &means, &meter);
                    }
                    Ok(Heard::Gap) => {}
                    Err(error) => {
                        tracing::debug!(%error, "readers are not heard");
                        break;
                    }
                }
            },
            Err(error) => tracing::debug!(%error, "readers cannot be listened to"),
        }
        means.clock.sleep(means.dice.jitter(PAUSE)).await;
    }
}

fn hear(part: &Part, progress: Progress, writers: &[(What, Writer)], means: &Means, meter: &Meter) {
    if progress.reader.stream != part.stream {
        return;
    }
    for (what, writer) in writers.iter().filter(|(what, _)| *what == progress.reader.what) {
        debug_assert_eq!(*what, progress.reader.what);
        writer.pressure().lock().heard(&progress, means.clock.monotonic());
        writer.ease();
    }
    // Readers may be several; the first replica's word is taken, and each has much the same to say.
    for latency in progress.latencies {
        if latency.of == *part {
            meter.latency_is(latency);
        }
    }
}

/// So much of its own log may be read until a snapshot is due: those who append to it wait when four times as much lies behind
/// the last one.
pub fn snapshot_bytes(job: &Job) -> u64 {
    let bound = Pressure::of(job.means.log_bytes, writers_of(job, job.part.what), [], 0, 0).bound_bytes();
    (bound / 4).max(1)
}
