//! What either engine promises.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_nodes::allowance::{Allowance, Warrant};
use mutirao_nodes::device::{Device, Digest};
use mutirao_nodes::keys::{Enrolling, Invitation, Key};
use mutirao_nodes::preference::Protocol;
use mutirao_nodes::registry::{Proof, Record};
use mutirao_nodes::store::{Bounds, By, NodeStore, Removal, Removed, Tossed};
use mutirao_nodes::topics::OwnTopics;
use mutirao_nodes::wire::Parameters;
use mutirao_nodes::{Layer, Namespace, NodeId};

pub async fn run(store: &dyn NodeStore) {
    records_come_back_and_an_older_one_never_takes_the_place_of_a_newer(store).await;
    a_device_s_name_is_given_once(store).await;
    only_the_newest_rubbish_is_kept(store).await;
    what_was_taken_out_is_found_by_everybody_and_not_written_down_anew(store).await;
    a_key_is_given_once_and_changes_its_password_once_for_each_count(store).await;
    answers_are_kept_in_order_within_bounds(store).await;
}

async fn answers_are_kept_in_order_within_bounds(store: &dyn NodeStore) {
    let day = Duration::from_secs(86_400);
    let wide = Bounds { rows_max: 1_000, bytes_max: 1 << 20, age_max: day };
    let texts =
        async || store.answers(None, 1_000).await.unwrap().into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    for n in 0..3 {
        store.keep_answer(Timestamp(n), None, format!("a{n}"), wide).await.unwrap();
    }
    assert_eq!(texts().await, ["a0", "a1", "a2"]);
    let oldest = store.answers(None, 1).await.unwrap();
    store.forget_answers(oldest.iter().map(|(number, _)| *number).collect()).await.unwrap();
    assert_eq!(texts().await, ["a1", "a2"]);
    // Each has its own, in order.
    let ana = || Some("ana".to_owned());
    for n in 3..5 {
        store.keep_answer(Timestamp(n), ana(), format!("a{n}"), wide).await.unwrap();
    }
    assert_eq!(texts().await, ["a1", "a2"]);
    let mut clients = store.answered_clients().await.unwrap();
    clients.sort();
    assert_eq!(clients, [None, ana()]);
    let hers = store.answers(ana(), 10).await.unwrap();
    assert_eq!(hers.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["a3", "a4"]);
    store.forget_answers(hers.iter().map(|(number, _)| *number).collect()).await.unwrap();
    assert_eq!(store.answered_clients().await.unwrap(), [None]);
    // They are looked at now and then: never much more than may be lies there.
    for (round, (bounds, most)) in [
        (Bounds { rows_max: 10, ..wide }, 10 + 32),
        (Bounds { bytes_max: 50, ..wide }, 10 + 32),
        (Bounds { age_max: Duration::from_millis(5), ..wide }, 6 + 32),
    ]
    .into_iter()
    .enumerate()
    {
        let began = 1_000 * (round as i64 + 1);
        for n in 0..100 {
            store.keep_answer(Timestamp(began + n), None, format!("b{n:04}"), bounds).await.unwrap();
            assert!(n < 40 || texts().await.len() <= most, "{bounds:?}: {}", texts().await.len());
        }
        assert_eq!(texts().await.last().unwrap(), "b0099", "the newest stay");
    }
}

async fn a_key_is_given_once_and_changes_its_password_once_for_each_count(store: &dyn NodeStore) {
    let by = |at: i64| By { who: "ana".into(), at: Timestamp(at) };
    let invitation = |digest: u8, node: &str| Invitation {
        digest: [digest; 32],
        node: node.parse().unwrap(),
        until: Timestamp(100),
        created_by: "ana".into(),
        allowance: blinking(),
    };
    let node: NodeId = "keyed".parse().unwrap();
    for digest in [1, 2, 3] {
        store.invite(invitation(digest, "keyed"), by(10)).await.unwrap();
    }
    assert_eq!(store.enrol([9; 32], [7; 32], by(20)).await.unwrap(), Enrolling::Worthless);
    assert_eq!(store.enrol([3; 32], [7; 32], by(101)).await.unwrap(), Enrolling::Worthless, "too late");
    assert_eq!(store.enrol([1; 32], [7; 32], by(20)).await.unwrap(), Enrolling::LetIn(node.clone()));
    assert_eq!(store.enrol([1; 32], [8; 32], by(20)).await.unwrap(), Enrolling::Worthless, "spent");
    assert_eq!(store.enrol([2; 32], [8; 32], by(20)).await.unwrap(), Enrolling::Taken(node.clone()));
    assert_eq!(store.node_key(&node).await.unwrap(), Some(Key { public: [7; 32], changes: 0 }));
    let warrant = store.device("keyed").await.unwrap().unwrap().warrant;
    assert_eq!(*warrant, Warrant { by_key: true, allowance: blinking() });
    let digest = |password: &[u8]| Digest::of("keyed", password);
    let opened = async |password: &[u8]| store.device("keyed").await.unwrap().unwrap().is_opened_by(password);
    for (change, password, counts) in [(2, "a", false), (1, "a", true), (1, "b", false), (2, "b", true)] {
        let changed = store.change_password(&node, change, digest(password.as_bytes())).await.unwrap();
        assert_eq!((changed, opened(password.as_bytes()).await), (counts, counts), "{change} {password}");
    }
    assert!(store.remove_device("keyed", by(30)).await.unwrap());
    assert_eq!(store.node_key(&node).await.unwrap(), None, "its key goes with it");
}

async fn what_was_taken_out_is_found_by_everybody_and_not_written_down_anew(store: &dyn NodeStore) {
    let whom = |node: &str| record(node, 50, "x");
    let at = |at: i64, node: &str| Removal { what: Removed::Node(node.parse().unwrap()), at: Timestamp(at) };
    let known = async |node: &str| {
        let all = store.records(Timestamp(0)).await.unwrap();
        all.into_iter().find(|one| one.node.as_str() == node)
    };
    store.keep(vec![whom("out"), whom("stays")]).await.unwrap();
    store.remove(&"out".parse().unwrap(), Timestamp(100)).await.unwrap();
    assert!(known("out").await.is_none() && known("stays").await.is_some());
    // Of before, or of that very moment: whoever has it in hand still writes in vain.
    for first in [1, 100] {
        let late = Record { first_at: Timestamp(first), last_at: Timestamp(200), ..whom("out") };
        store.keep(vec![late]).await.unwrap();
        assert!(known("out").await.is_none());
    }
    let anew = Record { first_at: Timestamp(101), last_at: Timestamp(101), ..whom("out") };
    store.keep(vec![anew.clone()]).await.unwrap();
    assert_eq!(known("out").await, Some(anew));
    store.remove(&"out".parse().unwrap(), Timestamp(90)).await.unwrap();
    let all = store.removals(Timestamp(0)).await.unwrap();
    assert!(all.contains(&at(100, "out")), "the latest counts: {all:?}");
    assert!(all.iter().any(|one| one.what == Removed::Device("lamp".into())), "devices too: {all:?}");
    assert_eq!(store.removals(Timestamp(101)).await.unwrap(), []);
}

fn record(node: &str, at: i64, kind: &str) -> Record {
    Record {
        node: node.parse().unwrap(),
        layer: Layer::Edge,
        kind: kind.into(),
        endpoint: String::new(),
        offers: ["urn:mutirao:Action:a@2".parse().unwrap()].into(),
        not_understood: 1,
        not_allowed: 2,
        vouched: true,
        near: true,
        parameters: [("urn:mutirao:Action:a@2".parse().unwrap(), Parameters { timeout: 5_000, retry: 1 })].into(),
        labels: [("zone".into(), "a\u{0}b".into())].into(),
        slots: 16,
        proof: Proof::User("u".into()),
        first_at: Timestamp(1),
        last_at: Timestamp(at),
        heard_over: [Protocol::Mqtt].into(),
        worked: true,
    }
}

async fn records_come_back_and_an_older_one_never_takes_the_place_of_a_newer(store: &dyn NodeStore) {
    store.keep(vec![record("b", 10, "x"), record("a", 20, "y")]).await.unwrap();
    store.keep(vec![record("b", 9, "late"), record("a", 21, "z")]).await.unwrap();
    let kept = store.records(Timestamp(0)).await.unwrap();
    let kinds: Vec<_> = kept.iter().map(|one| (one.node.as_str(), one.kind.as_str())).collect();
    assert_eq!(kinds, [("a", "z"), ("b", "x")]);
    assert_eq!(kept[0], record("a", 21, "z"));
    assert_eq!(store.records(Timestamp(11)).await.unwrap().len(), 1, "since then");
    let gone: NodeId = "a".parse().unwrap();
    store.forget(vec![gone.clone(), "never".parse().unwrap()]).await.unwrap();
    assert!(store.records(Timestamp(0)).await.unwrap().iter().all(|one| one.node != gone));
}

fn blinking() -> Allowance {
    let spec = mutirao_core::node::Allowance { actions: vec!["blink".into()], slots: Some(2), ..Default::default() };
    Allowance::checked(spec, &Namespace::default()).unwrap()
}

async fn a_device_s_name_is_given_once(store: &dyn NodeStore) {
    let by = || By { who: "ana".into(), at: Timestamp(5) };
    let device = |name: &str, node: &str| Device {
        name: name.into(),
        node: node.parse().unwrap(),
        digest: Digest::of(name, b"secret"),
        may_request: true,
        topics: OwnTopics { publish: vec!["grid/#".into()], subscribe: vec![] },
        warrant: Arc::new(Warrant { by_key: false, allowance: blinking() }),
        created_at: Timestamp(5),
        created_by: "ana".into(),
    };
    for (name, node, new) in [("lamp", "n1", true), ("Lamp", "n2", true), ("lamp", "thief", false)] {
        assert_eq!(store.add_device(device(name, node), by()).await.unwrap(), new, "{name} {node}");
    }
    assert_eq!(store.device("lamp").await.unwrap(), Some(device("lamp", "n1")));
    assert_eq!(store.device("nobody").await.unwrap(), None);
    let names = |devices: Vec<Device>| devices.into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(store.devices("", 10).await.unwrap()), ["Lamp", "lamp"]);
    assert_eq!(names(store.devices("Lamp", 1).await.unwrap()), ["lamp"]);
    assert!(store.remove_device("lamp", by()).await.unwrap());
    assert!(!store.remove_device("lamp", by()).await.unwrap());
}

async fn only_the_newest_rubbish_is_kept(store: &dyn NodeStore) {
    let tossed = |n: i64| Tossed {
        at: Timestamp(n),
        place: "mqtt x.nodes.register".into(),
        who: "lamp\u{0}".into(),
        reason: "no JSON".into(),
        body: vec![0, 255, n as u8],
    };
    store.toss((0..5).map(tossed).collect(), 3).await.unwrap();
    store.toss(vec![tossed(5)], 3).await.unwrap();
    let kept = store.tossed(10).await.unwrap();
    assert_eq!(kept.iter().map(|one| one.at.0).collect::<Vec<_>>(), [5, 4, 3]);
    assert_eq!(kept[0].body, [0, 255, 5]);
    assert_eq!(store.tossed(1).await.unwrap().len(), 1);
}
