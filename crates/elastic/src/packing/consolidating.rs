//! Which node is worth emptying, so that it can be given back: one whose workers all have room on others that stay. Nobody is
//! killed for it: workers drain, so what they do ends where it is, and the node is paid for until the last of them has.
//! Idle ones cost nothing; with tasks, those that are done soonest go first.
//!
//! Not here: who decides how many there are, and where those that go are replaced ([`pack`](super::pack)).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mutirao_core::quantity::Span;

use super::{Door, Need, Node, NodeName, Room};

/// For how long a load is taken to stay as it is: what does not pay within this is left alone.
pub const HORIZON: Duration = Duration::from_secs(900);

/// A node that may be given back, with the workers that are to stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    pub node: NodeName,
    pub price_micros_per_hour: u64,
    pub tenants: Vec<Tenant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub need: Need,
    pub doing: Remaining,
}

/// How long until a worker that takes nothing new has nothing left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    Idle,
    /// As long as tasks of its queue take in the mean: how long one has run says little when durations vary as much as they
    /// are long.
    About(Duration),
    /// Nothing is known of what its queue's tasks take, or it is not there yet.
    Unknown,
}

/// Why a node is to be emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emptying {
    pub node: NodeName,
    pub workers: usize,
    pub done_in: Duration,
    /// Of the price of the node, within the [`HORIZON`].
    pub saves_micros: u64,
}

impl fmt::Display for Emptying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Emptying { node, workers, done_in, saves_micros } = self;
        let (span, horizon) = (Span(Duration::from_secs(done_in.as_secs())), Span(HORIZON));
        let money = *saves_micros as f64 / 1e6;
        write!(f, "{node} is emptied: its {workers} workers have room elsewhere and are done in about {span}")?;
        if *saves_micros > 0 { write!(f, ", which saves {money:.4} in {horizon}") } else { Ok(()) }
    }
}

/// The one node that is best emptied now, if that pays. `nodes` are all there are; only those in use, or that stay anyway,
/// can take anybody. `boot`: how long a worker is missing until another has come in its place.
pub fn consolidate(homes: &[Home], nodes: &[Node], boot: Duration) -> Option<Emptying> {
    let may_go = |node: &NodeName| homes.iter().any(|home| home.node == *node);
    let pays = homes.iter().filter_map(|home| {
        let done_in = done_in(&home.tenants)?;
        let lasts = HORIZON.checked_sub(done_in)?.checked_sub(boot)?;
        let takers = nodes.iter().filter(|node| {
            node.door == Door::Open && node.name != home.node && (!node.used.is_nothing() || !may_go(&node.name))
        });
        all_fit(&home.tenants, takers).then(|| Emptying {
            node: home.node.clone(),
            workers: home.tenants.len(),
            done_in,
            saves_micros: home.price_micros_per_hour.saturating_mul(lasts.as_secs()) / 3_600,
        })
    });
    pays.max_by(|one, other| {
        let soonest = other.done_in.cmp(&one.done_in).then(other.workers.cmp(&one.workers));
        one.saves_micros.cmp(&other.saves_micros).then(soonest).then(other.node.cmp(&one.node))
    })
}

/// The longest of several takes longer than the mean: by 1 + 1/2 + … + 1/n where durations vary as much as they are long.
/// None for a node with nobody: that one is given back anyway.
fn done_in(tenants: &[Tenant]) -> Option<Duration> {
    let mut longest = (!tenants.is_empty()).then_some(Duration::ZERO)?;
    let mut busy = 0;
    for tenant in tenants {
        match tenant.doing {
            Remaining::Idle => {}
            Remaining::About(mean) => {
                busy += 1;
                longest = longest.max(mean);
            }
            Remaining::Unknown => return None,
        }
    }
    let times: f64 = (1..=busy).map(|n| 1.0 / f64::from(n)).sum();
    Some(Duration::try_from_secs_f64(longest.as_secs_f64() * times).unwrap_or(Duration::MAX))
}

fn all_fit<'a>(tenants: &[Tenant], takers: impl Iterator<Item = &'a Node>) -> bool {
    let mut rooms: Vec<Room> = takers.map(Room::of).collect();
    let whole = rooms.iter().fold(super::Amounts::default(), |all, room| all.max(room.capacity));
    let mut largest: Vec<&Tenant> = tenants.iter().collect();
    largest.sort_by_cached_key(|tenant| std::cmp::Reverse(tenant.need.amounts.share_largest_ppm(&whole)));
    largest.into_iter().all(|Tenant { need, .. }| {
        let Some(room) = rooms.iter_mut().find(|room| room.suits(need) && need.amounts.fits_in(&room.free)) else {
            return false;
        };
        room.free = room.free.minus(&need.amounts);
        true
    })
}

/// Nodes that are being emptied, and why, for as long as anybody is on them.
pub type Emptied = BTreeMap<NodeName, Emptying>;

#[cfg(test)]
mod tests {
    use mutirao_core::quantity::{Bytes, Cpus};
    use proptest::prelude::*;

    use super::super::{Amounts, Labels, Layer};
    use super::*;

    const BOOT: Duration = Duration::from_secs(60);

    fn cpus(milli: u32) -> Amounts {
        Amounts::of(Cpus { milli }, Bytes(0))
    }

    fn tenant(milli: u32, doing: Remaining) -> Tenant {
        Tenant { need: Need { amounts: cpus(milli), ..Need::default() }, doing }
    }

    fn about(s: u64) -> Remaining {
        Remaining::About(Duration::from_secs(s))
    }

    /// A node of four cpus.
    fn home(name: &str, price: u64, tenants: Vec<Tenant>) -> (Home, Node) {
        let used = tenants.iter().fold(Amounts::default(), |sum, tenant| sum.plus(&tenant.need.amounts));
        let name = NodeName(name.into());
        let node = Node {
            name: name.clone(),
            capacity: cpus(4_000),
            used,
            labels: Labels::default(),
            layer: Layer::Cloud,
            door: Door::Open,
        };
        (Home { node: name, price_micros_per_hour: price, tenants }, node)
    }

    fn best(all: Vec<(Home, Node)>) -> Option<Emptying> {
        let (homes, nodes): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        consolidate(&homes, &nodes, BOOT)
    }

    #[test]
    fn the_node_that_is_done_soonest_goes_when_its_workers_have_room_elsewhere() {
        let said = best(vec![
            home("a", 4_000_000, vec![tenant(1_000, about(30)), tenant(1_000, about(30))]),
            home("b", 4_000_000, vec![tenant(1_000, Remaining::Idle)]),
            home("c", 4_000_000, vec![tenant(3_000, about(600))]),
        ]);
        let said = said.expect("b fits on a");
        assert_eq!((said.node.0.as_str(), said.workers), ("b", 1));
        assert_eq!(
            said.to_string(),
            "b is emptied: its 1 workers have room elsewhere and are done in about 0s, which saves 0.9333 in 15m"
        );
    }

    #[test]
    fn what_is_long_or_unknown_or_has_no_room_elsewhere_stays() {
        let full = || home("full", 1, vec![tenant(4_000, about(3_600))]);
        assert_eq!(best(vec![home("a", 1, vec![tenant(1_000, Remaining::Idle)]), full()]), None, "no room");
        let two =
            |doing| vec![home("a", 1, vec![tenant(1_000, doing)]), home("b", 1, vec![tenant(2_000, about(7_200))])];
        assert_eq!(best(two(about(1_800))), None, "it would be paid for as long as it might be needed");
        assert_eq!(best(two(Remaining::Unknown)), None);
        assert!(best(two(about(60))).is_some());
        let empty = vec![home("a", 1, vec![tenant(1_000, Remaining::Idle)]), home("b", 1, vec![])];
        assert_eq!(best(empty), None, "nobody moves from one to an empty one");
    }

    proptest! {
        #[test]
        fn nodes_become_fewer_and_it_comes_to_an_end(
            all in prop::collection::vec(prop::collection::vec((1u32..2_000, prop::option::of(0u64..900)), 0..4), 0..12)
        ) {
            let mut left: Vec<(Home, Node)> = all.into_iter().enumerate().map(|(n, tenants)| {
                let (mut free, mut kept) = (4_000u32, Vec::new());
                for (milli, busy) in tenants {
                    if milli <= free {
                        free -= milli;
                        kept.push(tenant(milli, busy.map_or(Remaining::Idle, about)));
                    }
                }
                home(&format!("n{n:02}"), 1_000, kept)
            }).collect();
            let total = |all: &[(Home, Node)]| all.iter().map(|(_, node)| node.used.get(super::super::amounts::CPU_MILLI)).sum::<u64>();
            let (before, mut rounds) = (total(&left), 0);
            while let Some(emptying) = best(left.clone()) {
                rounds += 1;
                let at = left.iter().position(|(home, _)| home.node == emptying.node).unwrap();
                let (gone, _) = left.remove(at);
                let mut movers = gone.tenants;
                movers.sort_by_key(|tenant| std::cmp::Reverse(tenant.need.amounts.get(super::super::amounts::CPU_MILLI)));
                for mover in movers {
                    let to = left.iter_mut().find(|(_, node)| {
                        !node.used.is_nothing() && mover.need.amounts.fits_in(&node.capacity.minus(&node.used))
                    });
                    let (home, node) = to.expect("room elsewhere, as was said");
                    node.used = node.used.plus(&mover.need.amounts);
                    home.tenants.push(mover);
                }
            }
            prop_assert!(rounds <= 12);
            prop_assert_eq!(total(&left), before, "nobody is lost");
        }
    }
}
