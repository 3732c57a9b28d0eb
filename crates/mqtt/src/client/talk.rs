//! One connection of a client, from CONNACK to its end.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use mutirao_core::clock::{ClockExt, Mono};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::outgoing::Outgoing;
use super::run::Stream;
use super::{Options, Order, Received, State};
use crate::acks::{Ack, Acks, NotTaken};
use crate::codec::{self, Handling, Malformed, Packet, Pid, Publish};
use crate::session::OTHERS_PID;

const WRITE_BYTES: usize = 32 << 10;
const READ_BYTES: usize = 1 << 10;
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
    /// Read, and still to be given to the program; until then nothing more is read.
    held: Option<Received>,
    heard: Mono,
    said: Mono,
    out: BytesMut,
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
        let (acks, out) = (Acks::default(), BytesMut::new());
        let subscribes = subscribes && !options.subscriptions.is_empty();
        let subscribed = !subscribes;
        Self { options, outgoing, incoming, told, subscribes, subscribed, acks, held: None, heard: now, said: now, out }
    }

    /// Does the server know what this client wants to hear?
    pub fn subscribed(&self) -> bool {
        self.subscribed
    }

    pub async fn run(
        &mut self,
        mut stream: Box<dyn Stream>,
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
        match self.talk(&mut *stream, buffer, orders).await {
            Ok(()) => Ended::Finished,
            Err(why) => Ended::Broke(why),
        }
    }

    async fn talk(
        &mut self,
        stream: &mut dyn Stream,
        mut buffer: BytesMut,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<(), Break> {
        let clock = self.options.clock.clone();
        let mut wanted = true;
        loop {
            while self.listens()
                && let Some(packet) = codec::decode(&mut buffer, self.options.packet_bytes_max)?
            {
                self.heard = clock.monotonic();
                self.hear(packet)?;
            }
            while let Some(ack) = self.acks.ready() {
                self.say(&ack.into());
            }
            let (waiting, written) = self.outgoing.pull(WRITE_BYTES, clock.monotonic());
            let more = !waiting.is_empty();
            waiting.into_iter().for_each(|publish| self.say(&Packet::Publish(publish)));
            if !wanted && self.outgoing.is_empty() {
                self.say(&Packet::Disconnect);
                self.flush(stream).await?;
                return Ok(());
            }
            self.flush(stream).await?;
            written.done();
            let (listens, quiet) = (self.listens(), self.quiet_until());
            tokio::select! {
                biased;
                ack = self.acks.next() => self.say(&ack?.into()),
                room = self.incoming.reserve(), if self.held.is_some() => {
                    if let (Ok(room), Some(held)) = (room, self.held.take()) {
                        room.send(held);
                    }
                    self.heard = clock.monotonic();
                }
                read = read(stream, &mut buffer), if listens => {
                    if read? == 0 {
                        return Err(Break::Closed);
                    }
                }
                order = orders.recv(), if wanted && self.outgoing.has_room() => match order {
                    Some(order) => self.outgoing.take(order, clock.monotonic()),
                    None => wanted = false,
                },
                () = clock.sleep_until(quiet) => {
                    if listens && clock.monotonic().since(self.heard) >= self.options.keep_alive.mul_f64(1.5) {
                        return Err(Break::Silent);
                    }
                    self.say(&Packet::PingReq);
                }
                () = std::future::ready(()), if more => {}
            }
        }
    }

    fn listens(&self) -> bool {
        self.held.is_none() && self.acks.len() < self.options.unaccepted_max.max(1)
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
        self.held = Some(Received { topic, payload, retained: retain, done });
        Ok(())
    }

    fn say(&mut self, packet: &Packet) {
        self.said = self.options.clock.monotonic();
        if let Err(error) = codec::encode(packet, &mut self.out) {
            debug!(%error, "a packet was not sent");
        }
    }

    async fn flush(&mut self, stream: &mut dyn Stream) -> Result<(), Break> {
        if self.out.is_empty() {
            return Ok(());
        }
        let write = async {
            stream.write_all(&self.out).await?;
            stream.flush().await
        };
        self.options.clock.timeout(self.options.connect_wait_max, write).await.map_err(|_| Break::Stuck)??;
        self.out.clear();
        Ok(())
    }
}

async fn read(stream: &mut dyn Stream, buffer: &mut BytesMut) -> io::Result<usize> {
    buffer.reserve(READ_BYTES);
    stream.read_buf(buffer).await
}
