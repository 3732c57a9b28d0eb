//! What a part counts. Added to by the tasks of the part, taken once a second by the host's beat.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mutirao_streams::wire::{Latency, Measures};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub struct Meter {
    events_in: AtomicU64,
    events_out: AtomicU64,
    unfit: AtomicU64,
    late: AtomicU64,
    network_bytes: AtomicU64,
    disk_bytes: AtomicU64,
    cpu_ns: AtomicU64,
    held_back_ns: AtomicU64,
    queue: AtomicU64,
    memory_bytes: AtomicU64,
    latency: Mutex<Option<Latency>>,
}

fn add(to: &AtomicU64, count: u64) {
    to.fetch_add(count, Ordering::Relaxed);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Meter {
    pub fn events_in(&self, count: u64) {
        add(&self.events_in, count);
    }

    pub fn events_out(&self, count: u64) {
        add(&self.events_out, count);
    }

    pub fn unfit(&self, count: u64) {
        add(&self.unfit, count);
    }

    /// Since it started, in all.
    pub fn late_so_far(&self, count: u64) {
        self.late.store(count, Ordering::Relaxed);
    }

    pub fn network(&self, bytes: u64) {
        add(&self.network_bytes, bytes);
    }

    pub fn disk(&self, bytes: u64) {
        add(&self.disk_bytes, bytes);
    }

    pub fn worked(&self, cpu: Duration) {
        add(&self.cpu_ns, nanos(cpu));
    }

    /// It waited for those after it.
    pub fn held_back(&self, for_: Duration) {
        add(&self.held_back_ns, nanos(for_));
    }

    pub fn queue_is(&self, records: u64) {
        self.queue.store(records, Ordering::Relaxed);
    }

    pub fn memory_is(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// As whoever reads behind it sees it.
    pub fn latency_is(&self, latency: Latency) {
        *self.latency.lock() = Some(latency);
    }

    /// Of the time since the last call.
    pub fn take(&self, passed: Duration) -> Measures {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let passed_ns = nanos(passed).max(1) as f64;
        let latency = self.latency.lock().take();
        let of = |figure: fn(&Latency) -> u64| latency.as_ref().map_or(0, figure);
        Measures {
            events_in: take(&self.events_in),
            events_out: take(&self.events_out),
            unfit: self.unfit.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            latency_us_mean: of(|latency| latency.us_mean),
            latency_us_p95: of(|latency| latency.us_p95),
            wait_us_mean: of(|latency| latency.wait_us_mean),
            service_us_mean: of(|latency| latency.service_us_mean),
            queue: self.queue.load(Ordering::Relaxed),
            held_back: (take(&self.held_back_ns) as f64 / passed_ns).min(1.0),
            cpu: take(&self.cpu_ns) as f64 / passed_ns,
            memory_bytes: self.memory_bytes.load(Ordering::Relaxed),
            network_bytes: take(&self.network_bytes),
            disk_bytes: take(&self.disk_bytes),
        }
    }
}
