//! Packing by examples and by properties.

use super::*;
use mutirao_core::quantity::{Bytes, Cpus};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn amounts(milli: u32, gib: u64) -> Amounts {
    Amounts::of(Cpus { milli }, Bytes(gib * GIB))
}

fn need(milli: u32, gib: u64) -> Need {
    Need { amounts: amounts(milli, gib), ..Need::default() }
}

fn workers(needs: &[Need]) -> Vec<(WorkerId, Need)> {
    needs.iter().enumerate().map(|(i, need)| (WorkerId(format!("w{i}")), need.clone())).collect()
}

fn node(name: &str, capacity: Amounts, used: Amounts) -> Node {
    Node { name: NodeName(name.into()), capacity, used, labels: Labels::new(), layer: Layer::Cloud, door: Door::Open }
}

fn kind(name: &str, capacity: Amounts, price: u64, available: u32) -> Kind {
    Kind {
        name: name.into(),
        capacity,
        labels: Labels::new(),
        layer: Layer::Cloud,
        price_micros_per_hour: price,
        market: Default::default(),
        boot: Default::default(),
        interrupted_every: None,
        available,
    }
}

fn on(name: &str) -> Place {
    Place::Node(NodeName(name.into()))
}

#[test]
fn nodes_with_room_are_filled_before_new_ones_and_used_ones_before_empty_ones() {
    let nodes =
        [node("empty", amounts(4_000, 8), Amounts::default()), node("used", amounts(4_000, 8), amounts(3_000, 1))];
    let kinds = [kind("large", amounts(8_000, 16), 8, 5), kind("small", amounts(2_000, 4), 2, 5)];
    let packing = pack(&workers(&[need(1_000, 1), need(3_000, 1), need(2_000, 1)]), &nodes, &kinds, None);
    assert_eq!(packing.new_nodes, [1], "the cheapest kind that fits");
    let mut places: Vec<(&str, Place)> =
        packing.placed.iter().map(|(worker, place)| (worker.0.as_str(), place.clone())).collect();
    places.sort_by_key(|(worker, _)| *worker);
    assert_eq!(places, [("w0", on("used")), ("w1", on("empty")), ("w2", Place::New(0))]);
}

#[test]
fn every_resource_counts_also_those_with_names_of_their_own() {
    let gpu = |n| amounts(1_000, 1).and("gpu", n);
    let nodes = [
        node("a", amounts(64_000, 256), Amounts::default()),
        node("g", amounts(64_000, 256).and("gpu", 2), Amounts::default()),
    ];
    let needs = [
        Need { amounts: gpu(1), ..Need::default() },
        Need { amounts: gpu(1), ..Need::default() },
        Need { amounts: gpu(1), ..Need::default() },
    ];
    let packing = pack(&workers(&needs), &nodes, &[], None);
    assert_eq!(packing.placed.iter().map(|(_, place)| place.clone()).collect::<Vec<_>>(), [on("g"), on("g")]);
    assert_eq!(packing.left_over, [(WorkerId("w2".into()), NoPlace::NotNow)]);
}

#[test]
fn labels_and_layer_and_a_closed_door_are_respected() {
    let big = amounts(8_000, 8);
    let ssd: Labels = [("disk".to_owned(), "ssd".to_owned())].into();
    let nodes = [
        Node { door: Door::Cordoned, ..node("closed", big.clone(), Amounts::default()) },
        Node { layer: Layer::Edge, ..node("edge", big.clone(), Amounts::default()) },
        Node { labels: ssd.clone(), ..node("ssd", big.clone(), Amounts::default()) },
    ];
    let needs = [
        Need { layer: Some(Layer::Edge), ..need(100, 1) },
        Need { labels: ssd, ..need(100, 1) },
        Need { layer: Some(Layer::Fog), ..need(100, 1) },
    ];
    let packing = pack(&workers(&needs), &nodes, &[], None);
    assert_eq!(packing.placed.len(), 2);
    assert!(packing.placed.contains(&(WorkerId("w0".into()), on("edge"))));
    assert!(packing.placed.contains(&(WorkerId("w1".into()), on("ssd"))));
    assert!(packing.left_over[0].1.to_string().contains("these labels and this layer"));
}

#[test]
fn what_can_never_fit_is_refused_with_the_figures() {
    let kinds = [kind("m", amounts(8_000, 16), 1, 9), kind("c", amounts(4_000, 64), 1, 9)];
    let said = |need| check_need(&need, &[], &kinds).unwrap_err().to_string();
    assert_eq!(said(need(64_000, 1)), "needs 64 cpus, the largest node any provider offers has 8");
    assert_eq!(said(need(1_000, 128)), "needs 128GiB of memory, the largest node any provider offers has 64GiB");
    assert_eq!(said(need(8_000, 64)), "no single node that any provider offers has all of it");
    assert_eq!(check_need(&need(4_000, 64), &[], &kinds), Ok(()));
}

#[test]
fn decreasing_order_saves_nodes_where_first_fit_wastes_them() {
    let kinds = [kind("k", amounts(10_000, 100), 1, 99)];
    let needs = [need(3_000, 1), need(3_000, 1), need(3_000, 1), need(7_000, 1), need(7_000, 1), need(7_000, 1)];
    let all = workers(&needs);
    assert_eq!(plain(&all, &[], &kinds).new_nodes.len(), 4);
    assert_eq!(pack(&all, &[], &kinds, None).new_nodes.len(), 3);
}

/// As given, each into the first node with room.
fn plain(all: &[(WorkerId, Need)], nodes: &[Node], kinds: &[Kind]) -> Packing {
    let as_given: Vec<usize> = (0..all.len()).collect();
    let prices: Vec<u64> = kinds.iter().map(|kind| kind.price_micros_per_hour).collect();
    let offer = Offer { kinds, prices: &prices, alike: false };
    first_fit(all, &as_given, nodes, &offer, Choice::Cheapest)
}

#[test]
fn a_large_node_is_made_for_many_where_it_costs_less_than_small_ones() {
    let kinds = [kind("small", amounts(1_000, 1), 10, 99), kind("large", amounts(8_000, 8), 40, 99)];
    let packing = |count| pack(&workers(&vec![need(1_000, 1); count]), &[], &kinds, None);
    assert_eq!(packing(3).new_nodes, [0, 0, 0], "30 is less than 40");
    assert_eq!(packing(8).new_nodes, [1]);
    let ten = packing(10);
    let price: u64 = ten.new_nodes.iter().map(|k| kinds[*k].price_micros_per_hour).sum();
    assert_eq!((ten.placed.len(), price), (10, 60), "one large and two small");
}

#[test]
fn what_is_taken_back_at_any_time_is_chosen_for_short_tasks_and_not_for_long_ones() {
    let lasts = Some(Span::secs(3_600));
    let spot = Kind { market: Market::Spot, interrupted_every: lasts, ..kind("spot", amounts(1_000, 1), 300, 9) };
    let paid = Kind { market: Market::Reserved, ..kind("ours", amounts(1_000, 1), 900, 1) };
    let kinds = [kind("plain", amounts(1_000, 1), 1_000, 9), spot, paid];
    let chosen = |minutes: u64, count| {
        let takes = Some(Duration::from_secs(minutes * 60));
        let packing = pack(&workers(&vec![need(1_000, 1); count]), &[], &kinds, takes);
        packing.new_nodes.iter().map(|k| kinds[*k].name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(chosen(10, 3), ["ours", "spot", "spot"], "what is paid for already comes first");
    assert_eq!(chosen(180, 3), ["ours", "plain", "plain"]);
}

fn any_needs() -> impl Strategy<Value = Vec<Need>> {
    let layer = prop::option::weighted(0.2, prop::sample::select(vec![Layer::Edge, Layer::Cloud]));
    let one = (1u32..9_000, 0u64..20, 0u64..3, layer).prop_map(|(milli, gib, gpu, layer)| Need {
        amounts: amounts(milli, gib).and("gpu", gpu),
        layer,
        ..Need::default()
    });
    prop::collection::vec(one, 0..60)
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    let one = (1u32..16_000, 0u64..40, 0u64..4, 0u32..16_000, any::<bool>());
    prop::collection::vec(one, 0..10).prop_map(|all| {
        let build = |(i, (milli, gib, gpu, used, open)): (usize, (u32, u64, u64, u32, bool))| Node {
            door: if open { Door::Open } else { Door::Cordoned },
            ..node(&format!("n{i}"), amounts(milli, gib).and("gpu", gpu), amounts(used.min(milli), 0))
        };
        all.into_iter().enumerate().map(build).collect()
    })
}

fn any_kinds() -> impl Strategy<Value = Vec<Kind>> {
    let one = (1u32..16_000, 0u64..40, 0u64..4, 0u64..100, 0u32..10);
    prop::collection::vec(one, 0..4).prop_map(|all| {
        all.into_iter()
            .map(|(milli, gib, gpu, price, n)| kind("k", amounts(milli, gib).and("gpu", gpu), price, n))
            .collect()
    })
}

proptest! {
    #[test]
    fn no_node_is_ever_over_capacity_and_nobody_is_lost_or_placed_twice(
        needs in any_needs(), nodes in any_nodes(), kinds in any_kinds()
    ) {
        let all = workers(&needs);
        let packing = pack(&all, &nodes, &kinds, None);
        let mut seen: Vec<&WorkerId> = packing.placed.iter().map(|(w, _)| w).chain(packing.left_over.iter().map(|(w, _)| w)).collect();
        seen.sort();
        let mut asked: Vec<&WorkerId> = all.iter().map(|(w, _)| w).collect();
        asked.sort();
        prop_assert_eq!(seen, asked);
        let need_of: std::collections::BTreeMap<_, _> = all.iter().map(|(w, need)| (w, need)).collect();
        let sum = |place: &Place, start: &Amounts| {
            let here = packing.placed.iter().filter(|(_, p)| p == place);
            here.fold(start.clone(), |sum, (worker, _)| sum.plus(&need_of[worker].amounts))
        };
        for node in &nodes {
            let place = Place::Node(node.name.clone());
            let holds = packing.placed.iter().any(|(_, p)| *p == place);
            prop_assert!(!holds || (node.door == Door::Open && sum(&place, &node.used).fits_in(&node.capacity)));
        }
        for (i, k) in packing.new_nodes.iter().enumerate() {
            prop_assert!(sum(&Place::New(i), &Amounts::default()).fits_in(&kinds[*k].capacity));
        }
        for (k, kind) in kinds.iter().enumerate() {
            prop_assert!(packing.new_nodes.iter().filter(|n| **n == k).count() <= kind.available as usize);
        }
    }

    #[test]
    fn it_is_never_worse_than_first_fit(needs in any_needs(), nodes in any_nodes(), kinds in any_kinds()) {
        let all = workers(&needs);
        let (plain, best) = (plain(&all, &nodes, &kinds), pack(&all, &nodes, &kinds, None));
        let price = |packing: &Packing| packing.new_nodes.iter().map(|k| kinds[*k].price_micros_per_hour).sum::<u64>();
        prop_assert!(best.left_over.len() <= plain.left_over.len());
        if best.left_over.len() == plain.left_over.len() {
            prop_assert!(price(&best) <= price(&plain));
            prop_assert!(price(&best) < price(&plain) || best.new_nodes.len() <= plain.new_nodes.len());
        }
    }
}
