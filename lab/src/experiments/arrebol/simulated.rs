//! Many worlds, on all cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::outcome::Outcome;
use super::trace::Arrival;
use super::world::{self, Setup};

/// One policy under one set of terms; the arrivals and the seed are put in for each run.
pub struct Case {
    pub name: String,
    pub setup: Setup,
}

/// By day, in their order.
pub struct Runs(pub Vec<Outcome>);

pub fn run<const N: usize>(cases: &[Case; N], days: &[Arc<Vec<Arrival>>]) -> [Runs; N] {
    let found: Vec<Mutex<Option<Outcome>>> = (0..N * days.len()).map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let Some(place) = found.get(job) else { return };
                    let (day, case) = (job / N, job % N);
                    let setup =
                        Setup { arrivals: days[day].clone(), seed: day as u64 + 1, ..cases[case].setup.clone() };
                    let outcome = world::run(setup);
                    eprintln!(
                        "{}, day {}: {:.0} node-hours, p95 {:.0} s",
                        cases[case].name,
                        day + 1,
                        outcome.node_hours(),
                        outcome.wait_s(0.95)
                    );
                    *place.lock() = Some(outcome);
                }
            });
        }
    });
    let mut outcomes: Vec<Option<Outcome>> = found.into_iter().map(Mutex::into_inner).collect();
    std::array::from_fn(|case| Runs((0..days.len()).filter_map(|day| outcomes[day * N + case].take()).collect()))
}
