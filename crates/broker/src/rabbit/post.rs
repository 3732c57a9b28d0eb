//! Sending, confirmed. Each batch has a channel to itself while it is under way: so what comes back as unroutable or
//! refused can only be of this batch (the client library hands a returned message to whichever confirm comes next), and
//! a batch that is given up takes nobody else's confirms along.
//!
//! Not here: where to and what next ([`super::work`], [`super::fanout`], [`super::logs`]).

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::line::{ANSWER_MAX, Line, Up};
use super::trouble::{Trouble, writing};
use crate::BrokerError;

/// Batches under way at a time; past it callers wait.
const BATCHES_MAX: usize = 32;
/// How long a caller waits for one of these. Queues that do not answer give theirs up sooner, so that those who do answer are
/// seated in between; past it there are so many of the others that the caller had better know.
const SEAT_WAIT_MAX: Duration = ANSWER_MAX.saturating_mul(2);
/// Messages of one batch that may be unconfirmed. The client library looks through all of them at each grouped confirm.
const UNCONFIRMED_MAX: usize = 512;
/// Bytes of one batch that may be unconfirmed; a single message may be larger.
const UNCONFIRMED_BYTES_MAX: usize = 8 << 20;
const PERSISTENT: u8 = 2;

/// Where messages go.
pub(super) struct Address<'a> {
    pub exchange: &'a str,
    pub key: &'a str,
    /// Nobody there to take it is an error.
    pub must_arrive: MustArrive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MustArrive {
    Yes,
    No,
}

/// What became of a batch that was not confirmed whole.
#[derive(Debug)]
pub(super) enum Undelivered {
    /// There is no such queue.
    Unroutable,
    /// The queue takes no more, or cannot take anything now.
    Nacked,
    Trouble(Trouble),
}

impl From<Trouble> for Undelivered {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// Channels with nothing under way on them.
pub(super) struct Post {
    batches: Arc<Semaphore>,
    idle: Mutex<Vec<(u64, Channel)>>,
}

/// A channel for one batch. One that is dropped before [`Seat::leave`] has something under way, and is closed.
pub(super) struct Seat<'a> {
    post: &'a Post,
    line: &'a Line,
    up: &'a Up,
    channel: Channel,
    _batch: OwnedSemaphorePermit,
}

type Confirming<'a> = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send + 'a>>;

impl Post {
    pub fn new() -> Self {
        Self { batches: Arc::new(Semaphore::new(BATCHES_MAX)), idle: Mutex::default() }
    }

    /// A channel to send on, when one is free within a while.
    pub async fn seat<'a>(&'a self, line: &'a Line, up: &'a Up) -> Result<Seat<'a>, Trouble> {
        let closed = |_| Trouble::Said(BrokerError::Closed);
        let seated = line.in_time(up, SEAT_WAIT_MAX, self.batches.clone().acquire_owned()).await;
        let all_taken =
            || Trouble::Lost(format!("all {BATCHES_MAX} ways of sending are taken, by queues that are slow"));
        let batch = seated.ok_or_else(all_taken)?.map_err(closed)?;
        let channel = match self.idle_channel(up.generation) {
            Some(channel) => channel,
            None => line.answered(up, confirming_channel(up)).await?,
        };
        Ok(Seat { post: self, line, up, channel, _batch: batch })
    }

    fn idle_channel(&self, generation: u64) -> Option<Channel> {
        let mut idle = self.idle.lock();
        idle.retain(|(of, channel)| *of == generation && channel.status().connected());
        idle.pop().map(|(_, channel)| channel)
    }
}

async fn confirming_channel(up: &Up) -> Result<Channel, Trouble> {
    let channel = up.channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(writing("confirms"))?;
    Ok(channel)
}

impl Seat<'_> {
    /// Sends those messages of a batch that are `left`, in order, and waits for every confirm. What was confirmed is
    /// left no longer, also when another failed.
    pub async fn send(
        &self,
        to: &Address<'_>,
        batch: &[Bytes],
        properties: &BasicProperties,
        left: &mut BTreeSet<usize>,
    ) -> Result<(), Undelivered> {
        let mut under_way: VecDeque<(usize, Confirming<'_>)> = VecDeque::new();
        let mut bytes = 0;
        let mut silent = false;
        let mut first_failure = Ok(());
        for n in left.clone() {
            while first_failure.is_ok()
                && (under_way.len() >= UNCONFIRMED_MAX || (bytes + batch[n].len() > UNCONFIRMED_BYTES_MAX && bytes > 0))
            {
                let Some((oldest, confirming)) = under_way.pop_front() else { break };
                bytes -= batch[oldest].len();
                first_failure = first_failure.and(self.settle(confirming, to).await.map(|()| _ = left.remove(&oldest)));
            }
            if first_failure.is_err() {
                break;
            }
            let mut confirming = self.publish(to, &batch[n], properties.clone());
            // The first look puts it in the outgoing queue, so this fixes the order; nobody waits for the socket here.
            if let Some(early) = confirming.as_mut().now_or_never() {
                first_failure = judge(early, to).map(|()| _ = left.remove(&n));
                continue;
            }
            bytes += batch[n].len();
            under_way.push_back((n, confirming));
        }
        for (n, mut confirming) in under_way {
            silent |= matches!(first_failure, Err(Undelivered::Trouble(_)));
            // One silence is enough, also after a refusal: whether the others were confirmed is looked at, and not waited
            // for.
            let settled = match silent {
                true => match confirming.as_mut().now_or_never() {
                    Some(said) => judge(said, to),
                    None => continue,
                },
                false => self.settle(confirming, to).await,
            };
            silent |= matches!(settled, Err(Undelivered::Trouble(_)));
            first_failure = first_failure.and(settled.map(|()| _ = left.remove(&n)));
        }
        first_failure
    }

    fn publish<'a>(&'a self, to: &Address<'_>, body: &'a Bytes, properties: BasicProperties) -> Confirming<'a> {
        let options = BasicPublishOptions { mandatory: to.must_arrive == MustArrive::Yes, immediate: false };
        let (exchange, key) = (to.exchange.into(), to.key.into());
        Box::pin(async move { self.channel.basic_publish(exchange, key, options, body, properties).await?.await })
    }

    async fn settle(&self, confirming: Confirming<'_>, to: &Address<'_>) -> Result<(), Undelivered> {
        self.line.answered(self.up, async { judge(confirming.await, to) }).await
    }

    /// Nothing is under way: the channel can serve the next.
    pub fn leave(self) {
        self.post.idle.lock().push((self.up.generation, self.channel));
    }
}

fn judge(confirmation: lapin::Result<Confirmation>, to: &Address<'_>) -> Result<(), Undelivered> {
    match confirmation {
        Ok(Confirmation::Ack(None)) => Ok(()),
        Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => Err(Undelivered::Unroutable),
        Ok(Confirmation::Nack(None)) => Err(Undelivered::Nacked),
        Ok(Confirmation::NotRequested) => {
            Err(Undelivered::Trouble(Trouble::Lost("the channel does not confirm".into())))
        }
        Err(error) => {
            let name = if to.exchange.is_empty() { to.key } else { to.exchange };
            Err(Undelivered::Trouble(writing(name)(error)))
        }
    }
}

pub(super) fn persistent() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(PERSISTENT)
}

pub(super) fn with_header(properties: BasicProperties, key: &str, text: &str) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert(key.into(), lapin::types::AMQPValue::LongString(text.into()));
    properties.with_headers(headers)
}
