use super::chapter::{Kind, Thirteen, setup};
use super::*;
use crate::settings::Strategy;

/// A tenth of the time, for a build that is not optimised.
fn short(moving: Moving) -> Setup {
    Setup { seconds: 130, ..setup(Kind::Varied, Thirteen::BeginsLow, moving) }
}

#[test]
fn there_are_about_as_many_events_as_the_document_counts() {
    let setup = setup(Kind::Varied, Thirteen::BeginsLow, Moving::live());
    let events: f64 = setup.operators.iter().map(|operator| operator.load.events(600.0)).sum();
    assert!((1.74e6..1.78e6).contains(&events), "{events}");
    assert_eq!(setup.operators.iter().map(|operator| operator.hosts.len()).sum::<usize>(), 26);
}

#[test]
fn a_world_is_the_same_for_the_same_seed() {
    let setup = Setup { seconds: 40, ..short(Moving::live()) };
    let once = run(&setup, Settings::of(Strategy::Random { seed: 3 }), 7);
    let again = run(&setup, Settings::of(Strategy::Random { seed: 3 }), 7);
    assert_eq!((once.processed, once.moves, once.rounds), (again.processed, again.moves, again.rounds));
    assert!(once.moves > 0);
}

#[test]
fn moved_live_nothing_is_lost_or_done_twice_and_moved_by_stopping_events_are_never_said() {
    let all = |moving| {
        let setup = Setup { seconds: 60, noise: Noise::default(), ..short(moving) };
        run(&setup, Settings::of(Strategy::Random { seed: 1 }), 1)
    };
    let still = run(&Setup { seconds: 60, ..short(Moving::live()) }, Settings::of(Strategy::None), 1);
    let (live, stopped) = (all(Moving::live()), all(Moving::stop_and_copy()));
    assert!(live.moves > 1 && stopped.moves > 1);
    assert_eq!(live.said, still.said);
    // What is under way at the end was not done by both.
    assert!(live.slow.count() <= live.processed && live.processed <= live.said);
    assert!(live.said - live.processed < 50, "{} of {}", live.processed, live.said);
    assert!(stopped.said < still.said);
}

#[test]
fn who_is_moved_by_stopping_stands_still_for_as_long_as_is_said_and_only_last_copies_wait_for_it() {
    let of = |pause_s| {
        let moving = Moving::StopAndCopy { set_up_s: 1.0, bytes_per_s: 100e6, upstream_pause_s: 0.0, pause_s };
        let setup = Setup { seconds: 60, noise: Noise::default(), ..setup(Kind::Stable, Thirteen::BeginsLow, moving) };
        run(&setup, Settings::of(Strategy::Random { seed: 1 }), 1)
    };
    let (short, long) = (of(0.0), of(8.0));
    assert!(short.moves > 1 && long.moves > 1, "{} {}", short.moves, long.moves);
    let longest = |copies: &Histogram| copies.percentile_ms(1.0);
    assert!(longest(&short.slow) < 1_000.0 && longest(&long.slow) > 7_500.0, "{}", longest(&long.slow));
    assert!(longest(&long.fast) < 1_000.0, "{}", longest(&long.fast));
    assert_eq!(short.said, long.said);
}

#[test]
fn with_ours_nobody_waits_where_with_none_seconds_pass() {
    let none = run(&short(Moving::live()), Settings::of(Strategy::None), 1);
    let ours = run(&short(Moving::live()), Settings::of(Strategy::mutirao()), 1);
    assert!(none.fast.mean_ms() > 20.0 * ours.fast.mean_ms(), "{} {}", none.fast.mean_ms(), ours.fast.mean_ms());
    assert_eq!(ours.said, none.said);
}

#[test]
fn parts_of_a_lost_host_go_on_elsewhere_and_a_move_to_it_comes_to_nothing() {
    let mut setup = short(Moving::Live { set_up_s: 18.0, bytes_per_s: 1e6, snapshot_s: 10, pause_s: 0.02 });
    setup.seconds = 60;
    for host in 2..5 {
        setup.hosts[host].lost_s = Some(25.0 + host as f64);
    }
    let lost = run(&setup, Settings::of(Strategy::Random { seed: 2 }), 5);
    assert!(lost.failed > 0);
    assert!(lost.processed as f64 > 0.8 * lost.said as f64, "{} of {}", lost.processed, lost.said);
}
