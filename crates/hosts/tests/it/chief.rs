//! A manager that gives the orders that a test wants, and remembers what it was told. The real one is the conductor's.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use mutirao_hosts::{Manager, ManagerError};
use mutirao_streams::graph::{Graph, Plan, plan};
use mutirao_streams::wire::{
    Beat, Delivered, Delivery, Item, Mode, Order, Orders, Part, Report, Snapshot, State, StreamId, What, log_of,
};
use parking_lot::Mutex;

pub struct Chief {
    pub stream: StreamId,
    pub graph: Graph,
    pub plan: Plan,
    text: String,
    log_bytes: u64,
    state: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// Which host runs what, and in which epoch.
    places: BTreeMap<Part, (String, u64)>,
    snapshots: BTreeMap<What, Vec<Snapshot>>,
    reports: BTreeMap<Part, Report>,
    deaf_to: BTreeSet<String>,
    paused: bool,
    items: Vec<Item>,
    seen: BTreeSet<String>,
    away: bool,
    keep: usize,
}

impl Chief {
    pub fn of(text: &str, log_bytes: u64) -> Self {
        let graph = mutirao_streams::definition::check(text).unwrap_or_else(|faults| panic!("{faults:?}")).remove(0);
        let plan = plan(&graph);
        let state = Mutex::new(Told { keep: 2, ..Told::default() });
        Self { stream: StreamId("s1".into()), graph, plan, text: text.into(), log_bytes, state }
    }

    pub fn part(&self, what: What, replica: u32) -> Part {
        Part { stream: self.stream.clone(), what, replica }
    }

    /// From now on this host runs it.
    pub fn place(&self, part: &Part, host: &str) {
        let mut told = self.state.lock();
        let epoch = told.places.get(part).map_or(1, |(_, epoch)| epoch + 1);
        told.places.insert(part.clone(), (host.into(), epoch));
    }

    /// All parts of the plan, replicas on hosts one after the other.
    pub fn place_all(&self, hosts: &[&str]) {
        let mut next = 0;
        for planned in &self.plan.parts {
            for replica in 0..planned.replicas {
                self.place(&self.part(planned.what, replica), hosts[next % hosts.len()]);
                next += 1;
            }
        }
    }

    pub fn parts_of(&self, host: &str) -> Vec<Part> {
        let told = self.state.lock();
        told.places.iter().filter(|(_, (on, _))| on == host).map(|(part, _)| part.clone()).collect()
    }

    pub fn deaf_to(&self, host: &str, deaf: bool) {
        let mut told = self.state.lock();
        if deaf {
            told.deaf_to.insert(host.into())
        } else {
            told.deaf_to.remove(host)
        };
    }

    pub fn pause(&self, paused: bool) {
        self.state.lock().paused = paused;
    }

    /// Takes nothing of sinks for now.
    pub fn away(&self, away: bool) {
        self.state.lock().away = away;
    }

    pub fn items(&self) -> Vec<Item> {
        self.state.lock().items.clone()
    }

    pub fn report(&self, part: &Part) -> Option<Report> {
        self.state.lock().reports.get(part).cloned()
    }

    pub fn state_of(&self, part: &Part) -> Option<State> {
        self.report(part).map(|report| report.state)
    }

    pub fn snapshots(&self, what: What) -> Vec<Snapshot> {
        self.state.lock().snapshots.get(&what).cloned().unwrap_or_default()
    }

    pub fn reports(&self) -> Vec<Report> {
        self.state.lock().reports.values().cloned().collect()
    }
}

#[async_trait]
impl Manager for Chief {
    async fn beat(&self, beat: Beat) -> Result<Orders, ManagerError> {
        let mut told = self.state.lock();
        let host = beat.host.id;
        if told.deaf_to.contains(&host) {
            return Err(ManagerError::Away("cut off".into()));
        }
        for report in beat.parts {
            if told.places.get(&report.part).is_none_or(|(on, epoch)| *on != host || *epoch != report.epoch) {
                continue;
            }
            if let Some(snapshot) = &report.snapshot {
                let keep = told.keep;
                let known = told.snapshots.entry(report.part.what).or_default();
                if !known.iter().any(|known| known.key == snapshot.key) {
                    known.push(snapshot.clone());
                    known.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.offset));
                    known.truncate(keep);
                }
            }
            told.reports.insert(report.part.clone(), report);
        }
        let order = |(part, (_, epoch)): (&Part, &(String, u64))| {
            let feeds = self.plan.part(part.what).map(|part| part.feeds.clone()).unwrap_or_default();
            let needed = feeds.iter().filter_map(|what| {
                let needed = told.snapshots.get(what).and_then(|known| known.last()).map_or(0, |oldest| oldest.offset);
                Some((log_of(&self.stream, *what)?, needed))
            });
            Order {
                part: part.clone(),
                epoch: *epoch,
                mode: if told.paused { Mode::Pause } else { Mode::Run },
                snapshots: told.snapshots.get(&part.what).cloned().unwrap_or_default(),
                needed: needed.collect(),
            }
        };
        let parts = told.places.iter().filter(|(_, (on, _))| *on == host).map(order).collect();
        let definitions = match beat.knows.contains(&self.stream) {
            true => vec![],
            false => vec![(self.stream.clone(), self.text.clone())],
        };
        Ok(Orders { parts, definitions, log_bytes: self.log_bytes })
    }

    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, ManagerError> {
        let mut told = self.state.lock();
        if told.away {
            return Err(ManagerError::Away("the manager is away".into()));
        }
        for item in delivery.items {
            if told.seen.insert(item.number.clone()) {
                told.items.push(item);
            }
        }
        Ok(Delivered::default())
    }
}
