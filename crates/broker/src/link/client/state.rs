//! The books of a link's client: what was asked and not answered, what is open, what is to be sent. No sockets and no
//! waiting, so that losing a connection at any moment can be tested by calling [`State::went_down`].

mod open;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::BrokerError;
use crate::link::COALESCE_BYTES;
use crate::link::frame::{Answer, Ask, Frame, Rubbish, Tell};
use open::{Open, Phase};

pub(super) use open::Kind;

pub(super) type Reply = Result<(Answer, Vec<Bytes>), BrokerError>;

/// What becomes of a request whose connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLoss {
    AskAgain,
    Fail,
}

/// A request's share of the bounds, given back with its answer.
pub(super) type Room = Vec<OwnedSemaphorePermit>;

struct Pending {
    frame: Arc<Frame<Ask>>,
    reply: oneshot::Sender<Reply>,
    on_loss: OnLoss,
    sent: Sent,
    _room: Room,
}

/// Whether a connection has, or may have, carried a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Maybe,
    NotYet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    Up,
    #[default]
    Down,
    /// For good.
    Shut,
}

/// What goes over the wire next.
pub(super) enum Parting {
    Frames(Vec<Arc<Frame<Ask>>>),
    Ping,
}

#[derive(Default)]
pub(super) struct State {
    line: Line,
    ping_due: bool,
    last_id: u64,
    last_channel: u64,
    /// In the order in which they were asked, which is the order in which they are asked again.
    pending: BTreeMap<u64, Pending>,
    open: BTreeMap<u64, Open>,
    /// Bounded by what it is made of: one frame for each pending request, open and settled delivery. Empty while down.
    outgoing: VecDeque<Arc<Frame<Ask>>>,
}

impl State {
    pub fn ask(
        &mut self,
        make: impl FnOnce(u64) -> Ask,
        bodies: Vec<Bytes>,
        on_loss: OnLoss,
        room: Room,
    ) -> (u64, oneshot::Receiver<Reply>) {
        self.last_id += 1;
        let (reply, answer) = oneshot::channel();
        if self.line == Line::Shut {
            let _ = reply.send(Err(BrokerError::Closed));
            return (self.last_id, answer);
        }
        let frame = Arc::new(Frame { head: make(self.last_id), bodies });
        let sent = if self.line == Line::Up { Sent::Maybe } else { Sent::NotYet };
        self.send(frame.clone());
        self.pending.insert(self.last_id, Pending { frame, reply, on_loss, sent, _room: room });
        (self.last_id, answer)
    }

    /// The caller of a read has gone.
    pub fn forget(&mut self, id: u64) {
        if self.pending.remove(&id).is_some() {
            self.send(Arc::new(Frame::bare(Ask::Forget { id })));
        }
    }

    fn send(&mut self, frame: Arc<Frame<Ask>>) {
        if self.line == Line::Up {
            self.outgoing.push_back(frame);
        }
    }

    pub fn want_ping(&mut self) {
        self.ping_due = true;
    }

    /// As many frames as travel in one message; `None` when there is nothing to send.
    pub fn next_parting(&mut self) -> Option<Parting> {
        if std::mem::take(&mut self.ping_due) {
            return Some(Parting::Ping);
        }
        let mut frames = Vec::new();
        let mut cost = 0;
        while cost < COALESCE_BYTES
            && let Some(frame) = self.outgoing.pop_front()
        {
            cost += frame.cost();
            frames.push(frame);
        }
        (!frames.is_empty()).then_some(Parting::Frames(frames))
    }

    /// A new connection: everything is opened and asked again on it.
    pub fn went_up(&mut self) {
        if self.line == Line::Shut {
            return;
        }
        self.line = Line::Up;
        self.ping_due = false;
        let opens =
            self.open.values().filter(|open| open.goes_on()).map(|open| Arc::new(Frame::bare(open.ask.clone())));
        self.outgoing = opens.collect();
        for pending in self.pending.values_mut() {
            pending.sent = Sent::Maybe;
            self.outgoing.push_back(pending.frame.clone());
        }
    }

    pub fn went_down(&mut self, why: &str) {
        if self.line == Line::Shut {
            return;
        }
        self.line = Line::Down;
        self.outgoing.clear();
        for open in self.open.values_mut() {
            open.went_down();
        }
        let fails = |pending: &Pending| pending.on_loss == OnLoss::Fail && pending.sent == Sent::Maybe;
        for (_, pending) in self.pending.extract_if(.., |_, pending| fails(pending)) {
            let _ = pending.reply.send(Err(BrokerError::Unreachable(why.into())));
        }
    }

    pub fn shut(&mut self) {
        self.line = Line::Shut;
        self.outgoing.clear();
        for open in self.open.values_mut() {
            open.end(BrokerError::Closed);
        }
        for (_, pending) in std::mem::take(&mut self.pending) {
            let _ = pending.reply.send(Err(BrokerError::Closed));
        }
    }

    /// What the server says. Answers to forgotten questions and words to closed channels are let pass.
    pub fn heard(&mut self, Frame { head, bodies }: Frame<Tell>) -> Result<(), Rubbish> {
        match head {
            Tell::Done { id, answer } => self.settle(id, Ok((answer, bodies))),
            Tell::Failed { id, error } => self.settle(id, Err(error)),
            Tell::Opened { channel } => {
                if let Some(open) = self.open.get_mut(&channel) {
                    open.phase = Phase::Open;
                    open.bell.notify_one();
                }
            }
            Tell::Ended { channel, error } => {
                if let Some(open) = self.open.get_mut(&channel) {
                    open.end(error);
                }
            }
            Tell::Deliveries { channel, tags } => {
                if tags.len() != bodies.len() {
                    return Err(Rubbish::Bodies("a delivery"));
                }
                if let Some(open) = self.open.get_mut(&channel) {
                    open.deliver(tags, bodies);
                }
            }
            Tell::Heard { channel } => {
                let Some(open) = self.open.get_mut(&channel) else { return Ok(()) };
                bodies.into_iter().for_each(|body| open.hear(body));
            }
            Tell::Gap { channel } => {
                if let Some(open) = self.open.get_mut(&channel) {
                    open.miss();
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, id: u64, reply: Reply) {
        if let Some(pending) = self.pending.remove(&id) {
            let _ = pending.reply.send(reply);
        }
    }
}
