//! Plans for single situations, and what holds for every plan. Worlds that go wrong are in `tests/it/crashes.rs`.

use super::*;
use mutirao_core::Dice;
use mutirao_core::quantity::Span;
use proptest::prelude::*;
use std::time::Duration;

const T0: Timestamp = Timestamp(1_800_000_000_000);

fn at(s: u64) -> Timestamp {
    T0.plus(Duration::from_secs(s))
}

fn id(name: &str) -> WorkerId {
    WorkerId(name.into())
}

fn fleet(members: &[(&str, Life)]) -> Fleet {
    let members = members.iter().map(|(name, life)| (id(name), Member::new(*life, T0, None))).collect();
    Fleet::of(members, None)
}

fn seen(listed: &[&str], sessions: &[(&str, Activity)]) -> Seen {
    Seen {
        listing: Listing::Has(listed.iter().map(|name| id(name)).collect()),
        sessions: sessions.iter().map(|(name, activity)| (id(name), *activity)).collect(),
        ended: BTreeSet::new(),
    }
}

fn aim(wanted: u32, max: u32) -> Aim {
    Aim { wanted, max, removal: Removal::Any }
}

const IDLE: Activity = Activity::Idle { since: T0 };
const BUSY: Activity = Activity::Busy { tasks: 1, since: None };

/// One look and one plan, said in words.
fn plan(fleet: &mut Fleet, aim: Aim, seen: &Seen, s: u64) -> Vec<String> {
    fleet.look(seen, at(s));
    fleet.plan(&aim, seen, &Terms::default(), at(s)).iter().map(Action::to_string).collect()
}

#[test]
fn what_is_missing_is_asked_for_then_launched_and_waited_for() {
    let mut fleet = fleet(&[]);
    assert_eq!(plan(&mut fleet, aim(2, 5), &seen(&[], &[]), 0), ["ask for 2 more"]);
    fleet.issue(id("a"), None, None, at(0));
    fleet.issue(id("b"), None, None, at(0));
    assert_eq!(plan(&mut fleet, aim(2, 5), &seen(&[], &[]), 1), ["launch a", "launch b"]);
    fleet.apply(&Action::Launch { worker: id("a") }, at(1));
    // The answer about b was lost, but the provider has it: it is not launched again.
    assert!(plan(&mut fleet, aim(2, 5), &seen(&["a", "b"], &[]), 2).is_empty());
    assert!(plan(&mut fleet, aim(2, 5), &seen(&["a", "b"], &[("a", IDLE), ("b", BUSY)]), 9).is_empty());
    assert_eq!(fleet.counts(), Workers { creating: 0, running: 2, draining: 0 });
}

#[test]
fn who_does_not_report_in_time_is_given_up_and_another_is_asked_for() {
    let mut fleet = fleet(&[("a", Life::Launching)]);
    let there = seen(&["a"], &[]);
    assert!(plan(&mut fleet, aim(1, 2), &there, 119).is_empty());
    assert_eq!(plan(&mut fleet, aim(1, 2), &there, 120), ["end a: it did not report in time", "ask for 1 more"]);
    fleet.apply(&Action::End { worker: id("a"), why: Why::NeverReported }, at(120));
    // A word that comes too late changes nothing.
    fleet.look(&seen(&["a"], &[("a", IDLE)]), at(121));
    assert_eq!(fleet.members[&id("a")].life, Life::Ending);
}

#[test]
fn what_was_launched_and_never_came_is_forgotten_and_counts_as_given_up() {
    let mut fleet = fleet(&[("a", Life::Launching), ("b", Life::Reported)]);
    let none = seen(&[], &[]);
    assert!(plan(&mut fleet, aim(2, 2), &none, 0).is_empty());
    fleet.look(&none, at(15));
    let actions = fleet.plan(&aim(2, 2), &none, &Terms::default(), at(15));
    let said: Vec<String> = actions.iter().map(Action::to_string).collect();
    assert_eq!(said, ["forget a: the provider said yes and never had it", "forget b: the provider has it no more"]);
    assert_eq!(actions.iter().map(Action::gives_up).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn removal_drains_first_and_ends_only_who_has_drained() {
    let mut fleet = fleet(&[("a", Life::Reported), ("b", Life::Reported)]);
    let both = seen(&["a", "b"], &[("a", BUSY), ("b", IDLE)]);
    assert_eq!(plan(&mut fleet, aim(1, 5), &both, 0), ["drain b"]);
    assert_eq!(plan(&mut fleet, aim(0, 5), &both, 0), ["drain b", "drain a"]);
    fleet.apply(&Action::Drain { worker: id("a") }, at(0));
    fleet.apply(&Action::Drain { worker: id("b") }, at(0));
    let one = seen(&["a", "b"], &[("a", BUSY), ("b", Activity::Drained)]);
    assert_eq!(plan(&mut fleet, aim(0, 5), &one, 100_000), ["end b: it has drained"]);
    fleet.apply(&Action::End { worker: id("b"), why: Why::Drained }, at(100_000));
    assert!(plan(&mut fleet, aim(0, 5), &one, 100_004).is_empty(), "it is given time to go");
    assert_eq!(plan(&mut fleet, aim(0, 5), &one, 100_005), ["end b: it is still there"]);
    assert!(plan(&mut fleet, aim(0, 5), &seen(&["a"], &[("a", BUSY)]), 100_006).is_empty());
    assert_eq!(
        plan(&mut fleet, aim(0, 5), &seen(&["a"], &[("a", BUSY)]), 100_021),
        ["forget b: the provider has it no more"]
    );
}

#[test]
fn a_draining_worker_that_is_not_heard_for_a_moment_is_not_ended() {
    let mut fleet = fleet(&[("a", Life::Draining)]);
    for (s, heard) in [(0, true), (10, false), (39, false), (40, true), (41, false), (70, false)] {
        let sessions: &[(&str, Activity)] = if heard { &[("a", BUSY)] } else { &[] };
        assert!(plan(&mut fleet, aim(0, 1), &seen(&["a"], sessions), s).is_empty(), "after {s} s");
    }
    assert_eq!(plan(&mut fleet, aim(0, 1), &seen(&["a"], &[]), 71), ["end a: it fell silent"]);
}

#[test]
fn n_for_n_lets_only_those_go_that_have_been_idle_long_enough() {
    let mut fleet = fleet(&[
        ("busy", Life::Reported),
        ("fresh", Life::Reported),
        ("idle", Life::Reported),
        ("new", Life::Launching),
    ]);
    let idle = |s| Activity::Idle { since: at(s) };
    let all = seen(&["busy", "fresh", "idle", "new"], &[("busy", BUSY), ("fresh", idle(50)), ("idle", idle(0))]);
    let aim = Aim { wanted: 0, max: 9, removal: Removal::Idle(Span::secs(60)) };
    assert_eq!(plan(&mut fleet, aim, &all, 60), ["drain new", "drain idle"]);
}

#[test]
fn leaks_on_either_side_are_mended() {
    let mut fleet = fleet(&[("lost", Life::Reported)]);
    let world = seen(&["leak", "mine"], &[("mine", BUSY)]);
    assert_eq!(
        plan(&mut fleet, aim(3, 9), &world, 0),
        ["end leak: nobody knows it", "adopt mine, found running", "ask for 2 more"]
    );
    assert!(plan(&mut fleet, aim(3, 9), &world, 15).contains(&"forget lost: the provider has it no more".to_owned()));
}

#[test]
fn a_provider_that_forgets_what_it_has_loses_no_worker_that_still_reports() {
    let mut fleet = fleet(&[("a", Life::Reported)]);
    for s in [0, 20, 500] {
        assert!(plan(&mut fleet, aim(1, 2), &seen(&[], &[("a", BUSY)]), s).is_empty());
    }
}

#[test]
fn who_has_drained_on_a_node_of_another_provider_is_let_in_no_more_and_then_forgotten() {
    let mut fleet = fleet(&[("a", Life::Draining)]);
    let elsewhere = |activity| seen(&[], &[("a", activity)]);
    assert!(plan(&mut fleet, aim(1, 1), &elsewhere(BUSY), 0).is_empty());
    assert!(plan(&mut fleet, aim(1, 1), &elsewhere(BUSY), 600).is_empty(), "it may finish");
    assert_eq!(plan(&mut fleet, aim(1, 1), &elsewhere(Activity::Drained), 601), ["dismiss a: it has drained"]);
    fleet.apply(&Action::Dismiss { worker: id("a"), why: Why::Drained }, at(601));
    assert!(plan(&mut fleet, aim(1, 1), &elsewhere(Activity::Drained), 603).is_empty(), "it is given time to go");
    assert_eq!(plan(&mut fleet, aim(1, 1), &elsewhere(IDLE), 606), ["dismiss a: it is still there"]);
    assert_eq!(plan(&mut fleet, aim(1, 1), &seen(&[], &[]), 607), ["forget a: the provider has it no more"]);
    fleet.apply(&Action::Forget { worker: id("a"), why: Why::Gone }, at(607));
    assert_eq!(plan(&mut fleet, aim(1, 1), &seen(&[], &[]), 608), ["ask for 1 more"]);
}

#[test]
fn who_has_ended_is_forgotten_at_once_and_counts_as_given_up_if_it_was_never_heard() {
    let mut fleet = fleet(&[("a", Life::Asked), ("b", Life::Launching), ("c", Life::Reported), ("d", Life::Ending)]);
    let mut dead = seen(&[], &[("c", BUSY)]);
    dead.ended = ["a", "b", "c", "d", "nobody"].map(id).into();
    fleet.look(&dead, at(0));
    let actions = fleet.plan(&aim(4, 4), &dead, &Terms::default(), at(0));
    let said: Vec<String> = actions.iter().map(Action::to_string).collect();
    let unheard = "its process ended before it reported";
    assert_eq!(
        said,
        [
            format!("forget a: {unheard}"),
            format!("forget b: {unheard}"),
            "forget c: its process ended".into(),
            "forget d: its process ended".into()
        ]
    );
    assert_eq!(actions.iter().map(Action::gives_up).collect::<Vec<_>>(), [true, true, false, false]);
}

#[test]
fn who_falls_silent_is_ended_after_a_while() {
    let mut fleet = fleet(&[("a", Life::Reported)]);
    assert!(plan(&mut fleet, aim(1, 1), &seen(&["a"], &[]), 0).is_empty());
    assert!(plan(&mut fleet, aim(1, 1), &seen(&["a"], &[("a", BUSY)]), 20).is_empty());
    assert!(plan(&mut fleet, aim(1, 1), &seen(&["a"], &[]), 40).is_empty());
    assert_eq!(plan(&mut fleet, aim(1, 1), &seen(&["a"], &[]), 70), ["end a: it fell silent"]);
}

#[test]
fn whatever_is_leaving_or_unknown_takes_its_place_until_it_is_gone() {
    let mut fleet = fleet(&[("a", Life::Draining), ("b", Life::Ending)]);
    let world = seen(&["a", "b", "leak"], &[("a", BUSY)]);
    assert_eq!(
        plan(&mut fleet, aim(3, 4), &world, 0),
        ["end b: it is still there", "end leak: nobody knows it", "ask for 1 more"]
    );
}

#[test]
fn a_provider_that_does_not_answer_is_asked_for_nothing_new() {
    let mut fleet = fleet(&[("a", Life::Asked), ("b", Life::Reported)]);
    let blind = Seen { listing: Listing::Unknown, sessions: [(id("b"), IDLE)].into(), ..Seen::default() };
    assert!(plan(&mut fleet, aim(5, 9), &blind, 1_000).is_empty());
    assert_eq!(plan(&mut fleet, aim(1, 9), &blind, 1_000), ["drain a"], "draining needs no provider");
}

#[test]
fn failures_back_off_growing_with_jitter_and_are_shown() {
    let (mut fleet, terms, dice) = (fleet(&[("a", Life::Asked)]), Terms::default(), Dice::seeded(1));
    let none = seen(&[], &[]);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        fleet.failed(Cause::Call, "no machines left", &terms, &dice, at(0));
        pauses.push(fleet.trouble.as_ref().unwrap().until.since(at(0)));
    }
    for (n, pause) in pauses.iter().enumerate() {
        let full = Duration::from_secs(1 << n).min(Terms::PAUSE_MAX);
        assert!(*pause <= full && *pause >= full / 2, "{n}: {pause:?}");
    }
    let trouble = fleet.trouble.clone().unwrap();
    assert_eq!((trouble.failures, trouble.error.as_str()), (8, "no machines left"));
    assert!(plan(&mut fleet, aim(1, 1), &none, 14).is_empty());
    assert_eq!(plan(&mut fleet, aim(1, 1), &none, 31), ["launch a"]);
    fleet.answered();
    assert_eq!(fleet.trouble, None);
}

#[test]
fn nobody_makes_room_for_workers_that_do_not_come_while_they_are_not_asked_for() {
    let (terms, dice) = (Terms::default(), Dice::seeded(1));
    for cause in [Cause::Call, Cause::Silence] {
        let mut fleet = fleet(&[]);
        assert_eq!(fleet.worth_room_for(5, at(0)), 5);
        fleet.failed(cause, "no machines left", &terms, &dice, at(0));
        let until = fleet.trouble.as_ref().unwrap().until;
        assert_eq!(fleet.worth_room_for(5, at(0)), 0, "the room stays with whoever has it");
        assert_eq!([fleet.worth_room_for(5, until), fleet.worth_room_for(0, until)], [1, 0], "one is tried");
    }
}

#[test]
fn an_end_that_failed_is_tried_again_after_the_pause_and_not_as_one_that_takes_a_while() {
    let (terms, dice) = (Terms::default(), Dice::seeded(1));
    let mut fleet = fleet(&[("a", Life::Ending)]);
    let there = seen(&["a"], &[]);
    let end = ["end a: it is still there"];
    assert_eq!(plan(&mut fleet, aim(0, 1), &there, 0), end);
    fleet.apply(&Action::End { worker: id("a"), why: Why::StillThere }, at(0));
    assert!(plan(&mut fleet, aim(0, 1), &there, 2).is_empty(), "it takes a while");
    fleet.not_ended(&id("a"));
    fleet.failed(Cause::Call, "not now", &terms, &dice, at(0));
    assert_eq!(plan(&mut fleet, aim(0, 1), &there, 2), end);
}

#[test]
fn workers_that_never_report_hold_back_new_ones_but_not_ends() {
    let (terms, dice) = (Terms::default(), Dice::seeded(1));
    let mut fleet = fleet(&[("a", Life::Ending), ("b", Life::Asked)]);
    fleet.failed(Cause::Silence, "a did not report", &terms, &dice, at(0));
    fleet.answered();
    assert_eq!(plan(&mut fleet, aim(1, 2), &seen(&["a"], &[]), 0), ["end a: it is still there"]);
    fleet.look(&seen(&["a", "b"], &[("b", IDLE)]), at(1));
    assert_eq!(fleet.trouble, None, "one that reports is proof that they can");
}

#[test]
fn records_without_what_was_only_seen_are_what_a_successor_gets() {
    let mut fleet = fleet(&[("a", Life::Reported)]);
    fleet.look(&seen(&[], &[]), at(0));
    let adopted: Fleet = serde_json::from_str(&serde_json::to_string(&fleet).unwrap()).unwrap();
    assert_eq!(adopted.members[&id("a")].absent_since, None, "a successor counts anew");
    assert_eq!(adopted.members[&id("a")].life, Life::Reported);
}

#[test]
fn terms_that_would_take_a_late_call_for_a_leak_are_refused() {
    let error = Terms::default().check(Duration::from_secs(20)).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("missing_for"));
    assert_eq!(Terms::default().check(Duration::from_secs(10)), Ok(()));
}

fn any_world() -> impl Strategy<Value = (Fleet, Seen)> {
    let life = prop::sample::select(vec![Life::Asked, Life::Launching, Life::Reported, Life::Draining, Life::Ending]);
    let activity = prop::sample::select(vec![IDLE, BUSY, Activity::Busy { tasks: 7, since: None }, Activity::Drained]);
    let worker = (prop::option::weighted(0.8, life), any::<bool>(), prop::option::of(activity), 0u64..300);
    prop::collection::vec(worker, 0..25).prop_map(|workers| {
        let (mut fleet, mut listed, mut sessions) = (Fleet::default(), BTreeSet::new(), BTreeMap::new());
        for (i, (life, is_listed, activity, age_s)) in workers.into_iter().enumerate() {
            let worker = id(&format!("w{i:02}"));
            if let Some(life) = life {
                fleet.members.insert(worker.clone(), Member::new(life, at(300 - age_s), None));
            }
            if is_listed {
                listed.insert(worker.clone());
            }
            if let Some(activity) = activity.filter(|_| is_listed || life.is_some()) {
                sessions.insert(worker, activity);
            }
        }
        (fleet, Seen { listing: Listing::Has(listed), sessions, ended: BTreeSet::new() })
    })
}

proptest! {
    #[test]
    fn no_plan_breaks_the_ceiling_or_ends_a_worker_at_work(
        (mut fleet, seen) in any_world(), wanted in 0u32..30, max in 1u32..30, idle_only: bool
    ) {
        let removal = if idle_only { Removal::Idle(Span::secs(60)) } else { Removal::Any };
        let aim = Aim { wanted, max, removal };
        fleet.look(&seen, at(300));
        let Listing::Has(listed) = &seen.listing else { unreachable!() };
        let occupied = |fleet: &Fleet| listed.iter().chain(fleet.members.keys()).collect::<BTreeSet<_>>().len();
        let before = occupied(&fleet);
        for action in fleet.plan(&aim, &seen, &Terms::default(), at(300)) {
            match &action {
                Action::Ask { count } => prop_assert!(before + *count as usize <= max as usize),
                Action::End { worker, .. } | Action::Dismiss { worker, .. } => {
                    let at_work = matches!(seen.sessions.get(worker), Some(Activity::Idle { .. } | Activity::Busy { .. }));
                    let was_told = fleet.members.get(worker).is_some_and(|m| m.life == Life::Ending);
                    prop_assert!(!at_work || was_told, "{action}");
                }
                Action::Drain { worker } => {
                    let busy = matches!(seen.sessions.get(worker), Some(Activity::Busy { .. }));
                    prop_assert!(!(busy && idle_only), "{action}");
                }
                Action::Launch { worker } => prop_assert_eq!(fleet.members[worker].life, Life::Asked),
                Action::Forget { .. } | Action::Adopt { .. } => {}
            }
            fleet.apply(&action, at(300));
        }
        prop_assert!(occupied(&fleet) <= before.max(max as usize));
    }

    #[test]
    fn a_plan_carried_out_leaves_no_more_standing_than_wanted((mut fleet, seen) in any_world(), wanted in 0u32..30) {
        let aim = aim(wanted, 100);
        fleet.look(&seen, at(300));
        for action in fleet.plan(&aim, &seen, &Terms::default(), at(300)) {
            fleet.apply(&action, at(300));
        }
        let standing = fleet.counts().creating + fleet.counts().running;
        let adopted = seen.sessions.len() as u32;
        prop_assert!(standing <= wanted + adopted);
    }
}
