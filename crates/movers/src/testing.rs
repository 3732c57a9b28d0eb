//! Scenes and messages for tests.

use std::collections::BTreeSet;

use mutirao_streams::wire::{Part, StreamId, What};

use crate::message::{Message, Own, Use};
use crate::scene::{Host, Scene, Seated};

pub const GB: f64 = 1e9;

pub fn part(operator: u32, replica: u32) -> Part {
    Part { stream: StreamId("s".into()), what: What::Stage(operator), replica }
}

pub fn host(id: &str) -> Host {
    Host { id: id.into(), memory_total_bytes: 8.0 * GB, cores: 4.0, node: None, takes: true }
}

pub fn seated(part: Part, host: &str) -> Seated {
    Seated {
        part,
        host: host.into(),
        fixed: None,
        barred: BTreeSet::new(),
        state_bytes: 10e6,
        cores_max: 2.0,
        goal_ms: Some(100.0),
        links: Vec::new(),
    }
}

pub fn scene(now_ms: u64, hosts: &[&str], parts: Vec<Seated>) -> Scene {
    Scene { now_ms, hosts: hosts.iter().map(|id| host(id)).collect(), parts, moving: BTreeSet::new() }
}

/// Of a part that uses `own` cores, on a host of which each of four has the share `core` busy.
pub fn message(seated: &Seated, at_ms: u64, latency_ms: f64, own: f64, core: f64) -> Message {
    Message {
        part: seated.part.clone(),
        host: seated.host.clone(),
        at_ms,
        latency_ms: Some(latency_ms),
        wait_ms: 0.0,
        events_in: own * 500.0,
        events_out: own * 500.0,
        queue: 0.0,
        held_back: 0.0,
        own: Own { cpu: own, memory_bytes: 100e6, disk_bytes: 0.0, network_bytes: 1e6 },
        node: Use {
            cpus: vec![core; 4],
            io_wait: vec![0.0; 4],
            memory_bytes: 1.0 * GB + core * GB,
            disk_bytes: 0.0,
            network_bytes: 5e6 + core * 10e6,
        },
    }
}
