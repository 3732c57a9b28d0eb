//! From picks to parcels to the broker. Runs beside the foreman, so that reading, encoding and waiting for the broker never
//! hold up the desk.
//!
//! - [`packing`]: what each task needs to know, looked up and put in a parcel.
//! - [`lanes`]: parcels on their way, queue by queue.
//! - [`fence`]: whether the shard is still ours, asked whenever something could leave.

mod fence;
mod lanes;
mod packing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::Shared as Broker;
use mutirao_core::clock::{Clock, ClockExt, Mono};
use mutirao_core::envelope::{Control, ParcelId, control_of, seal};
use mutirao_core::id::QueueName;
use mutirao_core::limits::PARCEL_BYTES_MAX;
use tokio::sync::mpsc;

use crate::desk::Handed;
use crate::store::Shared as Store;
use crate::traces::Began;
use crate::waits::Waits;
pub use fence::Ours;
use fence::while_ours;
use lanes::{Lanes, Packed};
use packing::{PackError, Packing};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What goes out.
#[derive(Debug)]
pub enum Outgoing {
    Parcels(Vec<Handed>),
    Control(QueueName, Control),
    /// Does anything lie in this queue?
    Look(QueueName),
    /// This queue was deleted.
    Remove(QueueName),
}

/// What comes back to the foreman.
pub enum Back {
    /// Try again: the broker or the store was away, or the queue took nothing.
    Unsent(ParcelId),
    /// Try again with fewer tasks.
    TooLong(ParcelId),
    /// Never: what the tasks need cannot be read.
    Broken(ParcelId, String),
    /// Nothing lies in this queue, nor is any of it with a consumer.
    Empty(QueueName),
    /// The broker has this queue no more.
    Gone(QueueName),
}

pub struct Dispatch {
    broker: Broker,
    clock: Arc<dyn Clock>,
    waits: Arc<Waits>,
    packing: Packing,
    lanes: Lanes,
    ours: Ours,
    /// Grows while the store cannot be read.
    pause: Duration,
    rests_until: Mono,
}

impl Dispatch {
    pub fn new(store: Store, broker: Broker, clock: Arc<dyn Clock>, waits: Arc<Waits>, ours: Ours) -> Self {
        Self {
            packing: Packing::new(store),
            lanes: Lanes::new(broker.clone(), clock.clone(), ours.clone()),
            ours,
            broker,
            clock,
            waits,
            pause: Duration::ZERO,
            rests_until: Mono::default(),
        }
    }

    /// Until the foreman hangs up, and what it gave before is with the broker.
    pub async fn run(mut self, mut outgoing: mpsc::Receiver<Outgoing>, back: mpsc::Sender<Vec<Back>>) {
        let clock = self.clock.clone();
        loop {
            let rested = self.pause.is_zero() || clock.monotonic() >= self.rests_until;
            let returns = tokio::select! {
                biased;
                Some(returns) = self.lanes.next() => returns,
                next = outgoing.recv(), if rested && self.lanes.have_room() => match next {
                    Some(Outgoing::Parcels(handed)) => self.send(handed).await,
                    Some(Outgoing::Control(queue, control)) => {
                        tell(&self.broker, &self.ours, &queue, &control).await;
                        continue;
                    }
                    Some(Outgoing::Look(queue)) => {
                        self.lanes.look(queue);
                        continue;
                    }
                    Some(Outgoing::Remove(queue)) => {
                        self.lanes.remove(queue);
                        continue;
                    }
                    None => break,
                },
                () = clock.sleep_until(self.rests_until), if !rested => continue,
            };
            if !returns.is_empty() && back.send(returns).await.is_err() {
                break;
            }
        }
        while self.lanes.next().await.is_some() {}
    }

    async fn send(&mut self, handed: Vec<Handed>) -> Vec<Back> {
        let mut back = Vec::new();
        let mut trouble = None;
        let began = Began::now(&*self.clock);
        let mut batches: BTreeMap<QueueName, Vec<Packed>> = BTreeMap::new();
        for handed in handed {
            let id = handed.id;
            let packed = self.packing.pack(&handed).await;
            let handed_out = self.packing.handing_out.take(began);
            match packed {
                Ok(body) if body.len() > PARCEL_BYTES_MAX => back.push(Back::TooLong(id)),
                Ok(body) => {
                    // The one in the middle waits neither shortest nor longest.
                    if let Some(pick) = handed.picks.get(handed.picks.len() / 2) {
                        self.waits.follow(pick.task, pick.attempt, self.clock.now());
                    }
                    batches.entry(handed.queue).or_default().push(Packed { id, body, handed_out });
                }
                Err(PackError::Broken(why)) => back.push(Back::Broken(id, why)),
                Err(PackError::Store(error)) => {
                    let error = error.to_string();
                    handed_out.sent(Some(&error), &*self.clock);
                    trouble = Some(error);
                    back.push(Back::Unsent(id));
                }
            }
        }
        for (queue, parcels) in batches {
            self.lanes.send(queue, parcels);
        }
        self.rest(trouble);
        back
    }

    /// While the store cannot be read, nothing is packed for a while.
    fn rest(&mut self, trouble: Option<String>) {
        let Some(error) = trouble else {
            self.pause = Duration::ZERO;
            return;
        };
        if self.pause.is_zero() {
            tracing::warn!(error, "parcels cannot be packed; trying again until they can");
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.rests_until = self.clock.monotonic().plus(self.pause);
    }
}

/// Best effort by nature: the desk repeats it when a worker speaks of a task it should not have.
async fn tell(broker: &Broker, ours: &Ours, queue: &QueueName, control: &Control) {
    match while_ours(ours, broker.announce(&control_of(queue), seal(control))).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%queue, %error, "control message not announced"),
        None => tracing::debug!(%queue, "a control message of a former owner was not announced"),
    }
}

#[cfg(test)]
mod tests {
    use mutirao_broker::{Heard, Limits, Memory};
    use mutirao_core::WorkerId;
    use mutirao_core::envelope::open;

    use super::*;

    #[tokio::test]
    async fn a_former_owner_tells_workers_nothing() {
        let (broker, queue): (Broker, _) = (Memory::new(None, Limits::default()), QueueName::default());
        let mut ear = broker.subscribe(&control_of(&queue)).await.unwrap();
        let rest = |worker: &str| Control { rest: vec![WorkerId(worker.into())], ..Control::default() };
        let holds = |it: bool| -> Ours { Arc::new(move || it) };
        tell(&broker, &holds(false), &queue, &rest("of a former owner")).await;
        tell(&broker, &holds(true), &queue, &rest("of the owner")).await;
        let Heard::Message(first) = ear.next().await.unwrap() else { panic!("missed") };
        assert_eq!(open::<Control>(&first).unwrap(), rest("of the owner"));
    }
}
