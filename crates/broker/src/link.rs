//! The broker over one authenticated WebSocket (`/v1/link`), for worker processes and far nodes: [`serve`] puts any
//! broker behind a socket, [`Link`] is a broker that is reached through one.
//!
//! What the link adds to the trait: a [`Permit`] for each connection, and surviving the loss of the connection. What it
//! does not do: check who calls (the API does, before the upgrade) or know about certificates (`tls` does).
//!
//! Nothing on either side grows without bound. The client's reader never waits (deliveries are bounded by credit,
//! announcements by a backlog, answers by what was asked), so the server's outbox always drains while the peer lives;
//! a server whose outbox is full stops reading, and TCP pushes back.

mod client;
mod frame;
mod permit;
mod server;

use std::time::Duration;

pub use client::{Authorize, Link, LinkState};
pub use frame::SUBPROTOCOL;
pub use permit::{Permit, Vet};
pub use server::{prepare, serve};

/// Each side pings this often.
const PING_EVERY: Duration = Duration::from_millis(3_500);
/// Pings in a row, with nothing heard between them, after which the peer is dead: noticed within 14 s.
const SILENT_PINGS_MAX: u32 = 3;
/// How long one write may take before the peer counts as dead.
const WRITE_MAX: Duration = Duration::from_secs(14);
/// Frames that are ready together travel together, up to about this many bytes.
const COALESCE_BYTES: usize = 256 << 10;

/// Counts the pings that nothing came back for. It counts ticks and not time, so that a reader that was itself held up
/// does not blame its peer.
#[derive(Default)]
struct Silence(u32);

impl Silence {
    fn broken(&mut self) {
        self.0 = 0;
    }

    /// One more ping goes out; an error when the peer has been silent for too long.
    fn tick(&mut self) -> Result<(), String> {
        if self.0 >= SILENT_PINGS_MAX {
            return Err(format!("nothing heard for {} pings", self.0));
        }
        self.0 += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_peer_is_noticed_within_fifteen_seconds() {
        assert!(PING_EVERY * (SILENT_PINGS_MAX + 1) <= Duration::from_secs(15) && WRITE_MAX <= Duration::from_secs(15));
        let mut silence = Silence::default();
        let ticks = (0..).take_while(|_| silence.tick().is_ok()).count();
        assert_eq!(ticks, SILENT_PINGS_MAX as usize);
    }
}
