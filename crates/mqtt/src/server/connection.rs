//! A client that was let in, until it goes. One loop: acknowledge what was accepted, write what waits, read what came.
//!
//! It reads nothing while it writes, nor while the program has not accepted what it read: a client that does not read, or
//! says more than can be taken, is held back by its own socket and costs nobody else anything.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use mutirao_core::clock::{Clock, ClockExt, Mono};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::Shared;
use crate::acks::{Ack, Acks, NotTaken};
use crate::codec::{self, Answer, Handling, Malformed, Packet, Publish};
use crate::hub::{ConnId, Farewell, Fault, Handle, Heard, Welcome};
use crate::port::{Delivery, Speaker, deliver};

/// Bytes of messages that are taken from the hub for one write.
const WRITE_BYTES: usize = 32 << 10;
const READ_BYTES: usize = 1 << 10;
/// An empty buffer larger than this is given back.
const IDLE_BYTES: usize = 4 << 10;

/// Why a conversation ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("it said goodbye")]
    Goodbye,
    #[error("it closed the connection without a goodbye")]
    Closed,
    #[error("nothing was heard of it for one and a half times its keep alive")]
    Silent,
    #[error("it did not read what it was sent")]
    SlowReader,
    #[error("another connection took its place, or its rights were taken away")]
    Replaced,
    #[error("the listener ends")]
    Stopping,
    #[error("it sent what a client does not send")]
    WrongPacket,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub struct Connection {
    conn: ConnId,
    handle: Handle,
    speaker: Speaker,
    /// One and a half times what the client promised; none when it promised nothing.
    silence_max: Option<Duration>,
    heard: Mono,
    acks: Acks,
    out: BytesMut,
}

impl Connection {
    pub fn new(conn: ConnId, handle: Handle, speaker: Speaker, keep_alive_s: u16, now: Mono) -> Self {
        let silence_max = (keep_alive_s > 0).then(|| Duration::from_millis(u64::from(keep_alive_s) * 1_500));
        Self { conn, handle, speaker, silence_max, heard: now, acks: Acks::default(), out: BytesMut::new() }
    }

    pub async fn converse<S>(
        &mut self,
        mut stream: S,
        buffer: BytesMut,
        welcome: Welcome<mpsc::Sender<Delivery>>,
        shared: &Shared,
        stopping: &CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let Welcome { session_present, will } = welcome;
        self.say(&Packet::ConnAck { session_present, answer: Answer::Accepted });
        let gone = self.handle.gone.clone();
        let former = self.speaker.clone();
        let talk = async {
            if let Some(will) = will {
                // Nobody waits for its acknowledgement: whose will it was is gone.
                let _ = deliver(will, &former).await;
            }
            match self.talk(&mut stream, buffer, shared).await {
                Err(end) => end,
                Ok(never) => match never {},
            }
        };
        let end = tokio::select! {
            biased;
            () = stopping.cancelled() => End::Stopping,
            () = gone.cancelled() => End::Replaced,
            end = talk => end,
        };
        tokio::select! {
            biased;
            () = self.part(end, shared) => {}
            () = stopping.cancelled() => {}
        }
        // Best effort; a peer that reads nothing is not waited for.
        let _ = shared.clock.timeout(shared.limits.write_wait_max, stream.shutdown()).await;
    }

    async fn talk<S>(
        &mut self,
        stream: &mut S,
        mut buffer: BytesMut,
        shared: &Shared,
    ) -> Result<std::convert::Infallible, End>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let clock = &*shared.clock;
        loop {
            while self.acks.len() < shared.limits.unaccepted_max
                && let Some(packet) = codec::decode(&mut buffer, shared.limits.packet_bytes_max)?
            {
                self.hear(packet, shared).await?;
                // After what it said was dealt with: time in which we kept it waiting does not count against it.
                self.heard = clock.monotonic();
            }
            while let Some(ack) = self.acks.ready() {
                self.acknowledge(ack, shared);
            }
            let waiting = shared.hub.lock().pull(self.conn, WRITE_BYTES, clock.monotonic());
            let more = !waiting.is_empty();
            waiting.into_iter().for_each(|publish| self.say(&Packet::Publish(publish)));
            self.flush(stream, shared).await?;
            if buffer.is_empty() && buffer.capacity() > IDLE_BYTES {
                buffer = BytesMut::new();
            }
            let listens = self.acks.len() < shared.limits.unaccepted_max;
            let wake = self.handle.wake.clone();
            tokio::select! {
                biased;
                ack = self.acks.next() => {
                    let ack = ack?;
                    if !listens {
                        self.heard = clock.monotonic();
                    }
                    self.acknowledge(ack, shared);
                }
                read = read(stream, &mut buffer), if listens => {
                    if read? == 0 {
                        return Err(End::Closed);
                    }
                }
                () = silence(clock, self.heard, self.silence_max), if listens => return Err(End::Silent),
                () = wake.notified() => {}
                // Last: while others keep it busy writing, what it says must still be heard.
                () = std::future::ready(()), if more => {}
            }
        }
    }

    async fn hear(&mut self, packet: Packet, shared: &Shared) -> Result<(), End> {
        match packet {
            Packet::Publish(publish) => return self.hear_publish(publish, shared).await,
            Packet::PubAck(pid) => shared.hub.lock().acknowledged(self.conn, pid),
            Packet::PubRel(pid) => {
                shared.hub.lock().released(self.conn, pid);
                self.say(&Packet::PubComp(pid));
            }
            Packet::Subscribe { pid, filters } => {
                let granted = shared.hub.lock().subscribe(self.conn, &filters, shared.clock.monotonic());
                self.say(&Packet::SubAck { pid, granted });
            }
            Packet::Unsubscribe { pid, filters } => {
                shared.hub.lock().unsubscribe(self.conn, &filters);
                self.say(&Packet::UnsubAck(pid));
            }
            Packet::PingReq => self.say(&Packet::PingResp),
            Packet::Disconnect => return Err(End::Goodbye),
            _ => return Err(End::WrongPacket),
        }
        Ok(())
    }

    async fn hear_publish(&mut self, publish: Publish, shared: &Shared) -> Result<(), End> {
        let ack = match publish.handling {
            Handling::AtMostOnce => None,
            Handling::AtLeastOnce { pid, .. } => Some(Ack::Last(pid)),
            Handling::ExactlyOnce { pid, .. } => Some(Ack::First(pid)),
        };
        let heard = shared.hub.lock().publish(self.conn, publish, shared.clock.monotonic())?;
        let delivered = match heard {
            Heard::Known => Ok(vec![]),
            Heard::New(routed) => deliver(routed, &self.speaker).await,
        };
        if let (Some(ack), waits) = (ack, delivered?) {
            self.acks.push(ack, waits);
        }
        Ok(())
    }

    fn acknowledge(&mut self, ack: Ack, shared: &Shared) {
        if let Ack::First(pid) = ack {
            shared.hub.lock().accepted(self.conn, pid);
        }
        self.say(&ack.into());
    }

    fn say(&mut self, packet: &Packet) {
        // What came in by a packet, or through a port whose topics are checked, fits into one.
        if let Err(error) = codec::encode(packet, &mut self.out) {
            debug!(%error, "a packet was not sent");
        }
    }

    async fn flush<S: AsyncWrite + Unpin + Send>(&mut self, stream: &mut S, shared: &Shared) -> Result<(), End> {
        if self.out.is_empty() {
            return Ok(());
        }
        let write = async {
            stream.write_all(&self.out).await?;
            stream.flush().await
        };
        shared.clock.timeout(shared.limits.write_wait_max, write).await.map_err(|_| End::SlowReader)??;
        self.out.clear();
        if self.out.capacity() > IDLE_BYTES {
            self.out = BytesMut::new();
        }
        Ok(())
    }

    /// Tells the hub, and everybody what its will says.
    async fn part(&mut self, end: End, shared: &Shared) {
        let Speaker { who, client_id, .. } = &self.speaker;
        let to_blame = match &end {
            End::Malformed(_) | End::Fault(_) | End::WrongPacket | End::SlowReader | End::NotTaken(_) => {
                shared.lines.one_more(shared.clock.monotonic())
            }
            _ => None,
        };
        match to_blame {
            Some(left_out) => {
                info!(%who, client_id = ?client_id, why = %end, left_out, "an MQTT client was cut off");
            }
            None => debug!(%who, client_id = ?client_id, why = %end, "an MQTT client is gone"),
        }
        let farewell = if matches!(end, End::Goodbye) { Farewell::Said } else { Farewell::Unsaid };
        let will = shared.hub.lock().closed(self.conn, farewell, shared.clock.monotonic());
        if let Some(will) = will
            && !matches!(end, End::Stopping)
        {
            // Nobody waits for its acknowledgement.
            let _ = deliver(will, &self.speaker).await;
        }
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut BytesMut) -> io::Result<usize> {
    buffer.reserve(READ_BYTES);
    stream.read_buf(buffer).await
}

async fn silence(clock: &dyn Clock, heard: Mono, silence_max: Option<Duration>) {
    match silence_max {
        Some(silence_max) => clock.sleep_until(heard.plus(silence_max)).await,
        None => std::future::pending().await,
    }
}
