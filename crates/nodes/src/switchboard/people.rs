//! What people see of nodes, and do to them.

use std::sync::Arc;

use mutirao_core::auth::Principal;
use mutirao_core::{Problem, Timestamp};

use super::Switchboard;
use crate::allowance::{Allowance, Warrant};
use crate::breaker::Health;
use crate::device::{self, Device, Digest};
use crate::meters;
use crate::names::{NodeId, Offer};
use crate::registry::{Presence, Record, Refused};
use crate::store::{By, Removal, Removed, Tossed};
use crate::topics::OwnTopics;
use crate::way::{Outstanding, Waits};

/// A node as it stands.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    pub record: Record,
    pub presence: Presence,
    pub in_flight: u32,
    /// What was said by it, or in its name, and refused since this manager began.
    pub refused: u64,
    /// How it does at each of its actions.
    pub health: Vec<(Offer, Health)>,
    pub waits: Option<Waits>,
}

pub(super) fn refused(error: mutirao_store::StoreError) -> Problem {
    Problem::unavailable(error.to_string())
}

impl Switchboard {
    /// By id.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let (all, out) = {
            let state = self.0.state.lock();
            let all: Vec<NodeId> = state.registry.all().map(|(record, _)| record.node.clone()).collect();
            (all, state.outstanding())
        };
        all.iter().filter_map(|node| self.info(node, out.get(node).copied().unwrap_or_default())).collect()
    }

    pub fn node(&self, node: &NodeId) -> Option<NodeInfo> {
        let out = self.0.state.lock().outstanding().remove(node).unwrap_or_default();
        self.info(node, out)
    }

    fn info(&self, node: &NodeId, out: Outstanding) -> Option<NodeInfo> {
        let now = self.0.clock.monotonic();
        let (record, presence, in_flight, refused, health) = {
            let state = self.0.state.lock();
            let (record, presence) = state.registry.node(node)?;
            let health = |offer: &Offer| (offer.clone(), state.router.health(node, &offer.action, now));
            let health = record.offers.iter().map(health).collect();
            (record.clone(), presence, state.router.in_flight(node), state.registry.blamed(node), health)
        };
        let waits = self.0.ways().iter().find_map(|way| way.waiting(&record, presence, out));
        Some(NodeInfo { record, presence, in_flight, refused, health, waits })
    }

    /// Takes a node out, at every manager. What it had is lost; it may register again, under whatever it can show then.
    pub async fn forget(&self, node: &NodeId) -> Result<(), Problem> {
        let first_at = self.0.state.lock().registry.node(node).map(|(record, _)| record.first_at);
        let Some(first_at) = first_at else {
            return Err(Problem::not_found(format!("there is no node \"{node}\" that runs actions"))
                .remedy("`mutirao node list` shows those that are there"));
        };
        self.void(node, first_at).await
    }

    async fn void(&self, node: &NodeId, first_at: Timestamp) -> Result<(), Problem> {
        // The clock of whoever heard it first may be ahead of ours.
        let at = self.0.clock.now().max(first_at);
        // First in the store: whoever hears nothing of it finds it there.
        self.0.store.remove(node, at).await.map_err(refused)?;
        self.0.removed(Removal { what: Removed::Node(node.clone()), at }).await;
        Ok(())
    }

    /// Lets a device in. Its password, which is nowhere else.
    pub async fn add_device(
        &self,
        name: &str,
        node: NodeId,
        may_request: bool,
        topics: OwnTopics,
        allowance: Allowance,
        who: &Principal,
    ) -> Result<(Device, String), Problem> {
        device::check_name(name).map_err(|bad| Problem::invalid("name", bad.to_string()))?;
        let (password, at) = (device::new_password(), self.0.clock.now());
        let device = Device {
            name: name.to_owned(),
            node,
            digest: Digest::of(name, password.as_bytes()),
            may_request,
            topics,
            warrant: Arc::new(Warrant { by_key: false, allowance }),
            created_at: at,
            created_by: who.name.clone(),
        };
        let by = By { who: who.id.clone(), at };
        match self.0.store.add_device(device.clone(), by).await.map_err(refused)? {
            true => Ok((device, password)),
            false => Err(Problem::conflict(format!("there is a device \"{name}\" already"))
                .remedy(format!("choose another name, or remove it first: mutirao device rm {name}"))),
        }
    }

    /// The device that a name and its password open.
    pub async fn device_of(&self, name: &str, password: &[u8]) -> Result<Option<Device>, Problem> {
        let device = self.0.store.device(name).await.map_err(refused)?;
        let opened = device.filter(|device| device.is_opened_by(password));
        if opened.is_none() {
            meters::refused(Refused::BadPassword);
        }
        Ok(opened)
    }

    pub async fn devices(&self, after: &str, rows: u32) -> Result<Vec<Device>, Problem> {
        self.0.store.devices(after, rows).await.map_err(refused)
    }

    /// Keeps a device out, at once and at every manager.
    pub async fn remove_device(&self, name: &str, who: &str) -> Result<(), Problem> {
        let at = self.0.clock.now();
        if !self.0.store.remove_device(name, By { who: who.to_owned(), at }).await.map_err(refused)? {
            let shown: String = name.chars().take(64).collect();
            return Err(Problem::not_found(format!("there is no device \"{shown}\""))
                .remedy("`mutirao device list` shows those that are there"));
        }
        // Else a node that is reached by HTTP would be given tasks, and believed, for ever.
        let its_nodes = self.0.state.lock().let_in_by(name);
        self.0.removed(Removal { what: Removed::Device(name.to_owned()), at }).await;
        if let Ok(node) = name.parse() {
            self.dismiss(&node).await;
        }
        for (node, first_at) in its_nodes {
            self.void(&node, first_at).await?;
        }
        Ok(())
    }

    /// What was received and could not be worked with, the newest first.
    pub async fn rubbish(&self, rows: u32) -> Result<Vec<Tossed>, Problem> {
        self.0.store.tossed(rows).await.map_err(refused)
    }
}
