//! The far end of a link: a [`Broker`] that is reached through one WebSocket, and that outlives it.
//!
//! Calls wait while the connection is away: what was not confirmed is asked again on the next one, consumers and
//! subscriptions are opened again. Only what must not happen twice unasked, [`append`](Broker::append) and
//! [`announce`](Broker::announce), fails with [`BrokerError::Unreachable`] when the connection breaks under it.
//!
//! Not here: the books ([`state`], pure) and the socket ([`dial`]).

mod channel;
mod dial;
mod state;
mod telling;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::{Clock, Dice};
use mutirao_tls::Trust;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::AbortHandle;

use super::frame::{Answer, Ask, FRAME_COST_MAX, body_cost, fitting};
use crate::memory::check_size;
use crate::{Broker, BrokerError, Consumer, Counts, DeadLetter, Deletion, Letters, Name, Record, Subscription};
use channel::{LinkConsumer, LinkSubscription};
use state::{OnLoss, Reply, Room, State};

/// Makes the `Authorization` header of one connection attempt.
pub type Authorize = Arc<dyn Fn() -> String + Send + Sync>;

/// Requests without an answer yet; past it callers wait.
const REQUESTS_MAX: usize = 512;
/// KiB of bodies in those requests; past it callers wait.
const REQUESTS_KIB_MAX: usize = 64 << 10;
/// Reads without an answer yet. Fewer than the server lets wait.
const READS_MAX: usize = 2_048;

/// How a link is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The first attempt is under way.
    Connecting,
    Up,
    /// Trying again; why it went down.
    Down(String),
    /// The server knows us and says no, or does not know us; trying again, slowly.
    Refused(String),
    /// What answers could be anybody: its certificate is not believed, or only one side speaks TLS. Trying again, slowly.
    Unsafe(String),
    /// Closed by its owner, for good.
    Closed,
}

/// A broker behind a WebSocket.
pub struct Link(Arc<Alive>);

/// What the link and everything opened on it hold together: when the last of them goes, so does the connection.
struct Alive {
    core: Arc<Core>,
    task: AbortHandle,
}

impl Alive {
    fn shut(&self) {
        self.task.abort();
        self.core.state.lock().shut();
        self.core.status.send_replace(LinkState::Closed);
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.shut();
    }
}

/// Where to connect to, and whom to believe there.
struct Server {
    url: String,
    trust: Option<Trust>,
}

/// What callers and the connection share.
struct Core {
    state: Mutex<State>,
    /// Rung when there is something to send.
    work: Notify,
    status: watch::Sender<LinkState>,
    requests: Arc<Semaphore>,
    requests_kib: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl Link {
    /// Returns at once and connects in the background, for ever. Must be called within a tokio runtime. A `wss` server
    /// must be known to the system's authorities.
    pub fn connect(url: String, authorize: Authorize, clock: Arc<dyn Clock>, dice: Arc<Dice>) -> Arc<Self> {
        Self::connect_to(Server { url, trust: None }, authorize, clock, dice)
    }

    /// As [`connect`](Self::connect), believing whom `trust` believes.
    pub fn connect_trusting(
        url: String,
        trust: Trust,
        authorize: Authorize,
        clock: Arc<dyn Clock>,
        dice: Arc<Dice>,
    ) -> Arc<Self> {
        Self::connect_to(Server { url, trust: Some(trust) }, authorize, clock, dice)
    }

    fn connect_to(server: Server, authorize: Authorize, clock: Arc<dyn Clock>, dice: Arc<Dice>) -> Arc<Self> {
        let core = Arc::new(Core {
            state: Mutex::default(),
            work: Notify::new(),
            status: watch::Sender::new(LinkState::Connecting),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            requests_kib: Arc::new(Semaphore::new(REQUESTS_KIB_MAX)),
            reads: Arc::new(Semaphore::new(READS_MAX)),
        });
        let task = tokio::spawn(dial::keep_up(core.clone(), server, authorize, clock, dice)).abort_handle();
        Arc::new(Self(Arc::new(Alive { core, task })))
    }

    /// How the link is doing, now and from now on.
    pub fn state(&self) -> watch::Receiver<LinkState> {
        self.0.core.status.subscribe()
    }

    /// Waits until the link is up, or closed.
    pub async fn connected(&self) {
        let over = |state: &LinkState| matches!(state, LinkState::Up | LinkState::Closed);
        // The sender is in the core, which this handle keeps.
        let _ = self.state().wait_for(over).await;
    }

    /// Ends the connection. Everything that waits on this link, and everything asked later, gets
    /// [`BrokerError::Closed`].
    pub fn close(&self) {
        self.0.shut();
    }

    async fn ask(
        &self,
        make: impl FnOnce(u64) -> Ask,
        bodies: Vec<Bytes>,
        on_loss: OnLoss,
    ) -> Result<(Answer, Vec<Bytes>), BrokerError> {
        let core = &self.0.core;
        let kib = (bodies.iter().map(body_cost).sum::<usize>() / 1024 + 1).min(REQUESTS_KIB_MAX);
        let room = vec![permits(&core.requests, 1).await?, permits(&core.requests_kib, kib).await?];
        let (_, answer) = core.put(make, bodies, on_loss, room);
        answer.await.unwrap_or(Err(BrokerError::Closed))
    }
}

async fn permits(of: &Arc<Semaphore>, count: usize) -> Result<OwnedSemaphorePermit, BrokerError> {
    of.clone().acquire_many_owned(count as u32).await.map_err(|_| BrokerError::Closed)
}

impl Core {
    fn put(
        &self,
        make: impl FnOnce(u64) -> Ask,
        bodies: Vec<Bytes>,
        on_loss: OnLoss,
        room: Room,
    ) -> (u64, oneshot::Receiver<Reply>) {
        let put = self.state.lock().ask(make, bodies, on_loss, room);
        self.work.notify_one();
        put
    }
}

/// Tells the server when nobody waits for a read any more.
struct Waiting<'a> {
    core: &'a Core,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.core.state.lock().forget(self.id);
        self.core.work.notify_one();
    }
}

/// Records of one call travel together, or not at all.
fn check_batch(batch: &[Bytes]) -> Result<(), BrokerError> {
    batch.iter().try_for_each(check_size)?;
    let bytes: usize = batch.iter().map(body_cost).sum();
    if bytes > FRAME_COST_MAX {
        return Err(BrokerError::TooLarge { bytes, bound: FRAME_COST_MAX });
    }
    Ok(())
}

fn unexpected<T>() -> Result<T, BrokerError> {
    Err(BrokerError::Unreachable("the server answered a different question".into()))
}

#[async_trait]
impl Broker for Link {
    async fn publish(&self, queue: &Name, mut batch: Vec<Bytes>) -> Result<(), BrokerError> {
        batch.iter().try_for_each(check_size)?;
        // One frame after the other: after an error a prefix of the batch has arrived, and nothing behind it.
        while !batch.is_empty() {
            let rest = batch.split_off(fitting(FRAME_COST_MAX, batch.iter().map(body_cost)));
            self.ask(|id| Ask::Publish { id, queue: queue.into() }, batch, OnLoss::AskAgain).await?;
            batch = rest;
        }
        Ok(())
    }

    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        Ok(Box::new(LinkConsumer::open(self.0.clone(), queue, credit).await?))
    }

    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        match self.ask(|id| Ask::Counts { id, queue: queue.into() }, Vec::new(), OnLoss::AskAgain).await? {
            (Answer::Counts(counts), _) => Ok(counts),
            _ => unexpected(),
        }
    }

    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        match self.ask(|id| Ask::Delete { id, queue: queue.into() }, Vec::new(), OnLoss::AskAgain).await? {
            (Answer::Deleted(deletion), _) => Ok(deletion),
            _ => unexpected(),
        }
    }

    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        let make = |id| Ask::DeadLetters { id, queue: queue.into(), limit };
        match self.ask(make, Vec::new(), OnLoss::AskAgain).await? {
            (Answer::DeadLetters(reasons), bodies) if reasons.len() == bodies.len() => {
                Ok(reasons.into_iter().zip(bodies).map(|(reason, body)| DeadLetter { body, reason }).collect())
            }
            _ => unexpected(),
        }
    }

    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        let make = |id| Ask::CountDeadLetters { id, queue: queue.into() };
        match self.ask(make, Vec::new(), OnLoss::AskAgain).await? {
            (Answer::Number(letters), _) => Ok(letters),
            _ => unexpected(),
        }
    }

    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        let make = |id| Ask::RemoveDeadLetters { id, queue: queue.into(), which: which.clone() };
        match self.ask(make, Vec::new(), OnLoss::AskAgain).await? {
            (Answer::Number(removed), _) => Ok(removed),
            _ => unexpected(),
        }
    }

    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        check_size(&body)?;
        // Not kept for later: who is there later looks things up.
        let away = match &*self.0.core.status.borrow() {
            LinkState::Up => None,
            LinkState::Closed => Some(BrokerError::Closed),
            LinkState::Connecting => Some(BrokerError::Unreachable("not connected yet".into())),
            LinkState::Down(why) | LinkState::Refused(why) | LinkState::Unsafe(why) => {
                Some(BrokerError::Unreachable(why.clone()))
            }
        };
        if let Some(error) = away {
            return Err(error);
        }
        self.ask(|id| Ask::Announce { id, topic: topic.into() }, vec![body], OnLoss::Fail).await.map(|_| ())
    }

    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        Ok(Box::new(LinkSubscription::open(self.0.clone(), topic).await?))
    }

    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        check_batch(&batch)?;
        match self.ask(|id| Ask::Append { id, log: log.into() }, batch, OnLoss::Fail).await? {
            (Answer::Offset(first), _) => Ok(first),
            _ => unexpected(),
        }
    }

    async fn add(&self, log: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        check_batch(&batch)?;
        self.ask(|id| Ask::Add { id, log: log.into() }, batch, OnLoss::Fail).await.map(drop)
    }

    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        let core = &self.0.core;
        let room = vec![permits(&core.reads, 1).await?];
        let make = |id| Ask::Read { id, log: log.into(), offset, limit };
        let (id, answer) = core.put(make, Vec::new(), OnLoss::AskAgain, room);
        let _waiting = Waiting { core, id };
        match answer.await.unwrap_or(Err(BrokerError::Closed))? {
            (Answer::Records(offsets), bodies) if offsets.len() == bodies.len() => {
                Ok(offsets.into_iter().zip(bodies).map(|(offset, body)| Record { offset, body }).collect())
            }
            _ => unexpected(),
        }
    }

    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        match self.ask(|id| Ask::Extent { id, log: log.into() }, Vec::new(), OnLoss::AskAgain).await? {
            (Answer::Extent(first, next), _) => Ok((first, next)),
            _ => unexpected(),
        }
    }

    async fn trim(&self, log: &Name, before: u64) -> Result<(), BrokerError> {
        self.ask(|id| Ask::Trim { id, log: log.into(), before }, Vec::new(), OnLoss::AskAgain).await.map(drop)
    }

    async fn forget(&self, log: &Name) -> Result<(), BrokerError> {
        self.ask(|id| Ask::ForgetLog { id, log: log.into() }, Vec::new(), OnLoss::AskAgain).await.map(drop)
    }
}
