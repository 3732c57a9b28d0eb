//! One for each manager: who is there, who gets the next task, over what, and what comes back. It is the [`Reach`] of
//! whoever has tasks, and gives that [`Taker`] what nodes and clients say.
//!
//! | module | what it does |
//! |---|---|
//! | [`state`] | all decisions, behind one lock, without I/O |
//! | [`answers`] | what clients are told, kept until somebody listens |
//! | [`hearing`] | what was said, whoever brought it: registrations, results, requests |
//! | [`beating`] | what happens with time: beats, who is silent, what is written down late |
//! | [`bin`] | what cannot be worked with, kept within a bound |
//! | [`keys`] | nodes that come in by a key of their own |
//! | [`people`] | what people see of nodes, and do to them |
//! | [`removing`] | who was taken out, here or at another manager |
//!
//! Sockets are the [`Way`]s'.

mod answers;
mod beating;
mod bin;
mod hearing;
mod keys;
mod people;
mod removing;
mod state;
mod trouble;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::Shared;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice, Problem, Timestamp};
use mutirao_store::StoreError;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use hearing::{Heard, Said, Standing, Voice};
pub use people::NodeInfo;

use crate::endpoint::Loopback;
use crate::errand::{Errand, Gone, Nobody, NotSent, Reach, Returned, Taker};
use crate::hands::Hands;
use crate::meters;
use crate::names::{ActionName, Namespace, NodeId};
use crate::preference::Protocol;
use crate::pulse::Pace;
use crate::registry::{self, Now, Strangers};
use crate::routing::{self, Ended, Place};
use crate::store::SharedNodes;
use crate::way::{NotGiven, Parcel, Users, Way};
use crate::wire::places::Places;
use crate::wire::{self, Message, Parameters};
use state::{Chosen, State};
use trouble::Trouble;

/// What comes back from the hands of this process is told again for so long, should it not be taken.
const TOLD_AGAIN: Duration = Duration::from_millis(500);

pub struct Parts {
    pub namespace: Namespace,
    pub store: SharedNodes,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
    pub strangers: Strangers,
    pub loopback: Loopback,
    pub routing: routing::Rules,
    pub pace: Pace,
    /// Where other managers, who write to the same store, are told what must not wait until they look; none where there are
    /// no others.
    pub others: Option<Shared>,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Switchboard(Arc<Inner>);

pub(crate) struct Inner {
    places: Places,
    loopback: Loopback,
    store: SharedNodes,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    pace: Pace,
    others: Option<Shared>,
    /// By which it knows its own words among those of other managers.
    own: u64,
    /// Devices, and when they were removed.
    expelled: Mutex<HashMap<String, Timestamp>>,
    state: Mutex<State>,
    ways: RwLock<Vec<Arc<dyn Way>>>,
    taker: OnceLock<Arc<dyn Taker>>,
    hands: OnceLock<(NodeId, Arc<dyn Hands>)>,
    users: OnceLock<Arc<dyn Users>>,
    bin: bin::Bin,
    trouble: Trouble,
    keys: keys::Keyring,
    answers: answers::Untold,
    hearing: Arc<Semaphore>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Switchboard {
    /// With what the store has. It beats and sweeps from now on.
    pub async fn start(parts: Parts) -> Result<Self, StoreError> {
        let Parts { namespace, store, clock, dice, strangers, loopback, routing, pace, others } = parts;
        let rules = registry::Rules { strangers, ..registry::Rules::of(namespace.clone()) };
        let (known, removed) = (store.records(Timestamp(0)).await?, store.removals(Timestamp(0)).await?);
        let now = Now { mono: clock.monotonic(), wall: clock.now() };
        let state = State::new(rules, routing, known, &removed, now);
        let inner = Inner {
            places: Places(namespace),
            loopback,
            store,
            clock,
            own: dice.u64(),
            expelled: Mutex::default(),
            dice,
            pace,
            others,
            state: Mutex::new(state),
            ways: RwLock::default(),
            taker: OnceLock::new(),
            hands: OnceLock::new(),
            users: OnceLock::new(),
            bin: bin::Bin::default(),
            trouble: Trouble::default(),
            keys: keys::Keyring::default(),
            answers: answers::Untold::default(),
            hearing: Arc::new(Semaphore::new(hearing::AT_ONCE)),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        meters::begin();
        let board = Self(Arc::new(inner));
        board.0.tasks.spawn(beating::run(board.clone()));
        if let Some(others) = &board.0.others {
            board.0.tasks.spawn(removing::listen(board.clone(), others.clone()));
        }
        Ok(board)
    }

    pub fn places(&self) -> &Places {
        &self.0.places
    }

    pub fn loopback(&self) -> Loopback {
        self.0.loopback
    }

    /// From now on what comes back goes to it. Before, nodes are asked to say it again.
    pub fn attend(&self, taker: Arc<dyn Taker>) {
        let _ = self.0.taker.set(taker);
    }

    /// One more way to reach nodes.
    pub fn open(&self, way: Arc<dyn Way>) {
        self.0.ways.write().push(way);
    }

    /// Where nodes that have a key get users.
    pub fn give_users(&self, users: Arc<dyn Users>) {
        let _ = self.0.users.set(users);
    }

    /// A node inside this process.
    pub fn host(&self, node: NodeId, hands: Arc<dyn Hands>) {
        if self.0.hands.set((node, hands)).is_ok() {
            self.0.host_again();
        }
    }

    /// Nothing is heard or sent any more; what was heard last is written down.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.ways.write().clear();
        self.0.write_down().await;
    }
}

impl Inner {
    fn now(&self) -> Now {
        Now { mono: self.clock.monotonic(), wall: self.clock.now() }
    }

    fn ways(&self) -> Vec<Arc<dyn Way>> {
        self.ways.read().clone()
    }

    /// Over each that it speaks, in turn. Why not, of each.
    async fn give(&self, chosen: &Chosen, errand: &Errand, text: &str) -> Result<Protocol, Vec<NotGiven>> {
        let ways = self.ways();
        let given_up = &chosen.given_up;
        let parcel = Parcel { to: &chosen.record, text, wanted_for: errand.timeout, given_up };
        let mut whys = Vec::new();
        for &protocol in &chosen.order {
            self.state.lock().goes_over(&errand.request, protocol);
            let before = whys.len();
            for way in ways.iter().filter(|way| way.protocol() == protocol) {
                match way.give(parcel).await {
                    Ok(()) => {
                        meters::sent(protocol);
                        return Ok(protocol);
                    }
                    Err(why) => whys.push(why),
                }
            }
            meters::not_sent(protocol);
            // It says nothing of a way that there is no room here, or that it carries no more than so much.
            let said = &whys[before..];
            let failed = said.is_empty() || said.iter().any(|why| matches!(why, NotGiven::Unreachable(_)));
            if failed && !said.iter().any(is_ours) {
                self.state.lock().did_not_go(&errand.request, &chosen.record.node, protocol, self.clock.monotonic());
            }
        }
        Err(whys)
    }
}

/// It is for want of room here.
fn is_ours(why: &NotGiven) -> bool {
    matches!(why, NotGiven::NoRoom(_))
}

#[async_trait]
impl Reach for Switchboard {
    async fn send(&self, errand: Errand) -> Result<Gone, NotSent> {
        let inner = &self.0;
        let Errand { request, action, data, .. } = &errand;
        let message = Message { action: action.to_string(), request: request.clone(), data: data.clone() };
        let text = wire::written(&message);
        let now = inner.clock.monotonic();
        let chosen = inner.state.lock().choose(&errand, &text, &inner.places, now, &inner.dice)?;
        let gone = |over| Gone { node: chosen.record.node.clone(), layer: chosen.layer, over, why: chosen.why.clone() };
        if chosen.order.first() == Some(&Protocol::Here) {
            self.run_here(errand, &chosen.record.node);
            meters::sent(Protocol::Here);
            return Ok(gone(Protocol::Here));
        }
        match inner.give(&chosen, &errand, &text).await {
            Ok(protocol) => Ok(gone(protocol)),
            Err(whys) if whys.iter().any(is_ours) => {
                self.ended(request, Ended::Recalled);
                Err(NotSent::Full)
            }
            Err(whys) => {
                let never = |why: &NotGiven| matches!(why, NotGiven::TooLong(_));
                let why = state::said(&whys);
                // Of the ways that are open here none carries it. Another node may be reached by others.
                let how = match !whys.is_empty() && whys.iter().all(never) {
                    true => Ended::Recalled,
                    false => Ended::Badly,
                };
                self.ended(request, how);
                Err(NotSent::Unreachable { node: chosen.record.node.clone(), why })
            }
        }
    }

    fn ended(&self, request: &str, how: Ended) {
        let inner = &self.0;
        inner.state.lock().ended(request, how, inner.clock.monotonic(), &inner.dice);
    }

    /// Everywhere that clients may look; it is safe where one of them keeps it, or here until somebody listens.
    async fn answer(&self, text: String, client: Option<&str>) -> Result<(), Problem> {
        self.0.tell_answer(text, client).await
    }

    fn catalogue(&self) -> BTreeSet<ActionName> {
        self.0.state.lock().registry.catalogue()
    }

    fn nobody(&self, action: &ActionName, place: &Place) -> Option<Nobody> {
        self.0.state.lock().nobody(action, place)
    }

    fn parameters(&self, action: &ActionName) -> Option<Parameters> {
        self.0.state.lock().registry.parameters(action)
    }
}

impl Switchboard {
    /// The task goes on by itself; its end goes to the taker, who is told again if it cannot take it.
    fn run_here(&self, errand: Errand, node: &NodeId) {
        let (board, node) = (self.clone(), node.clone());
        let Some((_, hands)) = self.0.hands.get().cloned() else { return };
        self.0.tasks.spawn(async move {
            let inner = &board.0;
            let work = async {
                let run = hands.run(&errand.action, &errand.data);
                // Past its time nobody waits for it any more.
                let Ok(end) = inner.clock.timeout(errand.timeout, run).await else { return };
                meters::result(Protocol::Here);
                let returned = Returned { request: errand.request.clone(), end, node: Some(node) };
                let telling = async {
                    while let Some(taker) = inner.taker.get()
                        && taker.returned(returned.clone()).await.is_err_and(|problem| problem.status >= 500)
                    {
                        inner.clock.sleep(TOLD_AGAIN).await;
                    }
                };
                // Then it is late, and whoever has the task tries it anew.
                let _ = inner.clock.timeout(errand.timeout, telling).await;
            };
            tokio::select! {
                biased;
                () = inner.stopping.cancelled() => {}
                () = work => {}
            }
        });
    }
}
