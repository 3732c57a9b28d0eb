//! Driving the foreman: carries out what it says, waits for the next thing to happen, and tells it. Nothing here decides,
//! and nothing here waits for a disk or a socket, nor for whoever reads from it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Mono, ShardId};
use mutirao_shards::Shards;
use tokio::sync::{mpsc, oneshot, watch};

use super::Order;
use super::aside::Aside;
use crate::desk::Now;
use crate::dispatch::{Back, Outgoing};
use crate::doors::Ask;
use crate::foreman::{Effect, Ending, Errand, Foreman, Found, Inbox, Input, Outside, Reach, Tenure, Way};
use crate::question::Answer;
use crate::reports::{Incoming, Mark};
use crate::settler::Vitals;
use crate::store::{Settlement, Settling};

/// Reports taken in at one go.
const REPORTS_AT_ONCE: usize = 32;
/// Between two reckonings of how much each queue has to do.
const SHOW_DEPTHS: Duration = Duration::from_secs(5);

/// The right to act on a shard.
#[derive(Clone)]
pub(super) struct Hold {
    pub shards: Shards,
    pub shard: ShardId,
    pub generation: u64,
}

impl Hold {
    pub fn holds(&self) -> bool {
        self.tenure() == Tenure::Holds
    }

    fn tenure(&self) -> Tenure {
        match self.shards.tenure(self.shard) {
            Some(tenure) if tenure.generation == self.generation => Tenure::Holds,
            _ => Tenure::Lapsed,
        }
    }
}

/// This end of everybody's channel.
pub(super) struct Channels {
    pub orders: watch::Receiver<Order>,
    pub asks: mpsc::Receiver<Ask>,
    pub incoming: mpsc::Receiver<Incoming>,
    pub outgoing: mpsc::Sender<Outgoing>,
    pub back: mpsc::Receiver<Vec<Back>>,
    /// Reports up to here may be acknowledged.
    pub settled: watch::Sender<Mark>,
    pub settlements: mpsc::Sender<Arc<Settlement>>,
    pub said: mpsc::Receiver<Option<Settling>>,
    pub errands: mpsc::Sender<Errand>,
    pub found: mpsc::Receiver<Found>,
}

pub(super) struct Drive {
    pub foreman: Foreman<oneshot::Sender<Answer>>,
    pub hold: Hold,
    pub broker: Broker,
    pub clock: Arc<dyn Clock>,
    pub vitals: Arc<Vitals>,
}

impl Drive {
    /// Until asked to leave and done, or until the shard has another owner.
    pub async fn run(mut self, mut channels: Channels) -> Ending {
        let mut aside = Aside::default();
        // Until the reports' end of their channel is gone.
        let mut connected = true;
        let mut depths_shown_at = Mono::default();
        loop {
            if let Some(ending) = self.turn(&channels) {
                return ending;
            }
            self.show_vitals(&mut depths_shown_at);
            let input = tokio::select! {
                Ok(()) = channels.orders.changed() => match *channels.orders.borrow_and_update() {
                    Order::Work => continue,
                    Order::Leave => Input::Leave,
                },
                Some(ask) = aside.next(&mut channels.asks, self.foreman.has_room()) => Input::Asked(ask),
                received = channels.incoming.recv(), if connected && self.foreman.hears() => {
                    connected = received.is_some();
                    let (now, mut next, mut left) = (self.now(), received, REPORTS_AT_ONCE);
                    while let Some(incoming) = next {
                        self.foreman.handle(Input::Heard(incoming), now);
                        left -= 1;
                        // Each may be the one that fills the budget.
                        let more = left > 0 && self.foreman.hears();
                        next = more.then(|| channels.incoming.try_recv().ok()).flatten();
                    }
                    continue;
                }
                Some(said) = channels.said.recv() => said.map_or(Input::Unsettled, Input::Settled),
                Some(back) = channels.back.recv() => Input::Back(back),
                Some(found) = channels.found.recv() => Input::Found(found),
                () = self.clock.sleep_until(self.foreman.wake_at()) => {
                    // Whoever spoke while we were away is heard before anybody is given up.
                    while self.foreman.hears() && let Ok(incoming) = channels.incoming.try_recv() {
                        self.foreman.handle(Input::Heard(incoming), self.now());
                    }
                    Input::Tick(self.reach())
                }
            };
            self.foreman.handle(input, self.now());
        }
    }

    /// Does what there is to do.
    fn turn(&mut self, channels: &Channels) -> Option<Ending> {
        let (now, tenure) = (self.now(), self.hold.tenure());
        let inbox = if channels.incoming.is_empty() { Inbox::Empty } else { Inbox::Waiting };
        loop {
            let way = if channels.outgoing.capacity() > 0 { Way::Free } else { Way::Full };
            // Nobody else sends on these channels, and the foreman asks for one thing of a kind at a time: there is
            // room, unless whoever reads is gone, and then so will this post be.
            match self.foreman.poll(Outside { now, tenure, way, inbox })? {
                Effect::Settle(settlement) => drop(channels.settlements.try_send(settlement)),
                Effect::Acknowledge(mark) => drop(channels.settled.send_replace(mark)),
                Effect::Send(outgoing) => drop(channels.outgoing.try_send(outgoing)),
                Effect::Read(errand) => drop(channels.errands.try_send(errand)),
                // A caller that went away does not mind.
                Effect::Answer(asker, answer) => drop(asker.send(answer)),
                Effect::End(ending) => return Some(ending),
            }
        }
    }

    fn reach(&self) -> Reach {
        let near = self.broker.reachable().is_ok() && self.vitals.deaf.lock().is_none();
        if near { Reach::Near } else { Reach::Away }
    }

    fn now(&self) -> Now {
        Now { wall: self.clock.now(), mono: self.clock.monotonic() }
    }

    fn show_vitals(&self, depths_shown_at: &mut Mono) {
        let desk = self.foreman.desk();
        self.vitals.open_tasks.store(desk.open_tasks(), Ordering::Relaxed);
        self.vitals.workers.store(desk.sessions().count() as u64, Ordering::Relaxed);
        let now = self.clock.monotonic();
        if now.since(*depths_shown_at) >= SHOW_DEPTHS {
            *depths_shown_at = now;
            *self.vitals.depths.lock() = desk.depths().into_iter().map(|(queue, n)| (queue.clone(), n)).collect();
        }
    }
}
