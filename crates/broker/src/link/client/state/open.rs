//! Consumers and subscriptions in a link's books.
//!
//! The tags that users see are the client's own and never start again, so a tag from a lost connection matches nothing on
//! the next one: a stale acknowledgement cannot settle a new message.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::{Line, State};
use crate::link::frame::{Ask, Frame};
use crate::memory::fanout::Backlog;
use crate::{BrokerError, Delivery, Heard};

/// Announcements that may wait for a slow subscriber.
const BACKLOG_MESSAGES_MAX: usize = 1_024;
const BACKLOG_BYTES_MAX: usize = 16 << 20;
/// Characters of a rejection's reason that travel.
const REASON_CHARS_MAX: usize = 1_000;

pub(in super::super) enum Kind {
    Consumer { queue: String, credit: u32 },
    Subscription { topic: String },
}

pub(super) enum Phase {
    Opening,
    Open,
    Ended(BrokerError),
}

pub(super) enum Ends {
    Consumer {
        inbox: Vec<Delivery>,
        /// Unsettled on this connection: the user's tag and the server's.
        held: VecDeque<(u64, u64)>,
        last_tag: u64,
        /// The last tag of the server's on this connection.
        last_theirs: u64,
        stage: Stage,
    },
    Subscription(Backlog),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Takes,
    /// Takes nothing more, and is not opened again on another connection.
    Retired,
}

pub(super) struct Open {
    /// What opens it, on this connection and the next.
    pub ask: Ask,
    pub phase: Phase,
    pub bell: Arc<Notify>,
    ends: Ends,
}

impl Open {
    pub fn deliver(&mut self, tags: Vec<(u64, bool)>, bodies: Vec<Bytes>) {
        let Ends::Consumer { inbox, held, last_tag, last_theirs, stage: Stage::Takes } = &mut self.ends else { return };
        for ((theirs, redelivered), body) in tags.into_iter().zip(bodies) {
            *last_tag += 1;
            *last_theirs = theirs;
            held.push_back((*last_tag, theirs));
            inbox.push(Delivery { tag: *last_tag, body, redelivered });
        }
        self.bell.notify_one();
    }

    pub fn hear(&mut self, body: Bytes) {
        if let Ends::Subscription(backlog) = &mut self.ends {
            backlog.push(body, BACKLOG_MESSAGES_MAX, BACKLOG_BYTES_MAX);
            self.bell.notify_one();
        }
    }

    pub fn miss(&mut self) {
        if let Ends::Subscription(backlog) = &mut self.ends {
            backlog.miss();
            self.bell.notify_one();
        }
    }

    /// The server has put back what was not settled, also what its user has not seen yet.
    pub fn went_down(&mut self) {
        if matches!(self.phase, Phase::Open) {
            self.miss();
        }
        self.phase = Phase::Opening;
        if let Ends::Consumer { inbox, held, last_theirs, stage, .. } = &mut self.ends {
            inbox.clear();
            held.clear();
            *last_theirs = 0;
            if *stage == Stage::Retired {
                self.end(BrokerError::Closed);
            }
        }
    }

    /// Whether it belongs on a new connection.
    pub fn goes_on(&self) -> bool {
        !matches!(self.ends, Ends::Consumer { stage: Stage::Retired, .. })
    }

    pub fn end(&mut self, error: BrokerError) {
        self.phase = Phase::Ended(error);
        self.bell.notify_one();
    }
}

impl State {
    pub fn open(&mut self, kind: Kind) -> (u64, Arc<Notify>) {
        self.last_channel += 1;
        let channel = self.last_channel;
        let (ask, ends) = match kind {
            Kind::Consumer { queue, credit } => (
                Ask::Consume { channel, queue, credit },
                Ends::Consumer {
                    inbox: Vec::new(),
                    held: VecDeque::new(),
                    last_tag: 0,
                    last_theirs: 0,
                    stage: Stage::Takes,
                },
            ),
            Kind::Subscription { topic } => (Ask::Subscribe { channel, topic }, Ends::Subscription(Backlog::default())),
        };
        let bell = Arc::new(Notify::new());
        let phase = match self.line {
            Line::Shut => Phase::Ended(BrokerError::Closed),
            Line::Up | Line::Down => Phase::Opening,
        };
        self.send(Arc::new(Frame::bare(ask.clone())));
        self.open.insert(channel, Open { ask, phase, bell: bell.clone(), ends });
        (channel, bell)
    }

    /// `None` while it is still being opened.
    pub fn opened(&self, channel: u64) -> Option<Result<(), BrokerError>> {
        match self.open.get(&channel).map(|open| &open.phase) {
            Some(Phase::Open) => Some(Ok(())),
            Some(Phase::Opening) => None,
            Some(Phase::Ended(error)) => Some(Err(error.clone())),
            None => Some(Err(BrokerError::Closed)),
        }
    }

    pub fn close(&mut self, channel: u64) {
        if self.open.remove(&channel).is_some() {
            self.send(Arc::new(Frame::bare(Ask::Close { channel })));
        }
    }

    /// What has arrived for a consumer; empty when nothing has.
    pub fn deliveries(&mut self, channel: u64) -> Result<Vec<Delivery>, BrokerError> {
        let Some(open) = self.open.get_mut(&channel) else { return Err(BrokerError::Closed) };
        let Ends::Consumer { inbox, .. } = &mut open.ends else { return Ok(Vec::new()) };
        match &open.phase {
            Phase::Ended(error) if inbox.is_empty() => Err(error.clone()),
            _ => Ok(std::mem::take(inbox)),
        }
    }

    pub fn hear(&mut self, channel: u64) -> Result<Option<Heard>, BrokerError> {
        let Some(open) = self.open.get_mut(&channel) else { return Err(BrokerError::Closed) };
        let Ends::Subscription(backlog) = &mut open.ends else { return Ok(None) };
        match (backlog.pop(), &open.phase) {
            (None, Phase::Ended(error)) => Err(error.clone()),
            (heard, _) => Ok(heard),
        }
    }

    pub fn ack_through(&mut self, channel: u64, tag: u64) {
        let Some(Open { ends: Ends::Consumer { held, .. }, .. }) = self.open.get_mut(&channel) else { return };
        let settled = held.partition_point(|(ours, _)| *ours <= tag);
        let Some((_, theirs)) = held.drain(..settled).next_back() else { return };
        let ack = Arc::new(Frame::bare(Ask::AckThrough { channel, tag: theirs }));
        // Two acknowledgements in a row are one.
        match self.outgoing.back_mut() {
            Some(last) if matches!(last.head, Ask::AckThrough { channel: same, .. } if same == channel) => *last = ack,
            _ => self.send(ack),
        }
    }

    pub fn ack_each(&mut self, channel: u64, tags: &[u64]) {
        let tags: Vec<u64> = tags.iter().filter_map(|tag| self.settled(channel, *tag)).collect();
        if !tags.is_empty() {
            self.send(Arc::new(Frame::bare(Ask::AckEach { channel, tags })));
        }
    }

    /// What came after `seen` is given back, also what is still on its way.
    pub fn retire(&mut self, channel: u64, seen: u64) {
        let Some(Open { ends: Ends::Consumer { inbox, held, last_theirs, stage, .. }, .. }) =
            self.open.get_mut(&channel)
        else {
            return;
        };
        *stage = Stage::Retired;
        inbox.retain(|delivery| delivery.tag <= seen);
        let kept = held.partition_point(|(ours, _)| *ours <= seen);
        let first_back = held.drain(kept..).next().map(|(_, theirs)| theirs);
        let seen = first_back.map_or(*last_theirs, |theirs| theirs.saturating_sub(1));
        self.send(Arc::new(Frame::bare(Ask::Retire { channel, seen })));
    }

    /// The server's tag of one that is settled by this.
    fn settled(&mut self, channel: u64, tag: u64) -> Option<u64> {
        let Ends::Consumer { held, .. } = &mut self.open.get_mut(&channel)?.ends else { return None };
        let at = held.binary_search_by_key(&tag, |(ours, _)| *ours).ok()?;
        held.remove(at).map(|(_, theirs)| theirs)
    }

    pub fn reject(&mut self, channel: u64, tag: u64, reason: &str) {
        let Some(theirs) = self.settled(channel, tag) else { return };
        let reason = reason.chars().take(REASON_CHARS_MAX).collect();
        self.send(Arc::new(Frame::bare(Ask::Reject { channel, tag: theirs, reason })));
    }
}
