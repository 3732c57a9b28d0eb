//! Any history at all: what the hub counts is what it holds, its bounds hold, and whoever lost its place was told.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::codec::Handling;
use crate::gate::{Rights, Standing};
use crate::topics::tests::{filter, filters, name, names};

#[derive(Clone, Debug)]
enum Act {
    Come { who: usize, id: usize, clean: bool, will: bool },
    Go { conn: usize, said: bool },
    Subscribe { conn: usize, wanted: TopicFilter },
    Unsubscribe { conn: usize, wanted: TopicFilter },
    Say { conn: usize, topic: TopicName, qos: Qos, retain: bool },
    Order { topic: TopicName, qos: Qos },
    Pull { conn: usize },
    Acknowledge { conn: usize, pid: u16 },
    Release { conn: usize, pid: u16 },
    Expel { who: usize },
    Sweep,
    Wait { seconds: u64 },
}

const WHO: [&str; 2] = ["a", "b"];
const IDS: [&str; 3] = ["1", "2", "3"];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let conn = 0usize..12;
    let qos = || proptest::sample::select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce]);
    let act = prop_oneof![
        4 => (0..2usize, 0..3usize, any::<bool>(), any::<bool>())
            .prop_map(|(who, id, clean, will)| Act::Come { who, id, clean, will }),
        2 => (conn.clone(), any::<bool>()).prop_map(|(conn, said)| Act::Go { conn, said }),
        4 => (conn.clone(), filters()).prop_map(|(conn, wanted)| Act::Subscribe { conn, wanted }),
        1 => (conn.clone(), filters()).prop_map(|(conn, wanted)| Act::Unsubscribe { conn, wanted }),
        4 => (conn.clone(), names(), qos(), any::<bool>())
            .prop_map(|(conn, topic, qos, retain)| Act::Say { conn, topic, qos, retain }),
        4 => (names(), qos()).prop_map(|(topic, qos)| Act::Order { topic, qos }),
        3 => conn.clone().prop_map(|conn| Act::Pull { conn }),
        2 => (conn.clone(), 1u16..4).prop_map(|(conn, pid)| Act::Acknowledge { conn, pid }),
        1 => (conn, 1u16..4).prop_map(|(conn, pid)| Act::Release { conn, pid }),
        1 => (0..2usize).prop_map(|who| Act::Expel { who }),
        1 => Just(Act::Sweep),
        1 => (1u64..40).prop_map(|seconds| Act::Wait { seconds }),
    ];
    proptest::collection::vec(act, 1..80)
}

fn limits() -> Limits {
    Limits {
        sessions_max: 3,
        subscriptions_max: 3,
        in_flight_max: 2,
        queue_messages_max: 4,
        held_bytes_max: 900,
        queue_age_max: Duration::from_secs(20),
        session_away_max: Duration::from_secs(60),
        retained_messages_max: 2,
        ..Limits::default()
    }
}

/// The hub, and everybody who ever came, also those who are gone: what they still do must harm nobody.
struct World {
    hub: Hub<()>,
    now: Mono,
    came: Vec<(ConnId, Handle)>,
    went: BTreeSet<ConnId>,
}

impl World {
    fn conn(&self, at: usize) -> Option<ConnId> {
        self.came.iter().rev().nth(at).map(|(conn, _)| *conn)
    }

    fn act(&mut self, act: Act) -> Option<()> {
        let now = self.now;
        match act {
            Act::Come { who, id, clean, will } => self.come(WHO[who], IDS[id], clean, will),
            Act::Go { conn, said } => {
                let conn = self.conn(conn)?;
                // A connection that was cut off ends too, and tells the hub.
                self.hub.closed(conn, if said { Farewell::Said } else { Farewell::Unsaid }, now);
                self.went.insert(conn);
            }
            Act::Subscribe { conn, wanted } => {
                self.hub.subscribe(self.conn(conn)?, &[(wanted, Qos::AtLeastOnce)], now);
            }
            Act::Unsubscribe { conn, wanted } => self.hub.unsubscribe(self.conn(conn)?, &[wanted]),
            Act::Say { conn, topic, qos, retain } => {
                let pid = Pid::new(1)?;
                let handling = match qos {
                    Qos::AtMostOnce => Handling::AtMostOnce,
                    Qos::AtLeastOnce => Handling::AtLeastOnce { pid, dup: false },
                    Qos::ExactlyOnce => Handling::ExactlyOnce { pid, dup: false },
                };
                let _ =
                    self.hub.publish(self.conn(conn)?, Publish { topic, payload: "x".into(), handling, retain }, now);
            }
            Act::Order { topic, qos } => {
                let message = Message { topic, payload: "order".into(), qos, retain: false, wanted: None };
                self.hub.publish_from_program(message, None, now);
            }
            Act::Pull { conn } => {
                self.hub.pull(self.conn(conn)?, usize::MAX, now);
            }
            Act::Acknowledge { conn, pid } => self.hub.acknowledged(self.conn(conn)?, Pid::new(pid)?),
            Act::Release { conn, pid } => self.hub.released(self.conn(conn)?, Pid::new(pid)?),
            Act::Expel { who } => {
                self.hub.expel(WHO[who]);
            }
            Act::Sweep => self.hub.sweep(now),
            Act::Wait { seconds } => self.now = now.plus(Duration::from_secs(seconds)),
        }
        Some(())
    }

    fn come(&mut self, who: &str, id: &str, clean: bool, will: bool) {
        let everything = vec![filter("#"), filter("$s/#")];
        let rights = Rights { publish: everything.clone(), subscribe: everything };
        let guest = Guest { who: who.into(), standing: Standing::Known, rights, sessions_max: 2 };
        let will = will.then(|| Will { topic: name("a"), payload: "w".into(), qos: Qos::AtLeastOnce, retain: true });
        let (conn, handle) = (ConnId(self.came.len() as u64), Handle::default());
        let arrival = Arrival { guest, client_id: id.into(), clean, will };
        if self.hub.connect(conn, arrival, handle.clone(), self.now).is_ok() {
            self.came.push((conn, handle));
        }
    }

    fn check(&self) {
        let Hub { sessions, names, links, subscribers, held_bytes, limits, .. } = &self.hub;
        assert_eq!(*held_bytes, sessions.values().map(|entry| entry.session.bytes()).sum::<usize>());
        assert!(*held_bytes <= limits.held_bytes_max && sessions.len() <= limits.sessions_max);
        assert_eq!(names.len(), sessions.len());
        assert_eq!(links.len(), sessions.values().filter(|entry| entry.link.is_some()).count());
        let mut wanted: BTreeMap<&TopicFilter, BTreeSet<Subscriber>> = BTreeMap::new();
        for (id, entry) in sessions {
            assert_eq!(names.get(&entry.name), Some(id));
            assert!(entry.kept || entry.link.is_some(), "a clean session outlived its connection");
            assert!(entry.link.as_ref().is_none_or(|link| links.get(&link.conn) == Some(id)));
            assert!(entry.session.messages() <= limits.queue_messages_max);
            assert!(entry.subscriptions.len() <= limits.subscriptions_max);
            for filter in entry.subscriptions.keys() {
                wanted.entry(filter).or_default().insert(Subscriber::Session(*id));
            }
        }
        assert_eq!(subscribers.len(), wanted.len());
        for (filter, who) in wanted {
            let listed: BTreeSet<_> = subscribers.get(filter.levels()).unwrap().keys().copied().collect();
            assert_eq!(listed, who);
        }
        for who in WHO {
            assert!(names.keys().filter(|(name, _)| &**name == who).count() <= 2);
        }
        for (conn, handle) in self.came.iter().filter(|(conn, _)| !self.went.contains(conn)) {
            assert_eq!(handle.gone.is_cancelled(), !links.contains_key(conn), "{conn:?} was not told, or for nothing");
        }
        assert!(self.hub.retained.len() <= limits.retained_messages_max);
    }
}

proptest! {
    #[test]
    fn what_the_hub_counts_is_what_it_holds_after_any_history(acts in acts()) {
        let hub = Hub::new(limits());
        let mut world = World { hub, now: Mono::default(), came: vec![], went: BTreeSet::new() };
        for act in acts {
            world.act(act);
            world.check();
        }
        // And when all have gone for good, nothing is left but what is retained.
        for (conn, _) in world.came.clone() {
            world.hub.closed(conn, Farewell::Said, world.now);
        }
        world.now = world.now.plus(Duration::from_secs(61));
        world.hub.sweep(world.now);
        let left = world.hub.gauges();
        prop_assert_eq!((left.sessions, left.waiting_bytes, left.subscriptions), (0, 0, 0));
        prop_assert!(world.hub.subscribers.is_empty() && world.hub.names.is_empty());
    }
}
