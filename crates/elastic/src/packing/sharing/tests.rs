//! Sharing by examples and by properties.

use mutirao_core::quantity::{Bytes, Cpus};
use proptest::prelude::*;

use super::*;
use crate::packing::{Labels, Layer};

fn cpus(milli: u32) -> Amounts {
    Amounts::of(Cpus { milli }, Bytes(0))
}

fn node(name: &str, capacity: u32, used: u32) -> Node {
    Node {
        name: NodeName(name.into()),
        capacity: cpus(capacity),
        used: cpus(used),
        labels: Labels::new(),
        layer: Layer::Cloud,
        door: Door::Open,
    }
}

fn party(name: &str) -> Party {
    Party {
        queue: name.parse().unwrap(),
        need: Need { amounts: cpus(1_000), ..Need::default() },
        floor: 0,
        keeps: 0,
        standing: 0,
        wants: 0,
        waiting: 0,
        oldest_wait: Duration::ZERO,
        idle: Vec::new(),
    }
}

/// Tasks wait, so many workers are wanted, and there is none.
fn hungry(name: &str, wants: u32, wait_s: u64) -> Party {
    let oldest_wait = Duration::from_secs(wait_s);
    Party { wants, waiting: u64::from(wants), oldest_wait, ..party(name) }
}

/// So many idle workers, for so long, on node `n`, one thousand millicores each.
fn resting(name: &str, floor: u32, count: u32, for_s: u64) -> Party {
    let idle = |n: u32| Idle {
        worker: WorkerId(format!("{name}-{n}")),
        node: NodeName("n".into()),
        amounts: cpus(1_000),
        for_: Duration::from_secs(for_s),
    };
    Party { floor, standing: count, idle: (0..count).map(idle).collect(), ..party(name) }
}

fn going(shares: &Shares) -> Vec<&str> {
    shares.yielding.iter().map(|worker| worker.0.as_str()).collect()
}

fn placed(shares: &Shares, queue: &str) -> usize {
    shares.places.get(&queue.parse::<QueueName>().unwrap()).map_or(0, Vec::len)
}

#[test]
fn each_queue_with_work_has_one_before_any_floor_and_floors_before_the_rest() {
    let parties = [hungry("greedy", 9, 5), Party { floor: 2, wants: 2, ..party("floor") }, hungry("late", 9, 1)];
    let rooms = |slots: u32| {
        let shares = share(&parties, &mut [node("n", slots * 1_000, 0)], &[], &[]);
        ["greedy", "floor", "late"].map(|queue| placed(&shares, queue))
    };
    assert_eq!(rooms(1), [1, 0, 0], "whoever has waited longest");
    assert_eq!(rooms(2), [1, 0, 1]);
    assert_eq!(rooms(4), [1, 2, 1]);
    assert_eq!(rooms(8), [3, 2, 3], "the rest in turns");
}

#[test]
fn an_idle_worker_of_a_floor_too_makes_room_for_a_queue_without_any_and_those_above_floors_go_first() {
    let mut full = [node("n", 3_000, 3_000)];
    let parties = [resting("floor", 1, 1, 900), resting("kept", 1, 2, 3), hungry("work", 5, 0)];
    let shares = share(&parties, &mut full, &[], &[]);
    assert_eq!(going(&shares).len(), 1);
    assert!(going(&shares)[0].starts_with("kept"), "{shares:?}");
    assert!(shares.making.contains(&"work".parse().unwrap()) && shares.places.is_empty());

    let parties = [resting("floor", 1, 1, 3), hungry("work", 5, 0)];
    assert_eq!(going(&share(&parties, &mut [node("n", 1_000, 1_000)], &[], &[])), ["floor-0"]);
    let parties = [resting("floor", 1, 1, 1), hungry("work", 5, 0)];
    assert_eq!(going(&share(&parties, &mut [node("n", 1_000, 1_000)], &[], &[])), [""; 0], "idle for too short");
}

#[test]
fn room_that_is_on_its_way_is_waited_for_and_nobody_else_is_given_it() {
    let parties = [resting("kept", 0, 1, 60), hungry("work", 5, 9), hungry("other", 1, 1)];
    let leaving = [(NodeName("n".into()), cpus(1_000))];
    let mut nodes = [node("n", 2_000, 2_000)];
    let shares = share(&parties, &mut nodes, &[], &leaving);
    assert_eq!(going(&shares), ["kept-0"], "one comes free by itself, for the first");
    assert_eq!(shares.making.len(), 2);
    assert!(shares.places.is_empty());
    assert!(Room::of(&nodes[0]).free.is_nothing(), "it is held");
}

#[test]
fn a_queue_that_has_some_is_given_the_room_of_those_above_their_floors_only_and_only_after_a_while() {
    let some = Party { standing: 1, ..hungry("work", 3, 9) };
    let going_for = |resting: Party, work: &Party| {
        let shares = share(&[resting, work.clone()], &mut [node("n", 3_000, 3_000)], &[], &[]);
        shares.yielding.len()
    };
    assert_eq!(going_for(resting("kept", 0, 2, 5), &some), 2);
    assert_eq!(going_for(resting("kept", 1, 2, 5), &some), 1, "the floor stays");
    assert_eq!(going_for(resting("kept", 0, 2, 4), &some), 0, "not yet");
    let fresh = Party { oldest_wait: Duration::from_secs(1), ..some.clone() };
    assert_eq!(going_for(resting("kept", 0, 2, 60), &fresh), 0, "what has only just come may soon be done");
    let idle = Party { idle: resting("work", 0, 1, 1).idle, ..some };
    assert_eq!(going_for(resting("kept", 0, 2, 60), &idle), 0, "it has one that does nothing");
}

#[test]
fn whoever_has_tasks_waiting_keeps_one_worker_and_gives_others_up_only_when_they_wait_in_vain() {
    let limited = |count, for_s| Party { waiting: 50, ..resting("limited", 0, count, for_s) };
    let going_of = |party: Party| {
        let used = party.standing * 1_000;
        share(&[party, hungry("work", 1, 0)], &mut [node("n", used, used)], &[], &[]).yielding.len()
    };
    assert_eq!(going_of(limited(1, 600)), 0);
    assert_eq!(going_of(limited(2, 9)), 0);
    assert_eq!(going_of(limited(2, 10)), 1);
}

#[test]
fn nobody_goes_where_a_node_can_be_made_or_where_it_would_not_help() {
    let kind = Kind {
        name: "small".into(),
        capacity: cpus(1_000),
        labels: Labels::new(),
        layer: Layer::Cloud,
        price_micros_per_hour: 1,
        market: Default::default(),
        boot: Default::default(),
        interrupted_every: None,
        available: 1,
    };
    let parties = [resting("kept", 0, 1, 60), hungry("work", 1, 9)];
    assert_eq!(share(&parties, &mut [node("n", 1_000, 1_000)], &[kind], &[]), Shares::default());
    let large = Party { need: Need { amounts: cpus(3_000), ..Need::default() }, ..hungry("work", 1, 9) };
    let parties = [resting("kept", 0, 1, 60), large];
    assert_eq!(share(&parties, &mut [node("n", 2_000, 2_000)], &[], &[]), Shares::default());
    let mut shut = node("n", 1_000, 1_000);
    shut.door = Door::Cordoned;
    let parties = [resting("kept", 0, 1, 60), hungry("work", 1, 9)];
    assert_eq!(share(&parties, &mut [shut], &[], &[]), Shares::default());
}

/// Queues with workers of one size, of which some are idle, and one node with some room.
fn scenes() -> impl Strategy<Value = (Vec<Party>, u32, u32)> {
    let party = (0u32..3, 0u32..4, 0u64..15, 0u32..5, 0u64..4, 0u64..20, 0u32..3);
    let parties = prop::collection::vec(party, 1..7).prop_map(|all| {
        let each = |(n, (floor, idle, for_s, wants, waiting, wait_s, busy))| Party {
            standing: idle + busy,
            wants,
            waiting,
            oldest_wait: Duration::from_secs(wait_s),
            ..resting(&format!("q{n}"), floor, idle, for_s)
        };
        all.into_iter().enumerate().map(each).collect::<Vec<Party>>()
    });
    (parties, 0u32..3, 0u32..3)
}

proptest! {
    #[test]
    fn no_queue_with_work_is_left_without_a_worker_while_there_is_room_or_somebody_idle(
        (parties, free, leaving) in scenes()
    ) {
        let used: u32 = parties.iter().map(|party| party.standing).sum::<u32>() + leaving;
        let mut nodes = [node("n", (used + free) * 1_000, used * 1_000)];
        let out: Vec<_> = (0..leaving).map(|_| (NodeName("n".into()), cpus(1_000))).collect();
        let shares = share(&parties, &mut nodes, &[], &out);

        let starving: Vec<&Party> =
            parties.iter().filter(|p| p.waiting > 0 && p.standing == 0 && p.wants > 0).collect();
        let served = |p: &Party| placed(&shares, p.queue.as_str()) > 0 || shares.making.contains(&p.queue);
        let spare = |p: &Party| {
            let (keeps, after) = if p.waiting > 0 { (1, IN_VAIN) } else { (0, A_MOMENT) };
            let long = p.idle.iter().filter(|idle| idle.for_ >= after).count() as u32;
            long.min(p.standing.saturating_sub(keeps))
        };
        let to_be_had = free + leaving + parties.iter().map(spare).sum::<u32>();
        let fed = starving.iter().filter(|p| served(p)).count();
        prop_assert_eq!(fed, starving.len().min(to_be_had as usize), "{:?}", &shares);
        let longest_left = starving.iter().filter(|p| !served(p)).map(|p| p.oldest_wait).max();
        let shortest_fed = starving.iter().filter(|p| served(p)).map(|p| p.oldest_wait).min();
        prop_assert!(longest_left.zip(shortest_fed).is_none_or(|(left, fed)| left <= fed));
    }

    #[test]
    fn nobody_goes_in_vain_and_no_node_is_ever_too_full((parties, free, leaving) in scenes()) {
        let used: u32 = parties.iter().map(|party| party.standing).sum::<u32>() + leaving;
        let mut nodes = [node("n", (used + free) * 1_000, used * 1_000)];
        let out: Vec<_> = (0..leaving).map(|_| (NodeName("n".into()), cpus(1_000))).collect();
        let shares = share(&parties, &mut nodes, &[], &out);

        let places: usize = shares.places.values().map(Vec::len).sum();
        prop_assert!(places <= free as usize);
        let claimed = nodes[0].used.minus(&cpus(used * 1_000)).get("cpu_milli") as usize / 1_000;
        prop_assert!(claimed <= (free + leaving) as usize + shares.yielding.len(), "no more than comes free");
        let needless = (claimed - places).saturating_sub(leaving as usize);
        prop_assert_eq!(shares.yielding.len(), needless, "as many as are needed");
        for party in &parties {
            let gone = party.idle.iter().filter(|idle| shares.yielding.contains(&idle.worker)).count() as u32;
            prop_assert!(party.waiting == 0 || gone == 0 || party.standing > gone, "it keeps one");
            let given = placed(&shares, party.queue.as_str()) as u32;
            prop_assert!(given <= party.wants);
        }
        for idle in parties.iter().flat_map(|p| &p.idle).filter(|idle| shares.yielding.contains(&idle.worker)) {
            prop_assert!(idle.for_ >= A_MOMENT);
        }
    }
}

#[test]
fn those_that_are_kept_make_room_for_nobody_however_idle() {
    let going_of = |keeps| {
        let kept = Party { keeps, ..resting("checkers", 1, 1, 3_600) };
        share(&[kept, hungry("work", 1, 60)], &mut [node("n", 1_000, 1_000)], &[], &[]).yielding.len()
    };
    assert_eq!(going_of(1), 0);
    assert_eq!(going_of(0), 1, "the same, if it may go");
}
