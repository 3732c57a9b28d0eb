//! The way out of a server connection: bounded in frames and in bytes. Whoever sends past the bound waits, and with it
//! whatever made it send.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::link::COALESCE_BYTES;
use crate::link::frame::{Frame, Tell, pack};

const FRAMES_MAX: usize = 1_024;
const KIB_MAX: usize = 32 << 10;

enum Item {
    Frame(Frame<Tell>, OwnedSemaphorePermit),
    Ping,
}

#[derive(Clone)]
pub(super) struct Outbox {
    items: mpsc::Sender<Item>,
    room: Arc<Semaphore>,
}

pub(super) struct Outgoing {
    items: mpsc::Receiver<Item>,
    ping: bool,
}

/// What goes over the wire next.
pub(super) enum Parting {
    Frames(Bytes),
    Ping,
}

pub(super) fn bounded() -> (Outbox, Outgoing) {
    let (sender, items) = mpsc::channel(FRAMES_MAX);
    (Outbox { items: sender, room: Arc::new(Semaphore::new(KIB_MAX)) }, Outgoing { items, ping: false })
}

impl Outbox {
    /// Waits for room. A frame for a connection that has ended goes nowhere: its peer will ask again on the next one.
    pub async fn send(&self, frame: Frame<Tell>) {
        let kib = (frame.cost() / 1024 + 1).min(KIB_MAX);
        let Ok(room) = self.room.clone().acquire_many_owned(kib as u32).await else { return };
        let _ = self.items.send(Item::Frame(frame, room)).await;
    }

    pub async fn ping(&self) {
        let _ = self.items.send(Item::Ping).await;
    }
}

impl Outgoing {
    /// Everything that is ready, up to the coalescing bound. Waits for ever once all senders are gone.
    pub async fn next(&mut self) -> Parting {
        if std::mem::take(&mut self.ping) {
            return Parting::Ping;
        }
        let mut packed = match self.items.recv().await {
            Some(Item::Frame(frame, _room)) => pack(&frame, Vec::new()),
            Some(Item::Ping) => return Parting::Ping,
            None => std::future::pending().await,
        };
        while packed.len() < COALESCE_BYTES {
            match self.items.try_recv() {
                Ok(Item::Frame(frame, _room)) => packed = pack(&frame, packed),
                Ok(Item::Ping) => {
                    self.ping = true;
                    break;
                }
                Err(_) => break,
            }
        }
        Parting::Frames(packed.into())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::link::frame::unpack;

    #[tokio::test]
    async fn frames_that_are_ready_together_leave_together() {
        let (outbox, mut outgoing) = bounded();
        outbox.send(Frame::bare(Tell::Gap { channel: 1 })).await;
        outbox.send(Frame::bare(Tell::Gap { channel: 2 })).await;
        outbox.ping().await;
        let Parting::Frames(mut message) = outgoing.next().await else { panic!("frames come first") };
        assert_eq!(unpack::<Tell>(&mut message).unwrap().head, Tell::Gap { channel: 1 });
        assert_eq!(unpack::<Tell>(&mut message).unwrap().head, Tell::Gap { channel: 2 });
        assert!(matches!(outgoing.next().await, Parting::Ping));
    }

    #[tokio::test]
    async fn a_full_outbox_makes_its_senders_wait() {
        let (outbox, mut outgoing) = bounded();
        let large = || Frame { head: Tell::Heard { channel: 1 }, bodies: vec![vec![0; 15 << 20].into()] };
        outbox.send(large()).await;
        outbox.send(large()).await;
        assert!(outbox.send(large()).now_or_never().is_none());
        outgoing.next().await;
        assert!(outbox.send(large()).now_or_never().is_some());
    }
}
