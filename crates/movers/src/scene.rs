//! Who sits where, and what may move: what is known without measuring.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_streams::wire::{Part, StreamId, What};
use serde::{Deserialize, Serialize};

use crate::message::Use;

/// The id of a host, as whoever places parts calls it.
pub type HostId = String;

/// What has replicas: no two of one stage are on one host.
pub type Stage = (StreamId, What);

pub fn stage(part: &Part) -> Stage {
    (part.stream.clone(), part.what)
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scene {
    pub now_ms: u64,
    /// Those that are heard of. A host that is gone is not among them.
    pub hosts: Vec<Host>,
    pub parts: Vec<Seated>,
    /// Those whose move is under way.
    pub moving: BTreeSet<Part>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub id: HostId,
    pub memory_total_bytes: f64,
    /// Those that it may use: a share of one, where a control group leaves it no more.
    pub cores: f64,
    /// What is used of it, as it says itself; its parts' messages say more, where it has parts.
    pub node: Option<Use>,
    /// Whether parts may be given to it: one that is to be drained takes none.
    pub takes: bool,
}

/// A part that has a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seated {
    pub part: Part,
    pub host: HostId,
    /// Why it stays where it is whatever is measured, if so: `it is pinned to edge-1`.
    pub fixed: Option<String>,
    /// Hosts that it may not run on, other than those of its replicas.
    pub barred: BTreeSet<HostId>,
    /// What a move has to carry.
    pub state_bytes: f64,
    /// Cores that it can use at once.
    pub cores_max: f64,
    /// The latency to keep. `None` is that of the settings.
    pub goal_ms: Option<f64>,
    /// The parts that it reads from or writes to, and how many bytes of its network traffic in a second are theirs.
    pub links: Vec<(Part, f64)>,
}

/// A scene that changes as a round decides: what is decided counts for what is decided next.
#[derive(Clone, Debug)]
pub struct Board<'a> {
    pub scene: &'a Scene,
    seats: BTreeMap<&'a Part, &'a str>,
    /// Stages of which a replica moves, by this round too: two at once would leave nobody to read on.
    under_way: BTreeSet<Stage>,
}

impl<'a> Board<'a> {
    pub fn new(scene: &'a Scene) -> Self {
        let seats = scene.parts.iter().map(|seated| (&seated.part, seated.host.as_str())).collect();
        Self { scene, seats, under_way: scene.moving.iter().map(stage).collect() }
    }

    pub fn host_of(&self, part: &Part) -> Option<&'a str> {
        self.seats.get(part).copied()
    }

    pub fn replica_moves(&self, part: &Part) -> bool {
        self.under_way.contains(&stage(part))
    }

    pub fn has_replica(&self, host: &str, part: &Part) -> bool {
        self.siblings(part).any(|sibling| self.host_of(sibling) == Some(host))
    }

    pub fn siblings(&self, part: &Part) -> impl Iterator<Item = &'a Part> {
        let parts = self.scene.parts.iter().map(|seated| &seated.part);
        parts.filter(|other| other.stream == part.stream && other.what == part.what && other.replica != part.replica)
    }

    pub fn moves(&mut self, part: &'a Part, to: &'a str) {
        self.seats.insert(part, to);
        self.under_way.insert(stage(part));
    }
}
