//! The broker inside one process, for `mutirao up` and for tests. Work queues and fanout live in memory and die with the
//! process, which the design allows: the store is the truth. Logs are segment files and survive.
//!
//! Not here: the rules of a queue ([`queue`], pure) and of a log file (`segments`).

pub(crate) mod fanout;
mod queue;
mod work;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::limits::{MESSAGE_BYTES_MAX, NAME_CHARS_MAX};
use parking_lot::RwLock;

use crate::segments::Logs;
use crate::{Broker, BrokerError, Consumer, Counts, DeadLetter, Deletion, Letters, Name, Record, Subscription};
use fanout::Topic;
use work::Lane;

/// How much a broker may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages of one work queue, those with consumers included.
    pub queue_messages_max: usize,
    /// Bytes of one work queue, those with consumers included.
    pub queue_bytes_max: usize,
    /// Dead letters kept for each queue; the oldest make way.
    pub dead_letters_max: usize,
    /// Bytes of dead letters kept for each queue.
    pub dead_bytes_max: usize,
    /// Announcements a subscriber may fall behind by.
    pub backlog_messages_max: usize,
    /// Bytes of announcements a subscriber may fall behind by.
    pub backlog_bytes_max: usize,
    /// Work queues, topics and logs, each.
    pub names_max: usize,
    /// Bytes of one log; past them its oldest segments go.
    pub log_bytes_max: u64,
    /// Bytes after which a log begins a new segment.
    pub segment_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_messages_max: 100_000,
            queue_bytes_max: 512 << 20,
            dead_letters_max: 1_000,
            dead_bytes_max: 64 << 20,
            backlog_messages_max: 1_024,
            backlog_bytes_max: 16 << 20,
            names_max: 10_000,
            log_bytes_max: 1 << 30,
            segment_bytes: 64 << 20,
        }
    }
}

/// The in-process broker.
///
/// ```
/// # tokio_test(async {
/// use mutirao_broker::{Broker, Limits, Memory};
/// let broker = Memory::new(None, Limits::default());
/// broker.publish("tasks.default", vec!["hello".into()]).await?;
/// let mut consumer = broker.consume("tasks.default", 10).await?;
/// let got = consumer.next().await?;
/// assert_eq!(&got[0].body[..], b"hello");
/// consumer.ack_through(got[0].tag).await?;
/// # Ok::<(), mutirao_broker::BrokerError>(()) });
/// # fn tokio_test(f: impl Future<Output = Result<(), mutirao_broker::BrokerError>>) {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f).unwrap();
/// # }
/// ```
pub struct Memory {
    limits: Limits,
    lanes: RwLock<HashMap<String, Arc<Lane>>>,
    topics: RwLock<HashMap<String, Arc<Topic>>>,
    logs: Option<Logs>,
}

impl Memory {
    /// Without a folder there are no logs: appending to one is refused.
    pub fn new(log_folder: Option<PathBuf>, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            lanes: RwLock::default(),
            topics: RwLock::default(),
            logs: log_folder.map(|folder| Logs::new(folder, limits)),
        })
    }

    fn lane(&self, name: &Name) -> Result<Arc<Lane>, BrokerError> {
        named(&self.lanes, name, self.limits.names_max, Lane::is_idle, || Lane::new(name, self.limits))
    }

    fn topic(&self, name: &Name) -> Result<Arc<Topic>, BrokerError> {
        named(&self.topics, name, self.limits.names_max, Topic::is_idle, || Topic::new(self.limits))
    }

    fn logs(&self, name: &Name) -> Result<&Logs, BrokerError> {
        check_name(name)?;
        self.logs.as_ref().ok_or_else(|| BrokerError::Log { name: name.into(), why: "it has no folder".into() })
    }
}

/// The thing called `name`, made when there is none. At the bound on names those that nobody would miss go first.
fn named<T>(
    all: &RwLock<HashMap<String, Arc<T>>>,
    name: &Name,
    names_max: usize,
    idle: impl Fn(&T) -> bool,
    make: impl FnOnce() -> Arc<T>,
) -> Result<Arc<T>, BrokerError> {
    if let Some(found) = all.read().get(name) {
        return Ok(found.clone());
    }
    check_name(name)?;
    let mut all = all.write();
    if all.len() >= names_max {
        // Whoever holds a second reference is about to use it.
        all.retain(|_, thing| Arc::strong_count(thing) > 1 || !idle(thing));
    }
    if all.len() >= names_max && !all.contains_key(name) {
        return Err(refused(name, format!("there are {names_max} names already")));
    }
    Ok(all.entry(name.into()).or_insert_with(make).clone())
}

pub(crate) fn refused(name: &Name, why: impl Into<String>) -> BrokerError {
    BrokerError::Refused { what: name.chars().take(NAME_CHARS_MAX).collect(), why: why.into() }
}

/// Names become folders here and routing keys elsewhere, so they are plain.
pub(crate) fn check_name(name: &Name) -> Result<(), BrokerError> {
    let plain =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if name.len() <= NAME_CHARS_MAX && name.split('.').all(plain) {
        return Ok(());
    }
    Err(refused(name, format!("a name is dotted parts of letters, digits, - and _, at most {NAME_CHARS_MAX} in all")))
}

/// Refuses a message that could not travel.
pub(crate) fn check_size(body: &Bytes) -> Result<(), BrokerError> {
    if body.len() <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    Err(BrokerError::TooLarge { bytes: body.len(), bound: MESSAGE_BYTES_MAX })
}

#[async_trait]
impl Broker for Memory {
    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        // Nothing below waits, so a publisher in a loop would keep its thread from everybody else.
        tokio::task::consume_budget().await;
        batch.iter().try_for_each(check_size)?;
        self.lane(queue)?.publish(batch)
    }

    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        if credit == 0 {
            return Err(refused(queue, "a consumer without credit would never get anything"));
        }
        Ok(Box::new(self.lane(queue)?.join(credit)))
    }

    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        Ok(self.lane(queue)?.counts())
    }

    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        check_name(queue)?;
        let mut lanes = self.lanes.write();
        // Consumers hold a reference, and whoever is about to publish or to consume.
        if lanes.get(queue).is_some_and(|lane| Arc::strong_count(lane) > 1) {
            return Ok(Deletion::InUse);
        }
        lanes.remove(queue);
        Ok(Deletion::Gone)
    }

    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        Ok(self.lane(queue)?.dead_letters(limit))
    }

    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        check_name(queue)?;
        Ok(self.lanes.read().get(queue).map_or(0, |lane| lane.counts().dead))
    }

    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        check_name(queue)?;
        Ok(self.lanes.read().get(queue).map_or(0, |lane| lane.remove_dead_letters(which)))
    }

    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        tokio::task::consume_budget().await;
        check_size(&body)?;
        self.topic(topic)?.announce(body);
        Ok(())
    }

    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        Ok(Box::new(self.topic(topic)?.listen()))
    }

    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.logs(log)?.append(log, batch).await
    }

    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        self.logs(log)?.read(log, offset, limit).await
    }

    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.logs(log)?.extent(log).await
    }

    async fn trim(&self, log: &Name, before: u64) -> Result<(), BrokerError> {
        self.logs(log)?.trim(log, before).await
    }

    async fn forget(&self, log: &Name) -> Result<(), BrokerError> {
        self.logs(log)?.forget(log).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_their_folder_are_refused() {
        for bad in ["", ".", "..", "a..b", "../x", "a/b", "tasks.", "a b", "ä", &"x".repeat(NAME_CHARS_MAX + 1)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name("results.jobs.0").is_ok() && check_name("tasks.My_queue-1").is_ok());
    }

    #[tokio::test]
    async fn idle_names_make_way_and_used_ones_do_not() {
        let broker = Memory::new(None, Limits { names_max: 2, ..Limits::default() });
        broker.publish("used", vec!["x".into()]).await.unwrap();
        broker.counts("idle").await.unwrap();
        broker.publish("new", vec!["y".into()]).await.unwrap();
        assert!(matches!(broker.counts("more").await, Err(BrokerError::Refused { .. })));
        assert_eq!(broker.counts("used").await.unwrap().ready, 1);
    }
}
