//! Who hears what: publishing, subscribing, and what is retained.

use std::collections::BTreeMap;
use std::sync::Arc;

use mutirao_core::clock::Mono;

use super::{ConnId, Fault, Hub, SessionId, Subscriber};
use crate::codec::{Handling, Publish, Qos};
use crate::session::{Message, Offer, Presence, Telling};
use crate::topics::TopicFilter;

/// Where a message went.
#[derive(Debug)]
pub struct Routed<P> {
    pub message: Arc<Message>,
    /// Inboxes of the program that are still to be given it.
    pub ports: Vec<P>,
    /// One of them is no more: the message cannot be accepted.
    pub port_gone: bool,
    /// Sessions of connected clients that took it.
    pub here: usize,
    /// Sessions of clients that are away and will find it.
    pub away: usize,
    /// Sessions that had no room.
    pub full: usize,
}

/// A packet of a client that was let through.
#[derive(Debug)]
pub enum Heard<P> {
    New(Routed<P>),
    /// Quality 2, and it came before: it is only acknowledged again.
    Known,
}

impl<P: Clone> Hub<P> {
    /// A client publishes.
    pub fn publish(&mut self, conn: ConnId, publish: Publish, now: Mono) -> Result<Heard<P>, Fault> {
        let id = *self.links.get(&conn).ok_or(Fault::Gone)?;
        let entry = self.sessions.get_mut(&id).ok_or(Fault::Gone)?;
        self.counts.received += 1;
        if !entry.guest.rights.may_publish(&publish.topic) {
            self.counts.publishes_denied += 1;
            return Err(Fault::MayNotPublish(publish.topic));
        }
        if let Handling::ExactlyOnce { pid, .. } = publish.handling {
            if !entry.session.received(pid) {
                return Ok(Heard::Known);
            }
            if entry.session.unreleased() > self.limits.queue_messages_max {
                return Err(Fault::Unreleased(entry.session.unreleased()));
            }
        }
        let Publish { topic, payload, handling, retain } = publish;
        let message = Arc::new(Message { topic, payload, qos: handling.qos(), retain, wanted: None });
        Ok(Heard::New(self.route(message, now)))
    }

    /// The program publishes: to clients only, to all that listen or to those of one guest. It does not hear itself, so that
    /// it cannot wait for itself.
    pub fn publish_from_program(&mut self, message: Message, audience: Option<&str>, now: Mono) -> Routed<P> {
        let mut routed = self.route_to(Arc::new(message), audience, now);
        routed.ports.clear();
        routed
    }

    pub fn subscribe(&mut self, conn: ConnId, filters: &[(TopicFilter, Qos)], now: Mono) -> Vec<Option<Qos>> {
        // A packet has room for the same filter 60,000 times, and each would look through all that is retained.
        let (looked_at, too_many) = filters.split_at(filters.len().min(self.limits.subscriptions_max));
        self.counts.subscriptions_denied += too_many.len() as u64;
        // And 64 times everything is still much, under a lock that all wait for.
        let mut steps = self.limits.retained_steps_max;
        let mut granted: Vec<_> =
            looked_at.iter().map(|(filter, qos)| self.subscribe_one(conn, filter, *qos, &mut steps, now)).collect();
        granted.resize(filters.len(), None);
        granted
    }

    pub fn unsubscribe(&mut self, conn: ConnId, filters: &[TopicFilter]) {
        let Some(&id) = self.links.get(&conn) else { return };
        for filter in filters {
            let was = self.sessions.get_mut(&id).and_then(|entry| entry.subscriptions.remove(filter));
            if was.is_some() {
                self.unlist(filter, Subscriber::Session(id));
            }
        }
    }

    fn subscribe_one(
        &mut self,
        conn: ConnId,
        filter: &TopicFilter,
        wanted: Qos,
        steps: &mut usize,
        now: Mono,
    ) -> Option<Qos> {
        let id = *self.links.get(&conn)?;
        let entry = self.sessions.get_mut(&id)?;
        let one_more = !entry.subscriptions.contains_key(filter);
        let full = one_more && entry.subscriptions.len() >= self.limits.subscriptions_max;
        if full || !entry.guest.rights.may_subscribe(filter) {
            self.counts.subscriptions_denied += 1;
            return None;
        }
        let granted = wanted.min(Qos::AtLeastOnce);
        entry.subscriptions.insert(filter.clone(), granted);
        self.subscribers.entry(filter.levels(), BTreeMap::new).insert(Subscriber::Session(id), granted);
        for message in self.retained.matched_by(filter, steps) {
            self.offer(id, &message, granted, Telling::Retained, now);
        }
        Some(granted)
    }

    fn offer(
        &mut self,
        id: SessionId,
        message: &Arc<Message>,
        granted: Qos,
        telling: Telling,
        now: Mono,
    ) -> (Offer, Presence) {
        let qos = message.qos.min(granted);
        let cost = message.cost_bytes();
        let no_room_at_all = self.held_bytes + cost > self.limits.held_bytes_max;
        let none_for_the_absent = self.held_away_bytes + cost > self.limits.held_away_bytes_max;
        let offered = self.touch(id, |entry, limits| {
            let presence = entry.presence();
            let no_room = no_room_at_all || (none_for_the_absent && presence == Presence::Away);
            if no_room && (qos != Qos::AtMostOnce || presence == Presence::Here) {
                return (Offer::Full, presence, true);
            }
            let offer = entry.session.offer(message, qos, telling, presence, now, limits);
            if offer == Offer::Taken
                && let Some(link) = &entry.link
            {
                link.handle.wake.notify_one();
            }
            (offer, presence, false)
        });
        let (offer, presence, everywhere) = offered.unwrap_or((Offer::Missed, Presence::Away, false));
        self.counts.dropped_full += u64::from(everywhere);
        (offer, presence)
    }

    pub(super) fn route(&mut self, message: Arc<Message>, now: Mono) -> Routed<P> {
        self.route_to(message, None, now)
    }

    fn route_to(&mut self, message: Arc<Message>, audience: Option<&str>, now: Mono) -> Routed<P> {
        if message.retain {
            self.retained.keep(&message, &self.limits);
        }
        // Whoever subscribed by several filters hears it once, with the best quality of them.
        let mut hearers: BTreeMap<Subscriber, Qos> = BTreeMap::new();
        self.subscribers.who_match(&message.topic, |there| {
            for (subscriber, qos) in there {
                let best = hearers.entry(*subscriber).or_insert(*qos);
                *best = (*best).max(*qos);
            }
        });
        let mut routed =
            Routed { message: message.clone(), ports: vec![], port_gone: false, here: 0, away: 0, full: 0 };
        for (hearer, granted) in hearers {
            match hearer {
                Subscriber::Port(port) => match self.ports.get(&port) {
                    Some(port) => routed.ports.push(port.clone()),
                    None => routed.port_gone = true,
                },
                Subscriber::Session(id) if !self.is_meant(id, audience) => {}
                Subscriber::Session(id) => match self.offer(id, &message, granted, Telling::Live, now) {
                    (Offer::Taken, Presence::Here) => routed.here += 1,
                    (Offer::Taken, Presence::Away) => routed.away += 1,
                    (Offer::Full, _) => routed.full += 1,
                    (Offer::Missed, _) => {}
                },
            }
        }
        routed
    }

    fn is_meant(&self, id: SessionId, audience: Option<&str>) -> bool {
        let who = || self.sessions.get(&id).map(|entry| &*entry.guest.who);
        audience.is_none_or(|audience| who() == Some(audience))
    }
}
