//! Which node is worth emptying, so that it can be given back: one whose workers all have room on others that stay. Nobody is
//! killed for it: workers drain, so what they do ends where it is, and the node is paid for until the last of them has.
//! Idle ones cost nothing; with tasks, those that are done soonest go first.
//!
//! Not here: who decides how many there are, and where those that go are replaced ([`pack`](super::pack)).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::quantity::Span;

use super::{Amounts, Door, Need, Node, NodeName, Room};
use crate::lasting::Lasting;

/// For how long a load is taken to stay as it is: what does not pay within this is left alone.
pub const HORIZON: Duration = Duration::from_secs(900);
/// Whatever lasts longer counts as long as this.
const LONG: Duration = Duration::from_secs(3_600);
/// Into how many parts that time is cut.
const STEPS: u32 = 60;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remaining {
    Idle,
    /// It has run something for so long, and tasks of its queue last as they do.
    After {
        age: Duration,
        lasting: Arc<Lasting>,
    },
    /// As long as tasks of its queue take in the mean: since when it runs what it does is not known.
    About(Duration),
    /// Nothing is known of what its queue's tasks take, or it is not there yet.
    Unknown,
}

impl Remaining {
    /// How likely it is still at it in so many seconds.
    fn goes_on(&self, s: f64) -> f64 {
        match self {
            Remaining::Idle => 0.0,
            Remaining::After { age, lasting } => lasting.goes_on(age.as_secs_f64(), s),
            Remaining::About(mean) => (-s / mean.as_secs_f64().max(0.001)).exp(),
            Remaining::Unknown => 1.0,
        }
    }
}

/// Why a node is to be emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emptying {
    pub node: NodeName,
    pub workers: usize,
    pub done_in: Duration,
    /// Of the price of the node, within the [`HORIZON`].
    pub saves_micros: u64,
    /// What is paid for the node until the last has finished.
    pub draining_micros: u64,
    /// What ending them at once would throw away, for those of whom it is known how long they have run. Never done.
    pub killing_micros: u64,
}

impl fmt::Display for Emptying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Emptying { node, workers, done_in, saves_micros, .. } = self;
        let (span, horizon) = (Span(Duration::from_secs(done_in.as_secs())), Span(HORIZON));
        let money = *saves_micros as f64 / 1e6;
        write!(f, "{node} is emptied: its {workers} workers have room elsewhere and are done in about {span}")?;
        if *saves_micros > 0 { write!(f, ", which saves {money:.4} in {horizon}") } else { Ok(()) }
    }
}

/// The nodes that are best emptied now, the best first, as far as that pays: up to `most`, and only so many that the workers
/// of all of them have room on those that are left. `nodes` are all there are; only those in use, or that stay anyway, can take
/// anybody. `boot`: how long a worker is missing until another has come in its place.
pub fn consolidate(homes: &[Home], nodes: &[Node], boot: Duration, most: usize) -> Vec<Emptying> {
    let may_go: BTreeSet<&NodeName> = homes.iter().map(|home| &home.node).collect();
    let mut pays: Vec<(&Home, Emptying)> = homes
        .iter()
        .filter_map(|home| {
            let done_in = done_in(&home.tenants)?;
            let lasts = HORIZON.checked_sub(done_in)?.checked_sub(boot)?;
            let paid = |span: Duration| home.price_micros_per_hour.saturating_mul(span.as_secs()) / 3_600;
            let emptying = Emptying {
                node: home.node.clone(),
                workers: home.tenants.len(),
                done_in,
                saves_micros: paid(lasts),
                draining_micros: paid(done_in),
                killing_micros: killing(home, nodes, boot),
            };
            Some((home, emptying))
        })
        .collect();
    pays.sort_by(|(_, one), (_, other)| {
        let soonest = one.done_in.cmp(&other.done_in).then(one.workers.cmp(&other.workers));
        other.saves_micros.cmp(&one.saves_micros).then(soonest).then(one.node.cmp(&other.node))
    });
    let takes = |node: &&Node| node.door == Door::Open && (!node.used.is_nothing() || !may_go.contains(&node.name));
    let mut takers = Takers::of(nodes.iter().filter(takes));
    let mut chosen = Vec::new();
    for (home, emptying) in pays {
        if chosen.len() >= most {
            break;
        }
        if takers.take_in(home) {
            chosen.push(emptying);
        }
    }
    chosen
}

/// Σ p (a + s) over those that work: with p the part of the node that one has, a how long it has run, s until another is there.
fn killing(home: &Home, nodes: &[Node], boot: Duration) -> u64 {
    let node = nodes.iter().find(|node| node.name == home.node);
    let lost = home.tenants.iter().map(|tenant| {
        let Remaining::After { age, .. } = &tenant.doing else { return 0 };
        let share = node.map_or(0, |node| tenant.need.amounts.share_largest_ppm(&node.capacity)).min(1_000_000);
        u128::from(home.price_micros_per_hour) * share * u128::from((*age + boot).as_secs()) / 3_600_000_000
    });
    u64::try_from(lost.sum::<u128>()).unwrap_or(u64::MAX)
}

/// When the last of them is done, in the mean: the longest of several takes longer than any. What lasts beyond [`LONG`]
/// counts as that. None for a node with nobody, which is given back anyway, and where nothing is known.
fn done_in(tenants: &[Tenant]) -> Option<Duration> {
    if tenants.is_empty() || tenants.iter().any(|tenant| tenant.doing == Remaining::Unknown) {
        return None;
    }
    let busy = || tenants.iter().map(|tenant| &tenant.doing).filter(|doing| **doing != Remaining::Idle);
    let someone_goes_on = |s: f64| 1.0 - busy().map(|doing| 1.0 - doing.goes_on(s)).product::<f64>();
    // Finer where most of it is.
    let at = |step: u32| LONG.as_secs_f64() * (f64::from(step) / f64::from(STEPS)).powi(2);
    let parts = (0..STEPS).map(|step| {
        let (from, to) = (at(step), at(step + 1));
        (to - from) * (someone_goes_on(from) + someone_goes_on(to)) / 2.0
    });
    Some(Duration::from_secs_f64(parts.sum::<f64>().clamp(0.0, LONG.as_secs_f64())))
}

/// Where workers of emptied nodes would go.
struct Takers<'a> {
    rooms: Vec<(&'a NodeName, Room<'a>)>,
    whole: Amounts,
    /// What fits on none of them; they only become fuller.
    nowhere: Vec<Need>,
    /// Those that have been promised somebody stay.
    stay: BTreeSet<usize>,
}

impl<'a> Takers<'a> {
    fn of(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let rooms: Vec<(&NodeName, Room)> = nodes.map(|node| (&node.name, Room::of(node))).collect();
        let whole = rooms.iter().fold(Amounts::default(), |all, (_, room)| all.max(room.capacity));
        Self { rooms, whole, nowhere: Vec::new(), stay: BTreeSet::new() }
    }

    /// By first fit, the largest first. If all of them have room elsewhere it is theirs, and the node is one of the takers no
    /// more.
    fn take_in(&mut self, home: &Home) -> bool {
        let mut largest: Vec<&Need> = home.tenants.iter().map(|tenant| &tenant.need).collect();
        let own = self.rooms.iter().position(|(name, _)| **name == home.node);
        if largest.iter().any(|need| self.nowhere.contains(need)) || own.is_some_and(|own| self.stay.contains(&own)) {
            return false;
        }
        largest.sort_by_cached_key(|need| std::cmp::Reverse(need.amounts.share_largest_ppm(&self.whole)));
        let mut free: BTreeMap<usize, Amounts> = BTreeMap::new();
        for need in largest {
            let room = |at: usize| free.get(&at).unwrap_or(&self.rooms[at].1.free);
            let fits = |at: &usize| self.rooms[*at].1.suits(need) && need.amounts.fits_in(room(*at));
            let Some(at) = (0..self.rooms.len()).find(|at| Some(*at) != own && fits(at)) else {
                if !self.rooms.iter().any(|(_, room)| room.suits(need) && need.amounts.fits_in(&room.free)) {
                    self.nowhere.push(need.clone());
                }
                return false;
            };
            let left = room(at).minus(&need.amounts);
            free.insert(at, left);
        }
        for (at, left) in free {
            self.rooms[at].1.free = left;
            self.stay.insert(at);
        }
        if let Some(own) = own {
            self.rooms[own].1.free = Amounts::default();
        }
        true
    }
}

/// Nodes that are being emptied, and why, for as long as anybody is on them.
pub type Emptied = BTreeMap<NodeName, Emptying>;

#[cfg(test)]
mod tests {
    use mutirao_core::quantity::{Bytes, Cpus};
    use proptest::prelude::*;

    use super::super::{Labels, Layer};
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
        several(all, 1).pop()
    }

    fn several(all: Vec<(Home, Node)>, most: usize) -> Vec<Emptying> {
        let (homes, nodes): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        consolidate(&homes, &nodes, BOOT, most)
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

    #[test]
    fn a_long_task_near_its_end_is_waited_for_and_one_that_has_just_begun_keeps_its_node() {
        let mut lasting = Lasting::default();
        (0..50).for_each(|_| lasting.note(Duration::from_secs(3_600)));
        let lasting = Arc::new(lasting);
        let after = |s| Remaining::After { age: Duration::from_secs(s), lasting: lasting.clone() };
        // On b there is room for one.
        let both = |one, other| {
            vec![home("a", 4_000_000, vec![tenant(1_000, one)]), home("b", 8_000_000, vec![tenant(3_000, other)])]
        };
        let old = best(both(after(3_700), after(10))).expect("it is about to end");
        assert_eq!(old.node.0, "a");
        assert!(old.done_in < Duration::from_secs(600), "{:?}", old.done_in);
        let (drain, kill) = (old.draining_micros, old.killing_micros);
        assert!(
            kill > 1_000_000 && drain < kill,
            "an hour of a fourth of the node would be thrown away: {kill}, {drain}"
        );
        assert_eq!(best(both(after(10), after(10))), None, "an hour is left of both");
    }

    #[test]
    fn several_are_emptied_at_once_if_all_of_their_workers_have_room_on_those_that_stay() {
        let quarter = |name: &str| home(name, 4_000_000, vec![tenant(1_000, Remaining::Idle)]);
        let all = || ["a", "b", "c", "d", "e"].map(quarter).into_iter().collect::<Vec<_>>();
        let names = |most| several(all(), most).iter().map(|e| e.node.0.clone()).collect::<Vec<_>>();
        assert_eq!(names(2), ["a", "c"], "b was promised the worker of a");
        assert_eq!(names(9).len(), 3, "five workers need two nodes of four");
    }

    #[test]
    fn a_thousand_nodes_are_looked_at_in_a_moment() {
        let full = |n: usize| home(&format!("n{n:04}"), 1, vec![tenant(3_500, about(30)), tenant(400, about(30))]);
        let all: Vec<_> = (0..1_000).map(full).collect();
        assert_eq!(best(all), None, "a tenth of a cpu is free on each, and nobody is that small");
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
