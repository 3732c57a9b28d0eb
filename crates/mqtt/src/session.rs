//! What one client has still to be given, in order and within bounds. A machine without I/O: messages are offered, pulled
//! when the connection has room, and acknowledged.
//!
//! One line for all qualities, so that a client hears in the order in which was published. What was sent with quality 1
//! stays at its head until it is acknowledged, and is sent again, marked as such, after a reconnect. Past a bound the
//! newest is refused, and whoever published is told: an old order that was accepted is worth no less than a new one. One that
//! nobody wants any more is worth nothing: it is not given, and takes no room of another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::clock::Mono;
use tokio_util::sync::CancellationToken;

use crate::codec::{Handling, Pid, Publish, Qos};
use crate::limits::Limits;
use crate::topics::TopicName;

/// What is published, once for all who hear it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: TopicName,
    pub payload: Bytes,
    pub qos: Qos,
    pub retain: bool,
    /// For how long; none: for as long as anything waits.
    pub wanted: Option<Wanted>,
}

/// For how long somebody wants what is in a message to be done.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub until: Mono,
    /// Nobody does any more.
    pub given_up: CancellationToken,
}

impl Wanted {
    fn is_over(&self, now: Mono) -> bool {
        now >= self.until || self.given_up.is_cancelled()
    }
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until && self.given_up.is_cancelled() == other.given_up.is_cancelled()
    }
}

impl Eq for Wanted {}

/// Never given to a message: a client's subscribe has it.
pub const OTHERS_PID: Pid = Pid::MAX;

/// What a message that waits costs beside its topic and payload.
const OVERHEAD_BYTES: usize = 96;

impl Message {
    pub fn cost_bytes(&self) -> usize {
        self.topic.as_str().len() + self.payload.len() + OVERHEAD_BYTES
    }
}

/// Is it told of a subscriber as something that was retained, or as it happens?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    Live,
    Retained,
}

/// Is the client connected at this moment?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Here,
    Away,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Taken,
    /// It has no room; counted.
    Full,
    /// Quality 0, and nobody is there.
    Missed,
}

/// How far a message of quality 2 has come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receipt {
    /// Not acknowledged yet: should its connection break, it counts as never heard.
    Open,
    Accepted,
}

/// What was thrown away, and why. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub full: u64,
    pub old: u64,
}

#[derive(Debug)]
struct Waiting {
    message: Arc<Message>,
    qos: Qos,
    telling: Telling,
    since: Mono,
}

impl Waiting {
    fn is_unwanted(&self, now: Mono) -> bool {
        self.message.wanted.as_ref().is_some_and(|wanted| wanted.is_over(now))
    }
}

#[derive(Debug)]
struct Sent {
    pid: Pid,
    waiting: Waiting,
    /// The connection on which it went is gone.
    again: bool,
}

#[derive(Debug, Default)]
pub struct Session {
    sent: VecDeque<Sent>,
    line: VecDeque<Waiting>,
    bytes: usize,
    last_pid: u16,
    /// Messages of quality 2 that came and whose release has not.
    unreleased: HashMap<Pid, Receipt>,
    dropped: Dropped,
}

impl Session {
    pub fn messages(&self) -> usize {
        self.sent.len() + self.line.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Takes a message for later.
    pub fn offer(
        &mut self,
        message: &Arc<Message>,
        qos: Qos,
        telling: Telling,
        presence: Presence,
        now: Mono,
        limits: &Limits,
    ) -> Offer {
        if qos == Qos::AtMostOnce && presence == Presence::Away {
            return Offer::Missed;
        }
        let cost = message.cost_bytes();
        let is_full =
            |this: &Self| this.messages() >= limits.queue_messages_max || this.bytes + cost > limits.queue_bytes_max;
        if is_full(self) {
            self.forget_unwanted(now);
        }
        if is_full(self) {
            self.dropped.full += 1;
            return Offer::Full;
        }
        self.bytes += cost;
        self.line.push_back(Waiting { message: message.clone(), qos, telling, since: now });
        Offer::Taken
    }

    /// What may go out now: at most about `bytes_max`, and no more unacknowledged ones than the window allows.
    pub fn pull(&mut self, bytes_max: usize, now: Mono, limits: &Limits) -> Vec<Publish> {
        self.forget_old(now, limits.queue_age_max);
        self.sent_again_only_if_wanted(now);
        let mut out = vec![];
        let mut bytes = 0;
        for sent in self.sent.iter_mut().filter(|sent| sent.again) {
            if bytes >= bytes_max {
                return out;
            }
            sent.again = false;
            bytes += sent.waiting.message.cost_bytes();
            out.push(publish(&sent.waiting, Handling::AtLeastOnce { pid: sent.pid, dup: true }));
        }
        while bytes < bytes_max
            && let Some(next) = self.line.front()
        {
            if next.is_unwanted(now) {
                if let Some(waiting) = self.line.pop_front() {
                    self.drop_old(&waiting);
                }
                continue;
            }
            let cost = next.message.cost_bytes();
            let handling = match next.qos {
                Qos::AtMostOnce => Handling::AtMostOnce,
                _ if self.sent.len() >= limits.in_flight_max => break,
                _ => Handling::AtLeastOnce { pid: self.free_pid(), dup: false },
            };
            let Some(next) = self.line.pop_front() else { break };
            out.push(publish(&next, handling));
            bytes += cost;
            match handling {
                Handling::AtLeastOnce { pid, .. } => self.sent.push_back(Sent { pid, waiting: next, again: false }),
                _ => self.bytes -= cost,
            }
        }
        out
    }

    /// The client has it. One that it never had is ignored: it may be from before a restart of ours.
    pub fn acknowledged(&mut self, pid: Pid) {
        if let Some(at) = self.sent.iter().position(|sent| sent.pid == pid)
            && let Some(sent) = self.sent.remove(at)
        {
            self.bytes -= sent.waiting.message.cost_bytes();
        }
    }

    /// Its connection is gone: what was sent must be sent again, and what has quality 0 is not waited for.
    pub fn parted(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.again = true);
        self.unreleased.retain(|_, receipt| *receipt == Receipt::Accepted);
        let bytes = &mut self.bytes;
        self.line.retain(|waiting| {
            let stays = waiting.qos != Qos::AtMostOnce;
            *bytes -= if stays { 0 } else { waiting.message.cost_bytes() };
            stays
        });
    }

    /// Throws away what nobody can want any more; also what was sent long ago to a client that then went.
    pub fn forget_old(&mut self, now: Mono, age_max: Duration) {
        let old = |waiting: &Waiting| now.since(waiting.since) > age_max;
        while self.line.front().is_some_and(old)
            && let Some(waiting) = self.line.pop_front()
        {
            self.drop_old(&waiting);
        }
        while self.sent.front().is_some_and(|sent| sent.again && old(&sent.waiting))
            && let Some(sent) = self.sent.pop_front()
        {
            self.drop_old(&sent.waiting);
        }
    }

    /// Throws away what was given up, wherever it stands.
    pub fn forget_unwanted(&mut self, now: Mono) {
        self.sent_again_only_if_wanted(now);
        let (bytes, dropped) = (&mut self.bytes, &mut self.dropped);
        self.line.retain(|waiting| {
            let over = waiting.is_unwanted(now);
            *bytes -= if over { waiting.message.cost_bytes() } else { 0 };
            dropped.old += u64::from(over);
            !over
        });
    }

    /// What was sent over a connection that is gone may not have come, and need not any more.
    fn sent_again_only_if_wanted(&mut self, now: Mono) {
        let (bytes, dropped) = (&mut self.bytes, &mut self.dropped);
        self.sent.retain(|sent| {
            let over = sent.again && sent.waiting.is_unwanted(now);
            *bytes -= if over { sent.waiting.message.cost_bytes() } else { 0 };
            dropped.old += u64::from(over);
            !over
        });
    }

    /// A message of quality 2 came. Is it the first time?
    pub fn received(&mut self, pid: Pid) -> bool {
        let first = !self.unreleased.contains_key(&pid);
        self.unreleased.entry(pid).or_insert(Receipt::Open);
        first
    }

    pub fn accepted(&mut self, pid: Pid) {
        self.unreleased.entry(pid).and_modify(|receipt| *receipt = Receipt::Accepted);
    }

    /// Its identifier may be used anew.
    pub fn released(&mut self, pid: Pid) {
        self.unreleased.remove(&pid);
    }

    pub fn unreleased(&self) -> usize {
        self.unreleased.len()
    }

    fn drop_old(&mut self, waiting: &Waiting) {
        self.bytes -= waiting.message.cost_bytes();
        self.dropped.old += 1;
    }

    /// There are 65,535 and at most a window of them is taken, so one is soon found.
    fn free_pid(&mut self) -> Pid {
        loop {
            self.last_pid = self.last_pid.wrapping_add(1);
            if let Some(pid) = Pid::new(self.last_pid)
                && pid != OTHERS_PID
                && self.sent.iter().all(|sent| sent.pid != pid)
            {
                return pid;
            }
        }
    }
}

fn publish(waiting: &Waiting, handling: Handling) -> Publish {
    let Message { topic, payload, .. } = &*waiting.message;
    let retain = waiting.telling == Telling::Retained;
    Publish { topic: topic.clone(), payload: payload.clone(), handling, retain }
}

#[cfg(test)]
mod tests;
