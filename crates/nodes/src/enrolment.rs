//! The node's side of registration: what it does to become registered and to stay so. The states are those of the
//! document's table: not registered, registering, registered. A shell says what happens and sends what is asked for.
//!
//! Anything that may have made the manager forget us (a new connection, its return) asks at once; everything else waits
//! for the pause since the last try, so that a loop of reboots or a storm of beats is no flood.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::Mono;

use crate::names::NodeId;
use crate::wire::{Ack, Heartbeat};

/// Beats come over several ways, doubled and out of order; this many are remembered.
const BEATS_KEPT: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    NotRegistered,
    /// Asked, not answered yet.
    Registering,
    Registered,
}

#[derive(Clone, Debug)]
pub enum Event {
    Connected,
    Disconnected,
    Beat(Heartbeat),
    Acknowledged(Ack),
    /// Seen by asking for its health.
    ManagerUp,
    ManagerDown,
    Tick,
}

/// To be sent, forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRegister;

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Between two tries.
    pub pause: Duration,
    /// Without a beat the manager is taken for gone.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { pause: Duration::from_secs(10), silence: Duration::from_secs(30) }
    }
}

#[derive(Debug)]
pub struct Enrolment {
    node: NodeId,
    patience: Patience,
    standing: Standing,
    connected: bool,
    manager_down: bool,
    tried_at: Option<Mono>,
    beat_at: Option<Mono>,
    beats: VecDeque<i64>,
    token: Option<String>,
}

impl Enrolment {
    pub fn new(node: NodeId, patience: Patience) -> Self {
        Self {
            node,
            patience,
            standing: Standing::NotRegistered,
            connected: false,
            manager_down: false,
            tried_at: None,
            beat_at: None,
            beats: VecDeque::new(),
            token: None,
        }
    }

    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Of the last acknowledgement.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub fn handle(&mut self, event: Event, now: Mono) -> Option<SendRegister> {
        match event {
            Event::Connected => {
                self.connected = true;
                self.beat_at = Some(now);
                self.ask(now)
            }
            Event::Disconnected => {
                self.connected = false;
                self.lose()
            }
            Event::Acknowledged(ack) => {
                if self.connected && ack.node == self.node {
                    self.standing = Standing::Registered;
                    self.token = Some(ack.token);
                }
                None
            }
            Event::Beat(beat) => self.beat(beat, now),
            Event::ManagerDown => {
                self.manager_down = true;
                self.lose()
            }
            Event::ManagerUp => {
                let returned = std::mem::take(&mut self.manager_down);
                (returned && self.connected).then(|| self.ask(now)).flatten()
            }
            Event::Tick => self.tick(now),
        }
    }

    fn beat(&mut self, beat: Heartbeat, now: Mono) -> Option<SendRegister> {
        if !self.connected || !beat.available || self.seen(beat.ts) {
            return None;
        }
        self.beat_at = Some(now);
        self.manager_down = false;
        match beat.force_register || self.standing != Standing::Registered {
            true => self.ask_patiently(now),
            false => None,
        }
    }

    /// A beat without a time is never taken for another.
    fn seen(&mut self, ts: i64) -> bool {
        if ts > 0 && self.beats.contains(&ts) {
            return true;
        }
        if self.beats.len() == BEATS_KEPT {
            self.beats.pop_front();
        }
        self.beats.push_back(ts);
        false
    }

    fn tick(&mut self, now: Mono) -> Option<SendRegister> {
        if !self.connected || self.manager_down {
            return None;
        }
        if self.beat_at.is_some_and(|at| now.since(at) >= self.patience.silence) {
            self.lose();
        }
        if self.standing == Standing::Registered { None } else { self.ask_patiently(now) }
    }

    fn lose(&mut self) -> Option<SendRegister> {
        self.standing = Standing::NotRegistered;
        self.token = None;
        None
    }

    fn ask_patiently(&mut self, now: Mono) -> Option<SendRegister> {
        match self.tried_at {
            Some(at) if now.since(at) < self.patience.pause => None,
            _ => self.ask(now),
        }
    }

    /// Whoever is registered stays so while it says again what it has.
    fn ask(&mut self, now: Mono) -> Option<SendRegister> {
        self.tried_at = Some(now);
        if self.standing == Standing::NotRegistered {
            self.standing = Standing::Registering;
        }
        Some(SendRegister)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    fn beat(ts: i64, force_register: bool) -> Event {
        Event::Beat(Heartbeat { available: true, force_register, ts, schema: 1 })
    }

    fn ack(node: &str) -> Event {
        Event::Acknowledged(Ack { token: "t".into(), node: node.parse().unwrap(), actions: vec![] })
    }

    fn in_state(standing: Standing) -> Enrolment {
        let mut node = Enrolment::new("n".parse().unwrap(), Patience::default());
        node.handle(Event::Connected, at(0));
        match standing {
            Standing::NotRegistered => drop(node.handle(Event::ManagerDown, at(0))),
            Standing::Registering => {}
            Standing::Registered => drop(node.handle(ack("n"), at(0))),
        }
        assert_eq!(node.standing(), standing);
        node
    }

    /// The document's table of registration, line by line: in a state, on an event, a state and whether something is sent.
    #[test]
    fn every_state_and_event_gives_what_the_table_says() {
        use Standing::{NotRegistered, Registered, Registering};
        let table: Vec<(Standing, Event, Standing, bool)> = vec![
            (NotRegistered, Event::ManagerUp, Registering, true),
            (NotRegistered, Event::Connected, Registering, true),
            (NotRegistered, beat(1, false), Registering, true),
            (NotRegistered, beat(1, true), Registering, true),
            (NotRegistered, ack("n"), Registered, false),
            (NotRegistered, ack("other"), NotRegistered, false),
            (NotRegistered, Event::ManagerDown, NotRegistered, false),
            (NotRegistered, Event::Disconnected, NotRegistered, false),
            (NotRegistered, Event::Tick, NotRegistered, false),
            (Registering, ack("n"), Registered, false),
            (Registering, ack("other"), Registering, false),
            (Registering, beat(1, false), Registering, true),
            (Registering, beat(1, true), Registering, true),
            (Registering, Event::Tick, Registering, true),
            (Registering, Event::Connected, Registering, true),
            (Registering, Event::ManagerUp, Registering, false),
            (Registering, Event::ManagerDown, NotRegistered, false),
            (Registering, Event::Disconnected, NotRegistered, false),
            (Registered, beat(1, false), Registered, false),
            (Registered, beat(1, true), Registered, true),
            (Registered, ack("n"), Registered, false),
            (Registered, Event::Tick, Registered, false),
            (Registered, Event::ManagerUp, Registered, false),
            (Registered, Event::ManagerDown, NotRegistered, false),
            (Registered, Event::Disconnected, NotRegistered, false),
        ];
        for (from, event, to, sends) in table {
            let mut node = in_state(from);
            let sent = node.handle(event.clone(), at(10)).is_some();
            assert_eq!((node.standing(), sent), (to, sends), "{from:?} on {event:?}");
        }
    }

    #[test]
    fn a_beat_that_came_another_way_too_counts_once() {
        let mut node = in_state(Standing::Registered);
        assert!(node.handle(beat(7, true), at(20)).is_some());
        assert!(node.handle(beat(7, true), at(40)).is_none());
        assert!(node.handle(beat(8, false), at(41)).is_none());
        assert!(node.handle(beat(7, true), at(60)).is_none(), "also when another came between");
        assert!(node.handle(beat(9, true), at(60)).is_some());
    }

    #[test]
    fn tries_are_ten_seconds_apart_unless_the_manager_came_back() {
        let mut node = in_state(Standing::Registering);
        let sent = (1..60u64).filter(|s| node.handle(beat(*s as i64, true), at(*s)).is_some()).count();
        assert_eq!(sent, 5);
        node.handle(Event::ManagerDown, at(60));
        assert!(node.handle(Event::ManagerUp, at(60)).is_some());
    }

    #[test]
    fn half_a_minute_of_silence_makes_it_register_anew() {
        let mut node = in_state(Standing::Registered);
        assert!(node.handle(Event::Tick, at(29)).is_none());
        assert!(node.handle(Event::Tick, at(30)).is_some());
        assert_eq!(node.standing(), Standing::Registering);
    }
}
