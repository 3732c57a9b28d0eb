//! From the first byte to CONNACK: who is this, and may they come in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use mutirao_core::clock::ClockExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::Shared;
use super::addresses::Place;
use super::connection::Connection;
use crate::codec::{self, Answer, Connect, Malformed, Packet};
use crate::gate::{Knock, Refusal};
use crate::hub::{Arrival, ConnId, Handle, Welcome};
use crate::port::{Delivery, Speaker};

/// Bytes that are made room for at once; small devices say little.
const READ_BYTES: usize = 1 << 10;
/// Client ids are kept with their sessions and written in logs.
const CLIENT_ID_BYTES_MAX: usize = 128;

/// How often the gate is asked about one who knocks while others are expelled.
const ASKED_MAX: u32 = 8;

/// Why a connection never became a session.
#[derive(Debug, thiserror::Error)]
enum Stranger {
    #[error("it said nothing that could be answered in time")]
    Silent,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("its first packet was no CONNECT")]
    NoConnect,
    #[error(transparent)]
    Refused(#[from] Refusal),
}

pub async fn greet<S>(
    mut stream: S,
    conn: ConnId,
    peer: SocketAddr,
    mut place: Place,
    shared: &Shared,
    stopping: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut buffer = BytesMut::new();
    let limit = shared.limits.connect_wait_max;
    let admitted = tokio::select! {
        biased;
        () = stopping.cancelled() => return,
        admitted = shared.clock.timeout(limit, admit(&mut stream, &mut buffer, conn, peer, shared)) => admitted,
    };
    let (mut connection, welcome) = match admitted.unwrap_or(Err(Stranger::Silent)) {
        Ok(admitted) => admitted,
        Err(stranger) => return turn_away(stream, peer, stranger, shared).await,
    };
    place.known();
    connection.converse(stream, buffer, welcome, shared, stopping).await;
}

/// What the hub made of somebody whom the gate let in.
async fn admit<S>(
    stream: &mut S,
    buffer: &mut BytesMut,
    conn: ConnId,
    peer: SocketAddr,
    shared: &Shared,
) -> Result<(Connection, Welcome<mpsc::Sender<Delivery>>), Stranger>
where
    S: AsyncRead + Unpin + Send,
{
    let mut connect = first_packet(stream, buffer, shared).await?;
    let client_id = match connect.client_id.as_str() {
        "" if !connect.clean => return Err(Refusal::ClientId.into()),
        "" => format!("auto-{:016x}", shared.dice.u64()),
        id if id.len() > CLIENT_ID_BYTES_MAX => return Err(Refusal::ClientId.into()),
        id => id.to_owned(),
    };
    let knock = Knock {
        peer,
        client_id: client_id.clone(),
        user: connect.user.take().filter(|user| !user.is_empty()),
        password: connect.password.take().filter(|password| !password.is_empty()),
    };
    let client_id: Arc<str> = client_id.into();
    for _ in 0..ASKED_MAX {
        let expulsions = shared.hub.lock().expulsions();
        let guest = shared.gate.admit(&knock).await?;
        let speaker = Speaker { who: guest.who.clone(), client_id: client_id.clone(), standing: guest.standing };
        let handle = Handle::default();
        let (client_id, will) = (client_id.clone(), connect.will.clone());
        let arrival = Arrival { guest, client_id, clean: connect.clean, will };
        let now = shared.clock.monotonic();
        let welcome = {
            let mut hub = shared.hub.lock();
            // What the gate said may be what it would not say any more: whoever was expelled since had no session yet.
            (hub.expulsions() == expulsions).then(|| hub.connect(conn, arrival, handle.clone(), now))
        };
        if let Some(welcome) = welcome {
            // Nothing may wait from here on: dropped between the two, this would leave a session that nobody ends.
            return Ok((Connection::new(conn, handle, speaker, connect.keep_alive_s, now), welcome?));
        }
    }
    Err(Refusal::Unavailable.into())
}

async fn first_packet<S>(stream: &mut S, buffer: &mut BytesMut, shared: &Shared) -> Result<Connect, Stranger>
where
    S: AsyncRead + Unpin,
{
    loop {
        match codec::decode(buffer, shared.limits.connect_bytes_max)? {
            Some(Packet::Connect(connect)) => return Ok(connect),
            Some(_) => return Err(Stranger::NoConnect),
            None => {}
        }
        buffer.reserve(READ_BYTES);
        match stream.read_buf(buffer).await {
            Ok(0) | Err(_) => return Err(Stranger::Silent),
            Ok(_) => {}
        }
    }
}

/// Says why as far as the protocol can, and writes it down: refusals of people with their reason, noise only for debugging.
async fn turn_away<S: AsyncWrite + Unpin + Send>(mut stream: S, peer: SocketAddr, why: Stranger, shared: &Shared) {
    let count = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
    let answer = match &why {
        Stranger::Silent => {
            count(&shared.refusals.silent);
            None
        }
        Stranger::Malformed(Malformed::Level(_)) => {
            count(&shared.refusals.malformed);
            Some(Answer::WrongProtocol)
        }
        Stranger::Malformed(_) | Stranger::NoConnect => {
            count(&shared.refusals.malformed);
            None
        }
        Stranger::Refused(refusal) => {
            count(&shared.refusals.refused);
            Some(Answer::from(*refusal))
        }
    };
    match answer.and_then(|_| shared.lines.one_more(shared.clock.monotonic())) {
        Some(left_out) => info!(%peer, %why, left_out, "an MQTT client was refused"),
        None => debug!(%peer, %why, "an MQTT connection was closed"),
    }
    let Some(answer) = answer else { return };
    let mut out = BytesMut::new();
    if codec::encode(&Packet::ConnAck { session_present: false, answer }, &mut out).is_ok() {
        let wait = shared.limits.write_wait_max;
        // Whoever does not read why they were refused has only themselves.
        let _ = shared.clock.timeout(wait, async { stream.write_all(&out).await.and(stream.shutdown().await) }).await;
    }
}
