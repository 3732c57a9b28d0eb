//! Many seeds, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use mutirao_testkit::sim::{self, Failure, Flaw, Tally};

const SEEDS: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Failures after which no further seed is begun.
const FAILURES_MAX: usize = 8;

/// Runs seeds on all cores, until enough fail; what those held that did not, and the failures, lowest seed first.
fn run_all(seeds: u64, flaw: Option<Flaw>, failures_max: usize) -> (Vec<Tally>, Vec<Failure>) {
    let (next, tallies, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    let run = || {
        while failures.lock().unwrap().len() < failures_max {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            // Some flaws can be told from misfortune only where there is none.
            let run = match flaw {
                Some(flaw) if flaw.shows_in_fair_weather() => sim::run_fair,
                Some(flaw) if flaw.shows_while_the_store_is_slow() => sim::run_slow,
                _ => sim::run,
            };
            match run(seed, flaw) {
                Ok(tally) => tallies.lock().unwrap().push(tally),
                Err(failure) => failures.lock().unwrap().push(failure),
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
    let mut failures: Vec<Failure> = failures.into_inner().unwrap();
    failures.sort_by_key(|failure| failure.seed);
    (tallies.into_inner().unwrap(), failures)
}

/// To replay one: `MUTIRAO_SIM_SEED=17`; to try more: `MUTIRAO_SIM_SEEDS=20000`.
#[test]
fn every_accepted_task_ends_once_through_a_thousand_disasters() {
    if let Some(seed) = number("MUTIRAO_SIM_SEED") {
        sim::run(seed, None).unwrap_or_else(|failure| panic!("{failure}"));
        return;
    }
    let (tallies, failures) = run_all(number("MUTIRAO_SIM_SEEDS").unwrap_or(SEEDS), None, FAILURES_MAX);
    if let Some(first) = failures.first() {
        let others: Vec<String> =
            failures[1..].iter().map(|other| format!("seed {}: {}", other.seed, other.why)).collect();
        panic!(
            "{first}
and {} more:
{}",
            others.len(),
            others.join(
                "
"
            )
        );
    }
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let (tasks, runs, takeovers) = (sum(|t| t.tasks), sum(|t| t.runs), sum(|t| t.takeovers));
    println!(
        "{} seeds: {tasks} tasks, {runs} runs ({} in vain), {takeovers} takeovers, {} disasters, {} events",
        tallies.len(),
        sum(|t| t.repeats),
        sum(|t| t.disasters),
        sum(|t| t.events)
    );
    let (outages, handovers, unheard, strays) =
        (sum(|t| t.outages), sum(|t| t.handovers), sum(|t| t.unheard), sum(|t| t.strays));
    println!(
        "{outages} outages of the broker, {handovers} planned hand-overs with work out, {unheard} workers unheard, {strays} strays"
    );
    let queue_changes = sum(|t| t.queue_changes);
    println!("{queue_changes} changes of queues");
    let rarest = [tasks, runs, takeovers, outages, handovers, unheard, strays, queue_changes].into_iter().min();
    assert!(tallies.len() < SEEDS as usize || rarest > Some(0), "something never happened, so it was not proved");
}

#[test]
fn every_flaw_is_noticed() {
    let seeds = number("MUTIRAO_SIM_SEEDS").unwrap_or(SEEDS);
    let unnoticed = Flaw::ALL.into_iter().filter(|flaw| {
        let (_, failures) = run_all(seeds, Some(*flaw), 1);
        let first = failures.first().map(|first| format!("seed {}: {}", first.seed, first.why));
        println!("{flaw:?}: {}", first.as_deref().unwrap_or("not noticed"));
        first.is_none()
    });
    let unnoticed: Vec<Flaw> = unnoticed.collect();
    assert!(unnoticed.is_empty(), "not noticed in {seeds} seeds: {unnoticed:?}");
}
