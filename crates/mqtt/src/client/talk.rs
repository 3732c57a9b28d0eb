//! One connection of a client, from CONNACK to its end.
//!
//! It reads and writes at the same time, and never stops reading: acknowledgements of what we said and answers to pings are
//! dealt with whatever else is full, for the program may be waiting for just those before it takes another message. What
//! the program has no room for waits here: a server sends no more of quality 1 than its window, and past a bound of bytes
//! the connection ends instead (they come again); quality 0 that finds no room is dropped, which is what it is for.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use mutirao_core::clock::{ClockExt, Mono};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::outgoing::{Outgoing, Written};
use super::run::Stream;
use super::{Options, Order, Received, State};
use crate::acks::{Ack, Acks, NotTaken};
use crate::codec::{self, Handling, Malformed, Packet, Pid, Publish};
use crate::session::OTHERS_PID;

const WRITE_BYTES: usize = 32 << 10;
const READ_BYTES: usize = 1 << 10;
/// Of messages that the program has no room for.
const HELD_BYTES_MAX: usize = 4 << 20;
/// There is one subscribe at most on its way.
const SUBSCRIBE_PID: Pid = OTHERS_PID;

pub enum Ended {
    /// Nobody wants anything more of it.
    Finished,
    Broke(Break),
}

#[derive(Debug, thiserror::Error)]
pub enum Break {
    #[error("the server closed it")]
    Closed,
    #[error("the server was not heard for one and a half times the keep alive")]
    Silent,
    #[error("the server takes nothing")]
    Stuck,
    #[error("the server sent more than the program could take, and went on")]
    Flooded,
    #[error("the server sent what a server does not send")]
    WrongPacket,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub struct Talk<'a> {
    options: &'a Options,
    outgoing: &'a mut Outgoing,
    incoming: &'a mpsc::Sender<Received>,
    told: &'a watch::Sender<State>,
    subscribes: bool,
    subscribed: bool,
    acks: Acks,
    /// Read, and still to be given to the program.
    held: VecDeque<Received>,
    held_bytes: usize,
    heard: Mono,
    said: Mono,
    out: Out,
}

/// What is being written.
#[derive(Default)]
struct Out {
    bytes: BytesMut,
    unflushed: bool,
    since: Mono,
    /// Something of it was taken since then.
    moved: bool,
    /// Who waits to hear that it was.
    waiting: Vec<Written>,
}

impl Out {
    fn is_done(&self) -> bool {
        self.bytes.is_empty() && !self.unflushed
    }

    /// May be dropped while it waits, and goes on where it was.
    async fn write<W: AsyncWrite + Unpin>(&mut self, writer: &mut W) -> io::Result<()> {
        while !self.bytes.is_empty() {
            self.unflushed = true;
            if writer.write_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.moved = true;
        }
        if self.unflushed {
            writer.flush().await?;
            self.unflushed = false;
        }
        self.waiting.drain(..).for_each(Written::done);
        Ok(())
    }
}

impl<'a> Talk<'a> {
    pub fn new(
        options: &'a Options,
        outgoing: &'a mut Outgoing,
        incoming: &'a mpsc::Sender<Received>,
        told: &'a watch::Sender<State>,
        subscribes: bool,
    ) -> Self {
        let now = options.clock.monotonic();
        let subscribes = subscribes && !options.subscriptions.is_empty();
        Self {
            options,
            outgoing,
            incoming,
            told,
            subscribes,
            subscribed: !subscribes,
            acks: Acks::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            heard: now,
            said: now,
            out: Out::default(),
        }
    }

    /// Does the server know what this client wants to hear?
    pub fn subscribed(&self) -> bool {
        self.subscribed
    }

    pub async fn run(
        &mut self,
        stream: Box<dyn Stream>,
        buffer: BytesMut,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Ended {
        match self.subscribes {
            true => {
                let filters = self.options.subscriptions.clone();
                self.say(&Packet::Subscribe { pid: SUBSCRIBE_PID, filters });
            }
            false => {
                self.told.send_replace(State::Connected);
            }
        }
        match self.talk(stream, buffer, orders).await {
            Ok(()) => Ended::Finished,
            Err(why) => Ended::Broke(why),
        }
    }

    async fn talk(
        &mut self,
        stream: Box<dyn Stream>,
        mut buffer: BytesMut,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<(), Break> {
        let clock = self.options.clock.clone();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut wanted = true;
        loop {
            while let Some(packet) = codec::decode(&mut buffer, self.options.packet_bytes_max)? {
                self.heard = clock.monotonic();
                self.hear(packet)?;
            }
            while let Some(ack) = self.acks.ready() {
                self.say(&ack.into());
            }
            if self.out.is_done() {
                let (waiting, written) = self.outgoing.pull(WRITE_BYTES, clock.monotonic());
                if !waiting.is_empty() {
                    self.out.waiting.push(written);
                }
                waiting.into_iter().for_each(|publish| self.say(&Packet::Publish(publish)));
            }
            if !wanted && self.outgoing.is_empty() && self.out.is_done() {
                self.say(&Packet::Disconnect);
                let last = self.out.write(&mut writer);
                clock.timeout(self.options.connect_wait_max, last).await.map_err(|_| Break::Stuck)??;
                return Ok(());
            }
            let (writes, quiet) = (!self.out.is_done(), self.quiet_until());
            let stuck = self.out.since.plus(self.options.connect_wait_max);
            tokio::select! {
                biased;
                ack = self.acks.next() => self.say(&ack?.into()),
                room = self.incoming.reserve(), if !self.held.is_empty() => match (room, self.held.pop_front()) {
                    (Ok(room), Some(held)) => {
                        self.held_bytes -= held.payload.len();
                        room.send(held);
                    }
                    // Nobody reads any more; what is dropped is not acknowledged.
                    _ => {
                        self.held.clear();
                        self.held_bytes = 0;
                    }
                },
                wrote = self.out.write(&mut writer), if writes => wrote?,
                read = read(&mut reader, &mut buffer) => {
                    if read? == 0 {
                        return Err(Break::Closed);
                    }
                }
                order = orders.recv(), if wanted && self.outgoing.has_room() => match order {
                    Some(order) => self.outgoing.take(order, clock.monotonic()),
                    None => wanted = false,
                },
                () = clock.sleep_until(stuck), if writes => {
                    if !std::mem::take(&mut self.out.moved) {
                        return Err(Break::Stuck);
                    }
                    self.out.since = clock.monotonic();
                }
                () = clock.sleep_until(quiet) => {
                    if clock.monotonic().since(self.heard) >= self.options.keep_alive.mul_f64(1.5) {
                        return Err(Break::Silent);
                    }
                    self.say(&Packet::PingReq);
                }
            }
        }
    }

    /// When something must be said, lest the server takes us for dead. Twice within its patience and ours.
    fn quiet_until(&self) -> Mono {
        self.said.plus((self.options.keep_alive / 2).max(Duration::from_millis(100)))
    }

    fn hear(&mut self, packet: Packet) -> Result<(), Break> {
        match packet {
            Packet::Publish(publish) => self.hear_publish(publish)?,
            Packet::PubAck(pid) => self.outgoing.acknowledged(pid),
            Packet::SubAck { pid: SUBSCRIBE_PID, granted } => {
                for ((filter, _), _) in self.options.subscriptions.iter().zip(&granted).filter(|(_, it)| it.is_none()) {
                    warn!(?filter, "the server refused a subscription; may this client hear that?");
                }
                self.subscribed = true;
                self.told.send_replace(State::Connected);
            }
            Packet::PingResp => {}
            _ => return Err(Break::WrongPacket),
        }
        Ok(())
    }

    fn hear_publish(&mut self, publish: Publish) -> Result<(), Break> {
        let Publish { topic, payload, handling, retain } = publish;
        let done = match handling {
            Handling::AtMostOnce => None,
            Handling::AtLeastOnce { pid, .. } => {
                let (done, accepted) = oneshot::channel();
                self.acks.push(Ack::Last(pid), vec![accepted]);
                Some(done)
            }
            // It asked for no more than 1.
            Handling::ExactlyOnce { .. } => return Err(Break::WrongPacket),
        };
        let full = self.held.len() >= self.options.unaccepted_max.max(1);
        if full && done.is_none() {
            debug!(?topic, "a message of quality 0 found no room");
            return Ok(());
        }
        self.held_bytes += payload.len();
        if full && self.held_bytes > HELD_BYTES_MAX {
            return Err(Break::Flooded);
        }
        self.held.push_back(Received { topic, payload, retained: retain, done });
        Ok(())
    }

    fn say(&mut self, packet: &Packet) {
        self.said = self.options.clock.monotonic();
        if self.out.is_done() {
            (self.out.since, self.out.moved) = (self.said, false);
        }
        if let Err(error) = codec::encode(packet, &mut self.out.bytes) {
            debug!(%error, "a packet was not sent");
        }
    }
}

async fn read(stream: &mut ReadHalf<Box<dyn Stream>>, buffer: &mut BytesMut) -> io::Result<usize> {
    buffer.reserve(READ_BYTES);
    stream.read_buf(buffer).await
}
