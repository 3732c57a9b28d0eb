//! A fleet on SQLite whose neighbours the test plays: who hands out tasks, and who lets workers in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use mutirao_core::auth::{Principal, Role};
use mutirao_core::clock::ManualClock;
use mutirao_core::job::WorkerView;
use mutirao_core::{Problem, QueueName, ShardId, Timestamp, WorkerId};
use mutirao_elastic::protocol::{GROUP, Invitation};
use mutirao_fleet::store::SHARD;
use mutirao_fleet::{Fleets, FleetsParts, Floor, Identities};
use mutirao_queues::{QueueSight, QueueSpec};
use mutirao_shards::store::Mark;
use mutirao_shards::{MemberId, Shared};
use mutirao_store::{Database, Sqlite};
use parking_lot::Mutex;
use serde_json::Value;
use tower::ServiceExt;

use crate::engines::sqlite_steps;

type Told = (Vec<(WorkerId, QueueName)>, Option<QueueName>);

#[derive(Default)]
pub struct Neighbours {
    pub queues: Mutex<Vec<QueueSpec>>,
    pub sights: Mutex<Vec<QueueSight>>,
    pub asked: Mutex<Vec<Vec<QueueName>>>,
    pub workers: Mutex<Vec<WorkerView>>,
    /// What was last said, and of what queue it was news.
    pub drained: Mutex<Told>,
    pub enrolled: Mutex<BTreeMap<WorkerId, QueueName>>,
    pub invited: Mutex<Vec<WorkerId>>,
    pub revoked: Mutex<Vec<WorkerId>>,
    /// Nobody can be revoked now.
    pub revoking_fails: AtomicBool,
    minted: AtomicU32,
}

#[async_trait]
impl Floor for Neighbours {
    async fn queues(&self) -> Result<Vec<QueueSpec>, Problem> {
        Ok(self.queues.lock().clone())
    }

    async fn look(&self, queues: &[QueueName]) -> Vec<QueueSight> {
        self.asked.lock().push(queues.to_vec());
        self.sights.lock().clone()
    }

    async fn workers(&self) -> (Vec<WorkerView>, Vec<ShardId>) {
        (self.workers.lock().clone(), Vec::new())
    }

    async fn drain(&self, all: &[(WorkerId, QueueName)], news: Option<&QueueName>) {
        let mut drained = self.drained.lock();
        drained.0 = all.to_vec();
        drained.1 = news.cloned().or(drained.1.take());
    }
}

#[async_trait]
impl Identities for Neighbours {
    fn mint(&self) -> WorkerId {
        WorkerId(format!("w{}", self.minted.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn is_minted(&self, worker: &WorkerId) -> bool {
        worker.0.starts_with('w')
    }

    async fn invite(&self, worker: &WorkerId, _: &QueueName, _: &str) -> Result<Invitation, Problem> {
        self.invited.lock().push(worker.clone());
        Ok(Invitation { token: format!("enr_{worker}"), expires_at: Timestamp(7) })
    }

    async fn revoke(&self, worker: &WorkerId, _: &str) -> Result<(), Problem> {
        if self.revoking_fails.load(Ordering::Relaxed) {
            return Err(Problem::unavailable("the management is away"));
        }
        self.revoked.lock().push(worker.clone());
        Ok(())
    }

    async fn queue_of(&self, worker: &WorkerId) -> Result<Option<QueueName>, Problem> {
        Ok(self.enrolled.lock().get(worker).cloned())
    }
}

pub struct House {
    pub fleets: Fleets,
    pub leases: Shared,
    pub neighbours: Arc<Neighbours>,
    pub clock: Arc<ManualClock>,
    router: Router,
    _folder: tempfile::TempDir,
}

impl House {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::from(Sqlite::open(&folder.path().join("store.db"), &sqlite_steps()).unwrap());
        let leases = mutirao_shards::store::open(&db, None).await.unwrap();
        let (neighbours, clock) = (Arc::new(Neighbours::default()), ManualClock::starting_at(Timestamp(1_000_000)));
        let fleets = Fleets::start(FleetsParts {
            store: db,
            leases: leases.clone(),
            floor: neighbours.clone(),
            identities: neighbours.clone(),
            clock: clock.clone(),
            keep: Duration::from_secs(3_600),
        });
        let router = fleets.capability().router;
        Self { fleets, leases, neighbours, clock, router, _folder: folder }
    }

    /// With one elastic queue, and the lease claimed: its generation.
    pub async fn with_lease() -> (Self, u64) {
        let house = Self::new().await;
        house.define(r#"{"name":"gpu","elastic":{"preset":"arrebol","max":5},"workers":{"cpus":2}}"#);
        let generation = house.take_over(Mark::default()).await;
        (house, generation)
    }

    pub async fn take_over(&self, seen: Mark) -> u64 {
        let member = MemberId::mint("rm");
        self.leases.beat(GROUP, &member, "here").await.unwrap();
        self.leases.claim(GROUP, SHARD, seen, &member, Duration::from_secs(60)).await.unwrap().unwrap()
    }

    pub fn define(&self, json: &str) {
        self.neighbours.queues.lock().push(serde_json::from_str(json).unwrap());
    }

    pub async fn ask(&self, role: Role, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.ask_as("e1", role, method, path, body).await
    }

    pub async fn ask_as(&self, id: &str, role: Role, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (id, name) = (id.to_owned(), "somebody".to_owned());
        let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        request = request.extension(Arc::new(Principal { id, name, role, namespace: "default".into() }));
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let answer = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// As a resource manager, who is let in.
    pub async fn elastic(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.ask(Role::Elastic, method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }
}
