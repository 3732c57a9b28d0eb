//! The broker as a service: work queues with credit, confirmations and redelivery; words to whoever listens. What was
//! confirmed survives its crash (or, in another weather, nothing does); what was not may have been kept or lost. What a
//! dead connection had not acknowledged goes back to its place once the broker has noticed.

use std::collections::{BTreeMap, BTreeSet};

use super::ground::{Event, Ground, MS};
use super::queue::Queue;
use super::weather::{Counting, Keeping};
use super::wire::{Body, ConnId, FromBroker, Name, ToBroker};

#[derive(Default)]
pub struct Broker {
    queues: BTreeMap<Name, Queue>,
    /// Who is connected, and what it listens to.
    connections: BTreeMap<ConnId, BTreeSet<Name>>,
    away_until_us: u64,
    published: u64,
}

impl Broker {
    pub fn crash(&mut self, ground: &mut Ground, for_us: u64) {
        ground.note(|| "broker: crashed".into());
        self.away_until_us = ground.now_us + for_us;
        for conn in std::mem::take(&mut self.connections).into_keys() {
            ground.doomed.insert(conn);
            let seen_us = ground.between(0, 500 * MS);
            ground.after(seen_us, Event::FromBroker(conn, FromBroker::Lost));
            for queue in self.queues.values_mut() {
                queue.leave(conn, ground.weather.requeueing);
            }
        }
        match ground.weather.keeping {
            Keeping::Nothing => self.queues.clear(),
            Keeping::Confirmed => {
                for queue in self.queues.values_mut() {
                    queue.ready.retain(|message| message.durable_at_us <= ground.now_us || ground.chance(50));
                }
            }
        }
    }

    pub fn recover(&mut self) {
        self.away_until_us = 0;
    }

    /// The broker has noticed that a connection is dead.
    pub fn bury(&mut self, conn: ConnId, ground: &mut Ground) {
        ground.doomed.insert(conn);
        if self.connections.remove(&conn).is_some() {
            ground.note(|| format!("broker: {conn:?} is gone"));
            for name in self.names() {
                self.queues.entry(name.clone()).or_default().leave(conn, ground.weather.requeueing);
                self.deal(&name, ground);
            }
        }
    }

    pub fn hear(&mut self, conn: ConnId, letter: ToBroker, ground: &mut Ground) {
        if self.away_until_us > ground.now_us {
            return;
        }
        if let ToBroker::Connect = letter {
            self.connections.entry(conn).or_default();
            ground.tell_process(conn, FromBroker::Connected);
            return;
        }
        if !self.connections.contains_key(&conn) {
            return;
        }
        match letter {
            ToBroker::Connect => {}
            ToBroker::Publish { to, bodies, confirm } => {
                let durable_at_us = ground.now_us + ground.between(200, 5 * MS);
                for body in bodies {
                    if let Body::Reports(reports) = &body
                        && reports.beat.is_some()
                    {
                        ground.oracle.warrants.beat(&reports.session, ground.now_us);
                    }
                    let copies = if ground.bad_luck(ground.weather.doubled_per_mille) { 2 } else { 1 };
                    for _ in 0..copies {
                        self.published += 1;
                        let queue = self.queues.entry(to.clone()).or_default();
                        queue.publish(self.published, body.clone(), durable_at_us);
                    }
                }
                self.deal(&to, ground);
                ground.at(durable_at_us, Event::Durable(conn, confirm));
            }
            ToBroker::Consume { from, consumer, credit } => {
                self.queues.entry(from.clone()).or_default().join(conn, consumer, credit);
                self.deal(&from, ground);
            }
            ToBroker::Cancel { consumer } => {
                for name in self.names() {
                    if self.queues.entry(name.clone()).or_default().cancel(conn, consumer, ground.weather.requeueing) {
                        self.deal(&name, ground);
                    }
                }
            }
            ToBroker::Ack { consumer, through } => {
                for name in self.names() {
                    if self.queues.entry(name.clone()).or_default().ack(conn, consumer, through) {
                        self.deal(&name, ground);
                    }
                }
            }
            ToBroker::Announce { topic, body } => {
                let listeners: Vec<ConnId> =
                    self.connections.iter().filter(|(_, topics)| topics.contains(&topic)).map(|(c, _)| *c).collect();
                for listener in listeners {
                    if !ground.bad_luck(ground.weather.lost_words_per_mille) {
                        ground.tell_process(listener, FromBroker::Heard(topic.clone(), body.clone()));
                    }
                }
            }
            ToBroker::Subscribe(topic) => drop(self.connections.entry(conn).or_default().insert(topic)),
            ToBroker::Count { queue, id } => {
                let counting = ground.weather.counting;
                let lying = self.queues.get(&queue).map_or(0, |queue| match counting {
                    Counting::Everything => queue.ready.len() + queue.unacked(),
                    Counting::WhatLies => queue.ready.len(),
                });
                ground.tell_process(conn, FromBroker::Counted { id, lying });
            }
        }
    }

    /// A message that nobody of this world has sent.
    pub fn slip_in(&mut self, to: Name, body: Body, ground: &mut Ground) {
        if self.away_until_us <= ground.now_us {
            self.published += 1;
            self.queues.entry(to.clone()).or_default().publish(self.published, body, ground.now_us);
            self.deal(&to, ground);
        }
    }

    /// What was published is safe: whoever published it may know.
    pub fn confirm(&mut self, conn: ConnId, confirm: u64, ground: &mut Ground) {
        if self.connections.contains_key(&conn) {
            ground.tell_process(conn, FromBroker::Confirmed(confirm));
        }
    }

    fn names(&self) -> Vec<Name> {
        self.queues.keys().cloned().collect()
    }

    fn deal(&mut self, name: &Name, ground: &mut Ground) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        for (conn, consumer, tag, body) in queue.deal(ground.flaw) {
            ground.tell_process(conn, FromBroker::Delivery { consumer, tag, body });
        }
        if let Some(over) = queue.over_credit() {
            ground.oracle.fail(|| format!("{name:?}: a consumer has {} with a credit of {}", over.0, over.1));
        }
    }

    /// What lies or is with somebody, by queue.
    pub fn leftovers(&self) -> Vec<(Name, usize, usize)> {
        let queues = self.queues.iter().map(|(name, queue)| (name.clone(), queue.ready.len(), queue.unacked()));
        queues.filter(|(_, ready, unacked)| ready + unacked > 0).collect()
    }
}
