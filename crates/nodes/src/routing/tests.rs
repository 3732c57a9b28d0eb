use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn at(s: u64) -> Mono {
    Mono(Duration::from_secs(s))
}

fn action() -> ActionName {
    "urn:x:Action:a".parse().unwrap()
}

fn node(name: &str, layer: Layer, slots: u32) -> Candidate {
    Candidate { node: name.parse().unwrap(), layer, labels: BTreeMap::new(), slots, version: 1 }
}

fn router() -> Router {
    Router::new(Rules::default())
}

fn choose(router: &mut Router, place: &Place, nodes: &[Candidate], now: Mono, dice: &Dice) -> Result<Choice, NoNode> {
    router.choose(&action(), place, nodes, None, now, dice)
}

fn break_down(router: &mut Router, one: &Candidate, now: Mono, dice: &Dice) {
    let only = Place { node: Some(one.node.clone()), ..Place::default() };
    for _ in 0..3 {
        let choice = choose(router, &only, std::slice::from_ref(one), now, dice).unwrap();
        router.ended(choice.ticket, Ended::Badly, now, dice);
    }
    assert_eq!(router.health(&one.node, &action(), now), Health::Down);
}

#[test]
fn a_full_layer_overflows_to_the_next_and_is_used_again_when_it_has_room() {
    let (mut router, dice) = (router(), Dice::seeded(1));
    let nodes = [node("e", Layer::Edge, 1), node("f", Layer::Fog, 1), node("c", Layer::Cloud, 1)];
    let mut given = Vec::new();
    for (layer, passed) in
        [(Layer::Edge, vec![]), (Layer::Fog, vec![Layer::Edge]), (Layer::Cloud, vec![Layer::Edge, Layer::Fog])]
    {
        let choice = choose(&mut router, &Place::default(), &nodes, at(0), &dice).unwrap();
        assert_eq!((choice.layer, choice.passed_over.clone()), (layer, passed));
        given.push(choice.ticket);
    }
    assert_eq!(choose(&mut router, &Place::default(), &nodes, at(0), &dice), Err(NoNode::Full));
    router.ended(given[0], Ended::Well, at(1), &dice);
    assert_eq!(choose(&mut router, &Place::default(), &nodes, at(1), &dice).unwrap().layer, Layer::Edge);
    let stay = Place { layer: Some(Layer::Edge), overflow: Overflow::Never, ..Place::default() };
    assert_eq!(choose(&mut router, &stay, &nodes, at(1), &dice), Err(NoNode::Full), "told to wait");
    let up = Place { layer: Some(Layer::Cloud), ..Place::default() };
    assert_eq!(choose(&mut router, &up, &nodes[..2], at(1), &dice), Err(NoNode::Nobody), "never down to the devices");
}

#[test]
fn a_new_version_takes_the_tasks_of_its_layer_and_yields_when_whoever_has_it_is_down() {
    let (mut router, dice) = (router(), Dice::seeded(1));
    let new = Candidate { version: 2, ..node("new", Layer::Fog, 4) };
    let nodes = [node("old", Layer::Fog, 4), new.clone(), node("other", Layer::Fog, 4)];
    let stay = Place { layer: Some(Layer::Fog), overflow: Overflow::Never, ..Place::default() };
    for n in 0..5 {
        let given = choose(&mut router, &stay, &nodes, at(0), &dice);
        match n {
            0..4 => assert_eq!(given.unwrap().node, new.node),
            _ => assert_eq!(given, Err(NoNode::Full), "that it is full is no reason to take the old one"),
        }
    }
    let mut router = Router::new(Rules::default());
    break_down(&mut router, &new, at(0), &dice);
    for _ in 0..8 {
        let given = choose(&mut router, &stay, &nodes, at(1), &dice).unwrap();
        assert_ne!(given.node, new.node);
        router.ended(given.ticket, Ended::Well, at(1), &dice);
    }
    // One task shows that it works again, and none that failed elsewhere already.
    let again = router.choose(&action(), &stay, &nodes, Some(&nodes[0].node), at(100), &dice).unwrap();
    assert_eq!(again.node, nodes[2].node);
    let probe = choose(&mut router, &stay, &nodes, at(100), &dice).unwrap();
    assert_eq!((&probe.node, probe.why), (&new.node, Why::Probe));
    assert_ne!(choose(&mut router, &stay, &nodes, at(100), &dice).unwrap().node, new.node, "while it is tried");
    router.ended(probe.ticket, Ended::Well, at(101), &dice);
    assert_eq!(choose(&mut router, &stay, &nodes, at(101), &dice).unwrap().node, new.node);
}

#[test]
fn a_new_version_on_a_node_that_hangs_takes_no_more_than_shows_it() {
    let (mut router, dice) = (router(), Dice::seeded(1));
    let new = Candidate { version: 2, ..node("new", Layer::Fog, 100) };
    let nodes = [node("old", Layer::Fog, 100), new.clone()];
    let mut hangs = vec![];
    for s in 0..30 {
        let given = choose(&mut router, &Place::default(), &nodes, at(s), &dice).unwrap();
        match given.node == new.node {
            true => hangs.push(given.ticket),
            false => router.ended(given.ticket, Ended::Well, at(s), &dice),
        }
    }
    assert!(hangs.len() <= 6, "{} of 30 went to a node that answers nothing", hangs.len());
    // It answers after all, which is how long it takes then.
    hangs.into_iter().for_each(|ticket| router.ended(ticket, Ended::Well, at(31), &dice));
    assert_eq!(choose(&mut router, &Place::default(), &nodes, at(31), &dice).unwrap().node, new.node);
}

#[test]
fn a_layer_that_is_down_overflows_and_a_probe_brings_it_back() {
    let (mut router, dice) = (router(), Dice::seeded(1));
    let nodes = [node("e", Layer::Edge, 9), node("f", Layer::Fog, 9)];
    break_down(&mut router, &nodes[0], at(0), &dice);
    let choice = choose(&mut router, &Place::default(), &nodes, at(1), &dice).unwrap();
    assert_eq!((choice.layer, choice.why), (Layer::Fog, Why::Only));
    let probe = choose(&mut router, &Place::default(), &nodes, at(80), &dice).unwrap();
    assert_eq!((probe.layer, probe.why), (Layer::Edge, Why::Probe));
    assert_eq!(choose(&mut router, &Place::default(), &nodes, at(80), &dice).unwrap().layer, Layer::Fog, "one probe");
    router.ended(probe.ticket, Ended::Well, at(80), &dice);
    assert_eq!(choose(&mut router, &Place::default(), &nodes, at(81), &dice).unwrap().layer, Layer::Edge);
}

#[test]
fn with_nowhere_else_to_go_the_least_bad_is_used() {
    let (mut router, dice) = (router(), Dice::seeded(1));
    let nodes = [node("a", Layer::Fog, 9), node("b", Layer::Fog, 9)];
    break_down(&mut router, &nodes[0], at(0), &dice);
    break_down(&mut router, &nodes[1], at(30), &dice);
    let choice = choose(&mut router, &Place::default(), &nodes, at(31), &dice).unwrap();
    assert_eq!((choice.node.as_str(), choice.why), ("a", Why::LeastBad));
}

#[test]
fn place_labels_and_the_node_where_it_failed_are_minded() {
    let (mut router, dice) = (router(), Dice::seeded(1));
    let mut nodes = vec![node("a", Layer::Fog, 99), node("b", Layer::Fog, 99)];
    nodes[1].labels.insert("zone".into(), "x".into());
    let zone = Place { labels: nodes[1].labels.clone(), ..Place::default() };
    let pinned = Place { node: Some("a".parse().unwrap()), layer: Some(Layer::Cloud), ..Place::default() };
    for _ in 0..20 {
        assert_eq!(choose(&mut router, &zone, &nodes, at(0), &dice).unwrap().node, nodes[1].node);
        assert_eq!(choose(&mut router, &pinned, &nodes, at(0), &dice).unwrap().node, nodes[0].node);
        let not = router.choose(&action(), &Place::default(), &nodes, Some(&nodes[0].node), at(0), &dice).unwrap();
        assert_eq!(not.node, nodes[1].node);
    }
    let alone = router.choose(&action(), &Place::default(), &nodes[..1], Some(&nodes[0].node), at(0), &dice).unwrap();
    assert_eq!(alone.node, nodes[0].node, "rather there again than nowhere");
    let strange = Place { labels: [("zone".into(), "y".into())].into(), ..Place::default() };
    assert_eq!(choose(&mut router, &strange, &nodes, at(0), &dice), Err(NoNode::Nobody));
}

#[test]
fn round_robin_takes_turns_over_those_that_are_well() {
    let (mut router, dice) = (Router::new(Rules { policy: Policy::RoundRobin, ..Rules::default() }), Dice::seeded(1));
    let nodes: Vec<Candidate> = ["a", "b", "c", "d"].map(|name| node(name, Layer::Fog, 99)).into();
    break_down(&mut router, &nodes[2], at(0), &dice);
    let turns: Vec<String> = (0..6)
        .map(|_| choose(&mut router, &Place::default(), &nodes, at(1), &dice).unwrap().node.to_string())
        .collect();
    assert_eq!(turns, ["a", "b", "d", "a", "b", "d"]);
}

#[test]
fn what_stays_out_counts_before_it_is_answered() {
    let (mut router, dice) = (router(), Dice::seeded(3));
    let nodes = [node("a", Layer::Fog, 99), node("b", Layer::Fog, 99)];
    // Both are measured at a millisecond.
    for one in &nodes {
        let only = Place { node: Some(one.node.clone()), ..Place::default() };
        let choice = choose(&mut router, &only, &nodes, at(0), &dice).unwrap();
        router.ended(choice.ticket, Ended::Well, Mono(Duration::from_millis(1)), &dice);
    }
    let stuck = choose(&mut router, &Place::default(), &nodes, Mono(Duration::from_millis(2)), &dice).unwrap();
    let other = nodes.iter().find(|one| one.node != stuck.node).unwrap();
    let there = Place { node: Some(other.node.clone()), ..Place::default() };
    let now = Mono(Duration::from_millis(500));
    (0..3).for_each(|_| drop(choose(&mut router, &there, &nodes, now, &dice).unwrap()));
    for _ in 0..20 {
        let choice = choose(&mut router, &Place::default(), &nodes, now, &dice).unwrap();
        assert_eq!(choice.node, other.node, "it has three to do, but none of them is late");
        router.ended(choice.ticket, Ended::Well, now, &dice);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Choose { layer: u8, overflow: bool, not: u8 },
    End { which: u8, how: u8, twice: bool },
    Forget { which: u8 },
    Wait { s: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        5 => (0u8..4, any::<bool>(), 0u8..12).prop_map(|(layer, overflow, not)| Step::Choose { layer, overflow, not }),
        4 => (any::<u8>(), 0u8..4, any::<bool>()).prop_map(|(which, how, twice)| Step::End { which, how, twice }),
        1 => (0u8..8).prop_map(|which| Step::Forget { which }),
        2 => any::<u8>().prop_map(|s| Step::Wait { s }),
    ];
    prop::collection::vec(one, 1..200)
}

proptest! {
    /// Whatever happens: nobody gets more than it takes, a spared node gets nothing unless its layer may not spare it, a
    /// task waits only while all that could are full, and what is out is counted once.
    #[test]
    fn every_choice_keeps_the_rules(steps in steps(), seed: u64, turns: bool) {
        let policy = if turns { Policy::RoundRobin } else { Policy::Learned };
        let (mut router, dice) = (Router::new(Rules { policy, ..Rules::default() }), Dice::seeded(seed));
        let layers = [Layer::Edge, Layer::Fog, Layer::Cloud];
        let nodes: Vec<Candidate> =
            (0..8).map(|n| node(&format!("n{n}"), layers[n % 3], 1 + n as u32 % 3)).collect();
        let mut out: Vec<(Ticket, NodeId)> = Vec::new();
        let mut now = at(0);
        for step in steps {
            match step {
                Step::Wait { s } => now = now.plus(Duration::from_secs(s.into())),
                Step::Forget { which } => {
                    let gone = &nodes[usize::from(which)].node;
                    router.forget(gone);
                    out.retain(|(_, node)| node != gone);
                }
                Step::End { which, how, twice } => {
                    if out.is_empty() { continue }
                    let (ticket, _) = out.remove(usize::from(which) % out.len());
                    let how = match how { 0 | 1 => Ended::Badly, 2 => Ended::Well, _ => Ended::Recalled };
                    for _ in 0..=u8::from(twice) {
                        router.ended(ticket, how, now, &dice);
                    }
                }
                Step::Choose { layer, overflow, not } => {
                    let place = Place {
                        layer: layers.get(usize::from(layer)).copied(),
                        overflow: if overflow { Overflow::Next } else { Overflow::Never },
                        ..Place::default()
                    };
                    let not = nodes.get(usize::from(not)).map(|one| one.node.clone());
                    let health: HashMap<NodeId, Health> =
                        nodes.iter().map(|one| (one.node.clone(), router.health(&one.node, &action(), now))).collect();
                    let room = |router: &Router, one: &Candidate| router.in_flight(&one.node) < one.slots;
                    let allowed: Vec<&Candidate> =
                        nodes.iter().filter(|one| place.layers().contains(&one.layer)).collect();
                    let well = allowed.iter().any(|one| room(&router, one) && health[&one.node] != Health::Down);
                    match router.choose(&action(), &place, &nodes, not.as_ref(), now, &dice) {
                        Ok(choice) => {
                            let one = allowed.iter().find(|one| one.node == choice.node).expect("a layer that is allowed");
                            prop_assert!(router.in_flight(&one.node) <= one.slots);
                            if health[&one.node] == Health::Down {
                                let members = nodes.iter().filter(|other| other.layer == one.layer);
                                let (all, down) = members.fold((0, 0), |(all, down), other| {
                                    (all + 1, down + usize::from(health[&other.node] == Health::Down))
                                });
                                prop_assert!(down > all / 2, "{} was spared and need not have been used", one.node);
                            }
                            out.push((choice.ticket, choice.node));
                        }
                        Err(error) => {
                            prop_assert_eq!(error, NoNode::Full);
                            prop_assert!(!well, "one that is well has room");
                        }
                    }
                }
            }
            for one in &nodes {
                let counted = out.iter().filter(|(_, node)| *node == one.node).count();
                prop_assert_eq!(router.in_flight(&one.node) as usize, counted);
            }
        }
    }
}
