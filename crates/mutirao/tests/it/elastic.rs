//! Elasticity from the manager's side: a resource manager played by the test over the real API, with a real worker; and
//! draining as people do it.

use std::process::Stdio;

use mutirao_client::{Client, Credentials, Signer, WorkerKey};
use mutirao_core::auth::Enrol;
use mutirao_core::{Clock, SystemClock, WorkerId};
use mutirao_elastic::fleet::Activity;
use mutirao_elastic::packing::NodeName;
use mutirao_elastic::protocol::{Balance, Create, Fenced, LeaseAnswer, LeaseCall, Offer, Record};
use mutirao_elastic::{Decision, Removal, State};
use mutirao_testkit::{Installation, wait};
use serde_json::{Value, json};

use crate::said::{SOON, Said};
use crate::workers::Worker;

/// Short, so that an owner has soon heard everybody.
const LEASE: &str = "3s";

fn json_of(up: &Installation, args: &[&str]) -> Value {
    let text = up.ok(&[&["--json"], args].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Lets a resource manager in, and has it claim the lease.
pub async fn resource_manager(up: &Installation) -> (Client, u64) {
    let token = up.ok(&["elastic", "invite"]).trim().to_owned();
    let key = WorkerKey::generate();
    let enrol = Enrol { token, public_key: key.public_base64(), name: "lab".into() };
    let stranger = Client::new(&up.url(), Credentials::None).unwrap();
    let enrolled = stranger.enrol_elastic(&enrol).await.unwrap();
    let signer = Signer::new(WorkerId(enrolled.key), key, SystemClock::shared());
    let client = Client::new(&up.url(), Credentials::Key(signer)).unwrap();
    client.elastic_lease(&LeaseCall::Found { count: 1 }).await.unwrap();
    let member = "lab-1".to_owned();
    client.elastic_lease(&LeaseCall::Beat { member: member.clone(), address: "here".into() }).await.unwrap();
    let claim = LeaseCall::Claim { shard: 0, generation: 0, beats: 0, member, lease_ms: 60_000 };
    let LeaseAnswer::Claimed { generation: Some(generation) } = client.elastic_lease(&claim).await.unwrap() else {
        panic!("the lease is not to be had")
    };
    (client, generation)
}

pub fn offer(generation: u64) -> Offer {
    let node = json!({ "name": "n1", "provider": "test", "capacity": { "cpu_milli": 8_000, "memory_bytes": 64u64 << 30 },
                       "layer": "cloud", "answers": true });
    serde_json::from_value(json!({ "generation": generation, "nodes": [node], "kinds": [] })).unwrap()
}

async fn until_balance(client: &Client, what: &str, is: impl Fn(&Balance) -> bool) -> Balance {
    let mut last = None;
    wait::eventually(what, SOON, async || {
        let balance = client.elastic_balance().await.unwrap();
        let reached = is(&balance);
        last = Some(balance);
        reached
    })
    .await;
    last.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_created_reports_is_drained_and_ended_over_the_three_protocols() {
    let up = Installation::setup().manager_alone().set("jobs.lease", LEASE).start();
    let (client, generation) = resource_manager(&up).await;
    let file = up.data().join("queue.yaml");
    std::fs::write(&file, "kind: Queue\nname: gpu\nelastic: { preset: arrebol, max: 3 }\n").unwrap();
    up.ok(&["apply", "-f", file.to_str().unwrap()]);
    client.elastic_offer(&offer(generation)).await.unwrap();
    let gpu = "gpu".parse().unwrap();
    up.ok(&["submit", "--queue", "gpu", "--", "sleep", "1"]);
    let balance = until_balance(&client, "the task to count", |balance| {
        balance.queues.iter().any(|queue| queue.load.tasks.is_some_and(|tasks| tasks.ready == 1))
    })
    .await;
    assert_eq!((balance.queues.len(), balance.queues[0].queue.as_str()), (1, "gpu"));

    let create = Create { generation, request: "r1".into(), nodes: vec![NodeName("n1".into())], need: None };
    let worker = client.elastic_create(&gpu, &create).await.unwrap().workers.remove(0);
    let invitation = client.elastic_invitation(&worker, &Fenced { generation }).await.unwrap();
    let dir = up.data().join("elastic-worker").display().to_string();
    let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir, "--queue", "gpu"]);
    command.env("MUTIRAO_ENROL_TOKEN", &invitation.token).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Worker(command.spawn().unwrap());
    let idle = |balance: &Balance| {
        let sessions = balance.queues[0].sessions.as_ref();
        matches!(sessions.and_then(|all| all.get(&worker)), Some(Activity::Idle { .. }))
            && balance.queues[0].load.tasks.is_some_and(|tasks| tasks.ready + tasks.running == 0)
    };
    until_balance(&client, "it to report and run the task", idle).await;
    let listed = json_of(&up, &["worker", "list"]);
    assert_eq!((listed[0]["worker"].as_str(), listed[0]["node"].as_str()), (Some(worker.0.as_str()), Some("n1")));
    assert_eq!(listed[0]["state"], "idle");

    client.elastic_drain(&worker, &Fenced { generation }).await.unwrap();
    let drained = |balance: &Balance| {
        let sessions = balance.queues[0].sessions.as_ref();
        sessions.and_then(|all| all.get(&worker)) == Some(&Activity::Drained)
    };
    until_balance(&client, "it to drain", drained).await;
    assert_eq!(json_of(&up, &["worker", "list"])[0]["state"], "drained");
    assert_eq!(json_of(&up, &["elastic", "status"])["queues"][0]["draining"], 1);
    assert_eq!(json_of(&up, &["node", "show", "n1"])["workers"][0]["life"], "draining");

    drop(process);
    let decision = Decision { was: 1, wanted: 0, removal: Removal::Any, because: Default::default() };
    let record = Record {
        dismissed: Vec::new(),
        generation,
        state: State::default(),
        members: [].into(),
        gone: vec![worker.clone()],
        trouble: None,
        changes: decision.change(SystemClock.now()).into_iter().collect(),
        decision,
    };
    client.elastic_record(&gpu, &record).await.unwrap();
    let keys = json_of(&up, &["worker", "keys"]);
    assert!(keys["items"][0]["revoked_at"].is_number(), "its identity is worth nothing: {keys}");
    let history = json_of(&up, &["elastic", "history", "--queue", "gpu"]);
    assert_eq!((history["items"][0]["from"].as_u64(), history["items"][0]["to"].as_u64()), (Some(1), Some(0)));
    let why = up.ok(&["queue", "explain", "gpu"]);
    assert!(why.contains("0 workers are wanted"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_node_could_hold_is_refused_at_once_and_nodes_are_cordoned() {
    let up = Installation::setup().manager_alone().start();
    let (client, generation) = resource_manager(&up).await;
    let file = up.data().join("queue.yaml");
    let huge = "kind: Queue\nname: huge\nworkers: { cpus: 64 }\nelastic: { preset: arrebol }\n";
    std::fs::write(&file, huge.replace("name: huge", "name: early")).unwrap();
    up.ok(&["apply", "-f", file.to_str().unwrap()]);
    client.elastic_offer(&offer(generation)).await.unwrap();
    std::fs::write(&file, huge).unwrap();
    let refused = Said::from(up.cli(&["apply", "-f", file.to_str().unwrap()]));
    let said = "needs 64 cpus, the largest node any provider offers has 8";
    assert!(refused.code != Some(0) && refused.err.contains(said), "{refused:?}");
    assert!(!up.ok(&["queue", "list"]).contains("huge"));
    let small = "kind: Queue\nname: small\nelastic: { preset: arrebol }\n";
    std::fs::write(&file, small).unwrap();
    up.ok(&["apply", "-f", file.to_str().unwrap()]);
    let refused = Said::from(up.cli(&["submit", "--queue", "small", "--cpus", "2", "--", "true"]));
    assert!(refused.code != Some(0) && refused.err.contains("to give its workers 1"), "{refused:?}");
    // One that was there before the offer: nothing is submitted to it in vain.
    wait::until("the offer to be heard of", SOON, || {
        let refused = Said::from(up.cli(&["submit", "--queue", "early", "--", "true"]));
        refused.code != Some(0) && refused.err.contains(said)
    });

    assert_eq!(json_of(&up, &["node", "cordon", "n1"])["wish"], "cordoned");
    let wish = serde_json::to_value(client.elastic_balance().await.unwrap().nodes[0].wish).unwrap();
    assert_eq!(wish, "cordoned");
    up.ok(&["node", "uncordon", "n1"]);
    assert!(up.ok(&["node", "list"]).contains("open"));
    assert_eq!(json_of(&up, &["elastic", "status"])["holder"]["member"], "lab-1");
}

#[test]
fn a_worker_that_people_drain_finishes_takes_nothing_more_and_stays_drained_when_its_manager_comes_back() {
    let mut up = Installation::setup().workers(2).start();
    wait::until("both workers", SOON, || up.workers().len() == 2);
    let one = up.workers()[0].worker.to_string();
    let shown = up.ok(&["worker", "drain", &one]);
    assert!(shown.contains("handed nothing"), "{shown}");
    let state = |up: &Installation, id: &str| {
        let found = up.workers().into_iter().find(|view| view.worker.to_string() == id);
        found.map(|view| serde_json::to_value(view.state).unwrap())
    };
    wait::until("it to drain", SOON, || state(&up, &one) == Some(json!("drained")));
    up.ok(&["submit", "--wait", "--array", "1-20", "--", "true"]);
    let runners = |up: &Installation, job: &str| -> Vec<String> {
        let tasks = json_of(up, &["task", "list", job]);
        let tasks = tasks["items"].as_array().unwrap().clone();
        tasks.iter().map(|task| task["worker"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let job = up.ok(&["submit", "--array", "1-20", "--", "true"]).trim().to_owned();
    up.ok(&["job", "wait", &job]);
    let ran = runners(&up, &job);
    assert!(ran.iter().all(|worker| *worker != one), "{ran:?}");

    up.kill9_everything();
    up.restart();
    wait::until("the workers again", SOON, || up.workers().len() >= 2);
    wait::until("it to be told again", SOON, || state(&up, &one) == Some(json!("drained")));
    up.ok(&["worker", "resume", &one]);
    assert_eq!(json_of(&up, &["worker", "show", &one])["draining"], Value::Null);
}
