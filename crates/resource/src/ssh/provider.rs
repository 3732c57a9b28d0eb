//! The pool as the resource manager sees it: each host is a node of its own kind, of which there is one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use mutirao_core::{Clock, WorkerId};
use mutirao_elastic::packing::{Kind, NodeName};

use super::host::Host;
use super::means::Means;
use super::spec::HostSpec;
use crate::local::wire::{Answer, Haste, Request, Words};
use crate::local::{Workers, order};
use crate::provider::{Have, Launch, Provider, ProviderError};

pub const NAME: &str = "ssh";
/// How often hosts are told to go that have not gone yet.
const LEAVE_EVERY: Duration = Duration::from_millis(500);

pub struct Ssh {
    hosts: BTreeMap<NodeName, Arc<Host>>,
    workers: Workers,
    clock: Arc<dyn Clock>,
}

impl Ssh {
    pub fn new(hosts: Vec<HostSpec>, means: Means, workers: Workers) -> Self {
        let clock = means.clock.clone();
        let means = Arc::new(means);
        let host = |spec: HostSpec| (NodeName(spec.name.clone()), Host::new(spec, means.clone()));
        Self { hosts: hosts.into_iter().map(host).collect(), workers, clock }
    }

    fn host(&self, node: &NodeName) -> Result<&Arc<Host>, ProviderError> {
        self.hosts.get(node).ok_or_else(|| ProviderError::NoSuchNode { node: node.clone() })
    }

    /// Sends every node home, and returns when they have gone. Cancel-safe.
    pub async fn leave(&self, haste: Haste) {
        while self.left() > 0 {
            // One that is silent keeps the others from nothing.
            join_all(self.hosts.values().map(|host| host.dismiss(haste))).await;
            self.clock.sleep(LEAVE_EVERY).await;
        }
    }

    /// Hosts that have a node, as far as is known.
    pub fn left(&self) -> usize {
        self.hosts.values().filter(|host| host.is_held()).count()
    }
}

#[async_trait]
impl Provider for Ssh {
    fn name(&self) -> &str {
        NAME
    }

    /// Always whole: of a host that cannot be reached it is said that it is silent.
    async fn list(&self, generation: u64) -> Result<Have, ProviderError> {
        Ok(Have { nodes: join_all(self.hosts.values().map(|host| host.see(generation))).await })
    }

    async fn launch(&self, launch: &Launch, generation: u64) -> Result<(), ProviderError> {
        let node = || launch.node.clone();
        let host = self.host(&launch.node)?;
        let silent = |why: String| ProviderError::Silent { node: node(), why };
        let there = host.for_workers().ok_or_else(|| silent("it is not in use".into()))?;
        let capacity = host.kind().map(|kind| kind.capacity).unwrap_or_default();
        let words = Words { name: node(), capacity, labels: host.spec.labels.clone(), layer: host.spec.layer };
        let mut order = order(&self.workers, &words, launch)?;
        (order.url, order.pin, order.ca) = (there.url, there.pin, there.ca);
        match host.ask(Request::Launch(Box::new(order)), Some(generation)).await {
            Ok(Answer::Failed { why }) => Err(ProviderError::Refused(format!("{}: {why}", launch.node))),
            Ok(_) => Ok(()),
            Err(why) => Err(silent(why)),
        }
    }

    /// Yes for a host that cannot be reached: whoever is listed when it is back is ended then.
    async fn end(&self, worker: &WorkerId, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        let host = self.host(node)?;
        match host.ask(Request::End { worker: worker.clone() }, Some(generation)).await {
            Ok(Answer::Failed { why }) => Err(ProviderError::Refused(format!("{node}: {why}"))),
            Ok(_) => Ok(()),
            Err(why) => {
                tracing::debug!(%worker, %node, why, "a worker is ended when its host is back");
                Ok(())
            }
        }
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        Ok(self.hosts.values().filter_map(|host| host.kind()).collect())
    }

    /// A host has a name already, and there is one of its kind.
    async fn create_node(&self, _: &NodeName, kind: &str, _: u64) -> Result<(), ProviderError> {
        let none = || ProviderError::NoSuchKind { provider: NAME.into(), kind: kind.into() };
        let host = self.hosts.get(&NodeName(kind.into())).ok_or_else(none)?;
        host.take().map_err(|why| ProviderError::Refused(format!("{kind}: {why}")))
    }

    async fn remove_node(&self, node: &NodeName, _: u64) -> Result<(), ProviderError> {
        if let Ok(host) = self.host(node) {
            host.leave().await;
        }
        Ok(())
    }
}
