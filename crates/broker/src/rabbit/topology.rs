//! What must exist in RabbitMQ, and with which arguments. Managers declare each once for a connection, which makes it when
//! it is missing and checks it when it is there. Workers make nothing but their own ears: they find what managers made.

use lapin::options::{
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{ExchangeKind, Queue};

use super::Part;
use super::denied::{Access, Asked};
use super::line::{Line, Up};
use super::names::{LogName, Work};
use super::trouble::{ACCESS_REFUSED, NOT_FOUND, Trouble, about, code, configuring, reading};
use crate::takers::Takers;
use crate::{Deletion, Limits};

/// Times a message may come back unacknowledged before it counts as poison and goes to the dead letters. RabbitMQ 4 would
/// choose the same by itself, RabbitMQ 3 no limit at all.
const DELIVERIES_MAX: u32 = 20;
/// The same where the message is the only copy of what somebody was promised: a server that restarts now and then while the
/// database is away must not use it up.
const DELIVERIES_OF_PROMISES_MAX: u32 = 10_000;
/// Looking at a dead letter counts as a delivery, and looking must not remove it.
const LOOKS_MAX: u32 = i32::MAX as u32;

fn number(value: impl TryInto<i64>) -> AMQPValue {
    AMQPValue::LongLongInt(value.try_into().unwrap_or(i64::MAX))
}

fn word(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn table<const N: usize>(arguments: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (key, value) in arguments {
        table.insert(key.into(), value);
    }
    table
}

fn work_arguments(work: &Work, limits: &Limits) -> FieldTable {
    let (deliveries_max, one_at_a_time) = match work.takers {
        Takers::Many => (DELIVERIES_MAX, None),
        Takers::OneAtATime => (DELIVERIES_OF_PROMISES_MAX, Some(AMQPValue::Boolean(true))),
    };
    let mut arguments = table([
        ("x-queue-type", word("quorum")),
        ("x-delivery-limit", number(deliveries_max)),
        ("x-max-length", number(limits.queue_messages_max)),
        ("x-max-length-bytes", number(limits.queue_bytes_max)),
        ("x-overflow", word("reject-publish")),
        ("x-dead-letter-exchange", word("")),
        ("x-dead-letter-routing-key", word(&work.dead)),
        ("x-dead-letter-strategy", word("at-least-once")),
    ]);
    if let Some(so) = one_at_a_time {
        arguments.insert("x-single-active-consumer".into(), so);
    }
    arguments
}

fn dead_arguments(limits: &Limits) -> FieldTable {
    table([
        ("x-queue-type", word("quorum")),
        ("x-delivery-limit", number(LOOKS_MAX)),
        ("x-max-length", number(limits.dead_letters_max)),
        ("x-max-length-bytes", number(limits.dead_bytes_max)),
        ("x-overflow", word("drop-head")),
    ])
}

fn log_arguments(limits: &Limits) -> FieldTable {
    table([
        ("x-queue-type", word("stream")),
        ("x-max-length-bytes", number(limits.log_bytes_max)),
        ("x-stream-max-segment-size-bytes", number(limits.segment_bytes)),
    ])
}

/// Of a subscriber's own queue: the oldest make way. The type is said because a vhost may have another by default.
pub(super) fn ear_arguments(limits: &Limits) -> FieldTable {
    table([
        ("x-queue-type", word("classic")),
        ("x-max-length", number(limits.backlog_messages_max)),
        ("x-max-length-bytes", number(limits.backlog_bytes_max)),
        ("x-overflow", word("drop-head")),
    ])
}

/// A work queue and its dead letters exist and are as they should be.
pub(super) async fn ensure_work(line: &Line, up: &Up, work: &Work, limits: &Limits, part: Part) -> Result<(), Trouble> {
    if line.has_declared(up, &work.queue) {
        return Ok(());
    }
    match part {
        Part::Manager => make_work(up, work, limits).await?,
        Part::Worker => found(look(up, &work.queue).await?, &work.queue)?,
    }
    line.note_declared(up, &work.queue);
    Ok(())
}

async fn make_work(up: &Up, work: &Work, limits: &Limits) -> Result<(), Trouble> {
    declare(up, &work.dead, dead_arguments(limits), Access::Configure).await?;
    if let Some(entrance) = &work.entrance {
        // Before the queue: a worker that sees the queue takes it that there is a way in.
        declare_exchange(up, entrance, ExchangeKind::Direct).await?;
    }
    // That we may make queues is known by now; one that has dead letters must be ours to read as well.
    declare(up, &work.queue, work_arguments(work, limits), Access::Read).await?;
    if let Some((exchange, key)) = &work.topic {
        declare_exchange(up, exchange, ExchangeKind::Topic).await?;
        bind(up, &work.queue, exchange, key).await?;
    }
    match &work.entrance {
        Some(entrance) => bind(up, &work.queue, entrance, &work.queue).await,
        None => Ok(()),
    }
}

async fn bind(up: &Up, queue: &str, exchange: &str, key: &str) -> Result<(), Trouble> {
    let options = QueueBindOptions::default();
    let channel = up.channel().await?;
    let bound = channel.queue_bind(queue.into(), exchange.into(), key.into(), options, FieldTable::default());
    bound.await.map_err(about(Asked::Bind, queue))
}

/// A work queue and its dead letters are no more, unless somebody takes from it. Quorum queues cannot be told to go only if
/// they are unused, so that is looked at: whoever comes in between attaches again, and finds it made anew.
pub(super) async fn remove_work(up: &Up, work: &Work) -> Result<Deletion, Trouble> {
    if look(up, &work.queue).await?.is_some_and(|queue| queue.consumer_count() > 0) {
        return Ok(Deletion::InUse);
    }
    let channel = up.channel().await?;
    for name in [&work.queue, &work.dead] {
        // One that is not there is gone: RabbitMQ says the same.
        channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await.map_err(configuring(name))?;
    }
    Ok(Deletion::Gone)
}

/// What a worker needs and a manager has not made yet, or is just making anew, is waited for.
fn found(queue: Option<Queue>, name: &str) -> Result<(), Trouble> {
    match queue {
        Some(_) => Ok(()),
        None => Err(Trouble::Lost(format!("{name} is not there; a manager makes it"))),
    }
}

/// A log exists and can be reached. Hosts of streams make logs as managers do, but not the way to them.
pub(super) async fn ensure_log(
    line: &Line,
    up: &Up,
    log: &LogName,
    limits: &Limits,
    part: Part,
) -> Result<(), Trouble> {
    let LogName { queue, entrance, .. } = log;
    if line.has_declared(up, queue) {
        return Ok(());
    }
    declare(up, queue, log_arguments(limits), Access::Configure).await?;
    if let Some(entrance) = entrance {
        ensure_exchange(line, up, entrance, ExchangeKind::Direct, part).await?;
        bind(up, queue, entrance, queue).await?;
    }
    line.note_declared(up, queue);
    Ok(())
}

/// The exchange of all announcements.
pub(super) async fn ensure_fanout(line: &Line, up: &Up, exchange: &str, part: Part) -> Result<(), Trouble> {
    ensure_exchange(line, up, exchange, ExchangeKind::Topic, part).await
}

/// An exchange that managers make and others find.
pub(super) async fn ensure_exchange(
    line: &Line,
    up: &Up,
    exchange: &str,
    kind: ExchangeKind,
    part: Part,
) -> Result<(), Trouble> {
    if line.has_declared(up, exchange) {
        return Ok(());
    }
    match part {
        Part::Manager => declare_exchange(up, exchange, kind).await?,
        Part::Worker => match ask_exchange(up, exchange, kind, Ask::Look).await? {
            Err(error) if code(&error) == Some(NOT_FOUND) => found(None, exchange)?,
            asked => asked.map_err(reading(exchange))?,
        },
    }
    line.note_declared(up, exchange);
    Ok(())
}

/// A mark that something was, or is just about to be, appended to a log: an exchange of the log's name, which nobody
/// uses. RabbitMQ 3 tells nobody whether a stream is empty, and an empty stream is silent.
pub(super) async fn ensure_begun(line: &Line, up: &Up, log: &str) -> Result<(), Trouble> {
    let key = begun(log);
    if line.has_declared(up, &key) {
        return Ok(());
    }
    declare_exchange(up, log, ExchangeKind::Fanout).await?;
    line.note_declared(up, &key);
    Ok(())
}

fn begun(log: &str) -> String {
    format!("{log} has begun")
}

/// A log turned out not to be there any more.
pub(super) fn forget_log(line: &Line, log: &str) {
    line.forget_declared(log);
    line.forget_declared(&begun(log));
}

/// A log is no more, and then not its mark either: without the mark, what lies in it would be taken for nothing.
pub(super) async fn remove_log(up: &Up, log: &str) -> Result<(), Trouble> {
    let channel = up.channel().await?;
    // What is not there is gone: RabbitMQ says the same.
    channel.queue_delete(log.into(), QueueDeleteOptions::default()).await.map_err(configuring(log))?;
    channel.exchange_delete(log.into(), ExchangeDeleteOptions::default()).await.map_err(configuring(log))
}

pub(super) async fn has_begun(up: &Up, log: &str) -> Result<bool, Trouble> {
    match ask_exchange(up, log, ExchangeKind::Fanout, Ask::Look).await? {
        Ok(()) => Ok(true),
        Err(error) if code(&error) == Some(NOT_FOUND) => Ok(false),
        Err(error) => Err(reading(log)(error)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// Make it, or check it when it is there.
    Make,
    Look,
}

async fn declare_exchange(up: &Up, name: &str, kind: ExchangeKind) -> Result<(), Trouble> {
    match ask_exchange(up, name, kind.clone(), Ask::Make).await? {
        // It may have been made, and checked, by somebody who is allowed to.
        Err(refused) if code(&refused) == Some(ACCESS_REFUSED) => {
            match ask_exchange(up, name, kind, Ask::Look).await? {
                Err(error) if code(&error) == Some(NOT_FOUND) => Err(configuring(name)(refused)),
                looked => looked.map_err(configuring(name)),
            }
        }
        made => made.map_err(configuring(name)),
    }
}

async fn ask_exchange(up: &Up, name: &str, kind: ExchangeKind, ask: Ask) -> Result<lapin::Result<()>, Trouble> {
    let options = ExchangeDeclareOptions { durable: true, passive: ask == Ask::Look, ..Default::default() };
    let channel = up.channel().await?;
    Ok(channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await)
}

/// `wanted` is the permission that a refusal is about, should the server not say.
async fn declare(up: &Up, name: &str, arguments: FieldTable, wanted: Access) -> Result<(), Trouble> {
    // A channel of its own: a declaration that fails takes its channel along.
    let channel = up.channel().await?;
    let options = QueueDeclareOptions::durable();
    match channel.queue_declare(name.into(), options, arguments).await {
        Ok(_) => Ok(()),
        // It may have been made, and checked, by somebody who is allowed to.
        Err(error) if code(&error) == Some(ACCESS_REFUSED) => match look(up, name).await? {
            Some(_) => Ok(()),
            None => Err(about(Asked::For(wanted), name)(error)),
        },
        Err(error) => Err(configuring(name)(error)),
    }
}

/// A queue as it is, without making it.
pub(super) async fn look(up: &Up, name: &str) -> Result<Option<Queue>, Trouble> {
    let channel = up.channel().await?;
    let options = QueueDeclareOptions::durable().passive();
    match channel.queue_declare(name.into(), options, FieldTable::default()).await {
        Ok(queue) => Ok(Some(queue)),
        Err(error) if code(&error) == Some(NOT_FOUND) => Ok(None),
        Err(error) => Err(reading(name)(error)),
    }
}
