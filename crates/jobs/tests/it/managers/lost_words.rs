//! Managers that cannot hear each other: what is in the store happens all the same, a little later; what only the owner
//! can do is refused clearly.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_broker::memory::Memory;
use mutirao_broker::{Broker, BrokerError, Consumer, Counts, DeadLetter, Name, Record, Subscription};
use mutirao_core::TaskKey;

use super::{Town, array, shared_out};
use crate::house::{Played, submit, until};

/// A broker that loses every announcement.
struct Mute(Arc<Memory>);

#[async_trait]
impl Broker for Mute {
    async fn announce(&self, _: &Name, _: Bytes) -> Result<(), BrokerError> {
        Ok(())
    }
    async fn publish(&self, queue: &Name, batch: Vec<Bytes>) -> Result<(), BrokerError> {
        self.0.publish(queue, batch).await
    }
    async fn consume(&self, queue: &Name, credit: u32) -> Result<Box<dyn Consumer>, BrokerError> {
        self.0.consume(queue, credit).await
    }
    async fn counts(&self, queue: &Name) -> Result<Counts, BrokerError> {
        self.0.counts(queue).await
    }
    async fn dead_letters(&self, queue: &Name, limit: u32) -> Result<Vec<DeadLetter>, BrokerError> {
        self.0.dead_letters(queue, limit).await
    }
    async fn subscribe(&self, topic: &Name) -> Result<Box<dyn Subscription>, BrokerError> {
        self.0.subscribe(topic).await
    }
    async fn append(&self, log: &Name, batch: Vec<Bytes>) -> Result<u64, BrokerError> {
        self.0.append(log, batch).await
    }
    async fn read(&self, log: &Name, offset: u64, limit: u32) -> Result<Vec<Record>, BrokerError> {
        self.0.read(log, offset, limit).await
    }
    async fn extent(&self, log: &Name) -> Result<(u64, u64), BrokerError> {
        self.0.extent(log).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_word_between_managers_costs_seconds_and_no_work() {
    let Some(town) = Town::found().await else { return };
    let a = town.join().await;
    let b = town.join_over(Arc::new(Mute(town.broker.clone()))).await;
    shared_out(&[&a, &b]).await;
    let queue = a.queue();
    let mut worker = Played::start(&queue, &town.broker).await;
    // The owner has written the session down when it gives it work, and so the store knows the queue.
    while a.jobs.workers().await.0.is_empty() {
        tokio::task::yield_now().await;
    }
    let known = submit(&a.jobs, array(&queue, 1)).await.id;
    let parcels = worker.take().await;
    worker.finish_all(&parcels, mutirao_core::outcome::Verdict::Ok).await;
    until(&a.jobs, known, "finished", |view| view.finished_at.is_some()).await;

    // Nobody heard of this job, and it is run.
    let job = b
        .on({
            let spec = array(&queue, 100);
            move |jobs| async move { submit(&jobs, spec).await }
        })
        .await
        .id;
    let parcels = worker.take().await;
    // Nobody hears that it was cancelled either.
    let first = TaskKey { job, index: 1 };
    let refusal = b.on(move |jobs| async move { jobs.cancel_task(first).await }).await.unwrap_err();
    assert_eq!((refusal.status, refusal.retry_after_s), (503, Some(2)), "{refusal}");
    b.on(move |jobs| async move { jobs.cancel_job(job).await }).await.unwrap();
    worker.finish_all(&parcels, mutirao_core::outcome::Verdict::Ok).await;
    // The owner finds out: it hands out nothing more of it, and what it was about to is not counted.
    let next = submit(&a.jobs, array(&queue, 3)).await.id;
    let _working = worker.work();
    until(&a.jobs, next, "finished", |view| view.finished_at.is_some()).await;
    let view = until(&b.jobs, job, "cancelled", |view| view.finished_at.is_some()).await;
    assert_eq!(view.counts.total(), 100);
    town.remove([a, b]).await;
}
