//! The near end of a link: holds what a peer asks against its [`Permit`], puts it to the broker, and sends back answers,
//! deliveries and announcements. One call of [`serve`] is one connection.
//!
//! Not here: consumers and subscriptions, each of which is a task of its own ([`channel`]), and the way out ([`outbox`]).

mod channel;
mod outbox;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use mutirao_core::clock::{Clock, ClockExt};

use super::frame::{Answer, Ask, FRAME_COST_MAX, Frame, Rubbish, SUBPROTOCOL, Tell, WS_BYTES_MAX, fitting, unpack};
use super::permit::{Deed, Permit};
use super::{PING_EVERY, Silence, WRITE_MAX};
use crate::{BrokerError, Shared};
use channel::Channels;
use outbox::{Outbox, Outgoing, Parting};

/// Requests of one connection that the broker may be busy with; past it the socket is not read.
const REQUESTS_MAX: usize = 256;
/// Reads of one connection that may wait at the end of a log: a host of streams has one for each log that it reads.
const READS_MAX: usize = 4_096;
/// Reckoned bytes of records that answer one read, unless the first alone is larger: others wait behind it.
const READ_COST_MAX: usize = 1 << 20;
/// How long a peer gets to take the close frame.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Bytes of a close frame's reason, by RFC 6455.
const REASON_BYTES_MAX: usize = 123;
const BUFFER_BYTES: usize = 64 << 10;

/// Sets an upgrade up for a link: subprotocol, message bound, buffers.
pub fn prepare(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade
        .protocols([SUBPROTOCOL])
        .max_message_size(WS_BYTES_MAX)
        .max_frame_size(WS_BYTES_MAX)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
}

/// Why a connection ended.
enum Ended {
    ByPeer,
    Lost(String),
    Rubbish(Rubbish),
}

/// Serves one connection until it ends. What its consumers had not acknowledged goes back to the queues.
///
/// The listener must set `TCP_NODELAY` on what it accepts (`ListenerExt::tap_io`): a confirm that follows a delivery
/// would otherwise wait up to 40 ms for the peer's delayed acknowledgement.
pub async fn serve(mut socket: WebSocket, broker: Shared, permit: Permit, clock: Arc<dyn Clock>) {
    if socket.protocol().is_none_or(|chosen| chosen.as_bytes() != SUBPROTOCOL.as_bytes()) {
        let reason = format!("this link speaks {SUBPROTOCOL}");
        let _ = clock.timeout(CLOSE_MAX, socket.send(close(close_code::PROTOCOL, &reason))).await;
        return;
    }
    let (mut sink, stream) = socket.split();
    let (outbox, outgoing) = outbox::bounded();
    let mut session = Session {
        channels: Channels::new(broker.clone(), outbox.clone()),
        broker,
        permit,
        outbox,
        clock: clock.clone(),
        busy: FuturesUnordered::new(),
        reads: FuturesUnordered::new(),
        readers: HashMap::new(),
    };
    let ended = tokio::select! {
        ended = session.run(stream) => ended,
        why = write(&mut sink, outgoing, &*clock) => Ended::Lost(why),
    };
    drop(session);
    let goodbye = match ended {
        Ended::ByPeer => close(close_code::NORMAL, ""),
        Ended::Lost(why) => {
            tracing::debug!(why, "a link was lost");
            return;
        }
        Ended::Rubbish(rubbish) => {
            tracing::warn!(%rubbish, "closing a link whose peer sends rubbish");
            close(close_code::PROTOCOL, &rubbish.to_string())
        }
    };
    let _ = clock.timeout(CLOSE_MAX, sink.send(goodbye)).await;
}

fn close(code: u16, reason: &str) -> Message {
    let end = reason.floor_char_boundary(REASON_BYTES_MAX);
    Message::Close(Some(CloseFrame { code, reason: reason[..end].into() }))
}

/// Sends what is in the outbox, as much at a time as is ready. Ends only when the socket does.
async fn write(sink: &mut SplitSink<WebSocket, Message>, mut outgoing: Outgoing, clock: &dyn Clock) -> String {
    loop {
        let message = match outgoing.next().await {
            Parting::Frames(packed) => Message::Binary(packed),
            Parting::Ping => Message::Ping(Bytes::new()),
        };
        match clock.timeout(WRITE_MAX, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "the peer takes nothing".into(),
        }
    }
}

/// A read under way: its id and what to answer.
type Read = BoxFuture<'static, (u64, Frame<Tell>)>;

struct Session {
    broker: Shared,
    permit: Permit,
    outbox: Outbox,
    clock: Arc<dyn Clock>,
    channels: Channels,
    /// Requests the broker did not answer at once. They always end.
    busy: FuturesUnordered<BoxFuture<'static, Frame<Tell>>>,
    /// Reads, which may wait for ever.
    reads: FuturesUnordered<Abortable<Read>>,
    readers: HashMap<u64, AbortHandle>,
}

impl Session {
    async fn run(&mut self, mut stream: SplitStream<WebSocket>) -> Ended {
        let clock = self.clock.clone();
        let mut tick = clock.sleep(PING_EVERY);
        let mut silence = Silence::default();
        loop {
            tokio::select! {
                biased;
                Some(answer) = self.busy.next() => self.outbox.send(answer).await,
                Some(read) = self.reads.next() => {
                    if let Ok((id, answer)) = read {
                        self.readers.remove(&id);
                        self.outbox.send(answer).await;
                    }
                }
                () = &mut tick => {
                    tick = clock.sleep(PING_EVERY);
                    // A peer that is not being read cannot be heard.
                    if self.busy.len() >= REQUESTS_MAX {
                        silence.broken();
                    }
                    if let Err(why) = silence.tick() {
                        return Ended::Lost(why);
                    }
                    self.outbox.ping().await;
                }
                message = stream.next(), if self.busy.len() < REQUESTS_MAX => {
                    silence.broken();
                    let mut bytes = match message {
                        Some(Ok(Message::Binary(bytes))) => bytes,
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                        Some(Ok(Message::Text(_))) => return Ended::Rubbish(Rubbish::Text),
                        Some(Ok(Message::Close(_))) | None => return Ended::ByPeer,
                        Some(Err(error)) => return Ended::Lost(error.to_string()),
                    };
                    while !bytes.is_empty() {
                        let taken = match unpack(&mut bytes) {
                            Ok(frame) => self.take(frame).await,
                            Err(rubbish) => Err(rubbish),
                        };
                        if let Err(rubbish) = taken {
                            return Ended::Rubbish(rubbish);
                        }
                    }
                }
            }
        }
    }

    async fn take(&mut self, Frame { head, mut bodies }: Frame<Ask>) -> Result<(), Rubbish> {
        let broker = self.broker.clone();
        match head {
            Ask::Publish { id, queue } => {
                let allowed = self.permit.check(Deed::Publish, &queue);
                let allowed = allowed.and_then(|()| self.permit.check_bodies(&queue, &bodies));
                self.ask(id, allowed, async move { broker.publish(&queue, bodies).await.map(|()| nothing()) }).await;
            }
            Ask::Announce { id, topic } => {
                let body = bodies.pop().ok_or(Rubbish::Bodies("an announcement"))?;
                let allowed = self.permit.check(Deed::Announce, &topic);
                self.ask(id, allowed, async move { broker.announce(&topic, body).await.map(|()| nothing()) }).await;
            }
            Ask::Counts { id, queue } => {
                let allowed = self.permit.check(Deed::Count, &queue);
                let work = async move { broker.counts(&queue).await.map(|c| (Answer::Counts(c), Vec::new())) };
                self.ask(id, allowed, work).await;
            }
            Ask::Delete { id, queue } => {
                let allowed = self.permit.check(Deed::Delete, &queue);
                let work = async move { broker.delete(&queue).await.map(|d| (Answer::Deleted(d), Vec::new())) };
                self.ask(id, allowed, work).await;
            }
            Ask::DeadLetters { id, queue, limit } => {
                let allowed = self.permit.check(Deed::Consume, &queue);
                self.ask(id, allowed, dead_letters(broker, queue, limit)).await;
            }
            Ask::CountDeadLetters { id, queue } => {
                let allowed = self.permit.check(Deed::Consume, &queue);
                let work = async move { broker.count_dead_letters(&queue).await.map(number) };
                self.ask(id, allowed, work).await;
            }
            Ask::RemoveDeadLetters { id, queue, which } => {
                let allowed = self.permit.check(Deed::Delete, &queue);
                let work = async move { broker.remove_dead_letters(&queue, &which).await.map(number) };
                self.ask(id, allowed, work).await;
            }
            Ask::Append { id, log } => {
                let allowed = self.permit.check(Deed::Append, &log);
                let work = async move { broker.append(&log, bodies).await.map(|at| (Answer::Offset(at), Vec::new())) };
                self.ask(id, allowed, work).await;
            }
            Ask::Add { id, log } => {
                let allowed = self.permit.check(Deed::Append, &log);
                self.ask(id, allowed, async move { broker.add(&log, bodies).await.map(|()| nothing()) }).await;
            }
            Ask::Trim { id, log, before } => {
                let allowed = self.permit.check(Deed::Trim, &log);
                self.ask(id, allowed, async move { broker.trim(&log, before).await.map(|()| nothing()) }).await;
            }
            Ask::ForgetLog { id, log } => {
                let allowed = self.permit.check(Deed::Forget, &log);
                self.ask(id, allowed, async move { broker.forget(&log).await.map(|()| nothing()) }).await;
            }
            Ask::Extent { id, log } => {
                let allowed = self.permit.check(Deed::Read, &log);
                let work = async move {
                    broker.extent(&log).await.map(|(first, next)| (Answer::Extent(first, next), Vec::new()))
                };
                self.ask(id, allowed, work).await;
            }
            Ask::Read { id, log, offset, limit } => {
                let allowed = self.permit.check(Deed::Read, &log).and_then(|()| self.room_to_read());
                if let Err(error) = allowed {
                    self.outbox.send(Frame::bare(Tell::Failed { id, error })).await;
                    return Ok(());
                }
                let work = async move { (id, answer(id, records(broker, log, offset, limit).await)) };
                let (read, handle) = futures_util::future::abortable(work.boxed());
                self.readers.insert(id, handle);
                self.reads.push(read);
            }
            Ask::Forget { id } => {
                if let Some(handle) = self.readers.remove(&id) {
                    handle.abort();
                }
            }
            Ask::Consume { channel, queue, credit } => {
                let allowed = self.permit.check(Deed::Consume, &queue);
                self.channels.consume(channel, queue, credit, allowed).await?;
            }
            Ask::Subscribe { channel, topic } => {
                let allowed = self.permit.check(Deed::Subscribe, &topic);
                self.channels.subscribe(channel, topic, allowed).await?;
            }
            Ask::AckThrough { channel, tag } => self.channels.settle(channel, channel::Settle::AckThrough(tag)).await,
            Ask::AckEach { channel, tags } => self.channels.settle(channel, channel::Settle::AckEach(tags)).await,
            Ask::Retire { channel, seen } => self.channels.settle(channel, channel::Settle::Retire(seen)).await,
            Ask::Reject { channel, tag, reason } => {
                self.channels.settle(channel, channel::Settle::Reject(tag, reason)).await;
            }
            Ask::Close { channel } => self.channels.close(channel),
        }
        Ok(())
    }

    /// Answers at once what the broker can do at once, as the in-process one mostly can; the rest joins `busy`.
    async fn ask(
        &mut self,
        id: u64,
        allowed: Result<(), BrokerError>,
        work: impl Future<Output = Result<Answered, BrokerError>> + Send + 'static,
    ) {
        if let Err(error) = allowed {
            self.outbox.send(Frame::bare(Tell::Failed { id, error })).await;
            return;
        }
        let mut work = async move { answer(id, work.await) }.boxed();
        match std::future::poll_fn(|context| std::task::Poll::Ready(work.poll_unpin(context))).await {
            std::task::Poll::Ready(answer) => self.outbox.send(answer).await,
            std::task::Poll::Pending => self.busy.push(work),
        }
    }

    fn room_to_read(&self) -> Result<(), BrokerError> {
        if self.reads.len() < READS_MAX {
            return Ok(());
        }
        Err(BrokerError::Refused { what: "reading".into(), why: format!("{READS_MAX} reads wait already") })
    }
}

type Answered = (Answer, Vec<Bytes>);

fn nothing() -> Answered {
    (Answer::Nothing, Vec::new())
}

fn number(number: u64) -> Answered {
    (Answer::Number(number), Vec::new())
}

fn answer(id: u64, result: Result<Answered, BrokerError>) -> Frame<Tell> {
    match result {
        Ok((answer, bodies)) => Frame { head: Tell::Done { id, answer }, bodies },
        Err(error) => Frame::bare(Tell::Failed { id, error }),
    }
}

async fn dead_letters(broker: Shared, queue: String, limit: u32) -> Result<Answered, BrokerError> {
    let mut letters = broker.dead_letters(&queue, limit).await?;
    letters
        .truncate(fitting(FRAME_COST_MAX, letters.iter().map(|l| super::frame::body_cost(&l.body) + l.reason.len())));
    let (reasons, bodies) = letters.into_iter().map(|letter| (letter.reason, letter.body)).unzip();
    Ok((Answer::DeadLetters(reasons), bodies))
}

async fn records(broker: Shared, log: String, offset: u64, limit: u32) -> Result<Answered, BrokerError> {
    let mut records = broker.read(&log, offset, limit).await?;
    records.truncate(fitting(READ_COST_MAX, records.iter().map(|record| super::frame::body_cost(&record.body))));
    let (offsets, bodies) = records.into_iter().map(|record| (record.offset, record.body)).unzip();
    Ok((Answer::Records(offsets), bodies))
}
