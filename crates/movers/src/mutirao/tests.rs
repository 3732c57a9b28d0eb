use crate::mover::Mover;
use crate::mutirao::forecast::Forecast;
use crate::round::{Fit, Round, Verdict, Why};
use crate::scene::Scene;
use crate::settings::{Settings, Strategy};
use crate::testing::{message, part, scene, seated};

/// What each part says in each second, from the scene as it was then.
fn rounds(scene: &mut Scene, seconds: u64, say: impl Fn(&Scene, usize, u64) -> crate::Message) -> Vec<Round> {
    let mut mover = Mover::new(Settings::of(Strategy::mutirao()));
    let mut rounds = Vec::new();
    for second in 0..=seconds {
        scene.now_ms = second * 1_000;
        for index in 0..scene.parts.len() {
            mover.hear(scene.now_ms, say(scene, index, second));
        }
        if let Some(round) = mover.round(scene) {
            for one in round.moves() {
                scene
                    .parts
                    .iter_mut()
                    .filter(|seated| seated.part == one.part)
                    .for_each(|seated| seated.host = one.to.clone());
            }
            rounds.push(round);
        }
    }
    rounds
}

/// Of a part that needs `cost` cores for each 1,000 events.
fn says(scene: &Scene, index: usize, second: u64, rate: f64, latency_ms: f64, busy: f64) -> crate::Message {
    let mut message = message(&scene.parts[index], second * 1_000, latency_ms, rate / 500.0, busy / 4.0);
    message.events_in = rate;
    message
}

fn two_and_two() -> Scene {
    let seats = [(0, "a"), (1, "a"), (2, "a"), (3, "b")];
    scene(0, &["a", "b", "c"], seats.map(|(operator, host)| seated(part(operator, 0), host)).into())
}

#[test]
fn who_will_have_too_much_is_relieved_before_anybody_waits() {
    let mut scene = two_and_two();
    // Each of the three needs 0.2 cores more each second; at 10 s they need 3.6 of four.
    let all = rounds(&mut scene, 11, |scene, index, second| {
        let rate = if scene.parts[index].host == "a" { 150.0 + 45.0 * second as f64 } else { 100.0 };
        says(scene, index, second, rate, 5.0, 3.0 * rate / 500.0)
    });
    let moves: Vec<_> = all.iter().flat_map(Round::moves).collect();
    assert_eq!((moves.len(), moves[0].to.as_str()), (1, "c"), "{}", all[0]);
    assert!(matches!(all[0].considered[0].why, Why::Foreseen { load_ahead, .. } if load_ahead > 4.0));
}

#[test]
fn who_waits_for_those_after_it_is_not_moved() {
    let mut scene = two_and_two();
    let all = rounds(&mut scene, 40, |scene, index, second| {
        let mut message = says(scene, index, second, 600.0, 900.0, 3.9);
        (message.held_back, message.queue) = (0.9, 5_000.0);
        message
    });
    assert_eq!(all.iter().flat_map(Round::moves).count(), 0);
    let held = |round: &Round| round.considered.iter().any(|one| matches!(one.verdict, Verdict::HeldBack { .. }));
    assert!(all.iter().any(held));
}

#[test]
fn a_host_that_is_slower_than_its_load_explains_loses_parts_to_one_that_is_not() {
    let seats = [(0, 0, "a"), (0, 1, "b"), (1, 0, "a"), (1, 1, "b")];
    let parts = seats.map(|(operator, replica, host)| seated(part(operator, replica), host)).into();
    let mut scene = scene(0, &["a", "b", "c"], parts);
    let all = rounds(&mut scene, 30, |scene, index, second| {
        let slow = scene.parts[index].host == "a";
        says(scene, index, second, 100.0, if slow { 700.0 } else { 4.0 }, 0.4)
    });
    let first = all.iter().flat_map(Round::moves).next().unwrap();
    assert_eq!((first.from.as_str(), first.to.as_str()), ("a", "c"));
    assert!(matches!(all[0].considered[0].why, Why::Unexplained { .. }), "{}", all[0]);
}

#[test]
fn a_move_that_made_it_worse_is_undone_and_not_made_again() {
    let seats = [(0, 0, "a"), (0, 1, "b"), (1, 0, "a"), (1, 1, "b")];
    let parts = seats.map(|(operator, replica, host)| seated(part(operator, replica), host)).into();
    let mut scene = scene(0, &["a", "b", "c"], parts);
    // What is slow at `a` passes after a while; at `c`, where nobody was, everything takes ten times as long.
    let all = rounds(&mut scene, 120, |scene, index, second| {
        let latency = match scene.parts[index].host.as_str() {
            "a" if second <= 10 => 700.0,
            "c" => 7_000.0,
            _ => 4.0,
        };
        says(scene, index, second, 100.0, latency, 0.4)
    });
    let moves: Vec<_> = all.iter().flat_map(Round::moves).map(|one| (one.from, one.to)).collect();
    let back = moves.iter().filter(|(from, to)| from == "c" && to == "a").count();
    let there = moves.iter().filter(|(_, to)| to == "c").count();
    assert!(back >= 1 && there == back, "{moves:?}");
    assert!(there <= 2, "once for each stage: {moves:?}");
}

#[test]
fn what_is_too_large_to_move_in_time_stays() {
    let overloaded = |state_bytes: f64| {
        let mut scene = two_and_two();
        scene.parts.iter_mut().for_each(|seated| seated.state_bytes = state_bytes);
        let all = rounds(&mut scene, 10, |scene, index, second| {
            let here = scene.parts[index].host == "a";
            let mut message = says(scene, index, second, 690.0, 50.0, if here { 4.0 } else { 1.38 });
            message.queue = if here { 14.0 * second as f64 } else { 0.0 };
            message
        });
        all.into_iter().next().unwrap()
    };
    assert_eq!(overloaded(1e6).moves().count(), 1);
    let stays = overloaded(60e9);
    assert_eq!(stays.moves().count(), 0);
    let tried = stays.considered.iter().flat_map(|one| &one.tried);
    assert!(tried.clone().any(|(_, fit)| matches!(fit, Fit::NotWorth { .. })), "{stays}");
}

#[test]
fn a_host_is_asked_for_when_there_was_no_room_twice() {
    let parts = (0..6).map(|operator| seated(part(operator, 0), if operator < 3 { "a" } else { "b" })).collect();
    let mut scene = scene(0, &["a", "b"], parts);
    let all = rounds(&mut scene, 40, |scene, index, second| {
        let mut message = says(scene, index, second, 600.0, 900.0, 4.0);
        message.queue = 100.0 * second as f64;
        message
    });
    assert_eq!(all.iter().flat_map(Round::moves).count(), 0);
    assert!(all[0].asks_for_host.is_none());
    assert!(all[1].asks_for_host.as_ref().is_some_and(|asks| asks.cores > 2.0), "{}", all[1]);
}

#[test]
fn what_others_do_on_a_host_counts() {
    let scene = two_and_two();
    let mut memory = crate::memory::Memory::default();
    let mut there = scene.clone();
    there.now_ms = 10_000;
    for second in 0..=10 {
        for index in 0..4 {
            memory.hear(10_000, says(&scene, index, second, 100.0, 5.0, 3.0));
        }
    }
    let last_moved = Default::default();
    let asked = crate::adaptive::Asked { memory: &memory, window_ms: 10_000, moves_max: None, last_moved: &last_moved };
    let board = crate::scene::Board::new(&there);
    let Strategy::Mutirao(terms) = Strategy::mutirao() else { unreachable!() };
    let forecast = Forecast::new(&asked, &board, &terms, &mut Default::default());
    assert!((forecast.hosts["a"].others - 2.4).abs() < 0.01);
    assert!((forecast.hosts["a"].load - 3.0).abs() < 0.01);
    assert!((forecast.hosts["b"].others - 2.8).abs() < 0.01);
}
