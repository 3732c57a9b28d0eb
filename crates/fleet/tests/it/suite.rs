//! What every store of the fleet must do, whatever is behind it.

use std::time::Duration;

use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_elastic::decide::Because;
use mutirao_elastic::fleet::{Cause, Life, Member, Trouble};
use mutirao_elastic::packing::{Amounts, Kind, Layer, NodeName};
use mutirao_elastic::protocol::{GROUP, Offer, OfferedNode, Record, Wish};
use mutirao_elastic::{Change, Decision, Removal, State};
use mutirao_fleet::store::{By, FleetStore, Request, SHARD, Written, fence};
use mutirao_shards::store::Mark;
use mutirao_shards::{MemberId, Shared};

const LEASE: Duration = Duration::from_secs(3_600);

pub async fn run(store: &dyn FleetStore, leases: &Shared) {
    nothing_is_written_without_a_lease(store).await;
    let first = leases.claim(GROUP, SHARD, Mark::default(), &MemberId::mint("a"), LEASE).await.unwrap().unwrap();
    asking_again_gives_the_same_workers(store, first).await;
    what_was_decided_comes_back(store, first).await;
    whoever_is_drained_stays_so_until_gone(store, first).await;
    identities_are_owed_until_they_are_revoked(store, first).await;
    a_name_belongs_to_whoever_used_it_first(store, leases).await;
    an_offer_is_whole_and_wishes_outlive_it(store, first).await;
    let seen = Mark { generation: first, beats: 0 };
    let second = leases.claim(GROUP, SHARD, seen, &MemberId::mint("b"), LEASE).await.unwrap().unwrap();
    whoever_was_succeeded_writes_nothing(store, first).await;
    old_history_is_forgotten_and_pages_go_back(store, second).await;
    queues_that_nobody_staffs_are_forgotten_and_old_requests_too(store, second).await;
}

fn by(at: i64) -> By {
    By { who: "e1".into(), name: "the resource manager".into(), at: Timestamp(at) }
}

fn queue() -> QueueName {
    "gpu".parse().unwrap()
}

fn worker(name: &str) -> WorkerId {
    WorkerId(name.into())
}

fn request(name: &str, workers: &[&str]) -> Request {
    let on_a_node = |id: &&str| (worker(id), NodeName("n1".into()));
    let need = Some(need());
    Request { queue: queue(), name: name.into(), workers: workers.iter().map(on_a_node).collect(), need }
}

fn need() -> Amounts {
    Amounts::default().and("cpu_milli", 500)
}

fn record(generation: u64) -> Record {
    let because = Because(vec!["7 ready and 2 running tasks need 9".into()]);
    Record {
        generation,
        state: State::default(),
        members: [].into(),
        gone: Vec::new(),
        dismissed: Vec::new(),
        trouble: None,
        decision: Decision { was: 0, wanted: 9, removal: Removal::Any, because: because.clone() },
        changes: vec![Change { at: Timestamp(50), from: 0, to: 9, because }],
    }
}

fn node(name: &str) -> OfferedNode {
    OfferedNode {
        name: NodeName(name.into()),
        provider: "local".into(),
        kind: None,
        capacity: Amounts::default().and("cpu_milli", 2_000),
        labels: [("disk".into(), "ssd".into())].into(),
        layer: Layer::Cloud,
        answers: true,
        note: None,
        stands: None,
    }
}

fn offer(generation: u64, nodes: &[&str]) -> Offer {
    let kind = Kind {
        name: "small".into(),
        capacity: Amounts::default().and("cpu_milli", 1_000),
        labels: Default::default(),
        layer: Layer::Cloud,
        price_micros_per_hour: 3,
        market: Default::default(),
        boot: Default::default(),
        interrupted_every: None,
        available: 4,
    };
    Offer { generation, nodes: nodes.iter().map(|name| node(name)).collect(), kinds: vec![kind] }
}

async fn nothing_is_written_without_a_lease(store: &dyn FleetStore) {
    assert_eq!(store.create(fence(1), request("r", &["w9"]), by(1)).await.unwrap(), Written::Fenced);
    assert_eq!(store.record(fence(1), queue(), record(1), Timestamp(0), by(1)).await.unwrap(), Written::Fenced);
    assert_eq!(store.drain(Some(fence(1)), worker("w9"), queue(), by(1)).await.unwrap(), Written::Fenced);
    assert_eq!(store.offer(fence(1), offer(1, &["n1"]), by(1)).await.unwrap(), Written::Fenced);
    let kept = store.kept().await.unwrap();
    assert!(kept.members.is_empty() && kept.decided.is_empty() && kept.draining.is_empty() && kept.nodes.is_empty());
    assert_eq!(store.nodes().await.unwrap().1, None, "nobody has offered anything");
}

async fn asking_again_gives_the_same_workers(store: &dyn FleetStore, generation: u64) {
    let create =
        async |name: &str, ids: &[&str]| store.create(fence(generation), request(name, ids), by(10)).await.unwrap();
    let first = Written::Done(vec![worker("w1"), worker("w2")]);
    assert_eq!(create("r1", &["w1", "w2"]).await, first);
    assert_eq!(create("r1", &["w3", "w4"]).await, first, "the same request");
    assert_eq!(create("r2", &["w5"]).await, Written::Done(vec![worker("w5")]));
    let found = store.member(&worker("w2")).await.unwrap().unwrap();
    assert_eq!(found.queue, queue());
    let asked = Member::new(Life::Asked, Timestamp(10), Some(NodeName("n1".into())));
    assert_eq!(found.member, asked.needing(Some(need())));
    assert_eq!(store.member(&worker("w3\0")).await.unwrap(), None);
    assert_eq!(store.kept().await.unwrap().members.len(), 3);
}

async fn what_was_decided_comes_back(store: &dyn FleetStore, generation: u64) {
    let trouble = Trouble {
        cause: Cause::Call,
        failures: 3,
        since: Timestamp(1),
        until: Timestamp(2),
        error: "no \"room\"".into(),
    };
    let reported = Member::new(Life::Reported, Timestamp(60), Some(NodeName("n1".into())));
    let adopted = Member::new(Life::Reported, Timestamp(60), None);
    let whole = Record {
        members: [(worker("w1"), reported.clone()), (worker("stray"), adopted.clone())].into(),
        gone: vec![worker("w5")],
        trouble: Some(trouble.clone()),
        ..record(generation)
    };
    for _ in 0..2 {
        let again = Record { changes: Vec::new(), ..whole.clone() };
        let unknown = store.record(fence(generation), queue(), again, Timestamp(0), by(70)).await.unwrap();
        assert_eq!(unknown, Written::Done(vec![worker("stray")]), "of whom there is no record nothing is written");
    }
    assert_eq!(store.member(&worker("stray")).await.unwrap(), None);
    let stray = [(worker("stray"), adopted)].into();
    assert_eq!(store.adopt(fence(generation), queue(), stray, by(70)).await.unwrap(), Written::Done(()));
    let decided = store.decided(&queue()).await.unwrap().unwrap();
    assert_eq!(
        (decided.decision.clone(), decided.trouble.clone(), decided.at),
        (whole.decision, Some(trouble), Timestamp(70))
    );
    let kept = store.kept().await.unwrap();
    assert_eq!(kept.decided, [decided]);
    let members: Vec<_> = kept.members.iter().map(|row| (row.worker.0.as_str(), row.member.life)).collect();
    assert_eq!(members, [("stray", Life::Reported), ("w1", Life::Reported), ("w2", Life::Asked)]);
    assert_eq!(kept.members[1].member, reported.needing(Some(need())), "what it needs stays as it was");
    let other = "other".parse().unwrap();
    assert_eq!(store.decided(&other).await.unwrap(), None);
}

async fn whoever_is_drained_stays_so_until_gone(store: &dyn FleetStore, generation: u64) {
    for at in [80, 90] {
        let drained = store.drain(Some(fence(generation)), worker("w1"), queue(), by(at)).await.unwrap();
        assert_eq!(drained, Written::Done(()));
    }
    store.drain(None, worker("nobody's"), queue(), by(95)).await.unwrap();
    let draining = store.draining().await.unwrap();
    let named: Vec<_> = draining.iter().map(|row| (row.worker.0.as_str(), row.since.0)).collect();
    assert_eq!(named, [("nobody's", 95), ("w1", 80)], "again changes nothing");
    let member = store.member(&worker("w1")).await.unwrap().unwrap().member;
    assert_eq!((member.life, member.since), (Life::Draining, Timestamp(80)));
    let gone = Record { gone: vec![worker("w1")], changes: Vec::new(), ..record(generation) };
    store.record(fence(generation), queue(), gone, Timestamp(0), by(99)).await.unwrap();
    let undrained = store.undrain(vec![worker("nobody's"), worker("w1")], by(99)).await.unwrap();
    assert_eq!(undrained, [worker("nobody's")], "who is gone is not drained any more");
    assert_eq!(store.draining().await.unwrap(), []);
}

async fn identities_are_owed_until_they_are_revoked(store: &dyn FleetStore, generation: u64) {
    store.revoked(store.to_revoke().await.unwrap()).await.unwrap();
    store.create(fence(generation), request("owed", &["o1", "o2", "o3"]), by(99)).await.unwrap();
    let leaving = |gone: &[&str], dismissed: &[&str]| Record {
        gone: gone.iter().map(|name| worker(name)).collect(),
        dismissed: dismissed.iter().map(|name| worker(name)).collect(),
        changes: Vec::new(),
        ..record(generation)
    };
    let other: QueueName = "other".parse().unwrap();
    let theirs = leaving(&["o1"], &["o2"]);
    store.record(fence(generation), other.clone(), theirs, Timestamp(0), by(99)).await.unwrap();
    assert_eq!(store.to_revoke().await.unwrap(), [], "workers of another queue are none of this one's");
    for _ in 0..2 {
        let ours = leaving(&["o1", "somebody's"], &["o2", "somebody's"]);
        store.record(fence(generation), queue(), ours, Timestamp(0), by(99)).await.unwrap();
    }
    assert_eq!(store.to_revoke().await.unwrap(), [worker("o1"), worker("o2")]);
    assert!(store.member(&worker("o2")).await.unwrap().is_some(), "who is dismissed is not gone yet");
    store.revoked(vec![worker("o1")]).await.unwrap();
    assert_eq!(store.to_revoke().await.unwrap(), [worker("o2")]);
    store.revoked(vec![worker("o2")]).await.unwrap();
    store.record(fence(generation), queue(), leaving(&["o2", "o3"], &[]), Timestamp(0), by(99)).await.unwrap();
    store.forget_queues(vec![queue()]).await.unwrap();
}

async fn a_name_belongs_to_whoever_used_it_first(store: &dyn FleetStore, leases: &Shared) {
    let there = MemberId::mint("there");
    leases.beat(GROUP, &there, "here").await.unwrap();
    assert_eq!(store.named(&there.0, "e1").await.unwrap(), "e1");
    assert_eq!(store.named(&there.0, "e2").await.unwrap(), "e1");
    assert_eq!(store.named("gone", "e2").await.unwrap(), "e2");
    assert_eq!(store.named("new", "e3").await.unwrap(), "e3");
    assert_eq!(store.named("gone", "e3").await.unwrap(), "e3", "names of those who are not there are free again");
    assert_eq!(store.named(&there.0, "e3").await.unwrap(), "e1");
    leases.forget(GROUP, &there, None).await.unwrap();
}

async fn an_offer_is_whole_and_wishes_outlive_it(store: &dyn FleetStore, generation: u64) {
    store.offer(fence(generation), offer(generation, &["n1", "n2", "n3"]), by(100)).await.unwrap();
    assert!(store.wish(&NodeName("n1".into()), Wish::Cordoned, by(101)).await.unwrap());
    assert!(!store.wish(&NodeName("n9\0".into()), Wish::Drained, by(101)).await.unwrap());
    store.offer(fence(generation), offer(generation, &["n2"]), by(102)).await.unwrap();
    let (nodes, kinds) = store.nodes().await.unwrap();
    let named: Vec<_> = nodes.iter().map(|row| (row.node.name.0.as_str(), row.wish, row.offered_at)).collect();
    assert_eq!(named, [("n1", Wish::Cordoned, None), ("n2", Wish::Open, Some(Timestamp(102)))]);
    assert_eq!((nodes[1].node.clone(), kinds.unwrap()), (node("n2"), offer(1, &[]).kinds));
    store.offer(fence(generation), offer(generation, &["n1"]), by(103)).await.unwrap();
    let (nodes, _) = store.nodes().await.unwrap();
    assert_eq!((nodes.len(), nodes[0].wish), (1, Wish::Cordoned), "it comes back as it was wanted");
    store.offer(fence(generation), Offer { kinds: Vec::new(), ..offer(generation, &[]) }, by(104)).await.unwrap();
    assert!(store.wish(&NodeName("n1".into()), Wish::Open, by(105)).await.unwrap());
    store.offer(fence(generation), offer(generation, &[]), by(106)).await.unwrap();
    assert_eq!(store.nodes().await.unwrap().0, []);
}

async fn whoever_was_succeeded_writes_nothing(store: &dyn FleetStore, former: u64) {
    let before = store.kept().await.unwrap();
    assert_eq!(store.create(fence(former), request("late", &["w8"]), by(110)).await.unwrap(), Written::Fenced);
    let gone = Record { gone: vec![worker("w2")], ..record(former) };
    assert_eq!(store.record(fence(former), queue(), gone, Timestamp(0), by(110)).await.unwrap(), Written::Fenced);
    assert_eq!(store.drain(Some(fence(former)), worker("w2"), queue(), by(110)).await.unwrap(), Written::Fenced);
    assert_eq!(store.offer(fence(former), offer(former, &["n7"]), by(110)).await.unwrap(), Written::Fenced);
    assert_eq!(store.kept().await.unwrap(), before);
}

async fn old_history_is_forgotten_and_pages_go_back(store: &dyn FleetStore, generation: u64) {
    let write = async |at: i64, keep_from: i64| {
        let change = Change { at: Timestamp(at), from: 1, to: 2, because: Because(vec!["why".into(), "so".into()]) };
        let record = Record { changes: vec![change], ..record(generation) };
        store.record(fence(generation), queue(), record, Timestamp(keep_from), by(at)).await.unwrap();
    };
    for at in [200, 300, 400] {
        write(at, 0).await;
    }
    write(500, 250).await;
    let other: QueueName = "other".parse().unwrap();
    let other_record = Record { changes: record(0).changes, ..record(generation) };
    store.record(fence(generation), other.clone(), other_record, Timestamp(0), by(600)).await.unwrap();
    let all = store.history(None, i64::MAX, 2).await.unwrap();
    assert_eq!(all.iter().map(|(_, line)| line.queue.as_str()).collect::<Vec<_>>(), ["other", "gpu"]);
    let older = store.history(Some(queue()), all[1].0, 9).await.unwrap();
    assert_eq!(older.iter().map(|(_, line)| line.at.0).collect::<Vec<_>>(), [400, 300], "200 is forgotten");
    assert_eq!((older[0].1.from, older[0].1.to, older[0].1.because.as_str()), (1, 2, "why; so"));
    assert_eq!(store.history(Some(other), i64::MAX, 9).await.unwrap().len(), 1);
}

async fn queues_that_nobody_staffs_are_forgotten_and_old_requests_too(store: &dyn FleetStore, generation: u64) {
    let decided = async || {
        let kept = store.kept().await.unwrap();
        kept.decided.iter().map(|decided| decided.queue.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(decided().await, ["gpu", "other"]);
    store.forget_queues(vec!["other".parse().unwrap()]).await.unwrap();
    assert_eq!(decided().await, ["gpu", "other"], "gpu still has workers");
    store.forget_queues(vec![]).await.unwrap();
    assert_eq!(decided().await, ["gpu"]);

    let create = async |name: &str, id: &str, at: i64| {
        store.create(fence(generation), request(name, &[id]), by(at)).await.unwrap()
    };
    create("long ago", "w20", 1_000).await;
    create("later", "w21", 3_602_000).await;
    assert_eq!(create("long ago", "w22", 3_603_000).await, Written::Done(vec![worker("w22")]));
}
