//! Sockets around the [hub](crate::hub): a listener, with or without TLS, and one task for each connection. Bounded in
//! connections, in the time until a CONNECT, in packet size, in what waits for a slow reader and how long.

mod addresses;
mod connection;
mod hello;
mod lines;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mutirao_core::clock::{Clock, ClockExt};
use mutirao_core::dice::Dice;
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::gate::Gate;
use crate::hub::{ConnId, Hub};
use crate::limits::Limits;
use crate::port::{Port, SharedHub};

/// How often what is too old is thrown away.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// After an accept that failed, which it mostly does for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// A peer that vanished without a word, and whose keep alive is off or long, is found out by the kernel.
const TCP_IDLE: Duration = Duration::from_secs(60);

pub struct Config {
    pub listen: SocketAddr,
    pub limits: Limits,
    pub tls: Option<TlsAcceptor>,
    pub gate: Arc<dyn Gate>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

/// What every connection needs.
pub(crate) struct Shared {
    limits: Limits,
    tls: Option<TlsAcceptor>,
    gate: Arc<dyn Gate>,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
    hub: SharedHub,
    refusals: Refusals,
    lines: lines::Lines,
    last_conn: AtomicU64,
}

/// Connections that never became a session. They only grow.
#[derive(Debug, Default)]
pub struct Refusals {
    /// One connection too many, of all or of its address.
    pub full: AtomicU64,
    /// No CONNECT in time, or none at all.
    pub silent: AtomicU64,
    /// Not MQTT 3.1.1, or not well formed.
    pub malformed: AtomicU64,
    /// By the gate, or for want of room for its session.
    pub refused: AtomicU64,
}

/// A running listener. Dropping it ends it at once; [`Listener::stop`] waits for the connections.
pub struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Listener {
    pub async fn start(config: Config) -> io::Result<Self> {
        let Config { listen, limits, tls, gate, clock, dice } = config;
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let hub = Arc::new(Mutex::new(Hub::new(limits.clone())));
        let (refusals, lines, last_conn) = (Refusals::default(), lines::Lines::default(), AtomicU64::new(0));
        let shared = Arc::new(Shared { limits, tls, gate, clock, dice, hub, refusals, lines, last_conn });
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(listener, shared.clone(), stopping.clone(), tasks.clone()));
        tasks.spawn(sweep(shared.clone(), stopping.clone()));
        Ok(Self { address, shared, stopping, tasks })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn port(&self) -> Port {
        let packet_bytes_max = self.shared.limits.packet_bytes_max;
        Port { hub: self.shared.hub.clone(), clock: self.shared.clock.clone(), packet_bytes_max }
    }

    pub fn refusals(&self) -> &Refusals {
        &self.shared.refusals
    }

    /// Takes nobody in, and waits until all connections are closed. They notice at once.
    pub async fn stop(self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.shared.hub.lock().close_ports();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.shared.hub.lock().close_ports();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stopping: CancellationToken, tasks: TaskTracker) {
    let room = Arc::new(Semaphore::new(shared.limits.connections_max));
    let addresses = Arc::new(addresses::Addresses::default());
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted; is the limit of open files reached?");
                shared.clock.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = room.clone().try_acquire_owned() else {
            shared.refusals.full.fetch_add(1, Ordering::Relaxed);
            debug!(%peer, "refused: there are as many connections as there may be");
            continue;
        };
        let Some(place) = addresses.enter(peer.ip(), &shared.limits) else {
            shared.refusals.full.fetch_add(1, Ordering::Relaxed);
            debug!(%peer, "refused: its address has as many connections as one may have");
            continue;
        };
        prepare(&stream);
        let (shared, stopping) = (shared.clone(), stopping.clone());
        tasks.spawn(async move { attend(stream, peer, &shared, &stopping, place, permit).await });
    }
}

/// Best effort: without these a connection still works.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, TCP_IDLE);
    let _ = sockopt::set_tcp_keepintvl(stream, TCP_IDLE / 6);
    let _ = sockopt::set_tcp_keepcnt(stream, 6);
}

/// One connection, from the first byte to the last. Its place is free when this ends.
async fn attend(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    stopping: &CancellationToken,
    place: addresses::Place,
    permit: OwnedSemaphorePermit,
) {
    let conn = ConnId(shared.last_conn.fetch_add(1, Ordering::Relaxed));
    match shared.tls.clone() {
        None => hello::greet(stream, conn, peer, place, shared, stopping).await,
        Some(tls) => {
            let handshake = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                handshake = shared.clock.timeout(shared.limits.connect_wait_max, tls.accept(stream)) => handshake,
            };
            match handshake {
                Ok(Ok(stream)) => hello::greet(stream, conn, peer, place, shared, stopping).await,
                Ok(Err(error)) => {
                    shared.refusals.malformed.fetch_add(1, Ordering::Relaxed);
                    debug!(%peer, %error, "refused: no TLS");
                }
                Err(_) => {
                    shared.refusals.silent.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
    drop(permit);
}

async fn sweep(shared: Arc<Shared>, stopping: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = shared.clock.sleep(SWEEP_EVERY) => {}
        }
        let now = shared.clock.monotonic();
        shared.hub.lock().sweep(now);
    }
}
