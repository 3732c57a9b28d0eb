//! All sessions together: who is connected, who hears what, what is retained, whose will is read. A machine without I/O:
//! connections call it with what they were told and the time, and write what they pull from it. It wakes a connection for
//! which something waits, and cuts off one whose place was taken.
//!
//! It is called under a lock, for microseconds; nothing in it waits. The program's own inboxes (`P`) are handed back to
//! the caller, who gives them the message where it can wait for room, without the lock.

mod arrive;
#[cfg(test)]
mod history;
mod route;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mutirao_core::clock::Mono;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::codec::{Pid, Publish, Qos, Will};
use crate::gate::Guest;
use crate::limits::Limits;
use crate::retained::Retained;
use crate::session::{Message, Presence, Session};
use crate::topics::{TopicFilter, TopicName, Trie};

pub use arrive::{Arrival, Welcome};
pub use route::{Heard, Routed};

/// One connection among those of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// One inbox of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct SessionId(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Subscriber {
    Session(SessionId),
    Port(PortId),
}

/// How the hub reaches a connection.
#[derive(Clone, Debug, Default)]
pub struct Handle {
    /// Something waits for it.
    pub wake: Arc<Notify>,
    /// Its place is taken, or it may no longer be here.
    pub gone: CancellationToken,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// With a DISCONNECT: its will is torn up.
    Said,
    /// In any other way.
    Unsaid,
}

/// Why a connection must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it may not publish to {0:?}")]
    MayNotPublish(TopicName),
    #[error("it published {0} messages of quality 2 and released none of them")]
    Unreleased(usize),
    #[error("another connection has its place")]
    Gone,
}

/// What only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Wills that were read are among them.
    pub received: u64,
    pub sent: u64,
    /// No room in a session, or in all of them together.
    pub dropped_full: u64,
    /// Waited for longer than anybody wants it.
    pub dropped_old: u64,
    pub taken_over: u64,
    /// Sessions of clients that stayed away too long, or that had to make room for a newer one of the same guest.
    pub sessions_forgotten: u64,
    pub publishes_denied: u64,
    pub subscriptions_denied: u64,
}

/// What is there now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub connected: usize,
    pub sessions: usize,
    pub subscriptions: usize,
    pub waiting_messages: usize,
    pub waiting_bytes: usize,
    /// Of them, for clients that are away.
    pub waiting_away_bytes: usize,
    pub retained_messages: usize,
    pub retained_bytes: usize,
    pub retained_refused: u64,
}

/// What waits for one guest, in all its sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub sessions: usize,
    pub connected: usize,
    pub messages: usize,
    pub bytes: usize,
}

struct Link {
    conn: ConnId,
    handle: Handle,
    will: Option<Will>,
}

struct Entry {
    name: (Arc<str>, Arc<str>),
    guest: Guest,
    kept: bool,
    link: Option<Link>,
    away_since: Mono,
    subscriptions: BTreeMap<TopicFilter, Qos>,
    session: Session,
}

impl Entry {
    fn presence(&self) -> Presence {
        if self.link.is_some() { Presence::Here } else { Presence::Away }
    }

    fn away_bytes(&self) -> usize {
        if self.link.is_none() { self.session.bytes() } else { 0 }
    }
}

pub struct Hub<P> {
    limits: Limits,
    sessions: HashMap<SessionId, Entry>,
    /// By guest and client id, in order: so those of one guest lie together.
    names: BTreeMap<(Arc<str>, Arc<str>), SessionId>,
    links: HashMap<ConnId, SessionId>,
    ports: HashMap<PortId, P>,
    subscribers: Trie<BTreeMap<Subscriber, Qos>>,
    retained: Retained,
    held_bytes: usize,
    /// Of them, for sessions whose clients are away.
    held_away_bytes: usize,
    last_id: u64,
    counts: Counts,
    expulsions: u64,
}

impl<P: Clone> Hub<P> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            sessions: HashMap::new(),
            names: BTreeMap::new(),
            links: HashMap::new(),
            ports: HashMap::new(),
            subscribers: Trie::default(),
            retained: Retained::default(),
            held_bytes: 0,
            held_away_bytes: 0,
            last_id: 0,
            counts: Counts::default(),
            expulsions: 0,
        }
    }

    /// What a connection is to write next, at most about `bytes_max`.
    pub fn pull(&mut self, conn: ConnId, bytes_max: usize, now: Mono) -> Vec<Publish> {
        let Some(&id) = self.links.get(&conn) else { return vec![] };
        let out = self.touch(id, |entry, limits| entry.session.pull(bytes_max, now, limits)).unwrap_or_default();
        self.counts.sent += out.len() as u64;
        out
    }

    pub fn acknowledged(&mut self, conn: ConnId, pid: Pid) {
        if let Some(&id) = self.links.get(&conn) {
            self.touch(id, |entry, _| entry.session.acknowledged(pid));
        }
    }

    /// A message of quality 2 is safe: should it come again, it is known.
    pub fn accepted(&mut self, conn: ConnId, pid: Pid) {
        if let Some(&id) = self.links.get(&conn) {
            self.touch(id, |entry, _| entry.session.accepted(pid));
        }
    }

    /// The last step of quality 2 from a client.
    pub fn released(&mut self, conn: ConnId, pid: Pid) {
        if let Some(&id) = self.links.get(&conn) {
            self.touch(id, |entry, _| entry.session.released(pid));
        }
    }

    /// A place for the program itself, which hears whatever matches, and may keep a publisher waiting.
    pub fn open_port(&mut self, filters: &[TopicFilter], port: P) -> PortId {
        let id = PortId(self.next_id());
        self.ports.insert(id, port);
        for filter in filters {
            let there = self.subscribers.entry(filter.levels(), BTreeMap::new);
            there.insert(Subscriber::Port(id), Qos::ExactlyOnce);
        }
        id
    }

    pub fn close_port(&mut self, id: PortId, filters: &[TopicFilter]) {
        self.ports.remove(&id);
        filters.iter().for_each(|filter| self.unlist(filter, Subscriber::Port(id)));
    }

    /// The program hears nothing more. Its topics stay its own: what is published to them is not acknowledged.
    pub fn close_ports(&mut self) {
        self.ports.clear();
    }

    /// Forgets whoever came in under this name, and cuts them off: their rights were taken away.
    pub fn expel(&mut self, who: &str) -> usize {
        self.expulsions += 1;
        let ids: Vec<_> = self.sessions.iter().filter(|(_, it)| &*it.guest.who == who).map(|(id, _)| *id).collect();
        ids.iter().for_each(|id| self.forget(*id));
        ids.len()
    }

    /// How often somebody was expelled, there or not. Whoever was let in before the last time may be among them.
    pub fn expulsions(&self) -> u64 {
        self.expulsions
    }

    /// Throws away what is too old: messages of clients that are away, and their sessions. Now and then.
    pub fn sweep(&mut self, now: Mono) {
        let away: Vec<_> = self.sessions.iter().filter(|(_, it)| it.link.is_none()).map(|(id, _)| *id).collect();
        for id in away {
            let too_long = self.touch(id, |entry, limits| {
                entry.session.forget_old(now, limits.queue_age_max);
                entry.session.forget_unwanted(now);
                now.since(entry.away_since) > limits.session_away_max
            });
            if too_long == Some(true) {
                self.counts.sessions_forgotten += 1;
                self.forget(id);
            }
        }
    }

    /// What waits for those who came in under a name.
    pub fn waiting_for(&self, who: &str) -> Waiting {
        let first = (Arc::from(who), Arc::from(""));
        let own = self.names.range(first..).take_while(|((name, _), _)| &**name == who);
        let mut waiting = Waiting::default();
        for entry in own.filter_map(|(_, id)| self.sessions.get(id)) {
            waiting.sessions += 1;
            waiting.connected += usize::from(entry.link.is_some());
            waiting.messages += entry.session.messages();
            waiting.bytes += entry.session.bytes();
        }
        waiting
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn gauges(&self) -> Gauges {
        Gauges {
            connected: self.links.len(),
            sessions: self.sessions.len(),
            subscriptions: self.sessions.values().map(|entry| entry.subscriptions.len()).sum(),
            waiting_messages: self.sessions.values().map(|entry| entry.session.messages()).sum(),
            waiting_bytes: self.held_bytes,
            waiting_away_bytes: self.held_away_bytes,
            retained_messages: self.retained.len(),
            retained_bytes: self.retained.bytes(),
            retained_refused: self.retained.refused(),
        }
    }

    /// Every change of a session goes through here, so that the sums over all of them stay right.
    fn touch<R>(&mut self, id: SessionId, change: impl FnOnce(&mut Entry, &Limits) -> R) -> Option<R> {
        let entry = self.sessions.get_mut(&id)?;
        let (bytes, away_bytes, dropped) = (entry.session.bytes(), entry.away_bytes(), entry.session.dropped());
        let result = change(entry, &self.limits);
        self.held_bytes = self.held_bytes - bytes + entry.session.bytes();
        self.held_away_bytes = self.held_away_bytes - away_bytes + entry.away_bytes();
        self.counts.dropped_full += entry.session.dropped().full - dropped.full;
        self.counts.dropped_old += entry.session.dropped().old - dropped.old;
        Some(result)
    }

    /// The session is gone with all it had; its connection, if it has one, is cut off.
    fn forget(&mut self, id: SessionId) {
        let Some(entry) = self.sessions.remove(&id) else { return };
        self.held_bytes -= entry.session.bytes();
        self.held_away_bytes -= entry.away_bytes();
        self.names.remove(&entry.name);
        entry.subscriptions.keys().for_each(|filter| self.unlist(filter, Subscriber::Session(id)));
        if let Some(link) = entry.link {
            self.links.remove(&link.conn);
            link.handle.gone.cancel();
        }
    }

    fn unlist(&mut self, filter: &TopicFilter, subscriber: Subscriber) {
        self.subscribers.change(filter.levels(), |there| {
            there.remove(&subscriber);
            !there.is_empty()
        });
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl From<Will> for Message {
    fn from(will: Will) -> Self {
        let Will { topic, payload, qos, retain } = will;
        Self { topic, payload, qos, retain, wanted: None }
    }
}
