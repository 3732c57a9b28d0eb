//! The pool of checkers under the load of SentryWeb's fourth experiment: 50, 70, 100, 400 and 20 checks a second. A resource
//! manager passes each second, and a checker of this machine is there two seconds after it was asked for.

use mutirao_elastic::Elastic;

use crate::queueing::{Checks, Worker};

/// As large as a worker of the document: 50 slots, and cpu for 60 checks a second.
const AS_IN_THE_DOCUMENT: Worker = Worker { slots: 50.0, latency_s: 0.4, cpu_per_s: 60.0 };
const SLOW: Worker = Worker { slots: 50.0, latency_s: 0.85, cpu_per_s: 300.0 };
/// One of ours, on services that take 0.85 s.
const OURS: Worker = Worker { slots: 10_000.0, latency_s: 0.85, cpu_per_s: 1_500.0 };
const SEEDS: std::ops::Range<u64> = 0..8;

fn begun(elastic: &Elastic, worker: Worker, seed: u64) -> Checks<'_> {
    let mut checks = Checks::new(elastic, worker, 1, seed);
    (checks.pace_s, checks.start_s) = (1, 2);
    checks
}

#[test]
fn under_the_load_of_the_document_the_pool_follows_without_flapping_and_little_waits() {
    for seed in SEEDS {
        for worker in [AS_IN_THE_DOCUMENT, SLOW] {
            let elastic = Elastic::of_checkers(50, 1, 20);
            elastic.check().expect("it makes sense");
            let mut checks = begun(&elastic, worker, seed);
            for rate in [50.0, 70.0, 100.0, 400.0] {
                checks.run(rate, 600);
                assert!(checks.ready() < 1.0, "seed {seed}: at {rate}/s {} wait: {:?}", checks.ready(), checks.history);
            }
            assert!(checks.running() >= 7, "seed {seed}: {:?}", checks.counts());
            assert!(checks.ready_peak <= 1_000.0, "seed {seed}: {} waited", checks.ready_peak);
            checks.run(20.0, 600);
            assert_eq!((checks.running(), checks.flaps()), (1, 0), "seed {seed}: {:?}", checks.counts());
        }
    }
}

/// One more for as long as what waited at first is made up for; then as many as it takes, and no change in two hours.
#[test]
fn at_70_a_second_it_settles_at_two_and_stays() {
    for seed in SEEDS {
        let elastic = Elastic::of_checkers(50, 1, 10);
        let mut checks = begun(&elastic, AS_IN_THE_DOCUMENT, seed);
        checks.run(70.0, 300);
        let changes = checks.history.len();
        checks.run(70.0, 7_200);
        assert_eq!((checks.running(), checks.flaps()), (2, 0), "seed {seed}: {:?}", checks.history);
        assert_eq!(checks.history.len(), changes, "seed {seed}: {:?}", checks.history);
    }
}

#[test]
fn one_of_ours_carries_the_whole_load_alone() {
    for seed in SEEDS {
        let elastic = Elastic::of_checkers(10_000, 1, 10);
        let mut checks = begun(&elastic, OURS, seed);
        for rate in [50.0, 70.0, 100.0, 400.0, 20.0] {
            checks.run(rate, 600);
        }
        assert!(checks.history.is_empty() && checks.ready_peak == 0.0, "seed {seed}: {:?}", checks.history);
        checks.run(3_000.0, 300);
        assert!(checks.running() >= 3 && checks.ready() < 1.0, "seed {seed}: {:?}", checks.counts());
    }
}
