//! Which events belong together: so many of a key, or those of a span of time.
//!
//! - **Jumping** windows do not overlap: `every` equals `size`. **Sliding** ones do.
//! - **By count**, for each key: each `every` events of a key, over its last `size` (fewer, while it has not had so many).
//!   Results come in the order of the events that made them.
//! - **By time**, which an event carries in a field: spans that end at multiples of `every` since the epoch and are `size`
//!   long, their end not included. A window speaks once, when time has passed its end and then `lateness`, so that nothing
//!   downstream has to take anything back; a window without events says nothing. Results come by end, then by key.
//!
//! Time is what the stream says it is: a watermark for each input ([`watermark`]), from logged records only, so that each
//! replica and each replay sees it pass between the same two events. An event is in all of its windows or in none: when the first
//! of them has spoken it is late, and goes to the late output as it came.
//!
//! What comes downstream of a window by time has the time of its window. So time there is one window behind: whichever of
//! `start` and `end` is taken for the time, nothing is late.
//!
//! Memory is bounded by [`Limits`]: past those the operator refuses ([`Refused`]), with what to change, and every replica does
//! at the same event. It then goes on from its last snapshot, once the limit or the definition is another.

mod counted;
mod jumping;
mod keys;
mod slides;
mod sliding;
mod table;
pub mod watermark;

pub use counted::Counted;
pub use jumping::Jumping;
pub use sliding::Sliding;

use serde::{Deserialize, Serialize};

use crate::aggregate::{Aggregate, Unaggregable};
use crate::batch::Unfit;
use crate::schema::{Field, Kind, Schema, SchemaError};

/// The largest window by count.
pub const COUNT_MAX: u64 = 10_000_000;
/// The longest window by time: a year.
pub const SPAN_US_MAX: i64 = 366 * 24 * 3600 * 1_000_000;

/// The most sliding windows by time that an event is in.
pub const SLIDES_MAX: i64 = 100_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// So many events of a key.
    Count { size: u64, every: u64 },
    /// A span of time, by the field that holds an event's.
    Time { field: usize, size_us: i64, every_us: i64, lateness_us: i64 },
}

impl Window {
    pub fn jumps(&self) -> bool {
        match self {
            Window::Count { size, every } => size == every,
            Window::Time { size_us, every_us, .. } => size_us == every_us,
        }
    }
}

/// A window for each key, and what is made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grouping {
    /// Fields that make the key; none is one window for all.
    pub keys: Vec<usize>,
    pub window: Window,
    pub aggregates: Vec<Aggregate>,
    #[serde(default)]
    pub limits: Limits,
}

/// The most that a window operator remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Keys; in jumping windows by time those of each window that is open.
    pub keys_max: usize,
    /// Windows by time that are open at once.
    pub open_max: usize,
    /// Events that sliding windows hold, all keys together.
    pub events_max: usize,
    /// Bytes of keys, all windows together, and of what sliding windows hold of events.
    #[serde(default = "bytes_max")]
    pub bytes_max: usize,
}

fn bytes_max() -> usize {
    1 << 30
}

impl Default for Limits {
    fn default() -> Self {
        Self { keys_max: 1_000_000, open_max: 10_000, events_max: 10_000_000, bytes_max: bytes_max() }
    }
}

/// What an operator cannot do. It is of no use then until it has gone back to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("a window would hold more than {0} keys: key by something with fewer values, or raise keys_max")]
    Keys(usize),
    #[error("more than {0} windows would be open at once: make them longer, lower the lateness, or raise open_max")]
    Open(usize),
    #[error("sliding windows would hold more than {0} events: make them shorter, let them jump, or raise events_max")]
    Events(usize),
    #[error("windows would hold more than {0} bytes: key by something shorter, make them shorter, or raise bytes_max")]
    Bytes(usize),
    #[error("an operator made what does not fit: {0}")]
    Unfit(#[from] Unfit),
}

/// Why a window cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WindowError {
    #[error("a window of nothing: size and every must be above nought")]
    Zero,
    #[error("a window that moves further than it is long would miss events: every may be at most size")]
    Gaps,
    #[error("a window of {0} events is too large, the most is {COUNT_MAX}")]
    Large(u64),
    #[error("a window, or its lateness, is longer than a year")]
    Long,
    #[error("an event would be in {0} windows, the most is {SLIDES_MAX}")]
    Many(i64),
    #[error("a window by time needs a field of kind time, and \"{0}\" is {1}")]
    NoTime(String, Kind),
    #[error("there is no field {0}")]
    NoField(usize),
    #[error("events cannot be grouped by \"{0}\", which is {1}")]
    Key(String, Kind),
    #[error("\"{name}\": {why}")]
    Aggregate { name: String, why: Unaggregable },
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl Grouping {
    /// What comes out: the key's fields, `start` and `end` where the window is by time, then the aggregates.
    pub fn output(&self, input: &Schema) -> Result<Schema, WindowError> {
        let field = |n: usize| input.fields.get(n).ok_or(WindowError::NoField(n));
        self.check_window(input)?;
        let mut fields = Vec::new();
        for key in &self.keys {
            let field = field(*key)?;
            if !field.kind.groups() {
                return Err(WindowError::Key(field.name.clone(), field.kind));
            }
            fields.push(field.clone());
        }
        if let Window::Time { .. } = self.window {
            fields.extend(["start", "end"].map(|name| Field { name: name.into(), kind: Kind::Time }));
        }
        for Aggregate { name, function, field: of } in &self.aggregates {
            let of = of.map(field).transpose()?.map(|field| field.kind);
            let kind = function.result(of).map_err(|why| WindowError::Aggregate { name: name.clone(), why })?;
            fields.push(Field { name: name.clone(), kind });
        }
        Ok(Schema::checked(fields)?)
    }

    fn check_window(&self, input: &Schema) -> Result<(), WindowError> {
        match &self.window {
            Window::Count { size: 0, .. } | Window::Count { every: 0, .. } => Err(WindowError::Zero),
            Window::Count { size, every } if every > size => Err(WindowError::Gaps),
            Window::Count { size, .. } if *size > COUNT_MAX => Err(WindowError::Large(*size)),
            Window::Count { .. } => Ok(()),
            Window::Time { size_us, every_us, lateness_us, .. }
                if *size_us <= 0 || *every_us <= 0 || *lateness_us < 0 =>
            {
                Err(WindowError::Zero)
            }
            Window::Time { size_us, every_us, .. } if every_us > size_us => Err(WindowError::Gaps),
            Window::Time { size_us, lateness_us, .. } if *size_us.max(lateness_us) > SPAN_US_MAX => {
                Err(WindowError::Long)
            }
            Window::Time { size_us, every_us, .. } if size_us / every_us > SLIDES_MAX => {
                Err(WindowError::Many(size_us / every_us))
            }
            Window::Time { field, .. } => {
                let field = input.fields.get(*field).ok_or(WindowError::NoField(*field))?;
                if field.kind == Kind::Time {
                    return Ok(());
                }
                Err(WindowError::NoTime(field.name.clone(), field.kind))
            }
        }
    }
}

/// Tells apart operators that could not read each other's state. Limits are no part of it: they may be raised.
pub(crate) fn definition_of(grouping: &Grouping, input: &Schema) -> u32 {
    let Grouping { keys, window, aggregates, .. } = grouping;
    let mut hash = crc32fast::Hasher::new();
    hash.update(&postcard::to_stdvec(&(keys, window, aggregates)).unwrap_or_default());
    hash.update(&input.fingerprint().to_le_bytes());
    hash.finalize()
}

/// The end of the first window, of those that end at multiples of `every`, that a time is before.
pub(crate) fn first_end(time: i64, every: i64) -> i64 {
    time.saturating_sub(time.rem_euclid(every)).saturating_add(every)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::aggregate::Function;

    fn grouping(window: Window) -> Grouping {
        let count = Aggregate { name: "n".into(), function: Function::Count, field: None };
        Grouping { keys: vec![0], window, aggregates: vec![count], limits: Limits::default() }
    }

    #[test]
    fn windows_that_cannot_be_are_refused() {
        let schema = Schema::of([("k", Kind::Int), ("at", Kind::Time), ("x", Kind::Float)]);
        let of = |window| grouping(window).output(&schema);
        assert_eq!(of(Window::Count { size: 0, every: 0 }), Err(WindowError::Zero));
        assert_eq!(of(Window::Count { size: 2, every: 3 }), Err(WindowError::Gaps));
        let time = |field, size_us, every_us| Window::Time { field, size_us, every_us, lateness_us: 0 };
        assert_eq!(of(time(2, 5, 5)), Err(WindowError::NoTime("x".into(), Kind::Float)));
        assert_eq!(of(time(9, 5, 5)), Err(WindowError::NoField(9)));
        assert_eq!(of(time(1, i64::MAX, 5)), Err(WindowError::Long));
        assert_eq!(of(time(1, 1_000_000, 5)), Err(WindowError::Many(200_000)));
        let mut by_float = grouping(time(1, 5, 5));
        by_float.keys = vec![2];
        assert_eq!(by_float.output(&schema), Err(WindowError::Key("x".into(), Kind::Float)));
        let names = |window| of(window).map(|schema| schema.to_string());
        assert_eq!(names(time(1, 5, 5)).as_deref(), Ok("{ k: int, start: time, end: time, n: int }"));
        assert_eq!(names(Window::Count { size: 3, every: 1 }).as_deref(), Ok("{ k: int, n: int }"));
    }

    proptest! {
        #[test]
        fn the_first_window_of_an_event_is_the_first_that_holds_it(time in -1000i64..1000, size in 1i64..50, every in 1i64..50) {
            let every = every.min(size);
            let mut ends = (-2000..2000).map(|n| n * every).filter(|end| (end - size..*end).contains(&time));
            prop_assert_eq!(Some(first_end(time, every)), ends.next());
        }
    }
}
