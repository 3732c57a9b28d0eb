//! Where writes are handed in, and what their givers are told. Two ways lead from there to the store:
//!
//! - [`direct`](crate::applier::direct): the applier of this process commits them, and that is what makes them durable. For an
//!   installation of one manager, whose broker dies with it.
//! - [`outbox`](crate::outbox): a queue at RabbitMQ confirms them, and that is what makes them durable; whichever manager owns
//!   their shard applies them from there. So any manager takes any write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mutirao_core::ShardId;
use mutirao_store::StoreError;
use tokio::sync::oneshot;

use crate::applier::doubts::Doubt;
use crate::fold::Fate;
use crate::write::{Write, WriteId};

/// What its giver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Durable,
    Applied,
}

/// What becomes of a write that was given.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Durable; applied soon.
    Queued {
        id: WriteId,
    },
    Settled {
        id: WriteId,
        fate: Fate,
    },
    /// The store did not answer for too long before its turn came: nothing of it was written.
    Late,
    /// The queue confirmed nothing for too long before its turn came: it was not sent.
    Unsent,
    /// Its condition did not hold; what was there then is not known.
    Unfit,
    /// It was durable; the store refused it again and again, so it is with the dead letters, and nothing of it was written.
    SetAside {
        id: WriteId,
    },
    /// The shard was taken away first: nothing of it was written, unless the store said so to nobody.
    Lost,
    /// Whoever applies broke; whether it was written is not known.
    Broken,
    /// The store does not answer; whether it was written is not known.
    Unknown {
        id: WriteId,
        why: String,
    },
    /// The queue has not confirmed it; whether it will be written is not known.
    Unconfirmed {
        id: WriteId,
        why: String,
    },
    /// The queue takes no more.
    Full,
    /// The store refuses; nothing was written.
    Refused(Arc<StoreError>),
    /// The queue refuses; nothing was written.
    RefusedByBroker(String),
}

/// Why a write was not taken.
#[derive(Debug)]
pub enum NotTaken {
    /// Too many wait.
    Full,
    /// This process does not own the shard now; the write comes back, for another try.
    NotHere(Box<Write>),
}

/// What the giver of a write holds.
pub struct Receipt {
    /// Said once it is durable.
    pub durable: oneshot::Receiver<Answer>,
    /// Said once it is applied; none where that is the same, or was not asked for.
    pub applied: Option<oneshot::Receiver<Answer>>,
}

/// Bytes that may wait in one inbox, besides the bound in writes: four thousand of a megabyte each would fit that.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// What waits in one inbox, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weight(Arc<AtomicUsize>);

/// The place of one write; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    weight: Weight,
    bytes: usize,
}

impl Weight {
    /// A place for so many bytes, if there is one; where nothing waits there always is.
    pub fn hold(&self, bytes: usize) -> Option<Held> {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let held = Held { weight: self.clone(), bytes };
        (before == 0 || before.saturating_add(bytes) <= WAITING_BYTES_MAX).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.weight.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One way to the store.
pub trait Intake: Send + Sync + 'static {
    /// Takes a write to a key of this shard; those of one key are applied in the order in which they were taken here.
    fn give(&self, shard: ShardId, write: Write, until: Until) -> Result<Receipt, NotTaken>;

    /// What is known here, and not in the store, of a write that was given up.
    fn doubt(&self, _id: WriteId) -> Option<Doubt> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_holds_so_many_bytes_and_has_room_again_when_some_have_gone() {
        let weight = Weight::default();
        let large = weight.hold(WAITING_BYTES_MAX + 1);
        assert!(large.is_some(), "whatever comes alone is taken");
        assert!(weight.hold(1).is_none());
        drop(large);
        let half = weight.hold(WAITING_BYTES_MAX / 2);
        let other = weight.hold(WAITING_BYTES_MAX / 2);
        assert!(half.is_some() && other.is_some() && weight.hold(1).is_none());
        drop(half);
        assert!(weight.hold(WAITING_BYTES_MAX / 2).is_some(), "what was refused holds nothing");
    }
}
