//! Telling owners how checks ended, in parcels. Each shard has a way of its own: an owner that cannot be told holds up
//! nobody but itself, and what waits to be told is bounded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::{BrokerError, Shared as Broker};
use mutirao_core::envelope::seal;
use mutirao_core::{Clock, ShardId, WorkerId};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::PAUSE;
use super::taking::Hold;
use crate::SHARDS;
use crate::envelope::{OUTCOMES_MAX, Outcomes, Told, outcomes_of};

/// Words that wait to be told, of each shard. Whoever cannot tell begins nothing more.
const UNTOLD_MAX: usize = 2_000;
/// How long an outcome waits for company.
const GATHER: Duration = Duration::from_millis(100);

/// What there is to say of a check.
pub enum Word {
    Told(Told),
    /// It was too late, and was not made.
    Missed,
}

/// The checks of the words that wait to be told, in the order of the words.
type Untold = Arc<Mutex<VecDeque<Option<Hold>>>>;

/// A place for one word: whoever has it can say it.
pub struct Room(mpsc::OwnedPermit<Word>, Untold);

impl Room {
    /// The check is in hand until its owner has been told.
    pub fn say(self, word: Word, mut hold: Hold) {
        if let Word::Told(told) = &word {
            hold.told = Some(told.clone());
        }
        let mut untold = self.1.lock();
        untold.push_back(Some(hold));
        self.0.send(word);
    }
}

pub struct Tellers(Vec<Way>);

/// To the owner of one shard.
struct Way {
    say: mpsc::Sender<Word>,
    untold: Untold,
    /// Checks that were not made and for whose words there was no room. Told with the next parcel: there is one on its way.
    missed: Arc<AtomicU32>,
}

impl Tellers {
    /// Each tells until nobody has anything more to say.
    pub fn start(broker: &Broker, worker: Option<&WorkerId>, clock: &Arc<dyn Clock>, tasks: &mut JoinSet<()>) -> Self {
        let way = |n| {
            let ((say, heard), untold) = (mpsc::channel(UNTOLD_MAX), Untold::default());
            let (broker, clock, missed) = (broker.clone(), clock.clone(), Arc::default());
            let teller =
                Teller { broker, clock, shard: ShardId(n), untold: untold.clone(), missed: Arc::clone(&missed) };
            tasks.spawn(teller.tell(worker.cloned(), heard));
            Way { say, untold, missed }
        };
        Self((0..SHARDS).map(way).collect())
    }

    /// None when there is no such shard, or too much waits to be told there.
    pub fn room(&self, shard: ShardId) -> Option<Room> {
        let Way { say, untold, .. } = self.0.get(shard.0 as usize)?;
        Some(Room(say.clone().try_reserve_owned().ok()?, untold.clone()))
    }

    /// It was not made. Its owner hears of it, sooner or later.
    pub fn miss(&self, shard: ShardId, hold: Hold) {
        match self.room(shard) {
            Some(room) => room.say(Word::Missed, hold),
            None => {
                if let Some(way) = self.0.get(shard.0 as usize) {
                    way.missed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

struct Teller {
    broker: Broker,
    clock: Arc<dyn Clock>,
    shard: ShardId,
    untold: Untold,
    missed: Arc<AtomicU32>,
}

impl Teller {
    async fn tell(self, worker: Option<WorkerId>, mut heard: mpsc::Receiver<Word>) {
        let mut some = Vec::new();
        while heard.recv_many(&mut some, OUTCOMES_MAX).await > 0 {
            if some.len() < OUTCOMES_MAX {
                self.clock.sleep(GATHER).await;
                while some.len() < OUTCOMES_MAX
                    && let Ok(one) = heard.try_recv()
                {
                    some.push(one);
                }
            }
            let mut parcel = Outcomes::of(worker.clone());
            parcel.missed = self.missed.swap(0, Ordering::Relaxed);
            let words = some.len();
            for word in some.drain(..) {
                match word {
                    Word::Told(told) => parcel.outcomes.push(told),
                    Word::Missed => parcel.missed += 1,
                }
            }
            if self.publish(seal(&parcel)).await.is_err() {
                return;
            }
            let _known: Vec<_> = self.untold.lock().drain(..words).collect();
        }
    }

    /// Tries until it is there. Only what is over for good is an error.
    async fn publish(&self, body: Bytes) -> Result<(), BrokerError> {
        loop {
            match self.broker.publish(&outcomes_of(self.shard), vec![body.clone()]).await {
                Err(BrokerError::Closed) => return Err(BrokerError::Closed),
                Err(error) => tracing::debug!(shard = %self.shard, %error, "outcomes cannot be told; trying again"),
                Ok(()) => return Ok(()),
            }
            // This process alone answers for them from now on: parcels that are held for an owner that cannot be told would
            // keep it from taking those of others.
            let _released: Vec<_> = self.untold.lock().iter_mut().map(Option::take).collect();
            self.clock.sleep(PAUSE).await;
        }
    }
}
