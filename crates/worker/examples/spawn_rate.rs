//! How fast tasks run through a worker, next to what the machine can do: `/bin/true` on two slots against a bare
//! `posix_spawn` and `wait` on two threads, and no-ops for what the worker costs by itself.
//!
//! `cargo run --release -p mutirao-worker --example spawn_rate`

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_broker::{Broker, Limits, Memory};
use mutirao_core::blobs::{BlobError, Blobs};
use mutirao_core::clock::{Clock, SystemClock};
use mutirao_core::envelope::{Handout, Parcel, ParcelId, Reports, Template, open, results_of, seal, tasks_of};
use mutirao_core::exec::Exec;
use mutirao_core::quantity::{Bytes as Size, Cpus};
use mutirao_core::task::{Action, Needs, TaskSpec};
use mutirao_core::{Dice, JobKey, QueueName, WorkerId};
use mutirao_worker::Config;

const SLOTS: u32 = 2;
const PROCESSES: u32 = 6_000;
const NOOPS: u32 = 1_000_000;
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() {
    println!("{:>8} {:>14} {:>14} {:>8} {:>14}", "round", "raw/s", "worker/s", "share", "no-ops/s");
    for round in 1..=ROUNDS {
        let raw = tokio::task::spawn_blocking(raw).await.expect("the raw loop runs");
        let exec = Action::Exec(Exec { command: vec!["/bin/true".into()], ..Exec::default() });
        let worker = through_a_worker(exec, PROCESSES, 64).await;
        let noops = through_a_worker(Action::Noop {}, NOOPS, 512).await;
        println!("{round:>8} {raw:>14.0} {worker:>14.0} {:>7.1}% {noops:>14.0}", 100.0 * worker / raw);
    }
}

fn raw() -> f64 {
    let began = SystemClock.monotonic();
    std::thread::scope(|scope| {
        for _ in 0..SLOTS {
            scope.spawn(|| {
                for _ in 0..PROCESSES / SLOTS {
                    let mut command = Command::new("/bin/true");
                    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
                    command.status().expect("/bin/true runs");
                }
            });
        }
    });
    rate(PROCESSES, SystemClock.monotonic().since(began))
}

async fn through_a_worker(action: Action, tasks: u32, parcel_tasks: u32) -> f64 {
    let broker = Memory::new(None, Limits::default());
    let queue = QueueName::default();
    let dir = tempfile::tempdir().expect("a folder");
    let needs = Needs { cpus: Cpus { milli: 1000 * SLOTS }, memory: Size(1 << 30) };
    let config = Config::new(WorkerId("w".into()), queue.clone(), needs, dir.path());
    let (stopper, stop) = mutirao_worker::stop();
    let dice = Arc::new(Dice::seeded(1));
    let run = mutirao_worker::run(config, broker.clone(), Arc::new(NoBlobs), SystemClock::shared(), dice, stop);
    let worker = tokio::spawn(run);
    let template = Template { job: JobKey(1), trace: String::new(), spec: Arc::new(TaskSpec::new(action)) };
    let parcels = (0..tasks).step_by(parcel_tasks as usize).map(|first| {
        let last = tasks.min(first + parcel_tasks);
        seal(&Parcel {
            v: Default::default(),
            id: ParcelId { generation: 1, n: u64::from(first) },
            reply_to: results_of(&queue),
            templates: vec![template.clone()],
            tasks: (first..last)
                .map(|index| Handout { t: 0, index, n: 1, entry: None, command: None, ..Handout::default() })
                .collect(),
        })
    });
    let parcels: Vec<_> = parcels.collect();
    let mut consumer = broker.consume(&results_of(&queue), 64).await.expect("results");
    let began = SystemClock.monotonic();
    broker.publish(&tasks_of(&queue), parcels).await.expect("published");
    let mut done = 0;
    while done < tasks {
        let deliveries = consumer.next().await.expect("reports");
        for delivery in &deliveries {
            let reports: Reports = open(&delivery.body).expect("reports can be read");
            done += reports.done.len() as u32;
        }
        consumer.ack_through(deliveries[deliveries.len() - 1].tag).await.expect("acknowledged");
    }
    let took = SystemClock.monotonic().since(began);
    stopper.drain();
    worker.await.expect("the worker ends").expect("and ends well");
    rate(tasks, took)
}

fn rate(tasks: u32, took: Duration) -> f64 {
    f64::from(tasks) / took.as_secs_f64()
}

struct NoBlobs;

#[async_trait]
impl Blobs for NoBlobs {
    async fn append(&self, _: &str, offset: u64, bytes: Bytes) -> Result<u64, BlobError> {
        Ok(offset + bytes.len() as u64)
    }

    async fn read(&self, _: &str, _: u64, _: usize) -> Result<Bytes, BlobError> {
        Ok(Bytes::new())
    }

    async fn len(&self, _: &str) -> Result<Option<u64>, BlobError> {
        Ok(None)
    }

    async fn remove_all(&self, _: &str) -> Result<(), BlobError> {
        Ok(())
    }
}
