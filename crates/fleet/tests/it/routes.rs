//! The routes: what a resource manager and people are answered, and what they are refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_core::auth::Role;
use mutirao_core::{Clock, WorkerId};
use mutirao_elastic::fleet::{Activity, Life};
use mutirao_elastic::measure::Tasks;
use mutirao_elastic::packing::{Amounts, Kind, Need};
use mutirao_elastic::protocol::{Balance, LeaseAnswer};
use mutirao_elastic::view::Plan;
use mutirao_fleet::Planner;
use mutirao_queues::QueueSight;
use mutirao_shards::store::Mark;
use serde_json::{Value, json};

use crate::house::House;

async fn create(house: &House, generation: u64, request: &str, nodes: &[&str]) -> Vec<String> {
    let body = json!({ "generation": generation, "request": request, "nodes": nodes });
    let created = house.elastic("POST", "/v1/elastic/queues/gpu/workers", body).await;
    created["workers"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

fn record(generation: u64, members: Value, gone: Value) -> Value {
    json!({
        "generation": generation, "state": {}, "members": members, "gone": gone,
        "trouble": { "cause": "call", "failures": 2, "since": 1, "until": 2, "error": "no room" },
        "decision": { "was": 0, "wanted": 3, "removal": "any", "because": ["3 ready tasks need 3"] },
        "changes": [{ "at": 1_000_000, "from": 0, "to": 3, "because": ["3 ready tasks need 3"] }],
    })
}

fn offer(generation: u64) -> Value {
    let node = json!({ "name": "n1", "provider": "local", "capacity": { "cpu_milli": 8_000, "memory_bytes": 1_000 },
                       "layer": "cloud", "answers": true });
    json!({ "generation": generation, "nodes": [node], "kinds": [] })
}

#[tokio::test]
async fn only_a_resource_manager_speaks_the_protocols_and_it_speaks_nothing_else() {
    let (house, generation) = House::with_lease().await;
    let fenced = json!({ "generation": generation });
    let protocol = [
        ("POST", "/v1/elastic/lease", json!({ "call": "leases" })),
        ("GET", "/v1/elastic/balance", Value::Null),
        ("POST", "/v1/elastic/queues/gpu/workers", json!({ "generation": generation, "request": "r", "nodes": ["n"] })),
        ("POST", "/v1/elastic/workers/w1/invitation", fenced.clone()),
        ("POST", "/v1/elastic/workers/w1/drain", fenced),
        ("PUT", "/v1/elastic/queues/gpu", record(generation, json!({}), json!([]))),
        ("PUT", "/v1/elastic/offer", offer(generation)),
    ];
    for (method, path, body) in protocol {
        for role in [Role::Viewer, Role::Operator, Role::Admin, Role::Node] {
            assert_eq!(house.ask(role, method, path, body.clone()).await.0, 403, "{method} {path} as {role:?}");
        }
        house.elastic(method, path, body).await;
    }
    let people = [
        ("GET", "/v1/elastic/status", Role::Viewer),
        ("GET", "/v1/elastic/history", Role::Viewer),
        ("GET", "/v1/nodes", Role::Viewer),
        ("GET", "/v1/nodes/n1", Role::Viewer),
        ("POST", "/v1/nodes/n1/cordon", Role::Operator),
        ("POST", "/v1/nodes/n1/uncordon", Role::Operator),
        ("POST", "/v1/nodes/n1/drain", Role::Operator),
        ("GET", "/v1/workers", Role::Viewer),
        ("GET", "/v1/workers/w1", Role::Viewer),
        ("POST", "/v1/workers/w1/drain", Role::Operator),
    ];
    for (method, path, least) in people {
        for role in [Role::Elastic, Role::Node, Role::Viewer, Role::Operator, Role::Admin] {
            let status = house.ask(role, method, path, Value::Null).await.0;
            assert_eq!(status, if role.may(least) { 200 } else { 403 }, "{method} {path} as {role:?}");
        }
    }
}

#[tokio::test]
async fn a_balance_check_tells_load_workers_and_what_was_kept() {
    let (house, generation) = House::with_lease().await;
    house.define(r#"{"name":"plain"}"#);
    let workers = create(&house, generation, "r1", &["n1", "n1"]).await;
    let members = json!({ &workers[0]: { "life": "reported", "since": 900_000, "node": "n1" } });
    house.elastic("PUT", "/v1/elastic/queues/gpu", record(generation, members, json!([]))).await;
    house.elastic("PUT", "/v1/elastic/offer", offer(generation)).await;
    let busy = Activity::Busy { tasks: 2, since: None };
    *house.neighbours.sights.lock() = vec![QueueSight {
        queue: "gpu".parse().unwrap(),
        tasks: Tasks { ready: 3, running: 2, unacknowledged: 2, ..Tasks::default() },
        sessions: Some([(WorkerId(workers[0].clone()), busy)].into()),
        footprints: Default::default(),
    }];
    let balance: Balance =
        serde_json::from_value(house.elastic("GET", "/v1/elastic/balance", Value::Null).await).unwrap();
    let [gpu] = &balance.queues[..] else { panic!("{balance:?}") };
    assert_eq!((gpu.queue.as_str(), gpu.elastic.as_ref().unwrap().max), ("gpu", 5));
    assert_eq!(gpu.need.amounts.get("cpu_milli"), 2_000);
    assert_eq!((gpu.load.tasks.unwrap().ready, gpu.load.workers.running, gpu.load.workers.creating), (3, 1, 1));
    assert_eq!(gpu.sessions.as_ref().unwrap().values().collect::<Vec<_>>(), [&busy]);
    assert_eq!(gpu.fleet.members[&WorkerId(workers[1].clone())].life, Life::Asked);
    assert_eq!(gpu.fleet.trouble.as_ref().unwrap().error, "no room");
    assert_eq!(balance.nodes[0].node.name.0, "n1");
    assert_eq!(*house.neighbours.asked.lock(), [["gpu".parse().unwrap()]], "one question, of elastic queues only");
}

#[tokio::test]
async fn creation_gives_the_same_workers_again_and_an_invitation_for_each() {
    let (house, generation) = House::with_lease().await;
    let first = create(&house, generation, "r1", &["n1", "n2"]).await;
    assert_eq!(create(&house, generation, "r1", &["n1", "n2"]).await, first);
    assert_ne!(create(&house, generation, "r2", &["n1"]).await, first[..1]);
    let path = format!("/v1/elastic/workers/{}/invitation", first[0]);
    let invitation = house.elastic("POST", &path, json!({ "generation": generation })).await;
    assert_eq!(invitation["token"], format!("enr_{}", first[0]));
    let unknown = "/v1/elastic/workers/w99/invitation";
    assert_eq!(house.ask(Role::Elastic, "POST", unknown, json!({ "generation": generation })).await.0, 404);
    for nodes in [vec![], vec!["n"; 101]] {
        let body = json!({ "generation": generation, "request": "r3", "nodes": nodes });
        assert_eq!(house.ask(Role::Elastic, "POST", "/v1/elastic/queues/gpu/workers", body).await.0, 422);
    }
}

#[tokio::test]
async fn whoever_was_succeeded_is_told_so_and_changes_nothing() {
    let (house, former) = House::with_lease().await;
    let workers = create(&house, former, "r1", &["n1"]).await;
    let current = house.take_over(Mark { generation: former, beats: 0 }).await;
    assert!(current > former);
    let fenced = json!({ "generation": former });
    let invitation = format!("/v1/elastic/workers/{}/invitation", workers[0]);
    let drain = format!("/v1/elastic/workers/{}/drain", workers[0]);
    for (method, path, body) in [
        ("POST", "/v1/elastic/queues/gpu/workers", json!({ "generation": former, "request": "x", "nodes": ["n"] })),
        ("POST", invitation.as_str(), fenced.clone()),
        ("POST", drain.as_str(), fenced),
        ("PUT", "/v1/elastic/queues/gpu", record(former, json!({}), json!([workers[0]]))),
        ("PUT", "/v1/elastic/offer", offer(former)),
    ] {
        let (status, problem) = house.ask(Role::Elastic, method, path, body).await;
        assert_eq!(
            (status, problem["type"].as_str().unwrap().contains("not_the_owner")),
            (409, true),
            "{path} {problem}"
        );
    }
    let status = house.fleets.status().await.unwrap();
    assert_eq!((status.queues[0].creating, status.queues[0].wanted), (1, None));
    assert_eq!(status.holder.unwrap().generation, current);
    assert!(house.neighbours.revoked.lock().is_empty() && house.neighbours.drained.lock().0.is_empty());
}

#[tokio::test]
async fn a_holder_that_is_heard_no_more_is_shown_with_since_when() {
    let (house, generation) = House::with_lease().await;
    let holder = async || house.fleets.status().await.unwrap().holder.unwrap();
    assert_eq!(holder().await.silent_since, None);
    let last_heard = house.clock.now();
    house.clock.advance(Duration::from_secs(3_600));
    let silent = holder().await;
    assert_eq!((silent.generation, silent.silent_since), (generation, Some(last_heard)));
    house.take_over(Mark { generation, beats: 0 }).await;
    assert_eq!(holder().await.silent_since, None, "another one acts");
}

/// Says which kinds it was told of, and does nothing.
struct Echo;

impl Planner for Echo {
    fn plan(&self, balance: Balance, kinds: Vec<Kind>) -> Plan {
        let nodes = balance.nodes.into_iter().map(|record| record.node.name.0);
        Plan {
            at: balance.at,
            idle: nodes.collect(),
            held: kinds.into_iter().map(|kind| kind.name).collect(),
            ..Plan::default()
        }
    }
}

#[tokio::test]
async fn a_plan_is_made_of_what_is_kept_for_anybody_who_may_look_and_says_who_acts() {
    let house = House::new().await;
    let early = house.ask(Role::Viewer, "GET", "/v1/elastic/plan", Value::Null).await.0;
    assert_eq!(early, 503, "nobody can plan yet");
    house.fleets.plan_by(Arc::new(Echo));
    let nobody = house.fleets.plan().await.unwrap();
    assert_eq!((nobody.holder, nobody.held.len()), (None, 0));
    let generation = house.take_over(Mark::default()).await;
    let kind = json!({ "name": "small", "capacity": { "cpu_milli": 1_000 }, "layer": "cloud", "available": 3 });
    let mut offered = offer(generation);
    offered["kinds"] = json!([kind]);
    house.elastic("PUT", "/v1/elastic/offer", offered).await;
    let plan = house.fleets.plan().await.unwrap();
    assert_eq!(plan.holder.map(|holder| holder.generation), Some(generation));
    assert_eq!((plan.idle, plan.held), (vec!["n1".to_owned()], vec!["small".to_owned()]));
    for (role, status) in [(Role::Elastic, 403), (Role::Node, 403), (Role::Viewer, 200), (Role::Admin, 200)] {
        assert_eq!(house.ask(role, "GET", "/v1/elastic/plan", Value::Null).await.0, status, "{role:?}");
    }
}

#[tokio::test]
async fn who_is_gone_is_let_in_no_more() {
    let (house, generation) = House::with_lease().await;
    let workers = create(&house, generation, "r1", &["n1"]).await;
    house.elastic("PUT", "/v1/elastic/queues/gpu", record(generation, json!({}), json!([workers[0]]))).await;
    assert_eq!(house.neighbours.revoked.lock()[..], [WorkerId(workers[0].clone())]);
    let status = house.fleets.status().await.unwrap();
    assert_eq!((status.queues[0].creating, status.queues[0].wanted), (0, Some(3)));
    assert_eq!(status.queues[0].because.as_deref(), Some("3 ready tasks need 3"));
    assert!(status.queues[0].trouble.as_ref().unwrap().contains("no room"));
    let history = house.ask(Role::Viewer, "GET", "/v1/elastic/history?queue=gpu&limit=1", Value::Null).await.1;
    assert_eq!((history["items"][0]["from"].as_u64(), history["items"][0]["to"].as_u64()), (Some(0), Some(3)));
}

#[tokio::test]
async fn an_identity_that_cannot_be_revoked_now_is_revoked_later() {
    let (house, generation) = House::with_lease().await;
    let workers = create(&house, generation, "r1", &["n1"]).await;
    house.neighbours.revoking_fails.store(true, Ordering::Relaxed);
    house.elastic("PUT", "/v1/elastic/queues/gpu", record(generation, json!({}), json!([workers[0]]))).await;
    assert!(house.neighbours.revoked.lock().is_empty());
    house.neighbours.revoking_fails.store(false, Ordering::Relaxed);
    for _ in 0..2_000 {
        if !house.neighbours.revoked.lock().is_empty() {
            break;
        }
        house.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
    assert_eq!(house.neighbours.revoked.lock()[..], [WorkerId(workers[0].clone())]);
}

#[tokio::test]
async fn a_resource_manager_records_and_revokes_none_but_workers_that_were_made_for_one() {
    let (house, generation) = House::with_lease().await;
    let gpu: mutirao_core::QueueName = "gpu".parse().unwrap();
    for worker in ["people's", "w77"] {
        house.neighbours.enrolled.lock().insert(WorkerId(worker.into()), gpu.clone());
    }
    let reported = json!({ "life": "reported", "since": 900_000 });
    let members = json!({ "people's": reported, "w77": reported, "w78": reported });
    let body = record(generation, members, json!(["people's"]));
    house.elastic("PUT", "/v1/elastic/queues/gpu", body).await;
    let recorded: Vec<_> = house.fleets.balance().await.unwrap().queues[0].fleet.members.keys().cloned().collect();
    assert_eq!(recorded, [WorkerId("w77".into())], "made for a resource manager, and let in for this queue");
    assert!(house.neighbours.revoked.lock().is_empty());
}

#[tokio::test]
async fn a_lease_and_its_generation_are_good_for_their_own_resource_manager_only() {
    let house = House::new().await;
    house.define(r#"{"name":"gpu","elastic":{"preset":"arrebol","max":5}}"#);
    let lease = async |id: &str, body: Value| house.ask_as(id, Role::Elastic, "POST", "/v1/elastic/lease", body).await;
    let claim = json!({ "call": "claim", "shard": 0, "generation": 0, "beats": 0, "member": "m1", "lease_ms": 15_000 });
    lease("e1", json!({ "call": "beat", "member": "m1", "address": "here" })).await;
    assert_eq!(lease("e1", claim.clone()).await.0, 200);
    for call in [
        json!({ "call": "beat", "member": "m1", "address": "there" }),
        json!({ "call": "renew", "member": "m1", "held": [[0, 1]] }),
        json!({ "call": "release", "member": "m1", "shard": 0, "generation": 1 }),
        json!({ "call": "forget", "member": "m1", "beats": null }),
        claim,
    ] {
        assert_eq!(lease("e2", call.clone()).await.0, 403, "{call}");
    }
    let body = json!({ "generation": 1, "request": "r", "nodes": ["n"] });
    let path = "/v1/elastic/queues/gpu/workers";
    assert_eq!(house.ask_as("e2", Role::Elastic, "POST", path, body.clone()).await.0, 409);
    assert_eq!(house.ask_as("e1", Role::Elastic, "POST", path, body.clone()).await.0, 200);
    let release = json!({ "call": "release", "member": "m1", "shard": 0, "generation": 1 });
    assert_eq!(lease("e1", release).await.0, 200);
    for id in ["e1", "e2"] {
        assert_eq!(house.ask_as(id, Role::Elastic, "POST", path, body.clone()).await.0, 409, "nobody holds it");
    }
    let other = json!({ "call": "forget", "member": "m1", "beats": 0 });
    assert_eq!(lease("e2", other).await.0, 200, "whoever is seen to be silent may be forgotten by all");
}

#[tokio::test]
async fn draining_is_told_to_the_owner_at_once_and_shown() {
    let (house, generation) = House::with_lease().await;
    let workers = create(&house, generation, "r1", &["n1"]).await;
    let drain = format!("/v1/elastic/workers/{}/drain", workers[0]);
    house.elastic("POST", &drain, json!({ "generation": generation })).await;
    let gpu: mutirao_core::QueueName = "gpu".parse().unwrap();
    let told = (vec![(WorkerId(workers[0].clone()), gpu.clone())], Some(gpu.clone()));
    assert_eq!(*house.neighbours.drained.lock(), told);
    house.neighbours.enrolled.lock().insert(WorkerId("own".into()), gpu);
    let (status, shown) = house.ask(Role::Operator, "POST", "/v1/workers/own/drain", Value::Null).await;
    assert_eq!((status, shown["draining"]["by"].as_str()), (200, Some("somebody")), "{shown}");
    assert_eq!(house.neighbours.drained.lock().0.len(), 2, "also one that no resource manager started");
    assert_eq!(house.ask(Role::Operator, "POST", "/v1/workers/nobody/drain", Value::Null).await.0, 404);

    let back = house.ask(Role::Operator, "POST", "/v1/workers/own/resume", Value::Null).await;
    assert_eq!((back.0, &back.1["draining"]), (200, &Value::Null));
    assert_eq!(house.neighbours.drained.lock().0.len(), 1);
    let path = format!("/v1/workers/{}/resume", workers[0]);
    assert_eq!(house.ask(Role::Operator, "POST", &path, Value::Null).await.0, 409);
}

#[tokio::test]
async fn people_cordon_and_drain_nodes_and_see_who_is_on_them() {
    let (house, generation) = House::with_lease().await;
    create(&house, generation, "r1", &["n1"]).await;
    house.elastic("PUT", "/v1/elastic/offer", offer(generation)).await;
    let (_, node) = house.ask(Role::Operator, "POST", "/v1/nodes/n1/drain", Value::Null).await;
    assert_eq!((node["wish"].as_str(), node["workers"][0]["life"].as_str()), (Some("drained"), Some("asked")));
    let balance = house.fleets.balance().await.unwrap();
    assert_eq!(serde_json::to_value(balance.nodes[0].wish).unwrap(), "drained");
    let (_, node) = house.ask(Role::Operator, "POST", "/v1/nodes/n1/uncordon", Value::Null).await;
    assert_eq!(node["wish"], "open");
    assert_eq!(house.ask(Role::Operator, "POST", "/v1/nodes/n9/cordon", Value::Null).await.0, 404);
}

#[tokio::test]
async fn what_no_node_could_hold_is_known_once_there_is_an_offer() {
    let (house, generation) = House::with_lease().await;
    let need = |cpus: u64| Need { amounts: Amounts::default().and("cpu_milli", cpus * 1_000), ..Need::default() };
    assert_eq!(house.fleets.impossible(&need(64)).await.unwrap(), None, "nobody has offered anything");
    house.elastic("PUT", "/v1/elastic/offer", offer(generation)).await;
    let why = house.fleets.impossible(&need(64)).await.unwrap();
    assert_eq!(why.as_deref(), Some("needs 64 cpus, the largest node any provider offers has 8"));
    assert_eq!(house.fleets.impossible(&need(8)).await.unwrap(), None);
}

#[tokio::test]
async fn a_lease_is_held_over_http_as_managers_hold_theirs() {
    let house = House::new().await;
    let call = async |body: Value| -> LeaseAnswer {
        serde_json::from_value(house.elastic("POST", "/v1/elastic/lease", body).await).unwrap()
    };
    assert_eq!(call(json!({ "call": "found", "count": 1 })).await, LeaseAnswer::Count { count: 1 });
    call(json!({ "call": "beat", "member": "m1", "address": "here" })).await;
    let claim = |generation: u64, member: &str| json!({ "call": "claim", "shard": 0, "generation": generation, "beats": 0, "member": member, "lease_ms": 15_000 });
    assert_eq!(call(claim(0, "m1")).await, LeaseAnswer::Claimed { generation: Some(1) });
    assert_eq!(call(claim(0, "m2")).await, LeaseAnswer::Claimed { generation: None });
    let renew = |member: &str| json!({ "call": "renew", "member": member, "held": [[0, 1]] });
    assert_eq!(call(renew("m1")).await, LeaseAnswer::Renewed { shards: vec![0] });
    assert_eq!(call(renew("m2")).await, LeaseAnswer::Renewed { shards: vec![] });
    call(json!({ "call": "release", "member": "m1", "shard": 0, "generation": 1 })).await;
    let LeaseAnswer::Leases { leases } = call(json!({ "call": "leases" })).await else { panic!("other answer") };
    assert_eq!((leases[0].owner.clone(), leases[0].generation), (None, 1));
    let LeaseAnswer::Members { members } = call(json!({ "call": "members" })).await else { panic!("other answer") };
    assert_eq!(members[0].member, "m1");
    for bad in [
        json!({ "call": "found", "count": 2 }),
        json!({ "call": "claim", "shard": 1, "generation": 0, "beats": 0, "member": "m", "lease_ms": 1_000 }),
        json!({ "call": "claim", "shard": 0, "generation": 0, "beats": 0, "member": "m", "lease_ms": 86_400_000 }),
        json!({ "call": "beat", "member": "", "address": "" }),
        json!({ "call": "dance" }),
    ] {
        assert_eq!(house.ask(Role::Elastic, "POST", "/v1/elastic/lease", bad.clone()).await.0, 422, "{bad}");
    }
}
