//! What every test needs: a broker, blobs in memory, a worker, and the manager's side of the conversation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_broker::{
    Broker, BrokerError, Consumer, Counts, DeadLetter, Deletion, Letters, Limits as BrokerLimits, Memory, Name, Record,
    Subscription,
};
use mutirao_core::blobs::{BlobError, Blobs};
use mutirao_core::clock::SystemClock;
use mutirao_core::envelope::{
    Beat, Control, Done, Handout, Parcel, ParcelId, Reports, Started, Template, control_of, open, results_of, seal,
    tasks_of,
};
use mutirao_core::exec::Exec;
use mutirao_core::quantity::{Bytes as Size, Cpus};
use mutirao_core::task::{Action, Needs, TaskSpec};
use mutirao_core::{Dice, JobKey, Outcome, QueueName, WorkerId};
use mutirao_worker::{Config, Stopper, WorkerError};
use tokio::task::JoinHandle;

/// Longer than anything here may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Stage {
    pub broker: Arc<Flaky>,
    pub blobs: Arc<Shelf>,
    pub heard: Arc<Mutex<Vec<Reports>>>,
    pub stopper: Stopper,
    pub worker: JoinHandle<Result<(), WorkerError>>,
    pub session: mutirao_core::SessionId,
    pub dir: tempfile::TempDir,
    parcels: AtomicU64,
}

pub fn capacity() -> Needs {
    Needs { cpus: Cpus { milli: 2000 }, memory: Size(4 << 30) }
}

impl Stage {
    pub async fn set() -> Self {
        Self::set_with(|_| {}).await
    }

    pub async fn set_with(change: impl FnOnce(&mut Config)) -> Self {
        let broker = Flaky::over(Memory::new(None, BrokerLimits::default()));
        Self::set_on(broker, change).await
    }

    pub async fn set_on(broker: Arc<Flaky>, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Arc::new(Shelf::default());
        let mut config = Config::new(WorkerId("w1".into()), QueueName::default(), capacity(), dir.path());
        change(&mut config);
        let session = config.session.clone();
        let (stopper, stop) = mutirao_worker::stop();
        let heard = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(hear(broker.clone(), heard.clone()));
        let dice = Arc::new(Dice::seeded(7));
        let worker = mutirao_worker::run(config, broker.clone(), blobs.clone(), SystemClock::shared(), dice, stop);
        let worker = tokio::spawn(worker);
        Self { broker, blobs, heard, stopper, worker, session, dir, parcels: AtomicU64::new(0) }
    }

    /// Hands out one task for each entry of `indexes`.
    pub async fn hand_out(&self, job: u64, spec: TaskSpec, indexes: std::ops::Range<u32>) {
        let handout = |index| Handout { index, n: 1, entry: Some(format!("entry {index}")), ..Handout::default() };
        self.hand_out_as(job, spec, indexes.map(handout).collect()).await;
    }

    pub async fn hand_out_as(&self, job: u64, spec: TaskSpec, tasks: Vec<Handout>) {
        let parcel = Parcel {
            v: Default::default(),
            id: ParcelId { generation: 3, n: self.parcels.fetch_add(1, Ordering::Relaxed) },
            reply_to: results_of(&QueueName::default()),
            templates: vec![Template {
                job: JobKey(job),
                trace: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
                spec: Arc::new(spec),
            }],
            tasks,
        };
        self.broker.under.publish(&tasks_of(&QueueName::default()), vec![seal(&parcel)]).await.unwrap();
    }

    /// Runs one task and waits for its outcome.
    pub async fn outcome(&self, spec: TaskSpec) -> Outcome {
        let before = self.done().len();
        self.hand_out(900 + before as u64, spec, 1..2).await;
        self.wait_done(before + 1).await.pop().unwrap().outcome
    }

    pub async fn tell(&self, control: Control) {
        self.broker.under.announce(&control_of(&QueueName::default()), seal(&control)).await.unwrap();
    }

    pub fn done(&self) -> Vec<Done> {
        self.heard.lock().unwrap().iter().flat_map(|reports| reports.done.clone()).collect()
    }

    pub fn started(&self) -> Vec<Started> {
        self.heard.lock().unwrap().iter().flat_map(|reports| reports.started.clone()).collect()
    }

    pub fn beats(&self) -> Vec<Beat> {
        self.heard.lock().unwrap().iter().filter_map(|reports| reports.beat.clone()).collect()
    }

    pub async fn wait_done(&self, n: usize) -> Vec<Done> {
        until(&format!("{n} outcomes"), || self.done().len() >= n).await;
        self.done()
    }

    /// Until a process with this marker among its arguments runs.
    pub async fn wait_running(&self, n: usize) {
        until(&format!("{n} started"), || self.started().len() >= n).await;
    }

    pub async fn end(self) -> Result<(), WorkerError> {
        self.stopper.drain();
        tokio::time::timeout(PATIENCE, self.worker).await.expect("the worker ends").unwrap()
    }
}

async fn hear(broker: Arc<Flaky>, heard: Arc<Mutex<Vec<Reports>>>) {
    let mut consumer = broker.under.consume(&results_of(&QueueName::default()), 100).await.unwrap();
    while let Ok(deliveries) = consumer.next().await {
        let last = deliveries.last().unwrap().tag;
        for delivery in deliveries {
            heard.lock().unwrap().push(open(&delivery.body).unwrap());
        }
        consumer.ack_through(last).await.unwrap();
    }
}

pub async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain for {what}");
}

/// A command, as a spec.
pub fn command(line: &[&str]) -> TaskSpec {
    let command = line.iter().map(|part| part.to_string()).collect();
    TaskSpec::new(Action::Exec(Exec { command, ..Exec::default() }))
}

pub fn shell(script: &str) -> TaskSpec {
    command(&["sh", "-c", script])
}

pub fn exec(spec: &mut TaskSpec) -> &mut Exec {
    match &mut spec.action {
        Action::Exec(exec) => exec,
        Action::Noop {} => panic!("not a command"),
    }
}

/// Pids of live processes whose command line holds `marker`.
pub fn alive(marker: &str) -> Vec<u32> {
    let mine = std::process::id();
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != mine && String::from_utf8_lossy(&line).contains(marker)
    })
    .collect()
}

/// Text that no other test, and no other run of this one, has on a command line.
pub fn marker() -> String {
    format!("marker-{}", mutirao_core::SessionId::random())
}

/// A broker that can be cut off.
pub struct Flaky {
    pub under: Arc<Memory>,
    pub cut: AtomicBool,
}

impl Flaky {
    pub fn over(under: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { under, cut: AtomicBool::new(false) })
    }
}

#[async_trait]
impl Broker for Flaky {
    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        if self.cut.load(Ordering::SeqCst) {
            return Err(BrokerError::Unreachable("cut".into()));
        }
        self.under.publish(queue, batch).await
    }

    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        if self.cut.load(Ordering::SeqCst) {
            return Err(BrokerError::Unreachable("cut".into()));
        }
        self.under.consume(queue, credit).await
    }

    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        self.under.counts(queue).await
    }

    async fn delete(&self, queue: &Name) -> Result<Deletion, BrokerError> {
        self.under.delete(queue).await
    }
    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        self.under.dead_letters(queue, limit).await
    }

    async fn count_dead_letters(&self, queue: &Name) -> Result<u64, BrokerError> {
        self.under.count_dead_letters(queue).await
    }

    async fn remove_dead_letters(&self, queue: &Name, which: &Letters) -> Result<u64, BrokerError> {
        self.under.remove_dead_letters(queue, which).await
    }

    async fn announce(&self, topic: &Name, body: Bytes) -> Result<(), BrokerError> {
        self.under.announce(topic, body).await
    }

    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        self.under.subscribe(topic).await
    }

    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.under.append(log, batch).await
    }

    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        self.under.read(log, offset, limit).await
    }

    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.under.extent(log).await
    }

    async fn trim(&self, log: &Name, before: u64) -> Result<(), BrokerError> {
        self.under.trim(log, before).await
    }

    async fn forget(&self, log: &Name) -> Result<(), BrokerError> {
        self.under.forget(log).await
    }
}

/// Blobs in memory. Only the first and last of each is kept whole, so that a large one does not fill the test's memory.
#[derive(Default)]
pub struct Shelf {
    blobs: Mutex<HashMap<String, Blob>>,
    pub away: AtomicBool,
}

#[derive(Default, Clone)]
pub struct Blob {
    pub len: u64,
    pub start: Vec<u8>,
    pub end: Vec<u8>,
}

impl Shelf {
    pub fn get(&self, key: &str) -> Option<Blob> {
        self.blobs.lock().unwrap().get(key).cloned()
    }
}

const KEPT: usize = 256 << 10;

#[async_trait]
impl Blobs for Shelf {
    async fn append(&self, key: &str, offset: u64, bytes: Bytes) -> Result<u64, BlobError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(BlobError::Unreachable("away".into()));
        }
        let mut blobs = self.blobs.lock().unwrap();
        let blob = blobs.entry(key.into()).or_default();
        if offset != blob.len {
            return Err(BlobError::Gap { key: key.into(), len: blob.len });
        }
        blob.len += bytes.len() as u64;
        let room = KEPT.saturating_sub(blob.start.len()).min(bytes.len());
        blob.start.extend_from_slice(&bytes[..room]);
        blob.end.extend_from_slice(&bytes);
        let over = blob.end.len().saturating_sub(KEPT);
        blob.end.drain(..over);
        Ok(blob.len)
    }

    async fn read(&self, _: &str, _: u64, _: usize) -> Result<Bytes, BlobError> {
        Err(BlobError::Refused("a worker only writes".into()))
    }

    async fn len(&self, key: &str) -> Result<Option<u64>, BlobError> {
        Ok(self.get(key).map(|blob| blob.len))
    }

    async fn remove_all(&self, _: &str) -> Result<(), BlobError> {
        Err(BlobError::Refused("a worker only writes".into()))
    }
}
