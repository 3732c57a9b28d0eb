use mutirao_core::QueueName;
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_elastic::Fleet;
use mutirao_elastic::fleet::{Life, Member};
use mutirao_elastic::packing::{Layer, NodeName};
use mutirao_elastic::protocol::{NodeRecord, OfferedNode, QueueBalance, Wish};

use super::*;
use crate::NodeSeen;

fn cpus(milli: u32) -> Amounts {
    Amounts::of(Cpus { milli }, Bytes(0))
}

fn seen(name: &str, milli: u32, origin: Origin) -> NodeSeen {
    let node = OfferedNode {
        name: NodeName(name.into()),
        provider: "test".into(),
        kind: None,
        capacity: cpus(milli),
        labels: Default::default(),
        layer: Layer::Cloud,
        answers: true,
        note: None,
        stands: None,
    };
    NodeSeen { node, origin, workers: BTreeMap::new(), ended: BTreeSet::new() }
}

fn queue_on(node: &str, workers: usize) -> QueueBalance {
    let member = |_| Member::new(Life::Reported, Timestamp(0), Some(NodeName(node.into())));
    let members = (0..workers).map(|n| (WorkerId(format!("w{n}")), member(n))).collect();
    QueueBalance {
        queue: QueueName::default(),
        elastic: None,
        need: need(),
        load: Default::default(),
        sessions: None,
        state: Default::default(),
        fleet: Fleet::of(members, None),
    }
}

fn need() -> Need {
    Need { amounts: cpus(1_000), ..Need::default() }
}

fn small() -> Kind {
    Kind {
        name: "small".into(),
        capacity: cpus(2_000),
        labels: Default::default(),
        layer: Layer::Cloud,
        price_micros_per_hour: 1,
        market: Default::default(),
        boot: Default::default(),
        interrupted_every: None,
        available: 1,
    }
}

#[test]
fn what_is_recorded_on_a_node_takes_its_room_and_a_cordoned_one_takes_nobody() {
    let have = Have { nodes: vec![seen("a", 3_000, Origin::Standing), seen("b", 3_000, Origin::Standing)] };
    let cordoned = NodeRecord { node: have.nodes[1].node.clone(), wish: Wish::Cordoned };
    let balance = Balance { queues: vec![queue_on("a", 2)], nodes: vec![cordoned], ..Balance::default() };
    let mut rooms = Rooms::of(&have, &balance, Vec::new());
    let placed = rooms.place(&QueueName::default(), &need(), 2);
    assert_eq!(placed.nodes, [NodeName("a".into())]);
    assert!(placed.without.unwrap().starts_with("1 have no place now"), "the rest is said");
    assert_eq!(rooms.place(&QueueName::default(), &need(), 1).nodes, [], "what was placed in this pass counts");
}

#[test]
fn nodes_are_made_once_and_waited_for() {
    let mut rooms = Rooms::of(&Have::default(), &Balance::default(), vec![small()]);
    assert_eq!(
        rooms.place(&QueueName::default(), &need(), 2),
        Placed { make: vec!["small".into()], ..Placed::default() }
    );
    assert!(rooms.place(&QueueName::default(), &need(), 1).make.is_empty(), "no more are to be had");
    let mut coming = seen("small-1", 2_000, Origin::Made);
    coming.node.answers = false;
    let mut rooms = Rooms::of(&Have { nodes: vec![coming] }, &Balance::default(), vec![small()]);
    assert_eq!(rooms.place(&QueueName::default(), &need(), 2), Placed::default(), "they wait for the one that comes");
}

#[test]
fn a_made_node_is_given_back_when_it_has_been_empty_for_long_and_a_standing_one_never() {
    let have = Have { nodes: vec![seen("made", 2_000, Origin::Made), seen("own", 2_000, Origin::Standing)] };
    let (idle, busy) = (Balance::default(), Balance { queues: vec![queue_on("made", 1)], ..Balance::default() });
    let mut empty = Empty::default();
    let at = |s: u64| Timestamp(0).plus(Duration::from_secs(s));
    assert_eq!(empty.look(&have, &idle, at(0)), []);
    assert_eq!(empty.look(&have, &busy, at(100)), []);
    assert_eq!(empty.look(&have, &idle, at(130)), [], "it was used in between");
    assert_eq!(empty.look(&have, &idle, at(131 + EMPTY_FOR.as_secs())), [NodeName("made".into())]);
}

#[test]
fn a_worker_takes_what_it_was_given_whatever_its_queue_says_by_now() {
    let have = Have { nodes: vec![seen("a", 4_000, Origin::Standing)] };
    let mut queue = queue_on("a", 1);
    queue.fleet.members.values_mut().for_each(|member| member.need = Some(cpus(3_000)));
    let mut rooms = Rooms::of(&have, &Balance { queues: vec![queue], ..Balance::default() }, Vec::new());
    assert_eq!(rooms.place(&QueueName::default(), &need(), 2).nodes.len(), 1, "one cpu is left, not three");
}

#[test]
fn a_node_that_is_about_to_go_takes_nobody() {
    let have = Have { nodes: vec![seen("a", 4_000, Origin::Leaving)] };
    let mut rooms = Rooms::of(&have, &Balance::default(), Vec::new());
    assert_eq!(rooms.place(&QueueName::default(), &need(), 1).nodes, []);
}

#[test]
fn one_that_is_away_takes_nobody_and_one_that_people_closed_is_not_made() {
    let mut away = seen("small", 4_000, Origin::Away);
    away.node.answers = false;
    let closed = |wish| NodeRecord { node: away.node.clone(), wish };
    let have = Have { nodes: vec![away.clone()] };
    for (wish, made) in [(Wish::Open, 1), (Wish::Cordoned, 0), (Wish::Drained, 0)] {
        let balance = Balance { nodes: vec![closed(wish)], ..Balance::default() };
        let placed = Rooms::of(&have, &balance, vec![small()]).place(&QueueName::default(), &need(), 1);
        assert_eq!((placed.nodes.len(), placed.make.len()), (0, made), "{wish:?}");
    }
}

#[test]
fn one_that_is_being_made_is_waited_for_longer_than_an_empty_one_is_kept() {
    let mut coming = seen("small-1", 2_000, Origin::Made);
    coming.node.answers = false;
    let (have, idle, mut empty) = (Have { nodes: vec![coming] }, Balance::default(), Empty::default());
    let at = |s: u64| Timestamp(0).plus(Duration::from_secs(s));
    assert_eq!(empty.look(&have, &idle, at(0)), []);
    assert_eq!(empty.look(&have, &idle, at(EMPTY_FOR.as_secs() + 1)), []);
    assert_eq!(empty.look(&have, &idle, at(COMING_FOR.as_secs())), [NodeName("small-1".into())]);
}
