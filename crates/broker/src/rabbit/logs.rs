//! Logs: stream queues, read by exact offset, over plain AMQP and on a connection of their own, because a stream that
//! refuses a record closes the whole connection.
//!
//! Offsets are RabbitMQ's own. It spends one on itself at each segment's beginning, so a number may be skipped.
//!
//! A confirm does not tell the offset, so [`append`](Logs::append) reads its own first record back ([`tail`]), and with it
//! whatever others append meanwhile; [`add`](Logs::add) does not. Records of other writers may lie between those of one
//! batch. A confirmed record is with the stream's replicas, not necessarily on their disks: a power cut of all of them can lose
//! the last moments.

mod cursor;
mod idle;
mod tail;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use lapin::BasicProperties;
use mutirao_core::clock::{Clock, ClockExt};
use mutirao_core::limits::MESSAGE_BYTES_MAX;
use parking_lot::Mutex;

use super::Part;
use super::dial::Dial;
use super::line::{Line, Up};
use super::names::LogName;
use super::post::{Address, MustArrive, Post, Undelivered, persistent};
use super::topology::{ensure_begun, ensure_log, forget_log, has_begun, remove_log};
use super::trouble::Trouble;
use crate::memory::check_size;
use crate::{BrokerError, Limits, Record};
use cursor::{Cursor, Start};
use idle::Idle;
use tail::Tail;

/// How long a stream that has records may take to send its first.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Goes on also when nobody waits for it any more: whoever gives up and comes back finds it further on.
type Errand = Shared<BoxFuture<'static, Result<(), Trouble>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    /// A cursor.
    Open,
    /// Whether an offset is there, or was spent by RabbitMQ on itself.
    Check,
}

pub(super) struct Logs {
    line: Line,
    post: Post,
    limits: Limits,
    part: Part,
    clock: Arc<dyn Clock>,
    /// Tells our records from other writers'.
    writer: u64,
    idle: Mutex<Idle>,
    /// Under way, by queue and offset.
    errands: Mutex<HashMap<(What, String, u64), Errand>>,
    tails: Mutex<HashMap<String, Arc<Tail>>>,
}

impl Logs {
    pub fn new(dial: Arc<Dial>, limits: Limits, part: Part) -> Arc<Self> {
        let (clock, writer) = (dial.clock.clone(), dial.dice.u64());
        Arc::new(Self {
            line: Line::new("logs", dial),
            post: Post::new(),
            limits,
            part,
            clock,
            writer,
            idle: Mutex::default(),
            errands: Mutex::default(),
            tails: Mutex::default(),
        })
    }

    pub fn shut(&self) {
        self.line.shut();
    }

    /// Waits for the connection, and then sends once: what may have been appended is not appended again.
    pub async fn append(&self, log: &LogName, batch: &[Bytes]) -> Result<u64, BrokerError> {
        check_batch(batch)?;
        if batch.is_empty() {
            return Ok(self.extent(log).await?.1);
        }
        let tail = self.tail(&log.queue);
        let (up, claim) = loop {
            let up = self.ready(log).await?;
            match self.line.answered(&up, tail.claim(&up, self.clock.monotonic())).await {
                Ok(claim) => break (up, claim),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.look_again(&up, log).await,
            }
        };
        self.send(&up, log, batch, &persistent().with_message_id(claim.id().into())).await?;
        self.line.answered(&up, claim.offset()).await.map_err(Trouble::give_up)
    }

    /// As [`append`](Self::append), without a reader that looks where it went.
    pub async fn add(&self, log: &LogName, batch: &[Bytes]) -> Result<(), BrokerError> {
        check_batch(batch)?;
        let up = self.ready(log).await?;
        self.send(&up, log, batch, &persistent()).await
    }

    /// A connection on which the log is there to be appended to.
    async fn ready(&self, log: &LogName) -> Result<Up, BrokerError> {
        loop {
            let up = self.line.up().await?;
            match self.line.answered(&up, self.prepare(&up, log)).await {
                Ok(()) => return Ok(up),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.look_again(&up, log).await,
            }
        }
    }

    async fn prepare(&self, up: &Up, log: &LogName) -> Result<(), Trouble> {
        ensure_log(&self.line, up, log, &self.limits, self.part).await?;
        ensure_begun(&self.line, up, &log.queue).await
    }

    async fn send(
        &self,
        up: &Up,
        log: &LogName,
        batch: &[Bytes],
        properties: &BasicProperties,
    ) -> Result<(), BrokerError> {
        let seat = self.post.seat(&self.line, up).await.map_err(Trouble::give_up)?;
        let exchange = log.entrance.as_deref().unwrap_or_default();
        let to = Address { exchange, key: &log.queue, must_arrive: MustArrive::Yes };
        let mut left = (0..batch.len()).collect();
        let sent = seat.send(&to, batch, properties, &mut left).await;
        sent.map_err(|undelivered| self.not_appended(log, undelivered))?;
        seat.leave();
        Ok(())
    }

    /// It may have been the log that went, and not the connection.
    async fn look_again(&self, up: &Up, log: &LogName) {
        forget_log(&self.line, &log.queue);
        self.line.after_loss(up.generation).await;
    }

    fn not_appended(&self, log: &LogName, undelivered: Undelivered) -> BrokerError {
        let why = match undelivered {
            Undelivered::Trouble(trouble) => return trouble.give_up(),
            Undelivered::Nacked => "the stream takes nothing now",
            Undelivered::Unroutable => {
                forget_log(&self.line, &log.queue);
                "it was deleted; it is made anew by the next append"
            }
        };
        BrokerError::Log { name: log.ours.clone(), why: why.into() }
    }

    fn tail(&self, queue: &str) -> Arc<Tail> {
        let mut tails = self.tails.lock();
        tails.retain(|of, tail| of == queue || Arc::strong_count(tail) > 1 || !tail.is_idle(self.clock.monotonic()));
        tails.entry(queue.into()).or_insert_with(|| Tail::new(queue, self.writer)).clone()
    }

    pub async fn read(self: &Arc<Self>, log: &LogName, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        loop {
            let up = self.line.up().await?;
            match self.try_read(&up, log, offset, limit).await {
                Ok(records) => return Ok(records),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.look_again(&up, log).await,
            }
        }
    }

    async fn try_read(
        self: &Arc<Self>,
        up: &Up,
        log: &LogName,
        offset: u64,
        limit: u32,
    ) -> Result<Vec<Record>, Trouble> {
        let idle = || self.idle.lock().take(&log.queue, offset, up.generation);
        let cursor = loop {
            // Others may read on from the same place: each has a cursor of its own.
            match idle() {
                Some(cursor) => break cursor,
                None => self.opened(up, log, offset).await?,
            }
        };
        let mut loan = Loan { logs: self, cursor: Some(cursor) };
        let Some(cursor) = loan.cursor.as_mut() else { return Ok(Vec::new()) };
        if limit == 0 {
            return Ok(Vec::new());
        }
        let first = match cursor.first().await {
            Ok(first) => first,
            Err(trouble) => {
                loan.cursor = None;
                return Err(trouble);
            }
        };
        if first != offset {
            // RabbitMQ spends an offset on itself where a segment begins; or retention was quicker than we.
            self.checking(up, log, offset).await?;
        }
        Ok(cursor.take(limit as usize))
    }

    /// There is an idle cursor that begins at this offset.
    fn opened(self: &Arc<Self>, up: &Up, log: &LogName, offset: u64) -> Errand {
        let open = async move |logs: Arc<Self>, up: Up, log: LogName| {
            let cursor = logs.open(&up, &log, offset).await?;
            logs.idle.lock().keep(cursor);
            Ok(())
        };
        self.errand(What::Open, up, log, offset, open)
    }

    fn checking(self: &Arc<Self>, up: &Up, log: &LogName, offset: u64) -> Errand {
        let check = async move |logs: Arc<Self>, up: Up, log: LogName| logs.check_offset(&up, &log, offset).await;
        self.errand(What::Check, up, log, offset, check)
    }

    /// Done once for all who wait for it at the same time.
    fn errand<F>(
        self: &Arc<Self>,
        what: What,
        up: &Up,
        log: &LogName,
        offset: u64,
        run: impl FnOnce(Arc<Self>, Up, LogName) -> F,
    ) -> Errand
    where
        F: Future<Output = Result<(), Trouble>> + Send + 'static,
    {
        let key = (what, log.queue.clone(), offset);
        let mut errands = self.errands.lock();
        if let Some(under_way) = errands.get(&key) {
            return under_way.clone();
        }
        let (logs, done, work) = (self.clone(), key.clone(), run(self.clone(), up.clone(), log.clone()));
        let task = tokio::spawn(async move {
            let result = work.await;
            logs.errands.lock().remove(&done);
            result
        });
        let broke = || Trouble::Lost("what was asked of the log was not ended".into());
        let under_way = async move { task.await.unwrap_or_else(|_| Err(broke())) }.boxed().shared();
        errands.insert(key, under_way.clone());
        under_way
    }

    async fn open(&self, up: &Up, log: &LogName, offset: u64) -> Result<Cursor, Trouble> {
        // From 0 on nothing need be known: either it is there, or what comes first says that it is gone.
        if offset > 0 {
            self.check_offset(up, log, offset).await?;
        }
        let open = async {
            ensure_log(&self.line, up, log, &self.limits, self.part).await?;
            Cursor::open(up, &log.queue, Start::At(offset), cursor::PREFETCH).await
        };
        self.line.answered(up, open).await
    }

    async fn check_offset(&self, up: &Up, log: &LogName, offset: u64) -> Result<(), Trouble> {
        let (first, next) = self.line.answered(up, self.try_extent(up, log)).await?;
        if (first..=next).contains(&offset) {
            return Ok(());
        }
        Err(Trouble::Said(BrokerError::NoSuchOffset { name: log.ours.clone(), offset, first, next }))
    }

    pub async fn extent(&self, log: &LogName) -> Result<(u64, u64), BrokerError> {
        loop {
            let up = self.line.up().await?;
            match self.line.answered(&up, self.try_extent(&up, log)).await {
                Ok(extent) => return Ok(extent),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.look_again(&up, log).await,
            }
        }
    }

    pub async fn forget(&self, log: &LogName) -> Result<(), BrokerError> {
        loop {
            let up = self.line.up().await?;
            let removed = self.line.answered(&up, remove_log(&up, &log.queue)).await;
            forget_log(&self.line, &log.queue);
            self.idle.lock().forget(&log.queue);
            self.tails.lock().remove(&log.queue);
            match removed {
                Ok(()) => return Ok(()),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.line.after_loss(up.generation).await,
            }
        }
    }

    async fn try_extent(&self, up: &Up, log: &LogName) -> Result<(u64, u64), Trouble> {
        ensure_log(&self.line, up, log, &self.limits, self.part).await?;
        if !has_begun(up, &log.queue).await? {
            return Ok((0, 0));
        }
        let mut beginning = Cursor::open(up, &log.queue, Start::First, 1).await?;
        // Silence means that whoever was about to append the first record never did.
        let first = match self.clock.timeout(SILENCE_MAX, beginning.first()).await {
            Ok(first) => first?,
            Err(_) => return Ok((0, 0)),
        };
        let end = Cursor::open(up, &log.queue, Start::Last, cursor::PREFETCH).await?;
        Ok((first, end.run_out().await? + 1))
    }
}

fn check_batch(batch: &[Bytes]) -> Result<(), BrokerError> {
    batch.iter().try_for_each(check_size)?;
    let bytes: usize = batch.iter().map(Bytes::len).sum();
    if bytes > MESSAGE_BYTES_MAX {
        return Err(BrokerError::TooLarge { bytes, bound: MESSAGE_BYTES_MAX });
    }
    Ok(())
}

/// A cursor in use. Whoever gives up waiting loses nothing: it goes back to the idle ones.
struct Loan<'a> {
    logs: &'a Logs,
    cursor: Option<Cursor>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let Some(cursor) = self.cursor.take() else { return };
        self.logs.idle.lock().keep(cursor);
    }
}
