//! A job that is to begin after one of another manager.

use mutirao_core::job::{JobSpec, JobState};
use mutirao_shards::Terms;

use super::{LEASE, Town, array, shared_out};
use crate::house::{Played, submit, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_after_one_of_another_manager_begins_though_its_own_manager_was_killed() {
    let Some(mut town) = Town::found().await else { return };
    town.terms = Terms::of(LEASE);
    let (a, b) = (town.join().await, town.join().await);
    shared_out(&[&a, &b]).await;
    let (of_a, of_b) = (a.queue().await, b.queue().await);
    let first = array(&of_a, 3);
    let first = a.on(move |jobs| async move { submit(&jobs, first).await }).await;
    let second = JobSpec { after_ok: vec![first.id], ..array(&of_b, 2) };
    let second = a.on(move |jobs| async move { submit(&jobs, second).await }).await;
    assert_eq!(second.waits_for, [first.id]);
    b.kill();
    let workers = [Played::start(&of_a, &town.broker).await.work(), Played::start(&of_b, &town.broker).await.work()];
    let view = until(&a.jobs, second.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.ok), (JobState::Ok, 2));
    assert_eq!(a.jobs.job(first.id).await.unwrap().0.state, JobState::Ok);
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    town.remove([a]).await;
}
