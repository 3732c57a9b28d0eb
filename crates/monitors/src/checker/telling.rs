//! Telling owners how checks ended, in parcels. Each shard has a way of its own: an owner that cannot be told holds up
//! nobody but itself, and what waits to be told is bounded.

use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Shared as Broker};
use mutirao_core::envelope::seal;
use mutirao_core::{Clock, ShardId, WorkerId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::SHARDS;
use crate::envelope::{OUTCOMES_MAX, Outcomes, Told, outcomes_of};

/// Words that wait to be told, of each shard. Whoever cannot tell begins nothing more.
const UNTOLD_MAX: usize = 2_000;
/// How long an outcome waits for company.
const GATHER: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(500);

/// What there is to say of a check.
pub enum Word {
    Told(Told),
    /// It was too late, and was not made.
    Missed,
}

/// A place for one word: whoever has it can say it.
pub type Room = mpsc::OwnedPermit<Word>;

pub struct Tellers(Vec<mpsc::Sender<Word>>);

impl Tellers {
    /// Each tells until nobody has anything more to say.
    pub fn start(broker: &Broker, worker: Option<&WorkerId>, clock: &Arc<dyn Clock>, tasks: &mut JoinSet<()>) -> Self {
        let way = |n| {
            let (say, heard) = mpsc::channel(UNTOLD_MAX);
            tasks.spawn(tell(broker.clone(), worker.cloned(), clock.clone(), ShardId(n), heard));
            say
        };
        Self((0..SHARDS).map(way).collect())
    }

    /// None when there is no such shard, or too much waits to be told there.
    pub fn room(&self, shard: ShardId) -> Option<Room> {
        self.0.get(shard.0 as usize)?.clone().try_reserve_owned().ok()
    }
}

async fn tell(
    broker: Broker,
    worker: Option<WorkerId>,
    clock: Arc<dyn Clock>,
    shard: ShardId,
    mut heard: mpsc::Receiver<Word>,
) {
    let mut some = Vec::new();
    while heard.recv_many(&mut some, OUTCOMES_MAX).await > 0 {
        if some.len() < OUTCOMES_MAX {
            clock.sleep(GATHER).await;
            while some.len() < OUTCOMES_MAX
                && let Ok(one) = heard.try_recv()
            {
                some.push(one);
            }
        }
        let mut parcel = Outcomes::of(worker.clone());
        for word in some.drain(..) {
            match word {
                Word::Told(told) => parcel.outcomes.push(told),
                Word::Missed => parcel.missed += 1,
            }
        }
        let body = seal(&parcel);
        loop {
            match broker.publish(&outcomes_of(shard), vec![body.clone()]).await {
                Ok(()) => break,
                Err(BrokerError::Closed) => return,
                Err(error) => tracing::debug!(%shard, %error, "outcomes cannot be told; trying again"),
            }
            clock.sleep(PAUSE).await;
        }
    }
}
