//! Several providers as one. Names of nodes and kinds say whose they are, as the last listing and the last question had it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use mutirao_core::WorkerId;
use mutirao_elastic::packing::{Kind, Layer, NodeName};
use mutirao_elastic::protocol::OfferedNode;
use parking_lot::Mutex;

use super::{Have, Launch, NodeSeen, Origin, Provider, ProviderError, Shared};

pub struct Several {
    all: Vec<Shared>,
    name: String,
    nodes: Mutex<BTreeMap<NodeName, Shared>>,
    kinds: Mutex<BTreeMap<String, Shared>>,
}

impl Several {
    pub fn of(all: Vec<Shared>) -> Arc<Self> {
        let names: Vec<&str> = all.iter().map(|one| one.name()).collect();
        let name = names.join(", ");
        Arc::new(Self { all, name, nodes: Mutex::default(), kinds: Mutex::default() })
    }

    fn of_node(&self, node: &NodeName) -> Result<Shared, ProviderError> {
        let found = self.nodes.lock().get(node).cloned();
        found.ok_or_else(|| ProviderError::NoSuchNode { node: node.clone() })
    }
}

#[async_trait]
impl Provider for Several {
    fn name(&self) -> &str {
        &self.name
    }

    /// One that does not say what it has is named as such, and hides nobody else's. Of two nodes of one name the first counts.
    async fn list(&self, generation: u64) -> Result<Have, ProviderError> {
        let listed = join_all(self.all.iter().map(|one| one.list(generation))).await;
        let mut owners = BTreeMap::new();
        let mut whole = Have::default();
        if let (false, Some(Err(error))) = (listed.iter().any(Result::is_ok), listed.first()) {
            return Err(error.clone());
        }
        for (owner, have) in self.all.iter().zip(listed) {
            let have = match have {
                Ok(have) => have,
                Err(error) => {
                    whole.nodes.push(unsaid(owner.name(), &error));
                    continue;
                }
            };
            for seen in have.nodes {
                if let std::collections::btree_map::Entry::Vacant(place) = owners.entry(seen.node.name.clone()) {
                    place.insert(owner.clone());
                    whole.nodes.push(seen);
                }
            }
        }
        let mut known = self.nodes.lock();
        // Its nodes are asked for still, by way of what it said before.
        let silent =
            |owner: &Shared| whole.nodes.iter().any(|n| n.origin == Origin::Unsaid && n.node.provider == owner.name());
        known.retain(|_, owner| silent(owner));
        known.extend(owners);
        drop(known);
        Ok(whole)
    }

    async fn launch(&self, launch: &Launch, generation: u64) -> Result<(), ProviderError> {
        self.of_node(&launch.node)?.launch(launch, generation).await
    }

    async fn end(&self, worker: &WorkerId, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        self.of_node(node)?.end(worker, node, generation).await
    }

    /// What one of them cannot say is left out.
    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        let mut owners = BTreeMap::new();
        let mut whole = Vec::new();
        for owner in &self.all {
            for kind in owner.kinds().await.unwrap_or_default() {
                if let std::collections::btree_map::Entry::Vacant(place) = owners.entry(kind.name.clone()) {
                    place.insert(owner.clone());
                    whole.push(kind);
                }
            }
        }
        *self.kinds.lock() = owners;
        Ok(whole)
    }

    async fn create_node(&self, node: &NodeName, kind: &str, generation: u64) -> Result<(), ProviderError> {
        let owner = self.kinds.lock().get(kind).cloned();
        let none = || ProviderError::NoSuchKind { provider: self.name.clone(), kind: kind.into() };
        owner.ok_or_else(none)?.create_node(node, kind, generation).await
    }

    async fn remove_node(&self, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        match self.of_node(node) {
            Ok(owner) => owner.remove_node(node, generation).await,
            // Nobody lists it: it is not there.
            Err(_) => Ok(()),
        }
    }
}

fn unsaid(provider: &str, error: &ProviderError) -> NodeSeen {
    let node = OfferedNode {
        name: NodeName(provider.to_owned()),
        provider: provider.to_owned(),
        kind: None,
        capacity: Default::default(),
        labels: BTreeMap::new(),
        layer: Layer::Cloud,
        answers: false,
        note: Some(error.to_string()),
        stands: None,
    };
    NodeSeen { node, origin: Origin::Unsaid, workers: BTreeMap::new(), ended: Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the nodes and kinds of these names, and notes what it is asked.
    struct One(&'static str, &'static [&'static str], Mutex<Vec<String>>);

    #[async_trait]
    impl Provider for One {
        fn name(&self) -> &str {
            self.0
        }

        async fn list(&self, _: u64) -> Result<Have, ProviderError> {
            if self.1.is_empty() {
                return Err(ProviderError::Refused("it does not say".into()));
            }
            let node = |name: &&str| NodeSeen {
                node: OfferedNode {
                    name: NodeName((*name).into()),
                    provider: self.0.into(),
                    kind: None,
                    capacity: Default::default(),
                    labels: Default::default(),
                    layer: Layer::Cloud,
                    answers: true,
                    note: None,
                    stands: None,
                },
                origin: Origin::Made,
                workers: BTreeMap::new(),
                ended: Default::default(),
            };
            Ok(Have { nodes: self.1.iter().map(node).collect() })
        }

        async fn launch(&self, _: &Launch, _: u64) -> Result<(), ProviderError> {
            Ok(())
        }

        async fn end(&self, worker: &WorkerId, node: &NodeName, _: u64) -> Result<(), ProviderError> {
            self.2.lock().push(format!("end {worker} on {node}"));
            Ok(())
        }

        async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
            Ok(Vec::new())
        }

        async fn create_node(&self, _: &NodeName, _: &str, _: u64) -> Result<(), ProviderError> {
            Ok(())
        }

        async fn remove_node(&self, _: &NodeName, _: u64) -> Result<(), ProviderError> {
            Ok(())
        }
    }

    fn one(name: &'static str, nodes: &'static [&'static str]) -> Arc<One> {
        Arc::new(One(name, nodes, Mutex::default()))
    }

    #[tokio::test]
    async fn each_is_asked_about_its_own_and_one_that_is_silent_hides_nobody_else() {
        let (first, second) = (one("first", &["a"]), one("second", &["a", "b"]));
        let both = Several::of(vec![first.clone(), second.clone()]);
        let worker = WorkerId("w".into());
        let node = |name: &str| NodeName(name.into());
        assert!(both.end(&worker, &node("b"), 1).await.is_err(), "nothing was listed yet");
        let have = both.list(1).await.unwrap();
        let owners: Vec<&str> = have.nodes.iter().map(|seen| seen.node.provider.as_str()).collect();
        assert_eq!(owners, ["first", "second"], "of two nodes of one name the first counts");
        both.end(&worker, &node("a"), 1).await.unwrap();
        both.end(&worker, &node("b"), 1).await.unwrap();
        assert_eq!(*first.2.lock(), ["end w on a"]);
        assert_eq!(*second.2.lock(), ["end w on b"]);
        assert!(both.create_node(&node("c"), "small", 1).await.is_err());
        both.remove_node(&node("c"), 1).await.unwrap();
        let have = Several::of(vec![first, one("silent", &[])]).list(1).await.unwrap();
        let seen: Vec<_> = have.nodes.iter().map(|seen| (seen.node.name.0.as_str(), seen.origin)).collect();
        assert_eq!(seen, [("a", Origin::Made), ("silent", Origin::Unsaid)]);
        assert_eq!(have.nodes[1].node.note.as_deref(), Some("it does not say"));
        assert!(Several::of(vec![one("silent", &[]), one("mute", &[])]).list(1).await.is_err());
    }
}
