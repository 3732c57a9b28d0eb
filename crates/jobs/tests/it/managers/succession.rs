//! One of several managers dies, freezes, leaves or joins while thousands of tasks are under way: only its share moves,
//! nothing is lost, and everything counts once.

use mutirao_core::JobKey;
use mutirao_core::envelope::shard_of;
use mutirao_jobs::Jobs;
use mutirao_shards::Terms;
use mutirao_testkit::wait::eventually;
use tokio::task::JoinHandle;

use super::{LEASE, LEASE_LONG, Member, PATIENCE, Town, array, shared_out};
use crate::house::{Played, submit, until};

const TASKS: u32 = 5_000;

/// A queue of each member, its workers, and a job for it; each submitted to a member that does not own it.
struct Load {
    jobs: Vec<JobKey>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    async fn on(town: &Town, members: &[&Member]) -> Self {
        let mut load = Self { jobs: Vec::new(), workers: Vec::new() };
        for (n, member) in members.iter().enumerate() {
            let queue = member.queue().await;
            for _ in 0..2 {
                load.workers.push(Played::start(&queue, &town.broker).await.work());
            }
            eventually("its workers", PATIENCE, async || {
                member.jobs.workers().await.0.iter().filter(|worker| worker.queue == queue).count() >= 2
            })
            .await;
            let other = members[(n + 1) % members.len()];
            let spec = array(&queue, TASKS);
            load.jobs.push(other.on(move |jobs| async move { submit(&jobs, spec).await }).await.id);
        }
        load
    }

    async fn is_under_way(&self, jobs: &Jobs) {
        for job in &self.jobs {
            until(jobs, *job, "some tasks to end", |view| view.counts.ok > 200).await;
        }
    }

    /// Every task has ended, and is counted once.
    async fn is_done(&self, jobs: &Jobs) {
        for job in &self.jobs {
            let view = until(jobs, *job, "finished", |view| view.finished_at.is_some()).await;
            assert_eq!((view.counts.ok, view.counts.total()), (u64::from(TASKS), u64::from(TASKS)), "{view:?}");
        }
        self.workers.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_manager_moves_only_its_shards_and_loses_nothing() {
    let Some(mut town) = Town::found().await else { return };
    town.terms = Terms::of(LEASE);
    let (a, b, c) = (town.join().await, town.join().await, town.join().await);
    shared_out(&[&a, &b, &c]).await;
    let load = Load::on(&town, &[&a, &b, &c]).await;
    load.is_under_way(&b.jobs).await;
    let (before_b, before_c, moved) = (b.generations(), c.generations(), a.owned());
    a.kill();

    shared_out(&[&b, &c]).await;
    let (after_b, after_c) = (b.generations(), c.generations());
    for (before, after) in [(&before_b, &after_b), (&before_c, &after_c)] {
        assert!(before.iter().all(|(shard, generation)| after.get(shard) == Some(generation)), "only its shards move");
        assert!(after.keys().all(|shard| before.contains_key(shard) || moved.contains(shard)));
    }
    load.is_done(&c.jobs).await;
    town.remove([b, c]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_frozen_past_its_lease_writes_nothing_when_it_wakes() {
    let Some(mut town) = Town::found().await else { return };
    town.terms = Terms::of(LEASE);
    let (a, b) = (town.join().await, town.join().await);
    shared_out(&[&a, &b]).await;
    let load = Load::on(&town, &[&a, &b]).await;
    load.is_under_way(&b.jobs).await;
    let queue = a.queue().await;
    let awake = a.freeze(LEASE * 3);
    eventually("the other to own everything", PATIENCE, async || b.owned().len() == 16).await;
    awake.await.unwrap();

    // What it had in hand when it froze is not its own any more; what it owns from here on, it owns anew.
    let generation = b.generations()[&shard_of(&queue)];
    load.is_done(&b.jobs).await;
    shared_out(&[&a, &b]).await;
    let now = a.generations().get(&shard_of(&queue)).or(b.generations().get(&shard_of(&queue))).copied();
    assert!(now.is_some_and(|now| now >= generation), "{now:?} {generation}");
    let spec = array(&queue, 50);
    let worker = Played::start(&queue, &town.broker).await.work();
    eventually("its worker", PATIENCE, async || b.jobs.workers().await.0.iter().any(|worker| worker.queue == queue))
        .await;
    let job = a.on(move |jobs| async move { submit(&jobs, spec).await }).await.id;
    until(&b.jobs, job, "finished by whoever owns it now", |view| view.finished_at.is_some()).await;
    worker.abort();
    town.remove([a, b]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_stops_hands_over_without_waiting_for_a_lease() {
    let Some(mut town) = Town::found().await else { return };
    // Were a lease to run out, this test would have been killed before.
    town.terms.lease = LEASE_LONG * 60;
    let (a, b) = (town.join().await, town.join().await);
    shared_out(&[&a, &b]).await;
    let load = Load::on(&town, &[&a, &b]).await;
    load.is_under_way(&b.jobs).await;
    a.on(|jobs| async move { jobs.stop().await }).await;
    eventually("the other to own everything", PATIENCE, async || b.owned().len() == 16).await;
    load.is_done(&b.jobs).await;
    town.remove([a, b]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_joins_takes_its_share_and_nothing_is_lost_or_doubled() {
    let Some(town) = Town::found().await else { return };
    let a = town.join().await;
    shared_out(&[&a]).await;
    let load = Load::on(&town, &[&a]).await;
    load.is_under_way(&a.jobs).await;
    let (b, c) = (town.join().await, town.join().await);
    shared_out(&[&a, &b, &c]).await;
    load.is_done(&c.jobs).await;
    town.remove([a, b, c]).await;
}
