//! Keys of sorted sets, whose comparisons a test may count: cost is shown by steps, not by time.

use std::cmp::Ordering;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<T>(pub T);

impl<T: Ord> Ord for Step<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        TAKEN.with(|taken| taken.set(taken.get() + 1));
        self.0.cmp(&other.0)
    }
}

impl<T: Ord> PartialOrd for Step<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
thread_local! {
    static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Comparisons made by this thread so far.
#[cfg(test)]
pub fn taken() -> u64 {
    TAKEN.with(std::cell::Cell::get)
}
