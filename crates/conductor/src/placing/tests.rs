use std::collections::{BTreeMap, BTreeSet};

use mutirao_streams::wire::{Part, Standing, StreamId, What};
use proptest::prelude::*;

use super::*;

fn host(id: &str, cores: u32) -> Host {
    let (id, name) = (id.to_owned(), format!("{id}-name"));
    Host { id, name, boot: 1, standing: Standing::Apart, cores, free_bytes: None, life: Life::Alive }
}

fn inside(id: &str) -> Host {
    Host { standing: Standing::Inside, ..host(id, 1) }
}

fn part(what: What, replica: u32) -> Part {
    Part { stream: StreamId("s".into()), what, replica }
}

fn wanted(what: What, replica: u32) -> Wanted {
    Wanted { part: part(what, replica), needs: Needs::default(), seat: None, epoch: 0, bound_for: None }
}

fn on(mut wanted: Wanted, host: &Host) -> Wanted {
    wanted.seat = Some(Seat { host: host.id.clone(), boot: host.boot });
    wanted.epoch = 1;
    wanted
}

fn apply(parts: &mut [Wanted], decisions: &[Decision]) {
    for decision in decisions {
        let wanted = parts.iter_mut().find(|wanted| wanted.part == decision.part).unwrap();
        assert_eq!(wanted.seat, decision.from);
        (wanted.seat, wanted.epoch) = (decision.to.clone(), decision.epoch);
    }
}

fn places(hosts: &[Host], parts: &[Wanted]) -> Vec<Decision> {
    place(hosts, parts, &BTreeMap::new()).decisions
}

fn why_nowhere(hosts: &[Host], parts: &[Wanted], part: &Part) -> Option<Nowhere> {
    let nowhere = place(hosts, parts, &BTreeMap::new()).nowhere;
    nowhere.into_iter().find(|(of, _)| of == part).map(|(_, why)| why)
}

#[test]
fn parts_are_spread_by_cores_and_then_stay() {
    let hosts = [host("small", 1), host("large", 3)];
    let mut parts: Vec<Wanted> = (0..8).map(|n| wanted(What::Stage(n), 0)).collect();
    let decisions = places(&hosts, &parts);
    apply(&mut parts, &decisions);
    let on_large = parts.iter().filter(|wanted| wanted.seat.as_ref().unwrap().host == "large").count();
    assert_eq!(on_large, 6);
    assert!(parts.iter().all(|wanted| wanted.epoch == 1));
    let more = [hosts[0].clone(), hosts[1].clone(), host("new", 64)];
    assert_eq!(places(&more, &parts), [], "nothing moves because somebody came");
}

#[test]
fn what_other_shards_have_weighs_as_much() {
    let hosts = [host("a", 1), host("b", 1)];
    let others = BTreeMap::from([("a".to_owned(), 5)]);
    let parts: Vec<Wanted> = (0..4).map(|n| wanted(What::Sink(n), 0)).collect();
    let decisions = place(&hosts, &parts, &others).decisions;
    assert!(decisions.iter().all(|decision| decision.to.as_ref().unwrap().host == "b"), "{decisions:?}");
}

#[test]
fn two_replicas_are_never_on_one_host_and_the_one_without_a_place_says_why() {
    let hosts = [host("a", 8), host("b", 1)];
    let mut parts: Vec<Wanted> = (0..3).map(|replica| wanted(What::Stage(0), replica)).collect();
    let decisions = places(&hosts, &parts);
    apply(&mut parts, &decisions);
    let seats: Vec<&str> = parts.iter().flat_map(|wanted| wanted.seat.iter().map(|seat| seat.host.as_str())).collect();
    assert_eq!((seats.len(), seats.iter().collect::<BTreeSet<_>>().len()), (2, 2));
    let without = parts.iter().find(|wanted| wanted.seat.is_none()).unwrap();
    let why = why_nowhere(&hosts, &parts, &without.part).unwrap();
    assert_eq!(why, Nowhere::TooFewHosts { replicas: 3 });
    assert!(why.to_string().contains("role host"), "{why}");
    let more = [hosts[0].clone(), hosts[1].clone(), host("c", 1)];
    let decisions = places(&more, &parts);
    assert_eq!(decisions.len(), 1);
    assert_eq!(decisions[0].why, Why::OnlyOne { host: "c-name".into() });
}

#[test]
fn replicas_are_rather_on_several_machines_and_on_one_where_there_is_no_other() {
    let named = |id: &str, name: &str, cores| Host { name: name.into(), ..host(id, cores) };
    let hosts = [named("a", "north", 16), named("b", "north", 16), named("c", "south", 1)];
    let mut parts: Vec<Wanted> = (0..3).map(|replica| wanted(What::Stage(0), replica)).collect();
    let decisions = places(&hosts, &parts[..2]);
    apply(&mut parts, &decisions);
    let machines: BTreeSet<&str> = parts[..2]
        .iter()
        .filter_map(|wanted| hosts.iter().find(|host| host.id == wanted.seat.as_ref().unwrap().host))
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(machines, BTreeSet::from(["north", "south"]));
    let second = decisions[1].why.to_string();
    assert!(second.contains("not on the machines of its other replicas"), "{second}");
    let third = &places(&hosts, &parts)[0];
    assert!(third.to.as_ref().unwrap().host != "c" && third.why.to_string().contains("the only host"), "{third:?}");
}

#[test]
fn what_needs_a_manager_and_what_is_pinned_go_there_or_nowhere() {
    let hosts = [host("a", 64), inside("m")];
    let mut source = wanted(What::Source(0), 0);
    source.needs.inside = Some("the installation's own MQTT");
    let mut sink = wanted(What::Sink(0), 0);
    sink.needs.pin = Some("a-name".into());
    let parts = [source, sink];
    let decisions = places(&hosts, &parts);
    let to = |n: usize| decisions.iter().find(|one| one.part == parts[n].part).unwrap();
    assert_eq!((to(0).to.as_ref().unwrap().host.as_str(), to(1).to.as_ref().unwrap().host.as_str()), ("m", "a"));
    assert_eq!(to(1).why.to_string(), "it is pinned to a-name");
    let nowhere = why_nowhere(&hosts[..1], &parts, &parts[0].part).unwrap().to_string();
    assert!(nowhere.starts_with("it needs the installation's own MQTT"), "{nowhere}");
    let nowhere = why_nowhere(&hosts[1..], &parts, &parts[1].part).unwrap().to_string();
    assert_eq!(nowhere, "it is pinned to a-name, and there is no host of that name");
    assert_eq!(why_nowhere(&[], &parts, &parts[1].part), Some(Nowhere::NoHosts));
}

#[test]
fn a_pinned_replica_finds_its_host_free() {
    let hosts = [host("a", 1)];
    let more = [host("a", 1), host("b", 1)];
    for hosts in [&hosts[..], &more[..]] {
        let mut pinned = wanted(What::Stage(0), 1);
        pinned.needs.pin = Some("a".into());
        let parts = [wanted(What::Stage(0), 0), pinned];
        let decisions = places(hosts, &parts);
        let to = decisions.iter().find(|one| one.part.replica == 1).unwrap();
        assert_eq!(to.to.as_ref().unwrap().host, "a");
        assert_eq!(decisions.len(), hosts.len());
    }
}

#[test]
fn parts_of_a_silent_host_move_and_say_so_and_nothing_else_moves() {
    let (a, b) = (host("a", 1), host("b", 1));
    let parts = [on(wanted(What::Stage(0), 0), &a), on(wanted(What::Stage(1), 0), &b)];
    let hosts = [Host { life: Life::Gone, ..a }, b];
    let decisions = places(&hosts, &parts);
    assert_eq!(decisions.len(), 1);
    assert_eq!((decisions[0].part.what, decisions[0].epoch), (What::Stage(0), 2));
    assert_eq!(
        decisions[0].why.to_string(),
        "nothing was heard of a-name for 5 s; b-name is the only host that can run it"
    );
    assert_eq!(places(&hosts[..1], &parts[..1]), [], "with nowhere to go it stays in its host's name");
}

#[test]
fn a_host_that_started_anew_gets_its_parts_again_under_another_epoch() {
    let a = host("a", 1);
    let parts = [on(wanted(What::Source(0), 0), &a)];
    let decisions = places(&[Host { boot: 2, ..a }, host("b", 64)], &parts);
    assert_eq!(decisions.len(), 1);
    assert_eq!(decisions[0].to, Some(Seat { host: "a".into(), boot: 2 }));
    assert_eq!((decisions[0].epoch, decisions[0].why.to_string()), (2, "a-name started anew".to_owned()));
}

#[test]
fn a_wish_is_held_against_the_same_rules() {
    let hosts = [host("a", 1), host("b", 1), Host { life: Life::Gone, ..host("c", 1) }, inside("m")];
    let mut source = on(wanted(What::Source(0), 0), &hosts[3]);
    source.needs.inside = Some("the installation's own AMQP");
    let parts = [on(wanted(What::Stage(0), 0), &hosts[0]), on(wanted(What::Stage(0), 1), &hosts[1]), source];
    let ask = |part: Part, to: &str| {
        wish(&hosts, &parts, &Wish { part, to: to.into(), why: "for the test".into(), bytes: 0 })
    };
    let stage = part(What::Stage(0), 0);
    assert_eq!(ask(stage.clone(), "b"), Err(Refused::HasReplica("b-name".into())));
    assert_eq!(ask(stage.clone(), "a"), Err(Refused::Already("a-name".into())));
    assert_eq!(ask(stage.clone(), "c"), Err(Refused::Gone("c-name".into())));
    assert_eq!(ask(stage.clone(), "x"), Err(Refused::NoHost("x".into())));
    assert_eq!(ask(part(What::Stage(9), 0), "a"), Err(Refused::NoPart));
    assert!(matches!(ask(part(What::Source(0), 0), "a"), Err(Refused::Misplaced { .. })));
    let moved = ask(stage, "m").unwrap();
    assert_eq!((moved.epoch, moved.why.to_string()), (2, "moved to m-name: for the test".to_owned()));
}

fn some_hosts() -> impl Strategy<Value = Vec<Host>> {
    let one = (1..5_u32, prop::bool::weighted(0.8), any::<bool>(), 1..3_u64);
    prop::collection::vec(one, 0..6).prop_map(|all| {
        let one = |(n, (cores, alive, is_inside, boot)): (usize, (u32, bool, bool, u64))| {
            let standing = if is_inside { Standing::Inside } else { Standing::Apart };
            let life = if alive { Life::Alive } else { Life::Gone };
            Host { boot, standing, life, ..host(&format!("h{n}"), cores) }
        };
        all.into_iter().enumerate().map(one).collect()
    })
}

fn some_parts() -> impl Strategy<Value = Vec<Wanted>> {
    let stage = (1..4_u32, prop::option::weighted(0.2, 0..7_u32), any::<bool>());
    let seats = prop::collection::vec(prop::option::of((0..7_u32, 1..3_u64)), 24);
    (prop::collection::vec(stage, 0..8), seats).prop_map(|(stages, seats)| {
        let mut parts = Vec::new();
        for (n, (replicas, pin, is_inside)) in stages.into_iter().enumerate() {
            for replica in 0..replicas {
                let mut one = wanted(What::Stage(n as u32), replica);
                one.needs.pin = pin.map(|pin| format!("h{pin}"));
                one.needs.inside = is_inside.then_some("the installation's own MQTT");
                one.seat = seats[parts.len()].map(|(host, boot)| Seat { host: format!("h{host}"), boot });
                one.epoch = 3;
                parts.push(one);
            }
        }
        parts
    })
}

proptest! {
    #[test]
    fn whatever_there_was_the_rules_hold_after_it_and_nothing_is_left_to_decide(hosts in some_hosts(), mut parts in some_parts()) {
        let before = parts.clone();
        let decisions = places(&hosts, &parts);
        apply(&mut parts, &decisions);
        for (was, is) in before.iter().zip(&parts) {
            prop_assert_eq!(is.epoch > was.epoch, is.seat != was.seat && is.seat.is_some());
        }
        let by_id: BTreeMap<&str, &Host> = hosts.iter().map(|host| (host.id.as_str(), host)).collect();
        let mut groups = BTreeSet::new();
        for wanted in &parts {
            let Some(seat) = &wanted.seat else { continue };
            let Some(host) = by_id.get(seat.host.as_str()).filter(|host| host.life == Life::Alive) else { continue };
            prop_assert_eq!(unfit(host, &wanted.needs), None);
            prop_assert_eq!(seat.boot, host.boot);
            prop_assert!(groups.insert((seat.host.clone(), wanted.part.what)), "two replicas on {}", seat.host);
        }
        prop_assert_eq!(places(&hosts, &parts), vec![], "a second look changes nothing");
        for wanted in parts.iter().filter(|wanted| wanted.seat.is_none()) {
            prop_assert!(why_nowhere(&hosts, &parts, &wanted.part).is_some(), "{:?} has a place to go", wanted.part);
        }
    }

    #[test]
    fn the_order_in_which_things_are_read_is_of_no_matter_to_who_stays(hosts in some_hosts(), mut parts in some_parts()) {
        let decisions = places(&hosts, &parts);
        apply(&mut parts, &decisions);
        let (mut hosts, mut parts) = (hosts, parts);
        hosts.reverse();
        parts.reverse();
        prop_assert_eq!(places(&hosts, &parts), vec![]);
    }
}
