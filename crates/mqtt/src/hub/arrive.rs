//! Coming and going: sessions that begin, go on, are taken over and end, and the wills of those who vanish.

use std::collections::BTreeMap;
use std::sync::Arc;

use mutirao_core::clock::Mono;

use super::{ConnId, Entry, Farewell, Handle, Hub, Link, Routed, SessionId, Subscriber};
use crate::codec::Will;
use crate::gate::{Guest, Refusal};
use crate::session::{Message, Session};

/// What to tell a client that was let in.
#[derive(Debug)]
pub struct Welcome<P> {
    pub session_present: bool,
    /// The will of the connection whose place was taken. It is routed before anything that the new one says, so that
    /// "gone" is never heard after "here again".
    pub will: Option<Routed<P>>,
}

/// What a client asks for when it comes.
#[derive(Debug)]
pub struct Arrival {
    pub guest: Guest,
    pub client_id: Arc<str>,
    pub clean: bool,
    pub will: Option<Will>,
}

impl<P: Clone> Hub<P> {
    pub fn connect(
        &mut self,
        conn: ConnId,
        arrival: Arrival,
        handle: Handle,
        now: Mono,
    ) -> Result<Welcome<P>, Refusal> {
        let Arrival { guest, client_id, clean, will } = arrival;
        if will.as_ref().is_some_and(|will| !guest.rights.may_publish(&will.topic)) {
            self.counts.publishes_denied += 1;
            return Err(Refusal::NotAuthorized);
        }
        let name = (guest.who.clone(), client_id);
        let former = self.names.get(&name).copied();
        let last_words = former.and_then(|id| self.take_place(id, now));
        let resumed = match former {
            Some(id) if clean || !self.sessions.get(&id).is_some_and(|entry| entry.kept) => {
                self.forget(id);
                None
            }
            former => former,
        };
        if resumed.is_none() {
            self.make_room(&guest)?;
        }
        let id = resumed.unwrap_or_else(|| SessionId(self.next_id()));
        let link = Link { conn, handle, will };
        self.links.insert(conn, id);
        match resumed {
            Some(_) => {
                self.touch(id, |entry, _| (entry.link, entry.guest) = (Some(link), guest));
                self.drop_what_it_may_no_longer_hear(id);
            }
            None => {
                self.names.insert(name.clone(), id);
                let entry = Entry {
                    name,
                    guest,
                    kept: !clean,
                    link: Some(link),
                    away_since: now,
                    subscriptions: BTreeMap::new(),
                    session: Session::default(),
                };
                self.sessions.insert(id, entry);
            }
        }
        let will = last_words.map(|message| self.read_will(message, now));
        Ok(Welcome { session_present: resumed.is_some(), will })
    }

    /// A connection has ended. Its will, if it is to be read.
    pub fn closed(&mut self, conn: ConnId, farewell: Farewell, now: Mono) -> Option<Routed<P>> {
        let id = self.links.remove(&conn)?;
        let will = self.touch(id, |entry, _| {
            entry.session.parted();
            entry.away_since = now;
            entry.link.take().and_then(|link| link.will)
        });
        if self.sessions.get(&id).is_some_and(|entry| !entry.kept) {
            self.forget(id);
        }
        let will = will.flatten().filter(|_| farewell == Farewell::Unsaid)?;
        Some(self.read_will(Arc::new(will.into()), now))
    }

    /// A message like any other, only late.
    fn read_will(&mut self, will: Arc<Message>, now: Mono) -> Routed<P> {
        self.counts.received += 1;
        self.route(will, now)
    }

    /// Cuts off whoever is connected as this session, and gives its will.
    fn take_place(&mut self, id: SessionId, now: Mono) -> Option<Arc<Message>> {
        let link = self.touch(id, |entry, _| {
            let link = entry.link.take()?;
            entry.session.parted();
            entry.away_since = now;
            Some(link)
        });
        let link = link.flatten()?;
        self.counts.taken_over += 1;
        self.links.remove(&link.conn);
        link.handle.gone.cancel();
        link.will.map(|will| Arc::new(will.into()))
    }

    /// Room for one more session of this guest: its own that is away longest goes, never another's.
    fn make_room(&mut self, guest: &Guest) -> Result<(), Refusal> {
        let first = (guest.who.clone(), Arc::from(""));
        let own = || self.names.range(first.clone()..).take_while(|((who, _), _)| *who == guest.who);
        if own().count() < guest.sessions_max && self.sessions.len() < self.limits.sessions_max {
            return Ok(());
        }
        let oldest = own()
            .filter_map(|(_, id)| Some((id, self.sessions.get(id)?)))
            .filter(|(_, entry)| entry.link.is_none())
            .min_by_key(|(_, entry)| entry.away_since)
            .map(|(id, _)| *id);
        let oldest = oldest.ok_or(Refusal::Unavailable)?;
        self.counts.sessions_forgotten += 1;
        self.forget(oldest);
        Ok(())
    }

    /// Rights may have been taken away since it subscribed.
    fn drop_what_it_may_no_longer_hear(&mut self, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        let rights = &entry.guest.rights;
        let gone: Vec<_> = entry.subscriptions.keys().filter(|one| !rights.may_subscribe(one)).cloned().collect();
        gone.iter().for_each(|filter| {
            entry.subscriptions.remove(filter);
        });
        gone.iter().for_each(|filter| self.unlist(filter, Subscriber::Session(id)));
    }
}
