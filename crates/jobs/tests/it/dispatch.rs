//! Queues of one shard whose broker is not equally well.

use mutirao_broker::memory::{Limits, Memory};
use mutirao_core::envelope::{shard_of, tasks_of};
use mutirao_core::id::QueueName;
use mutirao_core::job::{JobSpec, Spread};
use mutirao_queues::QueueSpec;

use crate::brokers::Faulty;
use crate::house::{House, Played, ana, house_over, noop};

/// Another queue of the same shard.
fn neighbour_of(queue: &QueueName) -> QueueName {
    let names = (0..1_000).map(|n| format!("queue-{n}").parse::<QueueName>().unwrap());
    names.into_iter().find(|name| shard_of(name) == shard_of(queue)).expect("sixteen shards, a thousand names")
}

async fn is_served(house: &House, queue: &QueueName) {
    while !house.jobs.workers().await.0.iter().any(|worker| worker.queue == *queue) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_without_a_leader_holds_up_no_other_queue_of_its_shard() {
    let (stuck, other) = (QueueName::default(), neighbour_of(&QueueName::default()));
    let broker = Memory::new(None, Limits::default());
    let faulty = Faulty::without_leader(&broker, tasks_of(&stuck));
    let house = house_over(broker, faulty.clone()).await;
    house.jobs.create_queue(&ana(), QueueSpec::new(other.clone())).await.unwrap();
    for queue in [&stuck, &other] {
        Played::start(queue, &house.broker).await.work();
        is_served(&house, queue).await;
    }
    let array = |queue: &QueueName| JobSpec { queue: queue.clone(), ..noop(Spread::Array { first: 1, last: 100 }) };
    let waits = house.submit(array(&stuck)).await.id;
    house.until(waits, "under way", |view| view.counts.dispatched > 0).await;
    let goes_on = house.submit(array(&other)).await.id;
    house.until(goes_on, "finished", |view| view.counts.ok == 100).await;
    assert_eq!(house.jobs.job(waits).await.unwrap().0.counts.ended(), 0);
    faulty.elect();
    house.until(waits, "finished", |view| view.counts.ok == 100).await;
    house.jobs.stop().await;
}
