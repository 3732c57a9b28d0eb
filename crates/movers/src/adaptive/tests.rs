use super::*;
use crate::mover::Mover;
use crate::round::{Fit, Resource, Round};
use crate::scene::Scene;
use crate::settings::{Settings, Strategy};
use crate::testing::{message, part, scene, seated};

#[test]
fn the_worked_example_of_the_document() {
    let (x, y, z) = ([12.0, 5.0, 15.0], [5.0, 5.0, 10.0], [20.0, 30.0, 20.0]);
    let all = |d| [&x, &y, &z].map(|latencies| degradation(latencies, d));
    let near = |found: [f64; 3], wanted: [f64; 3]| {
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 0.001), "{found:?} {wanted:?}");
    };
    // The document prints 0.66 for the third, which its own formula does not give; the order is the same.
    near(all(0.25), [0.833, 1.0, 0.5]);
    near(all(0.75), [0.833, 1.0, 0.0]);
}

#[test]
fn a_first_latency_of_nought_is_passed_over_and_nothing_says_nothing() {
    assert_eq!(degradation(&[0.0, 0.0, 10.0, 20.0], 0.25), 1.0);
    assert_eq!(degradation(&[0.0, 0.0], 0.25), 0.0);
    assert_eq!(degradation(&[], 0.25), 0.0);
    assert_eq!(degradation(&[7.0], 0.25), 0.0);
}

#[test]
fn a_growth_of_just_the_sensitivity_does_not_count() {
    assert_eq!(degradation(&[100.0, 125.0], 0.25), 0.0);
    assert!(degradation(&[100.0, 126.0], 0.25) > 0.0);
}

/// After ten seconds in which each part has the latencies given, on hosts as busy as given.
fn after(scene: &mut Scene, settings: Settings, latencies: &[&[f64]], busy: &[f64]) -> Round {
    let mut mover = Mover::new(settings);
    assert!(mover.round(scene).is_none());
    let begin = scene.now_ms;
    for (seated, latencies) in scene.parts.iter().zip(latencies) {
        let core = scene.hosts.iter().position(|host| host.id == seated.host).map_or(0.0, |host| busy[host]);
        for (second, latency) in latencies.iter().enumerate() {
            let at = begin + 1_000 * (second as u64 + 1);
            mover.hear(at, message(seated, at, *latency, 0.4, core));
        }
    }
    scene.now_ms = begin + 10_000;
    mover.round(scene).unwrap()
}

fn four(now_ms: u64) -> Scene {
    let seats = [(0, 0, "a"), (0, 1, "b"), (1, 0, "a"), (1, 1, "c")];
    let parts = seats.map(|(operator, replica, host)| seated(part(operator, replica), host)).into();
    scene(now_ms, &["a", "b", "c", "d"], parts)
}

const CALM: &[f64] = &[10.0, 10.0, 10.0];
const WORSE: &[f64] = &[10.0, 20.0, 40.0];
const WORST: &[f64] = &[10.0, 90.0, 40.0];

fn adaptive() -> Settings {
    Settings::of(Strategy::adaptive(0.25))
}

#[test]
fn the_worst_goes_first_to_where_no_resource_gets_worse() {
    let mut scene = four(0);
    let round = after(&mut scene, adaptive(), &[WORSE, CALM, WORST, CALM], &[0.9, 0.6, 0.5, 0.2]);
    let moves: Vec<_> = round.moves().collect();
    // Nothing of ours runs on `d`: idle, it is the best of those that fit.
    assert_eq!((moves.len(), &moves[0].part, moves[0].to.as_str()), (1, &part(1, 0), "d"));
    let tried = &round.considered[0].tried;
    assert!(matches!(tried[0], (ref host, Fit::Fits { resource: Resource::Cpu, .. }) if host == "b"), "{tried:?}");
    assert_eq!(tried[1], ("c".into(), Fit::HasReplica));
    assert_eq!(round.considered[1].verdict, Verdict::Enough);
    assert!(round.to_string().contains("moves to d"), "{round}");
}

#[test]
fn a_host_where_one_resource_would_get_worse_is_none() {
    let mut scene = four(0);
    scene.hosts.pop();
    // 0.85 and a tenth of 0.4 cores on each are more than 0.9.
    let round = after(&mut scene, adaptive(), &[WORSE, CALM, CALM, CALM], &[0.9, 0.85, 0.85]);
    assert_eq!(round.considered[0].verdict, Verdict::NoTarget);
    assert!(matches!(round.considered[0].tried[1].1, Fit::Exceeds { resource: Resource::Cpu, .. }), "{round}");
}

#[test]
fn what_was_decided_counts_for_what_is_decided_next() {
    let parts = [(0, "a"), (1, "a"), (2, "a"), (3, "b")].map(|(operator, host)| seated(part(operator, 0), host));
    let mut scene = scene(0, &["a", "b"], parts.into());
    // There is room for one of them on `b`, and not for two.
    let latencies = [WORSE, WORSE, WORSE, CALM];
    let round = after(&mut scene, adaptive().without_limit(), &latencies, &[0.8, 0.55]);
    assert_eq!(round.moves().count(), 1, "{round}");
}

#[test]
fn of_equals_who_never_moved_goes_first_then_the_one_moved_longest_ago() {
    let parts = (0..3).map(|operator| seated(part(operator, 0), "a")).collect();
    let scene = scene(10_000, &["a", "b"], parts);
    let mut memory = Memory::default();
    for seated in &scene.parts {
        for (second, latency) in WORSE.iter().enumerate() {
            let at = 7_000 + second as u64 * 1_000;
            memory.hear(10_000, message(seated, at, *latency, 0.1, 0.8));
        }
    }
    let order = |last_moved: &BTreeMap<Part, u64>| {
        let asked = Asked { memory: &memory, window_ms: 10_000, moves_max: Some(1), last_moved };
        let found = round(&asked, &mut Board::new(&scene), 0.25);
        found.into_iter().map(|one| one.part).collect::<Vec<_>>()
    };
    let moved = [(part(0, 0), 9_000), (part(1, 0), 5_000)].into();
    assert_eq!(order(&moved), [part(2, 0), part(1, 0), part(0, 0)]);
    assert_eq!(order(&BTreeMap::new()), [part(0, 0), part(1, 0), part(2, 0)]);
}

#[test]
fn traffic_to_a_neighbour_that_is_there_goes_through_no_network() {
    let mut scene = scene(0, &["a", "b"], vec![seated(part(0, 0), "a"), seated(part(1, 0), "b")]);
    let look = |scene: &Scene| {
        let mut memory = Memory::default();
        for seated in &scene.parts {
            let mut message = message(seated, 5_000, 10.0, 0.1, if seated.host == "a" { 0.8 } else { 0.2 });
            // 9.5 MB and the part's own 1 MB are more than the 10 MB of its host.
            message.node.network_bytes = if seated.host == "a" { 10e6 } else { 9.5e6 };
            memory.hear(5_000, message);
        }
        let mut there = scene.clone();
        there.now_ms = 10_000;
        Uses::over(&memory, &Board::new(&there), 10_000).look(&Board::new(&there), &there.parts[0]).remove(0).1
    };
    assert!(matches!(look(&scene), Fit::Exceeds { resource: Resource::Network, .. }));
    scene.parts[0].links = vec![(part(1, 0), 0.8e6)];
    assert!(matches!(look(&scene), Fit::Fits { .. }));
}

#[test]
fn hosts_of_one_machine_whose_network_shows_nothing_are_held_against_what_their_parts_send() {
    let seats = [(0, 0, "a"), (1, 0, "a"), (2, 0, "b")];
    let parts = seats.map(|(operator, replica, host)| seated(part(operator, replica), host)).into();
    let scene = scene(10_000, &["a", "b"], parts);
    let mut memory = Memory::default();
    for seated in &scene.parts {
        let mut message = message(seated, 5_000, 10.0, 0.1, if seated.host == "a" { 0.8 } else { 0.2 });
        message.node.network_bytes = 100.0;
        memory.hear(5_000, message);
    }
    let board = Board::new(&scene);
    let (_, fit) = Uses::over(&memory, &board, 10_000).look(&board, &scene.parts[0]).remove(0);
    assert!(matches!(fit, Fit::Fits { .. }), "{fit}");
}

#[test]
fn a_host_without_parts_is_as_busy_as_it_says() {
    let mut scene = scene(10_000, &["a", "b"], vec![seated(part(0, 0), "a")]);
    let mut memory = Memory::default();
    memory.hear(5_000, message(&scene.parts[0], 5_000, 10.0, 0.1, 0.8));
    let look = |scene: &Scene| {
        let board = Board::new(scene);
        Uses::over(&memory, &board, 10_000).look(&board, &scene.parts[0]).remove(0).1
    };
    assert!(matches!(look(&scene), Fit::Fits { .. }));
    scene.hosts[1].node = Some(message(&scene.parts[0], 5_000, 10.0, 0.1, 0.9).node);
    assert!(matches!(look(&scene), Fit::Exceeds { .. }));
}

#[test]
fn no_round_while_a_move_is_under_way() {
    let mut scene = four(0);
    let mut mover = Mover::new(adaptive());
    mover.round(&scene);
    for second in 1..=3 {
        let at = second * 1_000;
        mover.hear(at, message(&scene.parts[0], at, 10.0 * second as f64, 0.4, 0.9));
    }
    scene.now_ms = 10_000;
    scene.moving.insert(part(1, 1));
    let round = mover.round(&scene).unwrap();
    assert_eq!((round.considered.len(), round.waits_for), (0, vec![part(1, 1)]));
}

#[test]
fn chance_moves_by_the_same_rule() {
    let mut moved = 0;
    for seed in 0..40 {
        let mut scene = four(0);
        scene.hosts.pop();
        let settings = Settings::of(Strategy::Random { seed });
        let round = after(&mut scene, settings, &[CALM; 4], &[0.9, 0.2, 0.2, 0.2]);
        for one in round.moves() {
            assert_eq!(one.from, "a");
            moved += 1;
        }
    }
    assert!((10..=40).contains(&moved), "{moved}");
}
