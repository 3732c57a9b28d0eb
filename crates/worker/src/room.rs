//! Which waiting task starts next, given what is free. Pure.
//!
//! First come, first served, but a small task may pass a big one that does not fit yet, so that capacity is not idle
//! while it gathers. A task can be passed only [`OVERTAKES_MAX`] times: then everything behind it waits until it fits.

use std::collections::VecDeque;

use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::task::Needs;

/// How often a task may be passed by later ones.
pub(crate) const OVERTAKES_MAX: u32 = 16;
/// How far behind a blocked head to look for something that fits.
const LOOK_AHEAD_MAX: usize = 32;

pub(crate) fn fits(needs: Needs, free: Needs) -> bool {
    needs.cpus <= free.cpus && needs.memory <= free.memory
}

/// What is free once `needs` is taken; never below nothing.
pub(crate) fn less(free: Needs, needs: Needs) -> Needs {
    Needs {
        cpus: Cpus { milli: free.cpus.milli.saturating_sub(needs.cpus.milli) },
        memory: Bytes(free.memory.0.saturating_sub(needs.memory.0)),
    }
}

pub(crate) fn plus(free: Needs, needs: Needs) -> Needs {
    Needs {
        cpus: Cpus { milli: free.cpus.milli.saturating_add(needs.cpus.milli) },
        memory: Bytes(free.memory.0.saturating_add(needs.memory.0)),
    }
}

#[derive(Debug)]
struct Place<T> {
    needs: Needs,
    overtaken: u32,
    who: T,
}

/// Those who wait, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Line<T>(VecDeque<Place<T>>);

impl<T> Line<T> {
    pub fn new() -> Self {
        Self(VecDeque::new())
    }

    pub fn join(&mut self, needs: Needs, who: T) {
        self.0.push_back(Place { needs, overtaken: 0, who });
    }

    /// Takes out whoever is to start now, or nobody.
    pub fn next(&mut self, free: Needs) -> Option<T> {
        let mut chosen = None;
        for (at, place) in self.0.iter().take(LOOK_AHEAD_MAX).enumerate() {
            if fits(place.needs, free) {
                chosen = Some(at);
                break;
            }
            if place.overtaken >= OVERTAKES_MAX {
                break;
            }
        }
        let at = chosen?;
        for passed in self.0.iter_mut().take(at) {
            passed.overtaken += 1;
        }
        self.0.remove(at).map(|place| place.who)
    }

    /// Takes out everybody for whom `leaves` says so.
    pub fn remove_if(&mut self, mut leaves: impl FnMut(&T) -> bool) -> Vec<T> {
        // Most calls find nobody; only then is the line left as it is, without a copy.
        if !self.0.iter().any(|place| leaves(&place.who)) {
            return Vec::new();
        }
        let (gone, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|place| leaves(&place.who));
        self.0 = stay;
        gone.into_iter().map(|place| place.who).collect()
    }

    /// Takes out the last to come, so that `keep` are left.
    pub fn beyond(&mut self, keep: usize) -> Vec<T> {
        let keep = keep.min(self.0.len());
        self.0.split_off(keep).into_iter().map(|place| place.who).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|place| &place.who)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn needs(milli: u32, memory: u64) -> Needs {
        Needs { cpus: Cpus { milli }, memory: Bytes(memory) }
    }

    #[test]
    fn a_small_task_passes_a_big_one_but_not_for_ever() {
        let mut line = Line::new();
        line.join(needs(2000, 0), usize::MAX);
        for small in 0..100 {
            line.join(needs(1000, 0), small);
        }
        let mut passed = 0;
        while let Some(small) = line.next(needs(1000, 0)) {
            assert_eq!(small, passed as usize);
            passed += 1;
        }
        assert_eq!(passed, OVERTAKES_MAX);
        assert_eq!(line.next(needs(2000, 0)), Some(usize::MAX));
    }

    proptest! {
        /// Any crowd of tasks that each fit the whole capacity, ending in any order, all run; the capacity is never
        /// exceeded, and nobody is passed more often than the bound.
        #[test]
        fn everybody_starts_and_capacity_holds(
            crowd in prop::collection::vec((1u32..=4000, 0u64..=100), 1..120),
            endings in prop::collection::vec(any::<prop::sample::Index>(), 120),
        ) {
            let whole = needs(4000, 100);
            let (mut free, mut line) = (whole, Line::new());
            for (at, (milli, memory)) in crowd.iter().enumerate() {
                line.join(needs(*milli, *memory), at);
            }
            let (mut running, mut order, mut ends) = (Vec::new(), Vec::new(), endings.iter());
            while order.len() < crowd.len() || !running.is_empty() {
                while let Some(at) = line.next(free) {
                    let (milli, memory) = crowd[at];
                    prop_assert!(fits(needs(milli, memory), free));
                    free = less(free, needs(milli, memory));
                    running.push(at);
                    order.push(at);
                }
                prop_assert!(!running.is_empty(), "nothing runs and {} wait", line.len());
                let at = running.swap_remove(ends.next().map_or(0, |index| index.index(running.len())));
                free = plus(free, needs(crowd[at].0, crowd[at].1));
            }
            prop_assert_eq!(free, whole);
            for (place, at) in order.iter().enumerate() {
                let passed_by = order[..place].iter().filter(|earlier| *earlier > at).count();
                prop_assert!(passed_by <= OVERTAKES_MAX as usize);
            }
        }
    }
}
