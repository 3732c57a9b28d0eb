//! Nodes that come in by a key of their own ([`crate::keys`]).

use std::collections::HashMap;
use std::time::Duration;

use mutirao_core::auth::Principal;
use mutirao_core::node::{AmqpPlace, NodeEnrol, NodeInvited, NodeKeyView, NodePassword};
use mutirao_core::{Mono, Problem, Timestamp};
use mutirao_store::StoreError;
use parking_lot::Mutex;

use super::people::refused;
use super::{Inner, Switchboard};
use crate::allowance::Allowance;
use crate::keys::{self, Enrolling, INVITED_FOR_MS, Invitation};
use crate::meters;
use crate::names::NodeId;
use crate::registry::Refused;
use crate::store::{By, SharedNodes, Tossed};

/// A word that was missed is found in the store within this, and so is a key that was taken away.
const BELIEVED: Duration = Duration::from_secs(5);
const BELIEVED_MAX: usize = 10_000;

/// Nodes that had a key when it was last looked. A broker lets their users speak without asking us.
#[derive(Default)]
pub struct Keyring(Mutex<Known>);

#[derive(Default)]
struct Known {
    seen_at: HashMap<NodeId, Mono>,
    /// What was being looked up while somebody was removed may be outdated.
    removals: u64,
}

impl Keyring {
    pub async fn has(&self, node: &NodeId, store: &SharedNodes, now: Mono) -> Result<bool, StoreError> {
        let removals = {
            let known = self.0.lock();
            if known.seen_at.get(node).is_some_and(|at| now.since(*at) < BELIEVED) {
                return Ok(true);
            }
            known.removals
        };
        let has = store.node_key(node).await?.is_some();
        let mut known = self.0.lock();
        if has && known.removals == removals {
            if known.seen_at.len() >= BELIEVED_MAX {
                known.seen_at.clear();
            }
            known.seen_at.insert(node.clone(), now);
        }
        Ok(has)
    }

    pub fn forget(&self, device: &str) {
        let mut known = self.0.lock();
        known.removals += 1;
        known.seen_at.retain(|node, _| node.as_str() != device);
    }
}

impl Switchboard {
    /// A one-time token with which a node of this id gives its key.
    pub async fn invite_node(
        &self,
        node: &NodeId,
        allowance: Allowance,
        who: &Principal,
    ) -> Result<NodeInvited, Problem> {
        if self.0.store.device(node.as_str()).await.map_err(refused)?.is_some() {
            return Err(taken(node));
        }
        let (now, (token, digest)) = (self.0.clock.now(), keys::mint());
        let expires_at = Timestamp(now.0 + INVITED_FOR_MS);
        let (until, created_by) = (expires_at, who.name.clone());
        let invitation = Invitation { digest, node: node.clone(), until, created_by, allowance };
        let by = By { who: who.id.clone(), at: now };
        self.0.store.invite(invitation, by).await.map_err(refused)?;
        Ok(NodeInvited { node: node.to_string(), token, expires_at })
    }

    /// A node gives its key.
    pub async fn enrol_node(&self, enrol: &NodeEnrol) -> Result<NodeKeyView, Problem> {
        let worthless = || {
            Problem::unauthenticated("the one-time token is not known, spent, or too old")
                .remedy("make another: mutirao node invite ID")
        };
        let invitation = keys::read_token(&enrol.token).ok_or_else(worthless)?;
        let bad = || Problem::invalid("public_key", "it is no Ed25519 key in base64");
        let key = keys::read_public(&enrol.public_key).ok_or_else(bad)?;
        let by = By { who: "the node itself".into(), at: self.0.clock.now() };
        match self.0.store.enrol(invitation, key, by).await.map_err(refused)? {
            Enrolling::LetIn(node) => Ok(NodeKeyView { node: node.to_string(), changes: 0, amqp: None }),
            Enrolling::Worthless => {
                meters::refused(Refused::BadPassword);
                Err(worthless())
            }
            Enrolling::Taken(node) => Err(taken(&node)),
        }
    }

    pub async fn node_key(&self, node: &NodeId) -> Result<NodeKeyView, Problem> {
        match self.0.store.node_key(node).await.map_err(refused)? {
            Some(key) => Ok(NodeKeyView { node: node.to_string(), changes: key.changes, amqp: None }),
            None => Err(unknown(node)),
        }
    }

    /// A node changes its password: the old one lets nobody in any more.
    pub async fn change_password(&self, node: &NodeId, said: &NodePassword) -> Result<NodeKeyView, Problem> {
        let key = self.0.store.node_key(node).await.map_err(refused)?.ok_or_else(|| unknown(node))?;
        let wrong = || Problem::unauthenticated("this was not signed with the node's key");
        let Some(digest) = keys::read_password(node, &key.public, said) else {
            self.0.badly_signed(node);
            return Err(wrong());
        };
        if !self.0.store.change_password(node, said.change, digest).await.map_err(refused)? {
            return Err(Problem::conflict("this change was made already, or one before it was not"));
        }
        let amqp = match &said.rabbit {
            Some(hash) => Some(self.admit(node, hash).await?),
            None => None,
        };
        Ok(NodeKeyView { node: node.to_string(), changes: said.change, amqp })
    }

    async fn admit(&self, node: &NodeId, hash: &str) -> Result<AmqpPlace, Problem> {
        let Some(users) = self.0.users.get() else {
            return Err(Problem::invalid("rabbit", "this manager has no RabbitMQ; let the node speak MQTT or HTTP"));
        };
        users.admit(node, hash).await.map_err(Problem::unavailable)
    }

    /// Its user at a broker goes with the device. Where that cannot be done now, its key is gone all the same, and what it
    /// says is refused.
    pub(super) async fn dismiss(&self, node: &NodeId) {
        if let Some(users) = self.0.users.get()
            && let Err(why) = users.dismiss(node).await
        {
            tracing::warn!(%node, why, "a node's user at RabbitMQ could not be removed; it is tried again, and heard no more");
        }
    }
}

impl Inner {
    /// Counted with the node whose key it was not, and kept to be looked at.
    fn badly_signed(&self, node: &NodeId) {
        let why = Refused::BadSignature;
        meters::refused(why);
        let now = self.now();
        self.state.lock().registry.blame(node);
        let (place, who) = ("http node-keys".into(), format!("somebody who says it is {node}"));
        let tossed = Tossed { at: now.wall, place, who, reason: why.to_string(), body: Vec::new() };
        self.bin.toss(tossed, now.mono);
    }

    /// Users of nodes whose key was taken while their broker could not be told.
    pub(super) async fn dismiss_leftovers(&self) {
        let Some(users) = self.users.get() else { return };
        let admitted = match users.admitted().await {
            Ok(admitted) => admitted,
            Err(why) => return tracing::debug!(why, "which nodes have users at RabbitMQ could not be seen"),
        };
        for node in admitted {
            if let Ok(None) = self.store.node_key(&node).await {
                match users.dismiss(&node).await {
                    Ok(()) => tracing::info!(%node, "a user of a node that was removed is gone from RabbitMQ"),
                    Err(why) => tracing::debug!(%node, why, "a node's user at RabbitMQ could not be removed yet"),
                }
            }
        }
    }
}

fn unknown(node: &NodeId) -> Problem {
    Problem::not_found(format!("no node \"{node}\" has given its key")).remedy("mutirao node invite ID lets it")
}

fn taken(node: &NodeId) -> Problem {
    Problem::conflict(format!("there is a device \"{node}\" already"))
        .remedy(format!("choose another id, or remove it first: mutirao device rm {node}"))
}
