//! Logs: stream queues, read by exact offset, over plain AMQP and on a connection of their own, because a stream that
//! refuses a record closes the whole connection.
//!
//! Offsets are RabbitMQ's own. It spends one on itself at each segment's beginning, so a number may be skipped.
//!
//! A confirm does not tell the offset, so [`append`](Logs::append) reads its own first record back ([`tail`]). Records
//! of other writers may lie between those of one batch. A confirmed record is with the stream's replicas, not
//! necessarily on their disks: a power cut of all of them can lose the last moments.

mod cursor;
mod tail;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
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
use tail::Tail;

/// Cursors kept open for the reader that comes back for more; the one not used for longest makes way.
const IDLE_CURSORS_MAX: usize = 32;
/// How long a stream that has records may take to send its first.
const SILENCE_MAX: Duration = Duration::from_secs(5);

pub(super) struct Logs {
    line: Line,
    post: Post,
    limits: Limits,
    part: Part,
    clock: Arc<dyn Clock>,
    /// Tells our records from other writers'.
    writer: u64,
    idle: Mutex<Vec<Cursor>>,
    tails: Mutex<HashMap<String, Arc<Tail>>>,
}

impl Logs {
    pub fn new(dial: Arc<Dial>, limits: Limits, part: Part) -> Self {
        let (clock, writer) = (dial.clock.clone(), dial.dice.u64());
        let line = Line::new("logs", dial);
        Self { line, post: Post::new(), limits, part, clock, writer, idle: Mutex::default(), tails: Mutex::default() }
    }

    pub fn shut(&self) {
        self.line.shut();
    }

    /// Waits for the connection, and then sends once: what may have been appended is not appended again.
    pub async fn append(&self, log: &LogName<'_>, batch: &[Bytes]) -> Result<u64, BrokerError> {
        batch.iter().try_for_each(check_size)?;
        let bytes: usize = batch.iter().map(Bytes::len).sum();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(BrokerError::TooLarge { bytes, bound: MESSAGE_BYTES_MAX });
        }
        if batch.is_empty() {
            return Ok(self.extent(log).await?.1);
        }
        let tail = self.tail(&log.queue);
        let (up, claim) = loop {
            let up = self.line.up().await?;
            match self.line.answered(&up, self.prepare(&up, log, &tail)).await {
                Ok(claim) => break (up, claim),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.look_again(&up, log).await,
            }
        };
        let seat = self.post.seat(&self.line, &up).await.map_err(Trouble::give_up)?;
        let exchange = log.entrance.as_deref().unwrap_or_default();
        let to = Address { exchange, key: &log.queue, must_arrive: MustArrive::Yes };
        let properties = persistent().with_message_id(claim.id().into());
        let mut left = (0..batch.len()).collect();
        seat.send(&to, batch, &properties, &mut left)
            .await
            .map_err(|undelivered| self.not_appended(log, undelivered))?;
        seat.leave();
        self.line.answered(&up, claim.offset()).await.map_err(Trouble::give_up)
    }

    /// It may have been the log that went, and not the connection.
    async fn look_again(&self, up: &Up, log: &LogName<'_>) {
        forget_log(&self.line, &log.queue);
        self.line.after_loss(up.generation).await;
    }

    async fn prepare(&self, up: &Up, log: &LogName<'_>, tail: &Arc<Tail>) -> Result<tail::Claim, Trouble> {
        ensure_log(&self.line, up, log, &self.limits, self.part).await?;
        ensure_begun(&self.line, up, &log.queue).await?;
        tail.claim(up, self.clock.monotonic()).await
    }

    fn not_appended(&self, log: &LogName<'_>, undelivered: Undelivered) -> BrokerError {
        let why = match undelivered {
            Undelivered::Trouble(trouble) => return trouble.give_up(),
            Undelivered::Nacked => "the stream takes nothing now",
            Undelivered::Unroutable => {
                forget_log(&self.line, &log.queue);
                "it was deleted; it is made anew by the next append"
            }
        };
        BrokerError::Log { name: log.ours.into(), why: why.into() }
    }

    fn tail(&self, queue: &str) -> Arc<Tail> {
        let mut tails = self.tails.lock();
        tails.retain(|of, tail| of == queue || Arc::strong_count(tail) > 1 || !tail.is_idle(self.clock.monotonic()));
        tails.entry(queue.into()).or_insert_with(|| Tail::new(queue, self.writer)).clone()
    }

    pub async fn read(&self, log: &LogName<'_>, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        loop {
            let up = self.line.up().await?;
            match self.try_read(&up, log, offset, limit).await {
                Ok(records) => return Ok(records),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.look_again(&up, log).await,
            }
        }
    }

    async fn try_read(&self, up: &Up, log: &LogName<'_>, offset: u64, limit: u32) -> Result<Vec<Record>, Trouble> {
        let mut loan = match self.take_idle(&log.queue, offset, up.generation) {
            Some(cursor) => Loan { logs: self, cursor: Some(cursor) },
            None => {
                // From 0 on nothing need be known: either it is there, or what comes first says that it is gone.
                if offset > 0 {
                    self.check_offset(up, log, offset).await?;
                }
                Loan { logs: self, cursor: Some(self.line.answered(up, self.open(up, log, offset)).await?) }
            }
        };
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
            self.check_offset(up, log, offset).await?;
        }
        Ok(cursor.take(limit as usize))
    }

    async fn open(&self, up: &Up, log: &LogName<'_>, offset: u64) -> Result<Cursor, Trouble> {
        ensure_log(&self.line, up, log, &self.limits, self.part).await?;
        Cursor::open(up, &log.queue, Start::At(offset), cursor::PREFETCH).await
    }

    async fn check_offset(&self, up: &Up, log: &LogName<'_>, offset: u64) -> Result<(), Trouble> {
        let (first, next) = self.line.answered(up, self.try_extent(up, log)).await?;
        if (first..=next).contains(&offset) {
            return Ok(());
        }
        Err(Trouble::Said(BrokerError::NoSuchOffset { name: log.ours.into(), offset, first, next }))
    }

    fn take_idle(&self, queue: &str, offset: u64, generation: u64) -> Option<Cursor> {
        let mut idle = self.idle.lock();
        idle.retain(|cursor| cursor.generation == generation);
        let at = idle.iter().position(|cursor| cursor.queue == queue && cursor.next == offset)?;
        Some(idle.remove(at))
    }

    pub async fn extent(&self, log: &LogName<'_>) -> Result<(u64, u64), BrokerError> {
        loop {
            let up = self.line.up().await?;
            match self.line.answered(&up, self.try_extent(&up, log)).await {
                Ok(extent) => return Ok(extent),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.look_again(&up, log).await,
            }
        }
    }

    pub async fn forget(&self, log: &LogName<'_>) -> Result<(), BrokerError> {
        loop {
            let up = self.line.up().await?;
            let removed = self.line.answered(&up, remove_log(&up, &log.queue)).await;
            forget_log(&self.line, &log.queue);
            self.idle.lock().retain(|cursor| cursor.queue != log.queue);
            self.tails.lock().remove(&log.queue);
            match removed {
                Ok(()) => return Ok(()),
                Err(Trouble::Said(error)) => return Err(error),
                Err(Trouble::Lost(_)) => self.line.after_loss(up.generation).await,
            }
        }
    }

    async fn try_extent(&self, up: &Up, log: &LogName<'_>) -> Result<(u64, u64), Trouble> {
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

/// A cursor in use. Whoever gives up waiting loses nothing: it goes back to the idle ones.
struct Loan<'a> {
    logs: &'a Logs,
    cursor: Option<Cursor>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let Some(cursor) = self.cursor.take() else { return };
        let mut idle = self.logs.idle.lock();
        if idle.len() >= IDLE_CURSORS_MAX {
            idle.remove(0);
        }
        idle.push(cursor);
    }
}
