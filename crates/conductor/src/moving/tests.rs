use std::collections::BTreeMap;

use mutirao_core::Dice;
use mutirao_streams::wire::{Measures, Standing, StreamId};

use super::*;
use crate::placing::{Needs, place};

fn part(what: What, replica: u32) -> Part {
    Part { stream: StreamId("s".into()), what, replica }
}

fn host(id: &str) -> Host {
    let (id, name) = (id.to_owned(), format!("{id}-name"));
    Host { id, name, boot: 1, standing: Standing::Apart, cores: 2, free_bytes: None, life: Life::Alive }
}

fn on(part: Part, host: &str) -> Wanted {
    let seat = Some(Seat { host: host.into(), boot: 1 });
    Wanted { part, needs: Needs::default(), seat, epoch: 3, bound_for: None }
}

fn asked(part: Part, to: &str) -> Move {
    Move { part, to: to.into(), begun: None, who: "ana".into(), why: "ana asked for it".into(), since: Timestamp(0) }
}

fn begun(one: Move) -> Move {
    Move { begun: Some(Begun { boot: 1, epoch: 4 }), ..one }
}

fn report(part: &Part, epoch: u64, state: State, next: u64) -> Report {
    Report { part: part.clone(), epoch, state, next, snapshot: None, measures: Measures::default() }
}

struct Scene {
    hosts: Vec<Host>,
    parts: Vec<Wanted>,
    reports: BTreeMap<String, Vec<Report>>,
}

impl Scene {
    fn step(&self, one: &Move, moves: &[Move], at_s: i64) -> Step {
        let said = |host: &str, part: &Part, epoch: u64| {
            self.reports.get(host)?.iter().find(|report| report.part == *part && report.epoch == epoch)
        };
        step(one, &self.hosts, &self.parts, moves, said, Timestamp(at_s * 1_000))
    }

    /// A replica on `a` that has a copy on `b`.
    fn on_the_way(next: u64, state: State, copy_next: u64) -> (Scene, Move) {
        let part = part(What::Stage(0), 0);
        let one = begun(asked(part.clone(), "b"));
        let here = report(&part, 3, State::Running, next);
        let there = report(&part, 4, state, copy_next);
        let reports = BTreeMap::from([("a".to_owned(), vec![here]), ("b".to_owned(), vec![there])]);
        let parts = vec![Wanted { bound_for: Some("b".into()), ..on(part, "a") }];
        (Scene { hosts: vec![host("a"), host("b"), host("c")], parts, reports }, one)
    }
}

fn words(step: Step) -> String {
    match step {
        Step::End(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_is_begun_there_and_over_once_the_copy_has_caught_up() {
    let (mut scene, one) = Scene::on_the_way(100, State::CatchingUp, 100);
    let wish = Move { begun: None, ..one.clone() };
    assert_eq!(scene.step(&wish, &[], 1), Step::Begin(Begun { boot: 1, epoch: 4 }));
    assert_eq!(scene.step(&one, &[], 1), Step::Stay, "it says itself that it catches up");
    scene.reports.get_mut("b").unwrap()[0] = report(&one.part, 4, State::Running, 99);
    assert_eq!(scene.step(&one, &[], 1), Step::Stay, "the other is further");
    scene.reports.get_mut("b").unwrap()[0] = report(&one.part, 4, State::Running, 100);
    let Step::Over { seat, epoch, why } = scene.step(&one, &[], 7) else { panic!() };
    assert_eq!((seat, epoch), (Seat { host: "b".into(), boot: 1 }, 4));
    assert_eq!(why, "moved to b-name: ana asked for it; it had caught up after 7 s");
}

#[test]
fn what_is_lost_on_the_way_ends_it_in_one_of_two_places() {
    let (mut scene, one) = Scene::on_the_way(100, State::CatchingUp, 5);
    scene.hosts[1].boot = 2;
    assert_eq!(words(scene.step(&one, &[], 1)), "b-name was lost before it had caught up");
    scene.hosts[1] = Host { life: Life::Gone, ..host("b") };
    assert_eq!(words(scene.step(&one, &[], 1)), "b-name was lost before it had caught up");
    scene.hosts[1] = host("b");
    scene.hosts[0].life = Life::Gone;
    assert!(matches!(scene.step(&one, &[], 1), Step::Over { .. }), "the copy is all that is left");
    scene.hosts[0] = Host { boot: 9, ..host("a") };
    assert!(matches!(scene.step(&one, &[], 1), Step::Over { .. }), "where it was knows nothing of it any more");
    scene.hosts[0] = host("a");
    scene.reports.get_mut("b").unwrap()[0].state = State::Failed("division by zero".into());
    assert_eq!(words(scene.step(&one, &[], 1)), "it failed on b-name: division by zero");
    scene.reports.clear();
    assert_eq!(scene.step(&one, &[], 600), Step::Stay);
    assert_eq!(words(scene.step(&one, &[], 601)), "it had not caught up on b-name after 600 s");
    scene.parts.clear();
    assert_eq!(words(scene.step(&one, &[], 1)), "it is no part of the stream any more");
}

#[test]
fn what_may_not_be_begun_is_refused_with_its_reason() {
    let stage = |replica| part(What::Stage(0), replica);
    let mut scene = Scene {
        hosts: vec![host("a"), host("b"), host("c"), Host { life: Life::Gone, ..host("d") }],
        parts: vec![on(stage(0), "a"), on(stage(1), "b"), on(part(What::Sink(0), 0), "a")],
        reports: BTreeMap::new(),
    };
    let refused = |scene: &Scene, one: Move, moves: &[Move]| words(scene.step(&one, moves, 1));
    assert_eq!(refused(&scene, asked(stage(0), "a"), &[]), "it is on a-name already");
    assert_eq!(refused(&scene, asked(stage(0), "b"), &[]), "b-name has another replica of it");
    assert_eq!(refused(&scene, asked(stage(0), "d"), &[]), "d-name was not heard of for a while");
    assert_eq!(refused(&scene, asked(stage(0), "nobody"), &[]), "there is no host nobody");
    let sink = asked(part(What::Sink(0), 0), "c");
    assert!(refused(&scene, sink, &[]).starts_with("only stages move while they run"));
    let other = begun(asked(stage(1), "c"));
    let both = [other.clone(), asked(stage(0), "c")];
    assert_eq!(refused(&scene, asked(stage(0), "c"), &both), "replica 1 of it is on its way; one moves at a time");
    // Of two that were asked for in the same moment one goes.
    let both = [asked(stage(0), "c"), asked(stage(1), "c")];
    assert!(matches!(scene.step(&both[0], &both, 1), Step::Begin(_)));
    assert_eq!(refused(&scene, both[1].clone(), &both), "replica 0 of it is on its way; one moves at a time");
    let measures = Measures { memory_bytes: 100 << 20, ..Measures::default() };
    let here = Report { measures, ..report(&stage(0), 3, State::Running, 1) };
    scene.reports.insert("a".into(), vec![here]);
    scene.hosts[2].free_bytes = Some(99 << 20);
    assert_eq!(refused(&scene, asked(stage(0), "c"), &[]), "c-name has 99 MiB of memory free, and it remembers 100");
}

/// Hosts come and go while replicas move, what they say comes late, again or not at all, and the manager is killed before what it
/// decided is written: each is somewhere alive in the end, once, and no two of a stage share a host.
#[test]
fn whatever_happens_on_the_way_a_replica_is_in_one_place_in_the_end() {
    let (mut done, mut ended, mut killed) = (0, 0, 0);
    for seed in 0..400 {
        let dice = Dice::seeded(seed);
        let mut scene = Scene {
            hosts: ["a", "b", "c", "d"].map(host).into(),
            parts: vec![on(part(What::Stage(0), 0), "a"), on(part(What::Stage(0), 1), "b")],
            reports: BTreeMap::new(),
        };
        let mut moves: Vec<Move> = vec![];
        for second in 0..120 {
            let calm = second >= 80;
            let n = dice.below(4) as usize;
            match dice.below(12) {
                0 if !calm => scene.hosts[n].life = Life::Gone,
                1 if !calm => scene.hosts[n].boot += 1,
                2..5 => scene.hosts[n].life = Life::Alive,
                5 if !calm => {
                    let part = part(What::Stage(0), dice.below(2) as u32);
                    if moves.iter().all(|one| one.part != part) {
                        moves.push(Move { since: Timestamp(second * 1_000), ..asked(part, &scene.hosts[n].id) });
                    }
                }
                _ => {}
            }
            scene.hosts.iter_mut().filter(|_| calm).for_each(|host| host.life = Life::Alive);
            for host in &scene.hosts {
                match dice.below(8) {
                    0 if !calm => continue,
                    1 if !calm => {
                        scene.reports.remove(&host.id);
                        continue;
                    }
                    _ => {}
                }
                let here = scene.parts.iter().filter(|one| {
                    one.seat.as_ref().is_some_and(|seat| (&seat.host, seat.boot) == (&host.id, host.boot))
                });
                let mut reports: Vec<Report> =
                    here.map(|one| report(&one.part, one.epoch, State::Running, 10 * second as u64)).collect();
                for one in moves.iter().filter(|one| one.seat().is_some_and(|seat| seat.host == host.id)) {
                    let caught_up = dice.below(3) > 0;
                    let state = if caught_up { State::Running } else { State::CatchingUp };
                    let next = if caught_up { 10 * second as u64 } else { 0 };
                    reports.push(report(&one.part, one.begun.unwrap().epoch, state, next));
                }
                scene.reports.insert(host.id.clone(), reports);
            }
            for wanted in &mut scene.parts {
                wanted.bound_for = moves.iter().find(|one| one.part == wanted.part).map(|one| one.to.clone());
            }
            let decisions = place(&scene.hosts, &scene.parts, &BTreeMap::new()).decisions;
            let steps: Vec<Step> = moves.iter().map(|one| scene.step(one, &moves, second)).collect();
            // Who comes next looks anew.
            if !calm && dice.below(6) == 0 {
                killed += usize::from(steps.iter().any(|step| *step != Step::Stay));
                continue;
            }
            for decision in decisions {
                let wanted = scene.parts.iter_mut().find(|wanted| wanted.part == decision.part).unwrap();
                (wanted.seat, wanted.epoch) = (decision.to, decision.epoch);
            }
            let mut left = vec![];
            for (mut one, step) in moves.into_iter().zip(steps) {
                let wanted = scene.parts.iter_mut().find(|wanted| wanted.part == one.part).unwrap();
                match step {
                    Step::Stay => left.push(one),
                    Step::Begin(begun) => {
                        one.begun = Some(begun);
                        left.push(one);
                    }
                    Step::Over { seat, epoch, .. } => {
                        assert!(epoch > wanted.epoch, "seed {seed}");
                        (wanted.seat, wanted.epoch) = (Some(seat), epoch);
                        done += 1;
                    }
                    Step::End(_) => ended += 1,
                }
            }
            moves = left;
            let seats: Vec<_> = scene.parts.iter().filter_map(|one| Some(&one.seat.as_ref()?.host)).collect();
            let there = moves.iter().filter_map(|one| one.begun.map(|_| &one.to));
            let mut all: Vec<_> = seats.into_iter().chain(there).collect();
            let many = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), many, "seed {seed}: two of a stage on one host: {moves:?} {:?}", scene.parts);
        }
        assert_eq!(moves, [], "seed {seed}: it neither came nor stayed");
        for wanted in &scene.parts {
            let seat = wanted.seat.as_ref().unwrap();
            assert!(lives(&scene.hosts, &seat.host, seat.boot), "seed {seed}: {wanted:?}");
        }
    }
    assert!(
        done > 100 && ended > 100 && killed > 100,
        "{done} came, {ended} stayed, {killed} lost: too few to prove anything"
    );
}
