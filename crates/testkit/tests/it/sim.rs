//! The simulation: seeds that once failed, that a seed is a history, that flaws are noticed, and (in `heavy`) a thousand
//! seeds.

mod heavy;

use mutirao_testkit::sim;

/// Seeds that found something, and what. A change of the models makes other histories of them; they stay, since they cost
/// nothing.
const KEPT: [(u64, &str); 9] = [
    (63, "a retry waited for an hour, because the wall clock had been stepped back by one"),
    (46, "the oracle took a goodbye that came after its session was given up for one that came before"),
    (164, "an old parcel of a cancelled job was found by a worker that came long after"),
    (353, "the oracle took any report for a beat; only beats renew a lease"),
    (358, "a new owner gave up sessions before it had listened to them for a whole lease"),
    (412, "the same"),
    (739, "the same"),
    (839, "a queue that was made anew ran without its limits, since its owner had not heard of them yet"),
    (1725, "the oracle did not know a session that its new owner had not heard yet"),
];

#[test]
fn seeds_that_once_failed_stay_green() {
    for (seed, found) in KEPT {
        sim::run(seed, None).unwrap_or_else(|failure| panic!("{failure}\nonce it found: {found}"));
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
        let tally = sim::run_fair(seed, None).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((tally.losses, tally.repeats), (0, 0), "seed {seed}: {tally:?}");
    }
}

#[test]
fn while_every_write_takes_seconds_for_minutes_little_gathers_nobody_is_given_up_and_everything_ends_once() {
    let (mut full, mut tasks) = (0, 0);
    for seed in 0..20 {
        let tally = sim::run_slow(seed, None).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(tally.losses, 0, "seed {seed}: {tally:?}");
        (full, tasks) = (full + tally.full, tasks + tally.tasks);
    }
    assert!(full > 0 && tasks > 1_000, "the bound was met {full} times by {tasks} tasks");
}
