//! The simulation: seeds that once failed, that a seed is a history, that flaws are noticed, and (in `heavy`) a thousand
//! seeds.

mod heavy;

use mutirao_testkit::sim;

/// Seeds that found something, kept with what they found.
const KEPT: [u64; 0] = [];

#[test]
fn seeds_that_once_failed_stay_green() {
    for seed in KEPT {
        sim::run(seed, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_seed_is_always_the_same_history() {
    for seed in 0..10 {
        assert_eq!(sim::record(seed), sim::record(seed), "seed {seed}");
    }
}

#[test]
fn when_nothing_goes_wrong_nothing_is_lost_and_nothing_is_run_in_vain() {
    for seed in 0..60 {
        let tally = sim::run_fair(seed).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((tally.losses, tally.repeats), (0, 0), "seed {seed}: {tally:?}");
    }
}
