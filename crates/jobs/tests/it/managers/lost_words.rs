//! Managers that cannot hear each other: what is in the store happens all the same, a little later; what only the owner
//! can do is refused clearly.

use std::collections::BTreeSet;

use mutirao_core::TaskKey;
use mutirao_core::outcome::Verdict;
use mutirao_jobs::service::Submitted;

use super::{Town, array, shared_out};
use crate::brokers::{Fault, Faulty};
use crate::house::{Played, ana, submit, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_word_between_managers_costs_seconds_and_no_work() {
    let Some(town) = Town::found().await else { return };
    let a = town.join().await;
    let b = town.join_over(Faulty::new(&town.broker, Fault::LosesWords)).await;
    shared_out(&[&a, &b]).await;
    let queue = a.queue().await;
    let mut worker = Played::start(&queue, &town.broker).await;
    // The owner has written the session down when it gives it work, and so the store knows the queue.
    while a.jobs.workers().await.0.is_empty() {
        tokio::task::yield_now().await;
    }
    let known = submit(&a.jobs, array(&queue, 1)).await.id;
    let parcels = worker.take().await;
    worker.finish_all(&parcels, Verdict::Ok).await;
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
    worker.finish_all(&parcels, Verdict::Ok).await;
    // The owner finds out: it hands out nothing more of it, and what it was about to is not counted.
    let next = submit(&a.jobs, array(&queue, 3)).await.id;
    let _working = worker.work();
    until(&a.jobs, next, "finished", |view| view.finished_at.is_some()).await;
    let view = until(&b.jobs, job, "cancelled", |view| view.finished_at.is_some()).await;
    assert_eq!(view.counts.total(), 100);
    town.remove([a, b]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_owner_is_silent_the_bound_on_waiting_tasks_holds_and_a_submit_asks_it_once() {
    let Some(mut town) = Town::found().await else { return };
    town.waiting_max = 100;
    let mute = Faulty::new(&town.broker, Fault::LosesWords);
    let (a, b) = (town.join().await, town.join_over(mute.clone()).await);
    shared_out(&[&a, &b]).await;
    let queue = a.queue().await;
    let _worker = Played::start(&queue, &town.broker).await;
    while a.jobs.workers().await.0.is_empty() {
        tokio::task::yield_now().await;
    }
    // One task makes the queue known to the store.
    submit(&a.jobs, array(&queue, 1)).await;
    let ask = async |tasks| {
        let spec = array(&queue, tasks);
        b.on(move |jobs| async move { jobs.submit(&ana(), spec, None, String::new()).await }).await
    };
    let questions = || {
        let number = |(topic, body): &(String, bytes::Bytes)| {
            let asked: serde_json::Value = serde_json::from_slice(body).ok().filter(|_| topic.starts_with("asks."))?;
            asked["number"].as_u64().filter(|number| *number > 0)
        };
        mute.words.lock().iter().filter_map(number).collect::<BTreeSet<u64>>().len()
    };
    let before = questions();
    assert!(matches!(ask(90).await, Ok(Submitted::New(view)) if view.tasks == 90));
    assert_eq!(questions() - before, 1, "it was silent once, and is not waited for again");
    let refusal = ask(20).await.err().unwrap();
    assert_eq!((refusal.status, refusal.retry_after_s), (429, Some(10)), "{refusal}");
    assert!(matches!(ask(5).await, Ok(Submitted::New(_))));
    town.remove([a, b]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_changed_by_one_whom_nobody_hears_is_changed_all_the_same() {
    let Some(town) = Town::found().await else { return };
    let a = town.join().await;
    let b = town.join_over(Faulty::new(&town.broker, Fault::LosesWords)).await;
    shared_out(&[&a, &b]).await;
    let queue = a.queue().await;
    let paused = queue.clone();
    a.on(move |jobs| async move { jobs.pause_queue(&ana(), &paused).await }).await.unwrap();
    let _working = Played::start(&queue, &town.broker).await.work();
    let job = submit(&a.jobs, array(&queue, 3)).await.id;
    until(&a.jobs, job, "taken in", |view| view.counts.ready == 3).await;
    let resumed = queue.clone();
    b.on(move |jobs| async move { jobs.resume_queue(&ana(), &resumed).await }).await.unwrap();
    // Nobody told the owner: it looks.
    until(&a.jobs, job, "finished", |view| view.counts.ok == 3).await;
    town.remove([a, b]).await;
}
