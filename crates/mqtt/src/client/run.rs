//! Connecting, for as long as somebody wants it.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use mutirao_core::clock::ClockExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tracing::{debug, info, warn};

use super::outgoing::Outgoing;
use super::talk::{Ended, Talk};
use super::{Options, Order, Received, State};
use crate::codec::{self, Answer, Connect, Malformed, Packet};

pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Why a connection could not be had.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot reach {server}: {source}")]
    Unreachable { server: String, source: io::Error },
    #[error("{server} did not answer in time")]
    Silent { server: String },
    #[error("{server} speaks no MQTT 3.1.1: {source}")]
    Malformed { server: String, source: Malformed },
    #[error("{server} refused this client ({answer:?}); look at its user, password and client id")]
    Refused { server: String, answer: Answer },
}

pub async fn run(
    options: Options,
    mut orders: mpsc::Receiver<Order>,
    incoming: mpsc::Sender<Received>,
    told: watch::Sender<State>,
) {
    let mut outgoing = Outgoing::new(&options);
    let (mut subscribed, mut tries) = (false, 0u32);
    loop {
        match connect(&options).await {
            Ok((stream, buffer, session_present)) => {
                let subscribes = !(session_present && subscribed);
                let mut talk = Talk::new(&options, &mut outgoing, &incoming, &told, subscribes);
                let ended = talk.run(stream, buffer, &mut orders).await;
                subscribed = talk.subscribed();
                // Only one that went well: a server that cuts everybody off at once must not be hammered.
                tries = if subscribed { 0 } else { tries };
                outgoing.parted();
                match ended {
                    Ended::Finished => return,
                    Ended::Broke(why) => {
                        info!(server = %options.server, %why, "the MQTT connection broke; trying again")
                    }
                }
                told.send_replace(State::Connecting);
            }
            Err(failure) => {
                report(&failure, tries);
                let state = match failure {
                    Failure::Refused { answer, .. } => State::Refused(answer),
                    _ => State::Connecting,
                };
                told.send_replace(state);
            }
        }
        // Nobody is left who could say or hear anything.
        if orders.is_closed() && orders.is_empty() && (outgoing.is_empty() || incoming.is_closed()) {
            return;
        }
        let pause = pause(tries, options.pause_min, options.pause_max);
        tries = tries.saturating_add(1);
        options.clock.sleep(options.dice.jitter(pause)).await;
    }
}

/// Doubling from the first to the last.
fn pause(tries: u32, min: Duration, max: Duration) -> Duration {
    min.saturating_mul(1 << tries.min(16)).min(max)
}

/// One line when it begins; the tries that follow are only for whoever debugs.
fn report(failure: &Failure, tries: u32) {
    match tries {
        0 => warn!(%failure, "no MQTT connection; trying again until there is one"),
        _ => debug!(%failure, tries, "still no MQTT connection"),
    }
}

async fn connect(options: &Options) -> Result<(Box<dyn Stream>, BytesMut, bool), Failure> {
    let server = || options.server.clone();
    let limit = options.connect_wait_max;
    let connected = options.clock.timeout(limit, handshake(options)).await;
    connected.unwrap_or_else(|_| Err(Failure::Silent { server: server() }))
}

async fn handshake(options: &Options) -> Result<(Box<dyn Stream>, BytesMut, bool), Failure> {
    let server = || options.server.clone();
    let unreachable = |source| Failure::Unreachable { server: server(), source };
    let tcp = TcpStream::connect(&options.server).await.map_err(unreachable)?;
    let _ = tcp.set_nodelay(true);
    let mut stream: Box<dyn Stream> = match &options.tls {
        None => Box::new(tcp),
        Some((config, name)) => {
            let connector = TlsConnector::from(config.clone());
            Box::new(connector.connect(name.clone(), tcp).await.map_err(unreachable)?)
        }
    };
    let mut buffer = BytesMut::new();
    let hello = Connect {
        client_id: options.client_id.clone(),
        clean: options.clean,
        keep_alive_s: options.keep_alive.as_secs().min(u64::from(u16::MAX)) as u16,
        will: options.will.clone(),
        user: options.user.clone(),
        password: options.password.clone(),
    };
    codec::encode(&Packet::Connect(hello), &mut buffer)
        .map_err(|error| unreachable(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    stream.write_all(&buffer).await.map_err(unreachable)?;
    stream.flush().await.map_err(unreachable)?;
    buffer.clear();
    loop {
        let malformed = |source| Failure::Malformed { server: server(), source };
        match codec::decode(&mut buffer, options.packet_bytes_max).map_err(malformed)? {
            Some(Packet::ConnAck { session_present, answer: Answer::Accepted }) => {
                return Ok((stream, buffer, session_present));
            }
            Some(Packet::ConnAck { answer, .. }) => return Err(Failure::Refused { server: server(), answer }),
            Some(_) => return Err(malformed(Malformed::Type)),
            None => {}
        }
        if stream.read_buf(&mut buffer).await.map_err(unreachable)? == 0 {
            return Err(unreachable(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let (min, max) = (Duration::from_millis(250), Duration::from_secs(30));
        let pauses: Vec<_> = [0, 1, 2, 6, 7, 1_000].map(|tries| pause(tries, min, max).as_millis()).into();
        assert_eq!(pauses, [250, 500, 1_000, 16_000, 30_000, 30_000]);
    }
}
