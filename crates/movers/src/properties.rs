//! What holds whatever is heard.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Just, ProptestConfig, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

use crate::mover::Mover;
use crate::round::{Round, Verdict};
use crate::scene::{Scene, stage};
use crate::settings::{Settings, Strategy};
use crate::testing::{message, part, scene, seated};

const HOSTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Operators of up to three replicas, each replica on a host of its own.
fn scenes() -> impl proptest::strategy::Strategy<Value = Scene> {
    proptest::collection::vec((0..5usize, 1..4usize, 0..10u32), 1..8).prop_map(|operators| {
        let mut parts = Vec::new();
        for (operator, (first, replicas, fixed)) in operators.into_iter().enumerate() {
            for replica in 0..replicas {
                let name = part(operator as u32, replica as u32);
                let mut seated = seated(name, HOSTS[(first + replica) % HOSTS.len()]);
                seated.fixed = (fixed == 0).then(|| "it is pinned".into());
                parts.push(seated);
            }
        }
        let mut scene = scene(0, &HOSTS, parts);
        scene.hosts[4].takes = false;
        scene
    })
}

fn strategies() -> impl proptest::strategy::Strategy<Value = Settings> {
    let some = prop_oneof![
        (0..100u64).prop_map(|seed| Strategy::Random { seed }),
        (0.1..1.0f64).prop_map(Strategy::adaptive),
        Just(Strategy::mutirao()),
    ];
    (some, prop_oneof![Just(None), (0..4u32).prop_map(Some)])
        .prop_map(|(strategy, moves_max)| Settings { moves_max, ..Settings::of(strategy) })
}

/// What becomes of a message on its way, and what it says.
type Said = (u8, f64, f64, f64, f64);

fn said() -> impl proptest::strategy::Strategy<Value = Vec<Said>> {
    proptest::collection::vec((0..10u8, 0.0..2_000.0f64, 0.0..2.0f64, 0.0..1.0f64, 0.0..3_000.0f64), 60..400)
}

/// Rounds over a minute; moves take effect two seconds later.
fn rounds(scene: &Scene, settings: &Settings, said: &[Said], doubled: bool) -> Vec<(Scene, Round)> {
    let mut scene = scene.clone();
    let mut mover = Mover::new(settings.clone());
    let mut all = Vec::new();
    let mut arrivals: Vec<(u64, crate::Move)> = Vec::new();
    let mut said = said.iter().cycle();
    for second in 0..60 {
        scene.now_ms = second * 1_000;
        arrivals.retain(|(at, one)| {
            if *at <= second {
                let there = scene.parts.iter_mut().find(|seated| seated.part == one.part);
                there.into_iter().for_each(|seated| seated.host = one.to.clone());
                scene.moving.remove(&one.part);
            }
            *at > second
        });
        for seated in &scene.parts {
            let Some((fate, latency, own, core, queue)) = said.next() else { continue };
            let at = match fate {
                0 => continue,
                1 => scene.now_ms.saturating_sub(4_000),
                2 => scene.now_ms + 1_000_000,
                _ => scene.now_ms,
            };
            let mut message = message(seated, at, *latency, *own, *core);
            message.queue = *queue;
            if *fate == 3 {
                message.own.cpu = f64::NAN;
            }
            if doubled || *fate == 4 {
                mover.hear(scene.now_ms, message.clone());
            }
            mover.hear(scene.now_ms, message);
        }
        if let Some(round) = mover.round(&scene) {
            for one in round.moves() {
                scene.moving.insert(one.part.clone());
                arrivals.push((second + 2, one));
            }
            all.push((scene.clone(), round));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn replicas_never_share_a_host_nor_move_at_once_and_the_limit_is_kept(
        scene in scenes(), settings in strategies(), said in said()
    ) {
        let rest_ms = match settings.strategy {
            Strategy::Mutirao(terms) => terms.rest_ms,
            _ => 0,
        };
        let mut moved = BTreeMap::new();
        for (before, round) in rounds(&scene, &settings, &said, false) {
            let moves: Vec<_> = round.moves().collect();
            prop_assert!(settings.moves_max.is_none_or(|most| moves.len() as u32 <= most));
            let stages: BTreeSet<_> = moves.iter().map(|one| stage(&one.part)).collect();
            prop_assert_eq!(stages.len(), moves.len());
            for one in &moves {
                let of_part = before.parts.iter().find(|seated| seated.part == one.part);
                prop_assert!(of_part.is_some_and(|seated| seated.host == one.from && seated.fixed.is_none()));
                let others = before.parts.iter().filter(|seated| {
                    stage(&seated.part) == stage(&one.part) && seated.part != one.part && seated.host == one.to
                });
                prop_assert_eq!(others.count(), 0);
                prop_assert!(before.hosts.iter().any(|host| host.id == one.to && host.takes));
            }
            for one in &round.considered {
                let fits = one.tried.iter().any(|(_, fit)| {
                    matches!(fit, crate::round::Fit::Fits { .. } | crate::round::Fit::Spares { .. })
                });
                let moves = matches!(one.verdict, Verdict::Moves { .. });
                let undone = matches!(one.why, crate::round::Why::Worse { .. });
                if moves {
                    let rested = moved.insert(one.part.clone(), before.now_ms).is_none_or(|at| at + rest_ms <= before.now_ms);
                    prop_assert!(rested || undone, "{}", one);
                }
                prop_assert!(fits || !moves || undone);
            }
            prop_assert!(!round.to_string().is_empty());
        }
    }

    #[test]
    fn the_same_is_decided_again_also_where_each_message_comes_twice(
        scene in scenes(), settings in strategies(), said in said()
    ) {
        let once = rounds(&scene, &settings, &said, false);
        prop_assert_eq!(&once, &rounds(&scene, &settings, &said, false));
        prop_assert_eq!(&once, &rounds(&scene, &settings, &said, true));
    }

    #[test]
    fn noise_moves_next_to_nobody_in_ten_minutes(noise in proptest::collection::vec((0.2..3.0f64, 0.7..1.3f64), 997)) {
        let parts = (0..12).map(|n| seated(part(n / 2, n % 2), HOSTS[((n / 2 + n % 2) % 4) as usize])).collect();
        let mut scene = scene(0, &HOSTS, parts);
        let mut mover = Mover::new(Settings::of(Strategy::mutirao()));
        let mut noise = noise.iter().cycle();
        let mut moves = 0;
        for second in 0..600 {
            scene.now_ms = second * 1_000;
            for seated in &scene.parts {
                let Some((slow, rate)) = noise.next() else { continue };
                // Three parts of about 0.7 cores on each of four.
                mover.hear(scene.now_ms, message(seated, scene.now_ms, 20.0 * slow, 0.7 * rate, 0.52 * rate));
            }
            if let Some(round) = mover.round(&scene) {
                for one in round.moves() {
                    moves += 1;
                    scene.parts.iter_mut().filter(|seated| seated.part == one.part).for_each(|seated| seated.host = one.to.clone());
                }
            }
        }
        prop_assert!(moves <= 1, "{} moves", moves);
    }
}
