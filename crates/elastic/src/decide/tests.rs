//! Decisions as a whole: floors and ceilings, tolerance, windows, missing figures, and what is said about them.

mod hpa;

use super::*;
use crate::Preset;
use crate::measure::{Host, Tasks, Workers};
use proptest::prelude::*;

const T0: Timestamp = Timestamp(1_800_000_000_000);

fn at(s: u64) -> Timestamp {
    T0.plus(Duration::from_secs(s))
}

fn load(now: Timestamp, running_workers: u32, tasks: Option<Tasks>) -> Load {
    Load { at: now, workers: Workers { running: running_workers, ..Workers::default() }, tasks, ..Load::default() }
}

fn tasks(ready: u64, running: u64) -> Option<Tasks> {
    Some(Tasks { ready, running, unacknowledged: running, ..Tasks::default() })
}

fn host(now: Timestamp, memory_percent: f64) -> Load {
    Load { host: Host { memory_percent: Some(memory_percent), cpu_percent: None }, ..load(now, 2, None) }
}

#[test]
fn n_for_n_counts_running_tasks_so_that_busy_workers_are_kept() {
    let arrebol = Preset::Arrebol.elastic();
    let (first, state) = decide(&arrebol, State::default(), &load(at(0), 0, tasks(5, 0)), at(0));
    assert_eq!((first.wanted, first.removal), (5, Removal::Idle(Span::secs(60))));
    // All five are running: compared with ready tasks alone, all five would go.
    let (mut decision, mut state) = decide(&arrebol, state, &load(at(30), 5, tasks(0, 5)), at(30));
    for s in (60..600).step_by(10) {
        (decision, state) = decide(&arrebol, state, &load(at(s), 5, tasks(0, 5)), at(s));
    }
    assert_eq!(decision.wanted, 5);
    assert_eq!(decision.because.to_string(), "0 ready and 5 running tasks need 5");
}

#[test]
fn n_for_n_shrinks_only_after_the_idle_wait_and_then_to_nothing() {
    let arrebol = Preset::Arrebol.elastic();
    let (_, mut state) = decide(&arrebol, State::default(), &load(at(0), 0, tasks(5, 0)), at(0));
    for s in 1..60 {
        let (decision, next) = decide(&arrebol, state, &load(at(s), 5, tasks(0, 0)), at(s));
        assert_eq!(decision.wanted, 5, "after {s} s");
        assert!(decision.because.to_string().ends_with("5 were needed within the last 1m, so none goes yet"));
        state = next;
    }
    let (decision, _) = decide(&arrebol, state, &load(at(60), 5, tasks(0, 0)), at(60));
    assert_eq!(decision.wanted, 0);
    assert_eq!(decision.change(at(60)).map(|change| (change.from, change.to)), Some((5, 0)));
}

#[test]
fn several_tasks_to_a_worker_need_fewer_workers() {
    let elastic: Elastic =
        serde_json::from_str(r#"{"max": 50, "policy": {"kind": "n_for_n", "tasks_per_worker": 8}}"#).unwrap();
    let (decision, _) = decide(&elastic, State::default(), &load(at(0), 0, tasks(100, 1)), at(0));
    assert_eq!(decision.wanted, 13);
    assert_eq!(decision.because.to_string(), "100 ready and 1 running tasks, 8 to a worker need 13");
}

#[test]
fn without_figures_nothing_changes_and_it_is_said() {
    for preset in Preset::ALL {
        let elastic = preset.elastic();
        let (decision, _) = decide(&elastic, State::default(), &load(at(0), 3, None), at(0));
        assert_eq!(decision.wanted, 3, "{preset:?}");
        assert!(decision.because.to_string().contains("stays at 3"), "{}", decision.because);
    }
    let old = load(at(0), 3, tasks(900, 0));
    let (decision, _) = decide(&Preset::Arrebol.elastic(), State::default(), &old, at(61));
    assert_eq!(decision.wanted, 3);
    assert!(
        decision.because.to_string().starts_with("the figures are 1m 1s old and not believed"),
        "{}",
        decision.because
    );
}

#[test]
fn floor_and_ceiling_hold_also_when_they_are_moved() {
    let elastic = |min, max| Elastic { min, max, ..Preset::SentrywebWorkers.elastic() };
    let busy = load(at(0), 2, tasks(1_000_000, 0));
    let (decision, state) = decide(&elastic(3, 5), State::default(), &busy, at(0));
    assert_eq!((decision.wanted, decision.because.to_string().as_str()), (3, "2 are fewer than the floor of 3"));
    let (decision, _) = decide(&elastic(1, 2), state, &busy, at(1));
    assert_eq!((decision.wanted, decision.because.to_string().as_str()), (2, "3 are more than the ceiling of 2"));
}

#[test]
fn memory_above_the_line_adds_a_replica_each_pause_and_below_removes_one() {
    let kv = Preset::Kv003.elastic();
    let mut state = State::default();
    let mut counts = Vec::new();
    for (s, memory) in
        [(0, 65.0), (10, 75.0), (20, 90.0), (75, 90.0), (80, 60.0), (140, 45.0), (150, 45.0), (230, 45.0), (300, 45.0)]
    {
        let (decision, next) = decide(&kv, state, &host(at(s), memory), at(s));
        counts.push(decision.wanted);
        state = next;
    }
    assert_eq!(counts, [2, 3, 3, 4, 4, 3, 3, 2, 2]);
}

#[test]
fn a_threshold_may_ask_to_be_crossed_for_a_while() {
    let json = r#"{"min": 1, "max": 9, "policy": {"kind": "threshold", "source": "oldest_wait", "above": 30, "hold": "20s", "step": 3}}"#;
    let elastic: Elastic = serde_json::from_str(json).unwrap();
    let waiting =
        |s: u64, wait: u64| load(at(s), 1, Some(Tasks { ready: 9, oldest_wait: Span::secs(wait), ..Tasks::default() }));
    let mut state = State::default();
    let mut counts = Vec::new();
    for (s, wait) in [(0, 31), (10, 40), (15, 20), (20, 40), (39, 60), (40, 60)] {
        let (decision, next) = decide(&elastic, state, &waiting(s, wait), at(s));
        counts.push(decision.wanted);
        state = next;
    }
    assert_eq!(counts, [1, 1, 1, 1, 1, 4]);
}

#[test]
fn a_clock_that_stepped_back_between_two_processes_holds_nothing_for_long() {
    let arrebol = Preset::Arrebol.elastic();
    let (_, state) = decide(&arrebol, State::default(), &load(at(90_000), 0, tasks(7, 0)), at(90_000));
    let (decision, state) = decide(&arrebol, state, &load(at(0), 7, tasks(0, 0)), at(0));
    assert_eq!(decision.wanted, 7);
    let (decision, _) = decide(&arrebol, state, &load(at(60), 7, tasks(0, 0)), at(60));
    assert_eq!(decision.wanted, 0);
}

fn any_elastic() -> impl Strategy<Value = Elastic> {
    let legacy = Elastic {
        policy: serde_json::from_str(r#"{"kind": "hpa", "metrics": [{"source": "ready", "target": {"total": 50}}]}"#)
            .unwrap(),
        ..Preset::Arrebol.elastic()
    };
    let mut all: Vec<Elastic> = Preset::ALL.iter().map(|preset| preset.elastic()).collect();
    all.push(legacy);
    (prop::sample::select(all), 0u32..6, 0u32..30).prop_map(|(elastic, min, more)| Elastic {
        min,
        max: min + more.max(1),
        ..elastic
    })
}

fn any_load() -> impl Strategy<Value = (u64, Load)> {
    let tasks = prop::option::of((0u64..5_000, 0u64..500));
    (1u64..90, 0u32..40, 0u32..10, tasks, prop::option::of(0.0f64..120.0)).prop_map(
        |(after_s, running, creating, tasks, memory)| {
            let tasks = tasks.map(|(ready, running)| Tasks {
                ready,
                running,
                unacknowledged: running,
                oldest_wait: Span::secs(ready / 50),
                ended: None,
            });
            let workers = Workers { running, creating, draining: 0 };
            let host = Host { memory_percent: memory, cpu_percent: None };
            (after_s, Load { at: T0, workers, tasks, host, ..Load::default() })
        },
    )
}

proptest! {
    #[test]
    fn bounds_hold_whatever_the_load_and_a_successor_decides_the_same(
        elastic in any_elastic(), loads in prop::collection::vec(any_load(), 1..60)
    ) {
        let (mut state, mut now) = (State::default(), T0);
        for (after_s, load) in loads {
            now = now.plus(Duration::from_secs(after_s));
            let load = Load { at: now, ..load };
            let adopted: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
            let (decision, next) = decide(&elastic, state, &load, now);
            prop_assert!((elastic.min..=elastic.max).contains(&decision.wanted), "{decision:?}");
            prop_assert!(!decision.because.0.is_empty());
            prop_assert_eq!(decide(&elastic, adopted, &load, now).0, decision);
            state = next;
        }
    }

    #[test]
    fn more_waiting_tasks_never_mean_fewer_workers(
        elastic in any_elastic(), loads in prop::collection::vec(any_load(), 1..30), more in 1u64..5_000
    ) {
        let (mut state, mut now) = (State::default(), T0);
        for (after_s, load) in loads {
            now = now.plus(Duration::from_secs(after_s));
            let load = Load { at: now, ..load };
            let heavier = Load { tasks: load.tasks.map(|t| Tasks { ready: t.ready + more, ..t }), ..load.clone() };
            let (decision, next) = decide(&elastic, state.clone(), &load, now);
            prop_assert!(decide(&elastic, state, &heavier, now).0.wanted >= decision.wanted);
            state = next;
        }
    }

    #[test]
    fn n_for_n_never_wants_fewer_than_are_needed_now(
        max in 1u32..200, loads in prop::collection::vec((1u64..30, 0u64..300, 0u64..100), 1..100)
    ) {
        let elastic = Elastic { max, ..Preset::Arrebol.elastic() };
        let (mut state, mut now) = (State::default(), T0);
        for (after_s, ready, running) in loads {
            now = now.plus(Duration::from_secs(after_s));
            let (decision, next) = decide(&elastic, state, &load(now, 0, tasks(ready, running)), now);
            prop_assert!(u64::from(decision.wanted) >= (ready + running).min(u64::from(max)));
            state = next;
        }
    }
}
