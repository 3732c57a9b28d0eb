//! Workers onto nodes, by every resource. Several orders are tried (as given, and by decreasing size), each by first fit: into
//! the first node with room, else into a new one, of the kind that is cheapest, or of the one that is cheapest for each of
//! those whom it would hold. The best outcome is taken (the fewest left over, then the least money, then the fewest nodes), so
//! it is never worse than plain first fit. Best fit is not used: with several resources it has no bound.
//!
//! Nodes that already hold something come first, so that empty ones can be given back.
//!
//! Not here: which node had better be emptied ([`consolidating`]).

pub mod amounts;
pub mod consolidating;
mod leavers;
pub mod price;
pub mod sharing;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mutirao_core::WorkerId;
use mutirao_core::quantity::Span;
use serde::{Deserialize, Serialize};

pub use amounts::Amounts;
pub use leavers::{Candidate, Doing, leavers};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(pub String);

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far from the devices a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    Edge,
    Fog,
    Cloud,
}

pub type Labels = BTreeMap<String, String>;

/// What a worker asks of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    pub amounts: Amounts,
    /// The node must have all of these.
    #[serde(default)]
    pub labels: Labels,
    #[serde(default)]
    pub layer: Option<Layer>,
}

/// A node that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    pub capacity: Amounts,
    pub used: Amounts,
    pub labels: Labels,
    pub layer: Layer,
    pub door: Door,
}

/// Whether a node takes anything new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Open,
    Cordoned,
}

/// A sort of node that a provider offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    pub name: String,
    pub capacity: Amounts,
    #[serde(default)]
    pub labels: Labels,
    pub layer: Layer,
    /// Millionths of whatever money is counted in.
    #[serde(default)]
    pub price_micros_per_hour: u64,
    #[serde(default)]
    pub market: Market,
    /// From asking for one until it answers.
    #[serde(default)]
    pub boot: Span,
    /// How long one of [`Market::Spot`] is there before it is taken back, in the mean. None: as nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted_every: Option<Span>,
    /// How many more of this kind may be had.
    pub available: u32,
}

/// On which terms a node is had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Market {
    /// Paid while it is there.
    #[default]
    OnDemand,
    /// Paid for a long time, there or not: to use it costs nothing more. [`Kind::available`] is what is left of them.
    Reserved,
    /// Paid while it is there, for less, and taken back by its owner at any time.
    Spot,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    pub placed: Vec<(WorkerId, Place)>,
    /// The kinds of the new nodes, by index into the kinds given.
    pub new_nodes: Vec<usize>,
    pub left_over: Vec<(WorkerId, NoPlace)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Node(NodeName),
    /// The n-th of [`Packing::new_nodes`].
    New(usize),
}

/// Why a worker could not be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// Not even an empty node would do.
    Never(String),
    /// Nodes that would do are full, and no more can be had now.
    NotNow,
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPlace::Never(why) => f.write_str(why),
            NoPlace::NotNow => f.write_str("every node that would do is full, and no more can be had now"),
        }
    }
}

/// `takes`: what a task of these workers takes in the mean, by which nodes that are taken back are the dearer.
pub fn pack(workers: &[(WorkerId, Need)], nodes: &[Node], kinds: &[Kind], takes: Option<Duration>) -> Packing {
    let prices: Vec<u64> =
        kinds.iter().map(|kind| kind.expected_micros_per_hour(takes.unwrap_or(price::TAKES))).collect();
    let as_given: Vec<usize> = (0..workers.len()).collect();
    let whole = largest(nodes, kinds);
    let mut by_largest_share = as_given.clone();
    by_largest_share.sort_by_cached_key(|i| std::cmp::Reverse(workers[*i].1.amounts.share_largest_ppm(&whole)));
    let mut by_sum = as_given.clone();
    by_sum.sort_by_cached_key(|i| std::cmp::Reverse(workers[*i].1.amounts.share_sum_ppm(&whole)));
    // Whoever is like everybody else can only be placed in one order.
    let alike = workers.windows(2).all(|pair| pair[0].1 == pair[1].1);
    let orders = if alike { vec![as_given] } else { vec![as_given, by_largest_share, by_sum] };
    let offer = Offer { kinds, prices: &prices, alike };
    let packings = orders.iter().flat_map(|order| {
        [Choice::Cheapest, Choice::CheapestEach].map(|choice| first_fit(workers, order, nodes, &offer, choice))
    });
    let cost = |packing: &Packing| {
        let price: u128 = packing.new_nodes.iter().map(|kind| u128::from(prices[*kind])).sum();
        (packing.left_over.len(), price, packing.new_nodes.len())
    };
    packings.min_by_key(cost).unwrap_or_default()
}

/// What a queue's workers need must fit some node, or nothing would ever start: said before the queue is accepted.
pub fn check_need(need: &Need, nodes: &[Node], kinds: &[Kind]) -> Result<(), NoPlace> {
    let homes = nodes.iter().map(Room::of).chain(kinds.iter().map(Room::new));
    let suitable: Vec<Room> = homes.filter(|room| room.suits(need)).collect();
    if suitable.is_empty() {
        return Err(NoPlace::Never("no node that any provider offers has these labels and this layer".into()));
    }
    if suitable.iter().any(|room| need.amounts.fits_in(room.capacity)) {
        return Ok(());
    }
    let largest = suitable.iter().fold(Amounts::default(), |all, room| all.max(room.capacity));
    Err(NoPlace::Never(match need.amounts.first_beyond(&largest) {
        Some((what, asked, most)) => {
            let (asked, most, unit) = amounts::beside(what, asked, most);
            format!("needs {asked} {unit}, the largest node any provider offers has {most}")
        }
        None => "no single node that any provider offers has all of it".into(),
    }))
}

/// A node being filled.
struct Room<'a> {
    capacity: &'a Amounts,
    labels: &'a Labels,
    layer: Layer,
    free: Amounts,
    place: Option<Place>,
}

impl<'a> Room<'a> {
    fn of(node: &'a Node) -> Self {
        let free = node.capacity.minus(&node.used);
        let place = Some(Place::Node(node.name.clone()));
        Self { capacity: &node.capacity, labels: &node.labels, layer: node.layer, free, place }
    }

    fn new(kind: &'a Kind) -> Self {
        Self {
            capacity: &kind.capacity,
            labels: &kind.labels,
            layer: kind.layer,
            free: kind.capacity.clone(),
            place: None,
        }
    }

    fn suits(&self, need: &Need) -> bool {
        let labelled = need.labels.iter().all(|(key, value)| self.labels.get(key) == Some(value));
        labelled && need.layer.is_none_or(|layer| layer == self.layer)
    }
}

/// The kinds that can be had, and what each is expected to cost.
struct Offer<'a> {
    kinds: &'a [Kind],
    prices: &'a [u64],
    /// All need the same.
    alike: bool,
}

/// Of which kind a new node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The cheapest that holds the one that is to be placed.
    Cheapest,
    /// The cheapest for each of those that it would hold of all that are left.
    CheapestEach,
}

impl Offer<'_> {
    /// `left`: those who have no place yet, the one that is to be placed first.
    fn choose<'n>(
        &self,
        available: &[u32],
        left: impl Iterator<Item = &'n Need> + Clone,
        choice: Choice,
    ) -> Option<usize> {
        let first = left.clone().next()?;
        let fits = |kind: &usize| {
            let room = Room::new(&self.kinds[*kind]);
            available[*kind] > 0 && room.suits(first) && first.amounts.fits_in(&room.free)
        };
        let all = (0..self.kinds.len()).filter(fits);
        let held = |kind: usize| match choice {
            Choice::Cheapest => 1,
            Choice::CheapestEach if self.alike => {
                let many = first.amounts.times_in(&self.kinds[kind].capacity);
                many.min(left.clone().count() as u64) as usize
            }
            Choice::CheapestEach => {
                let mut room = Room::new(&self.kinds[kind]);
                let held = left.clone().filter(|need| {
                    let fits = room.suits(need) && need.amounts.fits_in(&room.free);
                    if fits {
                        room.free = room.free.minus(&need.amounts);
                    }
                    fits
                });
                held.count()
            }
        };
        // price / held, compared without dividing.
        let priced = all.map(|kind| (kind, u128::from(self.prices[kind]), held(kind) as u128));
        let best = priced.min_by(|(_, one, holds), (_, other, other_holds)| {
            (one * other_holds).cmp(&(other * holds)).then(other_holds.cmp(holds).then(one.cmp(other)))
        });
        best.map(|(kind, ..)| kind)
    }
}

fn first_fit(
    workers: &[(WorkerId, Need)],
    order: &[usize],
    nodes: &[Node],
    offer: &Offer<'_>,
    choice: Choice,
) -> Packing {
    let mut packing = Packing::default();
    let mut open: Vec<&Node> = nodes.iter().filter(|node| node.door == Door::Open).collect();
    open.sort_by_key(|node| node.used.is_nothing());
    let mut rooms: Vec<Room> = open.into_iter().map(Room::of).collect();
    let mut available: Vec<u32> = offer.kinds.iter().map(|kind| kind.available).collect();
    // Rooms only become fuller: what has none for one has none for another like it.
    let mut from = 0;
    for (n, i) in order.iter().enumerate() {
        let (worker, need) = &workers[*i];
        let fits = |room: &Room| room.suits(need) && need.amounts.fits_in(&room.free);
        let found = (from..rooms.len()).find(|at| fits(&rooms[*at]));
        if offer.alike {
            from = found.unwrap_or(rooms.len());
        }
        let found = found.or_else(|| {
            let left = order[n..].iter().map(|i| &workers[*i].1);
            let kind = offer.choose(&available, left, choice)?;
            available[kind] -= 1;
            let place = Some(Place::New(packing.new_nodes.len()));
            packing.new_nodes.push(kind);
            rooms.push(Room { place, ..Room::new(&offer.kinds[kind]) });
            Some(rooms.len() - 1)
        });
        let placed = found.and_then(|at| {
            rooms[at].free = rooms[at].free.minus(&need.amounts);
            rooms[at].place.clone()
        });
        match placed {
            Some(place) => packing.placed.push((worker.clone(), place)),
            None => {
                let why = check_need(need, nodes, offer.kinds).err().unwrap_or(NoPlace::NotNow);
                packing.left_over.push((worker.clone(), why));
            }
        }
    }
    packing
}

fn largest(nodes: &[Node], kinds: &[Kind]) -> Amounts {
    let all = nodes.iter().map(|node| &node.capacity).chain(kinds.iter().map(|kind| &kind.capacity));
    all.fold(Amounts::default(), |largest, each| largest.max(each))
}

#[cfg(test)]
mod tests;
