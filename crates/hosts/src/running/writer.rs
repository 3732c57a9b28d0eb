//! Appends to one log, in order, one append under way at a time; what comes meanwhile makes the next one. A writer that cannot
//! append tries for ever, and says why: an append that may have arrived is repeated, and readers know by its numbers what they
//! have.
//!
//! How much may be appended at all, [`pressure`](super::pressure) says.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::BrokerError;
use mutirao_core::clock::ClockExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::Means;
use super::pressure::{May, Pressure};
use crate::measure::Meter;

/// Of what goes in one append, unless one record alone is larger.
const APPEND_BYTES_MAX: usize = 4 << 20;
const APPEND_RECORDS_MAX: usize = 512;
/// Of what waits to be appended; past it whoever writes waits.
const WAITING_BYTES_MAX: usize = 8 << 20;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A log that is full is looked at again after this, should the word of its readers have been lost.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// What was not confirmed by then is trouble to be told of.
const SLOW: Duration = Duration::from_secs(2);
/// Of the time that it waits, this share goes into looking where the log ends, at most.
const LOOKING: u32 = 4;

#[derive(Default)]
struct Line {
    /// Each with the number of what it belongs to.
    waiting: VecDeque<(u64, Bytes)>,
    bytes: usize,
    given: u64,
}

/// Of one log. Cheap to clone; its task ends with `stop`.
#[derive(Clone)]
pub struct Writer {
    log: Arc<str>,
    line: Arc<Mutex<Line>>,
    more: Arc<Notify>,
    pressure: Arc<Mutex<Pressure>>,
    eased: Arc<Notify>,
    /// Everything up to this number is durable.
    durable: Arc<AtomicU64>,
    trouble: watch::Receiver<Option<String>>,
}

impl Writer {
    /// `moved` is told whenever something became durable.
    pub fn start(
        log: String,
        pressure: Pressure,
        means: &Means,
        meter: Arc<Meter>,
        moved: Arc<Notify>,
        stop: CancellationToken,
    ) -> Self {
        let (trouble_tx, trouble) = watch::channel(None);
        let writer = Self {
            log: log.into(),
            line: Arc::default(),
            more: Arc::default(),
            pressure: Arc::new(Mutex::new(pressure)),
            eased: Arc::default(),
            durable: Arc::default(),
            trouble,
        };
        let task = Appending { writer: writer.clone(), means: means.clone(), meter, moved, trouble: trouble_tx };
        tokio::spawn(async move { stop.run_until_cancelled(task.run()).await });
        writer
    }

    pub fn log(&self) -> &str {
        &self.log
    }

    /// Takes a record to append. Ask [`has_room`](Self::has_room) first; it is taken all the same. The number by which
    /// [`durable`](Self::durable) knows it.
    pub fn give(&self, record: Bytes) -> u64 {
        let mut line = self.line.lock();
        line.given += 1;
        line.bytes += record.len();
        let number = line.given;
        line.waiting.push_back((number, record));
        drop(line);
        self.more.notify_one();
        number
    }

    /// The number of the last that was given.
    pub fn given(&self) -> u64 {
        self.line.lock().given
    }

    pub fn has_room(&self) -> bool {
        self.line.lock().bytes < WAITING_BYTES_MAX
    }

    /// Nothing waits, and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.durable() == self.given()
    }

    /// Everything up to this number is in the log.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    pub fn pressure(&self) -> &Mutex<Pressure> {
        &self.pressure
    }

    /// Its readers said something: there may be room.
    pub fn ease(&self) {
        self.eased.notify_one();
    }
}

struct Appending {
    writer: Writer,
    means: Means,
    meter: Arc<Meter>,
    moved: Arc<Notify>,
    trouble: watch::Sender<Option<String>>,
}

impl Appending {
    async fn run(self) {
        loop {
            let (last, batch) = loop {
                match self.next() {
                    Some(next) => break next,
                    None => self.writer.more.notified().await,
                }
            };
            let bytes = batch.iter().map(Bytes::len).sum::<usize>();
            self.wait_for_room(bytes as u64).await;
            self.writer.pressure.lock().appends(batch.len() as u64, bytes as u64);
            self.append(&batch).await;
            self.meter.network(bytes as u64);
            self.writer.line.lock().bytes -= bytes;
            self.writer.durable.store(last, Ordering::Release);
            self.moved.notify_one();
        }
    }

    fn next(&self) -> Option<(u64, Vec<Bytes>)> {
        let most = APPEND_BYTES_MAX.min(self.writer.pressure.lock().append_bytes());
        let mut line = self.writer.line.lock();
        let (mut bytes, mut last, mut batch) = (0, None, Vec::new());
        while let Some((number, record)) = line.waiting.front() {
            bytes += record.len();
            if batch.len() == APPEND_RECORDS_MAX || (bytes > most && !batch.is_empty()) {
                break;
            }
            last = Some(*number);
            batch.extend(line.waiting.pop_front().map(|(_, record)| record));
        }
        last.map(|last| (last, batch))
    }

    async fn wait_for_room(&self, bytes: u64) {
        let clock = &*self.means.clock;
        let since = clock.monotonic();
        loop {
            let now = clock.monotonic();
            let may = self.writer.pressure.lock().may(bytes, now);
            let mut pause = Duration::ZERO;
            match may {
                May::Append => break,
                May::Look => match self.means.broker.extent(&self.writer.log).await {
                    Ok((_, end)) => {
                        let looked = clock.monotonic();
                        pause = looked.since(now) * LOOKING;
                        let mut pressure = self.writer.pressure.lock();
                        pressure.looked(end, looked);
                        if pressure.may(bytes, looked) == May::Append {
                            break;
                        }
                    }
                    Err(error) => self.say(error.to_string()),
                },
                May::Wait => {}
            }
            let _ = clock.timeout(LOOK_AGAIN, self.writer.eased.notified()).await;
            if clock.monotonic().since(since) > SLOW {
                self.say(format!("the log {} is as full as it may be: whoever reads it is slow", self.writer.log));
            }
            clock.sleep(pause).await;
        }
        if self.trouble.borrow().is_some() {
            self.trouble.send_replace(None);
        }
    }

    /// Unless something was said already.
    fn say(&self, why: String) {
        if self.trouble.borrow().is_none() {
            self.trouble.send_replace(Some(why));
        }
    }

    async fn append(&self, batch: &[Bytes]) {
        let clock = &*self.means.clock;
        let mut pause = PAUSE_MIN;
        loop {
            let mut appending = std::pin::pin!(self.means.broker.add(&self.writer.log, batch.to_vec()));
            let appended = match clock.timeout(SLOW, &mut appending).await {
                Ok(appended) => appended,
                Err(_) => {
                    self.trouble.send_replace(Some(self.slow()));
                    appending.await
                }
            };
            match appended {
                Ok(()) => {
                    if self.trouble.borrow().is_some() {
                        self.trouble.send_replace(None);
                    }
                    return;
                }
                Err(error) => {
                    self.trouble.send_replace(Some(error.to_string()));
                    if !matches!(error, BrokerError::Unreachable(_)) {
                        tracing::debug!(log = &*self.writer.log, %error, "records were not appended");
                    }
                }
            }
            clock.sleep(self.means.dice.jitter(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn slow(&self) -> String {
        match self.means.broker.reachable() {
            Err(error) => error.to_string(),
            Ok(()) => format!("the log {} takes nothing at the moment", self.writer.log),
        }
    }
}
