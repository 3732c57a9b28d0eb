//! The autoscaler of Kubernetes, by the examples of its documentation and of its own tests.

use super::*;
use crate::measure::Source;
use crate::policy::{Behaviour, Hpa, Metric, Rate, Rules, Target};

fn hpa(metrics: Vec<(Source, Target)>, behaviour: Option<Behaviour>) -> Elastic {
    let metrics = metrics.into_iter().map(|(source, target)| Metric { source, target }).collect();
    let policy = Hpa { metrics, behaviour, tolerance: 0.1, settle: Span::secs(30) };
    Elastic { min: 0, max: 1_000, stale_after: Span::secs(60), policy: Policy::Hpa(policy) }
}

/// Acts at once and without limit, so that the bare proposal shows.
fn at_once() -> Option<Behaviour> {
    let any = |rules: Rules| rules.window(Span::secs(0)).policies(vec![Rate::count(10_000, Span::secs(1))]);
    Some(Behaviour { up: any(Rules::up()), down: any(Rules::down()) })
}

fn proposed(source: Source, target: Target, standing: u32, ready_workers: u32, figure: u64) -> u32 {
    let workers = Workers { running: ready_workers, creating: standing - ready_workers, draining: 0 };
    let tasks = Tasks { ready: figure, oldest_wait: Span::secs(figure), ..Tasks::default() };
    let load = Load { at: T0, workers, tasks: Some(tasks), ..Load::default() };
    decide(&hpa(vec![(source, target)], at_once()), State::default(), &load, T0).0.wanted
}

#[test]
fn figures_divided_among_workers_come_out_as_in_the_source() {
    for (standing, figure, each, wanted) in [
        (3, 20_000, 5_000.0, 4),
        (3, 8_600, 2_150.0, 4),
        (5, 6_000, 2_000.0, 3),
        (5, 8_600, 2_867.0, 3),
        (4, 20_166, 5_000.0, 4),
        (3, 8_600, 2_900.0, 3),
        (4, 8_600, 2_200.0, 4),
    ] {
        assert_eq!(
            proposed(Source::Ready, Target::PerWorker(each), standing, standing, figure),
            wanted,
            "{standing} {figure} {each}"
        );
    }
}

#[test]
fn figures_for_the_whole_come_out_as_in_the_source() {
    for (standing, ready, figure, total, wanted) in [
        (3, 3, 20_000, 15_000.0, 4),
        (1, 1, 8_600, 4_400.0, 2),
        (5, 5, 12_000, 20_000.0, 3),
        (5, 5, 8_600, 14_334.0, 3),
        (3, 3, 20_666, 20_000.0, 3),
        (3, 3, 8_600, 8_888.0, 3),
        // Only those that are ready count.
        (3, 1, 50_000, 10_000.0, 5),
        (3, 1, 8_600, 4_400.0, 2),
        // From nothing, and back to nothing.
        (0, 0, 8_600, 4_400.0, 2),
        (0, 0, 1, 4_400.0, 1),
        (0, 0, 0, 4_400.0, 0),
        (3, 3, 0, 4_400.0, 0),
    ] {
        assert_eq!(
            proposed(Source::Ready, Target::Total(total), standing, ready, figure),
            wanted,
            "{standing} {ready} {figure} {total}"
        );
    }
    // The documentation's own: twice the wanted value doubles, half of it halves.
    assert_eq!(proposed(Source::OldestWait, Target::Wait(Span::secs(100)), 4, 4, 200), 8);
    assert_eq!(proposed(Source::OldestWait, Target::Wait(Span::secs(100)), 4, 4, 50), 2);
    // None is ready yet: that is no reason to give up those that are being created.
    assert_eq!(proposed(Source::Ready, Target::Total(10.0), 3, 0, 500), 3);
}

#[test]
fn the_edges_of_the_tolerance_are_where_kubernetes_has_them() {
    let wanted = |figure| proposed(Source::Ready, Target::PerWorker(100.0), 10, 10, figure);
    assert_eq!([899, 900, 1_000, 1_100, 1_101].map(wanted), [9, 10, 10, 10, 12]);
    let mut own = at_once().unwrap();
    own.up.tolerance = Some(0.0);
    own.down.tolerance = Some(0.05);
    let elastic = hpa(vec![(Source::Ready, Target::PerWorker(100.0))], Some(own));
    let wanted = |figure| decide(&elastic, State::default(), &load(T0, 10, tasks(figure, 0)), T0).0.wanted;
    assert_eq!([940, 950, 1_000, 1_001].map(wanted), [10, 10, 10, 11]);
    assert_eq!(wanted(899), 9);
}

#[test]
fn the_largest_of_several_metrics_is_taken() {
    let both = vec![(Source::Ready, Target::PerWorker(200.0)), (Source::Running, Target::PerWorker(35.0))];
    let (decision, _) = decide(&hpa(both, at_once()), State::default(), &load(T0, 2, tasks(500, 350)), T0);
    assert_eq!(decision.wanted, 10);
    assert_eq!(
        decision.because.to_string(),
        "ready is 500 over 2 workers, 200 each wanted: 3; running is 350 over 2 workers, 35 each wanted: 10"
    );
}

#[test]
fn a_metric_that_cannot_be_read_holds_back_going_down_only() {
    let both = || vec![(Source::HostCpu, Target::Percent(50.0)), (Source::Ready, Target::PerWorker(10.0))];
    let elastic = hpa(both(), at_once());
    let wanted = |ready| decide(&elastic, State::default(), &load(T0, 3, tasks(ready, 0)), T0).0.wanted;
    assert_eq!((wanted(90), wanted(10)), (9, 3));
}

#[test]
fn windows_take_the_lowest_up_and_the_highest_down() {
    // Past recommendations with their ages, what there is, what is asked for now, the windows, and what comes of it.
    for (past, was, asked, up_s, down_s, wanted) in [
        (vec![], 100, 5, 0, 0, 5),
        (vec![(4, 120), (5, 60)], 100, 3, 0, 180, 5),
        (vec![(4, 120), (5, 60)], 1, 7, 300, 0, 4),
        (vec![(1, 120), (2, 60)], 100, 3, 300, 0, 3),
        (vec![(4, 120), (5, 60)], 1, 3, 0, 300, 3),
        (vec![(10, 600), (9, 540)], 100, 3, 0, 0, 3),
        (vec![(10, 600), (9, 540)], 1, 100, 0, 0, 100),
        (vec![(10, 600), (9, 540), (5, 120), (4, 60)], 100, 3, 0, 180, 5),
        (vec![(10, 6_000), (9, 180), (5, 120), (6, 60)], 1, 100, 300, 0, 5),
        (vec![(2, 6_000), (3, 180)], 2, 1, 300, 300, 2),
        (vec![(2, 6_000), (1, 180)], 2, 3, 300, 300, 2),
    ] {
        let mut behaviour = at_once().unwrap();
        behaviour.up.window = Span::secs(up_s);
        behaviour.down.window = Span::secs(down_s);
        let now = at(10_000);
        let mut state = State { wanted: Some(was), ..State::default() };
        for (count, age_s) in &past {
            state.recent.note(*count, at(10_000 - age_s), Duration::from_secs(36_000));
        }
        let elastic = hpa(vec![(Source::Ready, Target::PerWorker(1.0))], Some(behaviour));
        let (decision, _) = decide(&elastic, state, &load(now, was, tasks(asked, 0)), now);
        assert_eq!(decision.wanted, wanted, "{past:?} {was} {asked}: {}", decision.because);
    }
}

#[test]
fn without_behaviour_it_may_double_at_once_or_reach_four() {
    for (was, wanted) in [(1, 4), (2, 4), (3, 6), (10, 20)] {
        let elastic = hpa(vec![(Source::Ready, Target::PerWorker(1.0))], None);
        let (decision, _) = decide(&elastic, State::default(), &load(T0, was, tasks(500, 0)), T0);
        assert_eq!(decision.wanted, wanted);
        assert!(decision.because.to_string().ends_with(&format!("{wanted}, since it may at most double at once")));
    }
}

#[test]
fn whoever_takes_over_without_a_history_waits_a_window_first() {
    let sentryweb = Preset::SentrywebWorkers.elastic();
    let mut state = State::default();
    for s in (0..60).step_by(15) {
        let (decision, next) = decide(&sentryweb, state, &load(at(s), 3, tasks(4_000, 0)), at(s));
        assert_eq!(decision.wanted, 3, "after {s} s: {}", decision.because);
        state = next;
    }
    let (decision, state) = decide(&sentryweb, state, &load(at(60), 3, tasks(4_000, 0)), at(60));
    assert_eq!(decision.wanted, 5);
    let said = decision.because.to_string();
    assert!(said.ends_with("5, since it may grow by the larger of 50 % in 1m and 2 in 1m"), "{said}");
    // The period is over once it is over, not before.
    let (decision, state) = decide(&sentryweb, state, &load(at(105), 5, tasks(4_000, 0)), at(105));
    assert_eq!(decision.wanted, 5);
    let (decision, _) = decide(&sentryweb, state, &load(at(120), 5, tasks(4_000, 0)), at(120));
    assert_eq!(decision.wanted, 8);
}

proptest! {
    #[test]
    fn a_load_that_wavers_within_the_tolerance_changes_nothing(
        count in 1u32..50, wavers in prop::collection::vec(0.901f64..1.099, 1..100)
    ) {
        let elastic = hpa(vec![(Source::Ready, Target::PerWorker(1_000.0))], at_once());
        let mut state = State { wanted: Some(count), ..State::default() };
        for (i, waver) in wavers.into_iter().enumerate() {
            let now = at(i as u64 * 15);
            let ready = (f64::from(count) * 1_000.0 * waver) as u64;
            let (decision, next) = decide(&elastic, state, &load(now, count, tasks(ready, 0)), now);
            prop_assert_eq!(decision.wanted, count);
            state = next;
        }
    }
}
