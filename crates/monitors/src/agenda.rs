//! The monitors of one owner, and which firings lie between two moments.
//!
//! Monitors of one interval stand in a ring by their phases. Which of them fire between two moments is then a range of the
//! ring, so nobody's next run is kept: there is nothing to drift, nothing to clean up when an interval changes, and no entry
//! that could fire twice. A firing costs a step along the ring; the rest costs a look at each interval in use.
//!
//! The owner remembers one moment, up to which everything has been fired. A successor begins where the lease says.
//!
//! Not here: whose monitors these are (`shards`), and what a firing does.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::grid::{Grid, MonitorKey};

/// A monitor at an instant: the identity of what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Firing {
    pub at: Timestamp,
    pub monitor: MonitorKey,
}

/// What becomes of instants that passed while nobody was there to fire them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Nothing: a late check says nothing about then.
    #[default]
    Skip,
    /// The last of them is fired, late.
    Once,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    grid: Grid,
    missed: Missed,
    /// Nothing at or before this moment is fired: it was not there then, or was another.
    since: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub struct Agenda {
    entries: HashMap<MonitorKey, Entry>,
    /// By interval, then by phase.
    rings: BTreeMap<u64, BTreeMap<(u64, MonitorKey), Entry>>,
}

/// How late any firing may be and still count as on time.
pub const LATE_MAX: Duration = Duration::from_secs(5);
/// The same for those that are fired seldom.
const SELDOM_LATE_MAX: Duration = Duration::from_secs(30);

/// For how long an instant of such an interval makes sense: until the next one, at most for half a minute. A takeover takes
/// less, so it costs those that are fired seldom nothing. What is later, [`Missed`] decides about.
pub fn makes_sense_for(every: Duration) -> Duration {
    every.min(SELDOM_LATE_MAX)
}

fn late_max(every: Duration) -> Duration {
    makes_sense_for(every).max(LATE_MAX)
}

impl Agenda {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes a monitor in, or changes its interval. Its first instant is the first after `since`.
    pub fn put(&mut self, monitor: MonitorKey, grid: Grid, missed: Missed, since: Timestamp) {
        self.remove(monitor);
        let entry = Entry { grid, missed, since };
        self.entries.insert(monitor, entry);
        self.rings.entry(grid.every_ms()).or_default().insert((grid.phase_ms(), monitor), entry);
    }

    /// Whether it was there.
    pub fn remove(&mut self, monitor: MonitorKey) -> bool {
        let Some(Entry { grid, .. }) = self.entries.remove(&monitor) else { return false };
        if let Some(ring) = self.rings.get_mut(&grid.every_ms()) {
            ring.remove(&(grid.phase_ms(), monitor));
            if ring.is_empty() {
                self.rings.remove(&grid.every_ms());
            }
        }
        true
    }

    /// The firings after `done` and not after `now`, in the order of their instants. Of each monitor those that are not too
    /// late, or, if it asks for it, the last one.
    pub fn due(&self, done: Timestamp, now: Timestamp) -> Vec<Firing> {
        self.due_within(done, now, late_max)
    }

    /// The same, where another lateness, by the interval, still counts as on time.
    pub fn due_within(&self, done: Timestamp, now: Timestamp, late_max: impl Fn(Duration) -> Duration) -> Vec<Firing> {
        let mut firings = Vec::new();
        for (every, ring) in &self.rings {
            let late_ms = late_max(Duration::from_millis(*every)).as_millis() as i64;
            let on_time_from = Timestamp(now.0.saturating_sub(late_ms)).max(done);
            if on_time_from > done {
                let late = between(ring, *every, done, on_time_from);
                // Whoever comes round again in time is not missed.
                let last = |(entry, monitor): (&Entry, MonitorKey)| {
                    let at = entry.grid.at_or_before(now);
                    (entry.missed == Missed::Once && at <= on_time_from && at > done.max(entry.since))
                        .then_some(Firing { at, monitor })
                };
                firings.extend(late.filter_map(last));
            }
            let every_ms = *every as i64;
            for (entry, monitor) in between(ring, *every, on_time_from, now) {
                let mut at = entry.grid.after(on_time_from.max(entry.since));
                while at <= now {
                    firings.push(Firing { at, monitor });
                    at = Timestamp(at.0 + every_ms);
                }
            }
        }
        firings.sort_unstable();
        firings
    }

    /// When the next one fires, if there is any. Nothing does between `done` and then.
    pub fn next(&self, done: Timestamp) -> Option<Timestamp> {
        let first = |(every, ring): (&u64, &BTreeMap<(u64, MonitorKey), Entry>)| {
            let place = done.0.rem_euclid(*every as i64) as u64;
            let ahead = ring.range((place + 1, MonitorKey(0))..).next();
            let (_, entry) = ahead.or_else(|| ring.iter().next())?;
            Some(entry.grid.after(done))
        };
        self.rings.iter().filter_map(first).min()
    }
}

/// The monitors of a ring that have an instant after `from` and not after `to`, each once.
fn between(
    ring: &BTreeMap<(u64, MonitorKey), Entry>,
    every_ms: u64,
    from: Timestamp,
    to: Timestamp,
) -> impl Iterator<Item = (&Entry, MonitorKey)> {
    let every = every_ms as i64;
    let (first, last) = (from.0.rem_euclid(every) as u64, to.0.rem_euclid(every) as u64);
    let whole = to.0.saturating_sub(from.0) >= every;
    let span = to > from;
    // A range that passes the end of the ring goes on at its beginning.
    let (low, high) = match (span, whole, first <= last) {
        (false, ..) => (None, None),
        (_, true, _) => (Some(0..every_ms), None),
        (_, _, true) => (Some(first + 1..last + 1), None),
        (_, _, false) => (Some(first + 1..every_ms), Some(0..last + 1)),
    };
    [low, high].into_iter().flatten().filter(|phases| phases.start < phases.end).flat_map(move |phases| {
        let keys = (phases.start, MonitorKey(0))..(phases.end, MonitorKey(0));
        ring.range(keys).map(|((_, monitor), entry)| (entry, *monitor))
    })
}

#[cfg(test)]
mod tests;
