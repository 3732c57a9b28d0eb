//! Either of two managers accepts, shows and cancels what the other owns.

use mutirao_broker::{Broker, Heard};
use mutirao_core::TaskKey;
use mutirao_core::envelope::{Control, control_of, open};
use mutirao_core::job::{JobState, JobView, TaskState, TaskView};
use mutirao_core::outcome::Verdict;
use mutirao_jobs::service::Submitted;

use super::{Member, Town, array, shared_out};
use crate::house::{Played, ana, get, handed, submit, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_asked_answers_for_what_another_owns() {
    let Some(town) = Town::found().await else { return };
    let (a, b) = (town.join().await, town.join().await);
    shared_out(&[&a, &b]).await;
    let queue = a.queue().await;
    let mut worker = Played::start(&queue, &town.broker).await;
    let mut control = town.broker.subscribe(&control_of(&queue)).await.unwrap();

    // The workers of all, from each.
    for member in [&a, &b] {
        let (workers, silent) = loop {
            let (workers, silent) = member.on(|jobs| async move { jobs.workers().await }).await;
            if !workers.is_empty() {
                break (workers, silent);
            }
        };
        assert_eq!((workers.len(), &workers[0].queue, silent), (1, &queue, vec![]));
    }

    // Submitted to one, run by the other's workers, seen by both.
    let job = b
        .on({
            let spec = array(&queue, 500);
            move |jobs| async move { submit(&jobs, spec).await }
        })
        .await
        .id;
    let parcels = worker.take().await;
    let (task, attempt) = handed(&parcels)[0];
    for member in [&a, &b] {
        let under_way = member.on(move |jobs| async move {
            until(&jobs, job, "under way", |view| view.counts.dispatched + view.counts.running > 0).await
        });
        assert_eq!(under_way.await.state, JobState::Running);
        let body = member.on(move |jobs| get(jobs, format!("/v1/jobs/{job}/tasks/{}", task.index))).await;
        let shown: TaskView = serde_json::from_slice(&body).unwrap();
        assert_eq!((shown.attempt, shown.worker.as_deref()), (Some(attempt), Some("w1")), "{shown:?}");
        let body = member.on(move |jobs| get(jobs, "/v1/jobs?state=running".into())).await;
        assert!(String::from_utf8_lossy(&body).contains(&job.to_string()));
    }

    // One task cancelled through the other.
    assert!(b.on(move |jobs| async move { jobs.cancel_task(task).await }).await.unwrap());
    assert!(
        !b.on(move |jobs| async move { jobs.cancel_task(task).await }).await.unwrap(),
        "there is nothing left of it"
    );
    let Heard::Message(body) = control.next().await.unwrap() else { panic!() };
    assert_eq!(open::<Control>(&body).unwrap().cancel_tasks, [task]);
    let body = b.on(move |jobs| get(jobs, format!("/v1/jobs/{job}/tasks/{}", task.index))).await;
    let shown: TaskView = serde_json::from_slice(&body).unwrap();
    assert_eq!(shown.state, TaskState::Cancelled);

    // Followed through the other: each change that is written shows, until the end.
    let working = async {
        worker.finish_all(&parcels, Verdict::Ok).await;
        drop(worker.work());
    };
    let followed = b.on(move |jobs| get(jobs, format!("/v1/jobs/{job}/events")));
    let (events, ()) = tokio::join!(followed, working);
    let text = String::from_utf8_lossy(&events);
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: JobView = serde_json::from_str(last).unwrap();
    assert_eq!((last.counts.ok, last.counts.cancelled, last.finished_at.is_some()), (499, 1, true), "{last:?}");

    // A whole job cancelled through the other.
    let job = b
        .on({
            let spec = array(&queue, 100_000);
            move |jobs| async move { submit(&jobs, spec).await }
        })
        .await
        .id;
    until(&a.jobs, job, "begun", |view| view.counts.ok > 0).await;
    let view = b.on(move |jobs| async move { jobs.cancel_job(job).await }).await.unwrap();
    assert_eq!((view.state, view.counts.total()), (JobState::Cancelled, 100_000));
    loop {
        let Heard::Message(body) = control.next().await.unwrap() else { panic!() };
        if open::<Control>(&body).unwrap().cancel_jobs == [job] {
            break;
        }
    }
    assert!(!b.on(move |jobs| async move { jobs.cancel_task(TaskKey { job, index: 9 }).await }).await.unwrap());
    town.remove([a, b]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bound_on_waiting_tasks_holds_whoever_is_asked() {
    let Some(mut town) = Town::found().await else { return };
    town.waiting_max = 100;
    let (a, b) = (town.join().await, town.join().await);
    shared_out(&[&a, &b]).await;
    let queue = a.queue().await;
    let _worker = Played::start(&queue, &town.broker).await;
    let ask = async |member: &Member, tasks| {
        let spec = array(&queue, tasks);
        member.on(move |jobs| async move { jobs.submit(&ana(), spec, None, String::new()).await }).await
    };
    // A worker makes the queue known, which takes it a moment, and so does the word of a new job.
    let job = loop {
        match ask(&b, 90).await {
            Ok(submitted) => break submitted.view().id,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    until(&a.jobs, job, "under way", |view| view.counts.dispatched > 0).await;
    for member in [&a, &b] {
        let refusal = ask(member, 20).await.err().unwrap();
        assert_eq!((refusal.status, refusal.retry_after_s), (429, Some(10)), "{refusal}");
    }
    assert!(matches!(ask(&b, 5).await, Ok(Submitted::New(_))));
    town.remove([a, b]).await;
}
