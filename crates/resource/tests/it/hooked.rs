//! The provider whose machines commands create: real commands, and agents that run in this process in the folders that these make.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, SystemClock};
use mutirao_elastic::packing::{Layer, NodeName};
use mutirao_resource::hooks::{HooksParts, spec};
use mutirao_resource::local::wire::{Haste, Words};
use mutirao_resource::local::{Agent, Workers};
use mutirao_resource::ssh::{Means, Reach};
use mutirao_resource::{Hooks, NodeSeen, Origin, Provider, ProviderError};
use serde_json::json;
use tokio::task::JoinHandle;

const LATE: Duration = Duration::from_secs(60);
const CLOUD: &str = r#"#!/bin/sh
case $1 in
create) [ ! -e fails ] || { echo "no quota" >&2; exit 1; }; mkdir -p "machines/$HOOK_NAME"; echo "$HOOK_NAME" >>created ;;
list)
    [ ! -e rubbish ] || { cat rubbish; exit 0; }
    echo '{"name":"somebody-elses","shoe":"left"}'
    for name in $(ls machines); do
        printf '{"name":"%s","folder":"%s/machines/%s"%s}\n' "$name" "$PWD" "$name" "$(cat leaving 2>/dev/null)"
    done ;;
destroy) rm -rf "machines/$HOOK_NAME" ;;
esac
"#;

/// Machines are folders.
struct Cloud {
    folder: tempfile::TempDir,
    agents: BTreeMap<String, JoinHandle<()>>,
}

impl Cloud {
    fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("machines")).expect("a folder");
        std::fs::write(folder.path().join("cloud"), CLOUD).expect("a file");
        std::fs::set_permissions(folder.path().join("cloud"), PermissionsExt::from_mode(0o755)).expect("a file");
        Self { folder, agents: BTreeMap::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).expect("a file");
    }

    fn hooks(&self) -> Hooks {
        let set = json!({ "create": ["./cloud", "create"], "list": ["./cloud", "list"], "destroy": ["./cloud", "destroy"],
            "list_every": "1s", "at_most": 2, "kinds": [{ "name": "small", "cpus": "2", "memory": "1GiB" }] });
        let spec = spec::read(vec![set], self.folder.path()).expect("a set of hooks").remove(0);
        let (dir, url) = (self.path("kept"), Reach::Url("http://127.0.0.1:1".into()));
        let trust = (self.path("pin"), None);
        let means = Means::new("hooks", "/bin/true".into(), dir, "t".into(), url, trust, SystemClock::shared());
        let workers = Workers {
            url: "http://127.0.0.1:1".into(),
            pin: "pin".into(),
            way: "auto".into(),
            ca: None,
            collector: None,
            checkers: vec![],
            schedulers: None,
            managers: None,
        };
        let (manager, workers_here) = ("http://127.0.0.1:1".into(), workers.clone());
        Hooks::new(HooksParts { spec, mark: "t".into(), key: None, manager, means, workers, workers_here })
    }

    fn machines(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.path("machines")).expect("a folder").flatten();
        all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Machines that are there boot.
    fn boot(&mut self) {
        for name in self.machines() {
            let dir = self.path("machines").join(&name);
            self.agents.entry(name).or_insert_with_key(|name| {
                let capacity = Default::default();
                let words =
                    Words { name: NodeName(name.clone()), capacity, labels: Default::default(), layer: Layer::Cloud };
                let agent = Agent::open(dir, words, SystemClock::shared()).expect("an agent");
                tokio::spawn(Arc::new(agent).serve())
            });
        }
    }

    /// Listings, until one is as it should be.
    async fn until(&mut self, hooks: &Hooks, generation: u64, what: &str, is: impl Fn(&[NodeSeen]) -> bool) {
        let clock = SystemClock;
        let from = clock.monotonic();
        loop {
            self.boot();
            let listed = hooks.list(generation).await;
            match &listed {
                Ok(have) if is(&have.nodes) => return,
                _ => assert!(clock.monotonic().since(from) < LATE, "{what}: {listed:?}"),
            }
            clock.sleep(Duration::from_millis(50)).await;
        }
    }
}

fn node(name: &str) -> NodeName {
    NodeName(name.into())
}

fn find<'a>(nodes: &'a [NodeSeen], name: &str) -> Option<&'a NodeSeen> {
    nodes.iter().find(|seen| seen.node.name.0 == name)
}

fn answers(nodes: &[NodeSeen], name: &str) -> bool {
    find(nodes, name).is_some_and(|seen| seen.node.answers && seen.origin == Origin::Made)
}

fn says(nodes: &[NodeSeen], name: &str, words: &str) -> bool {
    let note = find(nodes, name).filter(|seen| seen.origin == Origin::Away).and_then(|seen| seen.node.note.as_ref());
    note.is_some_and(|note| note.contains(words))
}

#[tokio::test]
async fn a_machine_that_a_hook_made_is_a_node_whoever_asks_and_only_who_holds_the_lease_has_it_destroyed() {
    let mut cloud = Cloud::open();
    let first = cloud.hooks();
    cloud.until(&first, 1, "nothing at first", |nodes| nodes.is_empty()).await;
    assert_eq!(first.kinds().await.expect("kinds")[0].available, 2);
    for _ in 0..2 {
        first.create_node(&node("small-1-1"), "small", 1).await.expect("on its way");
    }
    cloud.until(&first, 1, "a node", |nodes| answers(nodes, "small-1-1")).await;
    assert_eq!(cloud.machines(), ["mutirao-t-hooks-small-1-1"]);
    assert_eq!(std::fs::read_to_string(cloud.path("created")).expect("a file").lines().count(), 1);
    // One that comes after it knows nothing but what the list says.
    let second = cloud.hooks();
    cloud.until(&second, 2, "the same node", |nodes| answers(nodes, "small-1-1")).await;
    let refused = first.remove_node(&node("small-1-1"), 1).await;
    assert!(matches!(refused, Err(ProviderError::Refused(_))), "another acts since: {refused:?}");
    cloud.until(&second, 2, "it to stay", |nodes| answers(nodes, "small-1-1")).await;
    second.remove_node(&node("small-1-1"), 2).await.expect("told");
    cloud.until(&second, 2, "it to be gone", |nodes| nodes.is_empty()).await;
    assert!(cloud.machines().is_empty());
}

#[tokio::test]
async fn whoever_stops_destroys_what_it_has_and_leaves_to_another_what_that_one_took_over() {
    let mut cloud = Cloud::open();
    let first = cloud.hooks();
    cloud.until(&first, 1, "nothing at first", |nodes| nodes.is_empty()).await;
    first.create_node(&node("small-1-1"), "small", 1).await.expect("on its way");
    cloud.until(&first, 1, "a node", |nodes| answers(nodes, "small-1-1")).await;
    let second = cloud.hooks();
    cloud.until(&second, 2, "the same node", |nodes| answers(nodes, "small-1-1")).await;
    let clock = SystemClock::shared();
    clock.timeout(LATE, first.leave(Haste::Drain)).await.expect("it has nothing to wait for");
    assert_eq!((first.left(), cloud.machines().len()), (0, 1), "it is the other's");
    cloud.until(&second, 2, "it to stay", |nodes| answers(nodes, "small-1-1")).await;
    clock.timeout(LATE, second.leave(Haste::Drain)).await.expect("its only machine to be destroyed");
    assert!(cloud.machines().is_empty());
}

#[tokio::test]
async fn whatever_is_wrong_with_hooks_is_said_in_a_line_and_machines_at_work_go_on() {
    let mut cloud = Cloud::open();
    cloud.write("rubbish", "Traceback (most recent call last):\n");
    let hooks = cloud.hooks();
    let unknown = hooks.list(1).await.expect_err("what is there is not known").to_string();
    assert!(unknown.contains("list: line 1: expected value in Traceback"), "{unknown}");
    cloud.remove("rubbish");
    cloud.until(&hooks, 1, "nothing at first", |nodes| nodes.is_empty()).await;
    hooks.create_node(&node("small-1-1"), "small", 1).await.expect("on its way");
    cloud.until(&hooks, 1, "a node", |nodes| answers(nodes, "small-1-1")).await;

    cloud.write("fails", "");
    hooks.create_node(&node("small-1-2"), "small", 1).await.expect("on its way");
    cloud.until(&hooks, 1, "why there is no other", |nodes| says(nodes, "small", "create: no quota")).await;
    assert_eq!(hooks.kinds().await.expect("kinds")[0].available, 0);
    let refused = hooks.create_node(&node("small-1-3"), "small", 1).await.expect_err("for a while").to_string();
    assert_eq!(refused, "small: create: no quota");

    cloud.write("rubbish", "{\"name\":\"mutirao-t-hooks-a\",\"adress\":\"x\"}\n");
    let wrong = |nodes: &[NodeSeen]| says(nodes, "hooks", "unknown field `adress`") && answers(nodes, "small-1-1");
    cloud.until(&hooks, 1, "why it is not known what there is", wrong).await;
    cloud.remove("rubbish");
    cloud.write("leaving", ",\"leaving\":\"21:00\"");
    let taken = |nodes: &[NodeSeen]| {
        find(nodes, "small-1-1").is_some_and(|seen| seen.origin == Origin::Taken && seen.node.answers)
    };
    cloud.until(&hooks, 1, "the notice", taken).await;
}
