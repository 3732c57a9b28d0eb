//! Plans of small worlds, and that they are made of the same as passes.

use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::{Timestamp, WorkerId};
use mutirao_elastic::fleet::{Activity, Fleet, Life, Member};
use mutirao_elastic::measure::Tasks;
use mutirao_elastic::packing::{Amounts, Layer, Market, Need, NodeName};
use mutirao_elastic::policy::{NForN, Policy};
use mutirao_elastic::protocol::{NodeRecord, OfferedNode, QueueBalance, Wish};
use mutirao_elastic::{Elastic, Load};

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn cpus(milli: u32) -> Amounts {
    Amounts::of(Cpus { milli }, Bytes(0))
}

fn ago(s: i64) -> Timestamp {
    Timestamp(NOW.0 - s * 1_000)
}

/// A node of two cpus.
fn node(name: &str, kind: Option<&str>) -> NodeRecord {
    let node = OfferedNode {
        name: NodeName(name.into()),
        provider: "test".into(),
        kind: kind.map(Into::into),
        capacity: cpus(2_000),
        labels: Default::default(),
        layer: Layer::Cloud,
        answers: true,
        note: None,
        stands: None,
    };
    NodeRecord { node, wish: Wish::Open }
}

fn kind(name: &str, market: Market, price: u64) -> Kind {
    Kind {
        name: name.into(),
        capacity: cpus(2_000),
        labels: Default::default(),
        layer: Layer::Cloud,
        price_micros_per_hour: price,
        market,
        boot: Span::secs(60),
        interrupted_every: Some(Span::secs(7_200)),
        available: 50,
    }
}

/// With so many tasks ready, and workers of one cpu on these nodes, busy or idle for a minute.
fn queue(ready: u64, workers: &[(&str, bool)]) -> QueueBalance {
    let policy = Policy::NForN(NForN { idle_wait: Span::secs(600), tasks_per_worker: 1 });
    let id = |n: usize| WorkerId(format!("w{n}"));
    let member = |(n, (node, _)): (usize, &(&str, bool))| {
        (id(n), Member::new(Life::Reported, ago(900), Some(NodeName((*node).into()))).needing(Some(cpus(1_000))))
    };
    let session = |(n, (_, busy)): (usize, &(&str, bool))| {
        (
            id(n),
            if *busy { Activity::Busy { tasks: 1, since: Some(ago(60)) } } else { Activity::Idle { since: ago(60) } },
        )
    };
    let running = workers.iter().filter(|(_, busy)| *busy).count() as u64;
    let tasks = Tasks { ready, running, unacknowledged: running, ended: Some(0), ..Tasks::default() };
    QueueBalance {
        queue: "work".parse().expect("a name"),
        elastic: Some(Elastic { min: 0, max: 10_000, stale_after: Span::secs(60), policy }),
        need: Need { amounts: cpus(1_000), ..Need::default() },
        load: Load { at: NOW, tasks: Some(tasks), ..Load::default() },
        sessions: Some(workers.iter().enumerate().map(session).collect()),
        state: Default::default(),
        fleet: Fleet::of(workers.iter().enumerate().map(member).collect(), None),
    }
}

fn balance(queues: Vec<QueueBalance>, nodes: Vec<NodeRecord>) -> Balance {
    Balance { at: NOW, queues, nodes }
}

#[test]
fn a_plan_says_who_goes_where_what_is_made_at_which_price_and_why() {
    let kinds = vec![kind("plain", Market::OnDemand, 1_000_000), kind("spot", Market::Spot, 300_000)];
    let plan = plan(balance(vec![queue(4, &[("a", true)])], vec![node("a", None)]), kinds);
    let queue = &plan.queues[0];
    assert_eq!((queue.standing, queue.wanted), (1, Some(5)));
    assert!(queue.because.as_ref().is_some_and(|why| why.contains("4 ready and 1 running tasks need 5")), "{queue:?}");
    assert_eq!(queue.place.iter().map(|p| (p.node.as_str(), p.workers)).collect::<Vec<_>>(), [("a", 1)]);
    let made = &queue.make[0];
    assert_eq!((made.kind.as_str(), made.nodes, made.price_micros_per_hour), ("spot", 2, 300_000));
    assert!(made.expected_micros_per_hour > 300_000 && made.expected_micros_per_hour < 1_000_000, "{made:?}");
    assert_eq!(queue.held, ["3 more follow when the nodes are there"]);
}

#[test]
fn what_has_no_place_is_said_and_then_no_node_is_emptied() {
    let half = [("a", false), ("b", true)];
    let nodes = || vec![node("a", Some("small")), node("b", Some("small"))];
    let free = plan(balance(vec![queue(0, &half)], nodes()), vec![kind("small", Market::OnDemand, 900_000)]);
    assert_eq!(free.empty.iter().map(|e| e.node.as_str()).collect::<Vec<_>>(), ["a"], "{free:?}");
    assert!(free.empty[0].because.contains("have room elsewhere"), "{free:?}");
    assert_eq!(free.queues[0].drain.len(), 1);
    assert_eq!(free.queues[0].drain[0].because, "its node is emptied");

    let mut large = queue(3, &[]);
    large.queue = "large".parse().expect("a name");
    large.need.amounts = cpus(64_000);
    let stuck = plan(balance(vec![queue(0, &half), large], nodes()), Vec::new());
    assert_eq!((stuck.empty.len(), stuck.queues[0].drain.len()), (0, 0), "{stuck:?}");
    assert!(stuck.queues[1].held[0].contains("needs 64 cpus"), "{stuck:?}");
    assert_eq!(stuck.held, ["no node is emptied while workers have no place"]);
}

#[test]
fn nothing_is_concluded_of_a_queue_whose_owner_does_not_know_who_is_there() {
    let unheard = QueueBalance { sessions: None, ..queue(4, &[]) };
    let plan = plan(balance(vec![unheard], vec![]), Vec::new());
    assert_eq!((plan.queues[0].wanted, plan.queues[0].held.len()), (None, 1), "{plan:?}");
    assert!(plan.held[0].contains("which nodes there are"), "{plan:?}");
}

#[test]
fn where_no_node_is_known_that_is_the_only_reason() {
    let plan = plan(balance(vec![queue(4, &[])], vec![]), Vec::new());
    let queue = &plan.queues[0];
    assert_eq!((queue.wanted, queue.held.len(), plan.held.len()), (Some(4), 0, 1), "{plan:?}");
    assert!(queue.because.as_ref().is_some_and(|why| !why.contains("no place")), "{plan:?}");
}

#[test]
fn a_worker_that_has_come_is_waited_for_no_more_though_its_record_does_not_know_yet() {
    let mut queue = queue(1, &[("a", true), ("a", false)]);
    queue.fleet.members.values_mut().for_each(|member| member.life = Life::Asked);
    let plan = plan(balance(vec![queue], vec![node("a", None)]), Vec::new());
    let queue = &plan.queues[0];
    assert_eq!((queue.standing, queue.wanted), (2, Some(2)), "{plan:?}");
    assert!(queue.held.is_empty() && queue.place.is_empty(), "{plan:?}");
}

#[test]
fn a_plan_for_thousands_of_workers_takes_a_moment() {
    let names: Vec<String> = (0..1_000).map(|n| format!("n{n:04}")).collect();
    let workers: Vec<(&str, bool)> = names.iter().flat_map(|name| [(name.as_str(), true), (name, false)]).collect();
    let nodes = names.iter().map(|name| node(name, Some("small"))).collect();
    let plan = plan(balance(vec![queue(40, &workers)], nodes), vec![kind("small", Market::OnDemand, 900_000)]);
    assert_eq!(plan.queues[0].wanted, Some(2_000), "as many were there within the last ten minutes");
}
