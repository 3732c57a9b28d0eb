//! Acknowledgements of what the other side published, in the order in which it published, as the standard wants it. Those
//! for the program wait until it has accepted; the others wait behind them.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::codec::{Packet, Pid};

/// Whoever was to take a message does not any more. It stays unacknowledged, so that it is said again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what it published was not taken by the program; it will say it again")]
pub struct NotTaken;

#[derive(Default)]
pub struct Acks {
    open: VecDeque<Open>,
}

struct Open {
    ack: Ack,
    waits: Vec<oneshot::Receiver<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// The only one of quality 1.
    Last(Pid),
    /// The first of two of quality 2.
    First(Pid),
}

impl From<Ack> for Packet {
    fn from(ack: Ack) -> Self {
        match ack {
            Ack::Last(pid) => Packet::PubAck(pid),
            Ack::First(pid) => Packet::PubRec(pid),
        }
    }
}

impl Acks {
    pub fn push(&mut self, ack: Ack, waits: Vec<oneshot::Receiver<()>>) {
        self.open.push_back(Open { ack, waits });
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// The next acknowledgement that may be said; for ever when there is none. May be dropped while it waits.
    pub async fn next(&mut self) -> Result<Ack, NotTaken> {
        let Some(first) = self.open.front_mut() else { return std::future::pending().await };
        while let Some(wait) = first.waits.last_mut() {
            wait.await.map_err(|_| NotTaken)?;
            first.waits.pop();
        }
        let ack = first.ack;
        self.open.pop_front();
        Ok(ack)
    }

    /// What may be said without waiting.
    pub fn ready(&mut self) -> Option<Ack> {
        self.open.pop_front_if(|first| first.waits.is_empty()).map(|first| first.ack)
    }
}
