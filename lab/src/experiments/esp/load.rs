//! What flows in `esp-4`, the same for each system: readings of meters, each with its key, its time and a value; those of at most
//! ten are left out, the others are scaled, and each key's are counted and summed over spans of time.

use std::sync::Arc;
use std::time::Duration;

use mutirao_streams::{Batch, Column, Kind, Schema, Texts};
use rustix::time::{ClockId, clock_gettime};

/// Events in one batch, here and there.
pub const BATCH: usize = 4096;
/// Microseconds of event time between two events. Bytewax lets time go on with the machine's clock, so events must be
/// further apart than they are in the run, or they would be late there.
pub const STEP_US: i64 = 1_000_000;
/// A window holds half a million events of all keys together.
pub const WINDOW_US: i64 = 500_000 * STEP_US;
pub const FILTER: &str = "value > 10.0";
pub const MAP: &str = "value * 1.1";
pub const KEYS: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Int,
    Text,
}

impl KeyKind {
    pub const ALL: [KeyKind; 2] = [KeyKind::Int, KeyKind::Text];

    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Int => "integer keys",
            KeyKind::Text => "text keys",
        }
    }
}

/// A fixed sequence that looks like chance (SplitMix64), so that each system gets the same.
pub fn draw(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub fn key(n: u64) -> i64 {
    (draw(n) % KEYS) as i64
}

pub fn text_key(n: u64) -> String {
    format!("meter-{:05}", key(n))
}

/// From 0 to 100.
pub fn value(n: u64) -> f64 {
    (draw(n) >> 40) as f64 / (1u64 << 24) as f64 * 100.0
}

pub fn time(n: u64) -> i64 {
    n as i64 * STEP_US
}

pub fn schema(keys: KeyKind) -> Arc<Schema> {
    let kind = if keys == KeyKind::Int { Kind::Int } else { Kind::Text };
    Arc::new(Schema::of([("key", kind), ("at", Kind::Time), ("value", Kind::Float)]))
}

/// All events as batches, and after each how far time is.
pub fn batches(keys: KeyKind, events: u64) -> anyhow::Result<Vec<(Batch, i64)>> {
    let schema = schema(keys);
    let batch = |first: u64| {
        let numbers = first..events.min(first + BATCH as u64);
        let key = match keys {
            KeyKind::Int => Column::Int(numbers.clone().map(key).collect()),
            KeyKind::Text => Column::Text(numbers.clone().map(text_key).collect::<Texts>()),
        };
        let at = Column::Time(numbers.clone().map(time).collect());
        let values = Column::Float(numbers.clone().map(value).collect());
        Ok((Batch::of(schema.clone(), vec![key, at, values])?, time(numbers.end)))
    };
    (0..events).step_by(BATCH).map(batch).collect()
}

/// CPU time of this thread, which a busy machine does not stretch.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
