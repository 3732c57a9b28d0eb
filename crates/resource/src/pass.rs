//! One pass of the active resource manager: the balance check, then queue by queue what follows from it. Between any two
//! steps this process may die, be frozen, or lose its lease; the order of the steps is what makes that harmless.
//!
//! Before each step that changes anything the lease is looked at: whoever was frozen stops where it was.
//!
//! - [`consolidating`] is which node is emptied, to be given back.
//! - [`listing`] is what the provider says it has.
//! - [`sharing`] is who comes first where room is short.
//! - [`tending`] is one queue's turn.
//! - [`leftovers`] is what nobody needs any more.

mod consolidating;
mod leftovers;
mod listing;
mod sharing;
mod tending;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mutirao_core::{Clock, Dice, QueueName, Timestamp};
use mutirao_elastic::packing::consolidating::Emptied;
use mutirao_elastic::packing::{Kind, NodeName};
use mutirao_elastic::protocol::{Balance, Create, Offer, OfferedNode, QueueBalance, Wish};
use mutirao_elastic::{Steady, Terms};

use crate::manager::{self, ManagerError};
use crate::nodes::{Empty, Rooms};
use crate::provider::{self, Have, Origin};
use crate::queue::Queue;
use listing::{Listed, Patience};
use tending::View;

/// Nodes that one pass has made or gives back, at most.
const NODES_AT_ONCE: usize = 8;

/// Says whether the lease of this generation holds at this moment.
pub type Holds = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// What a pass speaks with.
#[derive(Clone)]
pub struct Ports {
    pub manager: manager::Shared,
    pub provider: provider::Shared,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub terms: Terms,
    pub holds: Holds,
}

/// Why a pass ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    #[error("the lease is lost")]
    Lost,
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// What came of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// Nothing is waited for but time.
    #[default]
    InAWhile,
    /// There is more to do.
    AtOnce,
}

/// The resource manager while it holds the lease in one generation.
pub struct Active {
    ports: Ports,
    generation: u64,
    steady: Steady,
    queues: BTreeMap<QueueName, Queue>,
    empty: Empty,
    /// Nodes whose workers move elsewhere, so that they can be given back. A successor chooses anew.
    emptying: Emptied,
    offered: Option<Offer>,
    provider: Patience,
    requests: u64,
    /// What was asked for and not answered: asked again by the same name, so that it can never come about twice.
    unanswered: BTreeMap<QueueName, Create>,
    /// Queues that the provider has workers of and the manager does not speak of, and since when.
    unknown: BTreeMap<QueueName, Timestamp>,
    half_empty: HalfEmpty,
}

/// What becomes of nodes whose workers would have room on others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HalfEmpty {
    /// Emptied and given back, where that pays.
    #[default]
    Emptied,
    /// Kept until their workers go by themselves: for comparison.
    Kept,
}

impl Active {
    pub fn new(ports: Ports, generation: u64) -> Self {
        let steady = Steady::starting(&*ports.clock);
        Self {
            ports,
            generation,
            steady,
            queues: BTreeMap::new(),
            empty: Empty::default(),
            emptying: Emptied::new(),
            offered: None,
            provider: Patience::default(),
            requests: 0,
            unanswered: BTreeMap::new(),
            unknown: BTreeMap::new(),
            half_empty: HalfEmpty::default(),
        }
    }

    pub fn with_half_empty(self, half_empty: HalfEmpty) -> Self {
        Self { half_empty, ..self }
    }

    /// As after a pass that found no place for some, in these words.
    pub(crate) fn knowing(mut self, balance: &Balance, mut unplaced: BTreeMap<QueueName, String>) -> Self {
        for queue in &balance.queues {
            let mut known = Queue::adopting(queue);
            known.unplaced(unplaced.remove(&queue.queue));
            self.queues.insert(queue.queue.clone(), known);
        }
        self
    }

    /// The queues of which some have no place, and why.
    pub(crate) fn unplaced(&self) -> BTreeMap<QueueName, String> {
        let of = |(name, queue): (&QueueName, &Queue)| Some((name.clone(), queue.without_place()?.to_owned()));
        self.queues.iter().filter_map(of).collect()
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn now(&self) -> Timestamp {
        self.steady.now(&*self.ports.clock)
    }

    fn act(&self) -> Result<(), Cut> {
        if (self.ports.holds)(self.generation) { Ok(()) } else { Err(Cut::Lost) }
    }

    pub async fn pass(&mut self) -> Result<Next, Cut> {
        self.act()?;
        // The provider first: what it lists was recorded before, so the balance cannot lack it.
        let listed = self.list().await;
        let balance = self.ports.manager.balance().await?;
        let listed = listed.map(|listed| listed.remembering(&balance));
        self.act()?;
        let kinds = match &listed {
            Ok(_) => self.ports.provider.kinds().await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        if let Ok(listed) = &listed {
            self.offer(&listed.have, &kinds).await?;
        }
        let drained = balance.nodes.iter().filter(|record| record.wish == Wish::Drained);
        let drained: BTreeSet<NodeName> = drained.map(|record| record.node.name.clone()).collect();
        let nothing = Listed::default();
        let mut rooms = match &listed {
            Ok(listed) => Rooms::of(&listed.have, &balance, kinds.clone()),
            Err(_) => Rooms::of(&nothing.have, &balance, Vec::new()),
        };
        if let Ok(listed) = &listed
            && self.half_empty == HalfEmpty::Emptied
        {
            self.consolidate(&listed.have, &balance, &kinds, &mut rooms);
        }
        let emptying = self.emptying();
        let yielding = self.share(&balance, &mut rooms);
        self.queues.retain(|name, _| balance.queues.iter().any(|queue| queue.queue == *name));
        let mut next = Next::InAWhile;
        for queue in in_turn(&balance) {
            let view = View {
                balance: &balance,
                queue,
                listed: listed.as_ref().ok(),
                drained: &drained,
                emptying: &emptying,
                yielding: &yielding,
            };
            if let Err(error) = &listed {
                self.note_failure(queue, error);
            }
            match self.tend(&view, listed.as_ref().unwrap_or(&nothing), &mut rooms).await {
                Ok(Next::InAWhile) => {}
                Ok(Next::AtOnce) => next = Next::AtOnce,
                // About one queue; the others need not suffer from it.
                Err(Cut::Manager(ManagerError::Refused(why))) => {
                    tracing::warn!(queue = %queue.queue, why, "the manager refuses what was decided");
                }
                Err(cut) => return Err(cut),
            }
        }
        if let Ok(listed) = &listed {
            self.end_strays(listed, &balance).await?;
            self.give_back(&listed.have, &balance).await?;
        }
        Ok(next)
    }

    async fn offer(&mut self, have: &Have, kinds: &[Kind]) -> Result<(), Cut> {
        let stays = have.nodes.iter().filter(|seen| seen.origin != Origin::Leaving);
        let nodes = stays.map(|seen| OfferedNode { stands: Some(seen.origin.stands()), ..seen.node.clone() }).collect();
        let offer = Offer { generation: self.generation, nodes, kinds: kinds.to_vec() };
        if self.offered.as_ref() != Some(&offer) {
            self.ports.manager.offer(&offer).await?;
            self.offered = Some(offer);
        }
        Ok(())
    }
}

/// Those whose tasks wait for a first worker come first, then floors, then those who have the fewest. Where room is short it
/// is set aside before; this is the order in which nodes are made.
fn in_turn(balance: &Balance) -> Vec<&QueueBalance> {
    let mut queues: Vec<&QueueBalance> = balance.queues.iter().collect();
    queues.sort_by_key(|queue| {
        let standing = queue.fleet.counts().standing();
        let wait = queue.load.tasks.filter(|tasks| tasks.ready > 0 && standing == 0).map(|tasks| tasks.oldest_wait.0);
        (Reverse(wait), standing >= queue.elastic.as_ref().map_or(0, |elastic| elastic.min), standing)
    });
    queues
}
