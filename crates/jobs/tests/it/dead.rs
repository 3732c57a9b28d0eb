//! Tasks that ended badly: found over all jobs, tried anew, and counted honestly all the way.

use mutirao_core::Timestamp;
use mutirao_core::auth::DEFAULT_NAMESPACE;
use mutirao_core::id::{Attempt, QueueName, TaskKey};
use mutirao_core::job::{JobState, Spread, TaskState};
use mutirao_core::life::Final;
use mutirao_core::outcome::Verdict;
use mutirao_jobs::desk::ledger::Trace;
use mutirao_jobs::desk::{Again, Ended};
use mutirao_jobs::store::Shared;
use mutirao_jobs::store::dead::{DeadFilter, Revived, Tried, Which};
use mutirao_shards::Terms;

use crate::engine::{Engine, on_both};
use crate::house::{handed, house, house_on, noop};
use crate::store::{create, ended, home, open_jobs, settle};

on_both! {
    what_ended_badly_is_found_over_all_jobs_and_open_again_when_tried_anew,
    a_settlement_written_a_second_time_undoes_no_retry,
    a_job_tried_anew_runs_those_that_failed_and_ends_as_they_do,
}

const NOW: Timestamp = Timestamp(1_000);

async fn dead_of(store: &Shared, filter: DeadFilter) -> Vec<TaskKey> {
    let filter = DeadFilter { namespace: DEFAULT_NAMESPACE.into(), limit: 100, ..filter };
    store.dead(filter).await.unwrap().into_iter().map(|dead| dead.task.id).collect()
}

async fn what_ended_badly_is_found_over_all_jobs_and_open_again_when_tried_anew(engine: &Engine) {
    let store = engine.open().await;
    let (one, two) = (create(&store, 5).await, create(&store, 2).await);
    let ends = [Final::Ok, Final::Failed, Final::TimedOut, Final::Lost, Final::Dead];
    let ends = ends.into_iter().zip(1..).map(|(how, index)| ended(one, index, how));
    settle(&store, ends.chain([ended(two, 1, Final::Failed), ended(two, 2, Final::Cancelled)]).collect(), vec![]).await;
    let task = |job, index| TaskKey { job, index };
    let all = [task(two, 1), task(one, 2), task(one, 3), task(one, 4), task(one, 5)];
    assert_eq!(dead_of(&store, DeadFilter::default()).await, all, "the newest job's first");
    assert_eq!(dead_of(&store, DeadFilter { after: Some(all[2]), ..DeadFilter::default() }).await, all[3..]);
    assert_eq!(dead_of(&store, DeadFilter { job: Some(two), ..DeadFilter::default() }).await, all[..1]);
    let other = DeadFilter { queue: Some("other".parse().unwrap()), ..DeadFilter::default() };
    assert_eq!(dead_of(&store, other).await, []);

    let tried =
        |indexes: &[u32]| Revived::Tasks(indexes.iter().map(|index| Tried { index: *index, tries: 1 }).collect());
    assert_eq!(store.revive(one, Which::All, Timestamp(1)).await.unwrap(), tried(&[]), "they ended later");
    assert_eq!(store.revive(one, Which::One(1), NOW).await.unwrap(), tried(&[]), "it was ok");
    assert_eq!(store.revive(one, Which::One(3), NOW).await.unwrap(), tried(&[3]));
    let (view, _) = store.job(one).await.unwrap().unwrap();
    assert_eq!((view.finished_at, view.counts.timed_out, view.counts.ready, view.counts.total()), (None, 0, 1, 5));
    assert_eq!(store.revive(one, Which::All, NOW).await.unwrap(), tried(&[2, 4, 5]));
    assert_eq!(store.revive(one, Which::All, NOW).await.unwrap(), tried(&[]), "nothing is left");
    let (view, _) = store.job(one).await.unwrap().unwrap();
    assert_eq!((view.counts.ok, view.counts.ready, view.state), (1, 4, JobState::Running));
    let rows = store.tasks(one, 1, 5).await.unwrap();
    let open_again: Vec<u32> =
        rows.iter().filter(|row| row.state == TaskState::Ready).map(|row| row.id.index).collect();
    assert_eq!(open_again, [2, 3, 4, 5]);
    assert_eq!(store.outputs(one, 1, 5).await.unwrap().len(), 1, "what is to be run has written nothing");

    assert_eq!(store.revived(home()).await.unwrap(), [(one, 4)]);
    // Whoever takes the shard over finds them as tasks to be run, with their tries.
    let found = open_jobs(&store).await;
    let again =
        found[0].traces.iter().filter(|trace| matches!(trace, Trace::Again { tries: 1, failures: 0, losses: 0, .. }));
    assert_eq!((found.len(), again.count()), (1, 4));
    let second = |index| Ended { attempt: Some(Attempt { generation: 1, n: 2 }), ..ended(one, index, Final::Ok) };
    settle(&store, (2..=5).map(second).collect(), vec![]).await;
    let (view, _) = store.job(one).await.unwrap().unwrap();
    assert_eq!((view.state, view.counts.ok), (JobState::Ok, 5), "the ends count anew, once");
    assert_eq!(store.outputs(one, 1, 5).await.unwrap().len(), 5, "and what they wrote is kept");

    let gone = create(&store, 1).await;
    store.cancel(gone, NOW).await.unwrap();
    assert_eq!(store.revive(gone, Which::All, NOW).await.unwrap(), Revived::Cancelled);
}

async fn a_settlement_written_a_second_time_undoes_no_retry(engine: &Engine) {
    let store = engine.open().await;
    let job = create(&store, 2).await;
    let task = TaskKey { job, index: 1 };
    let attempt = |n| Some(Attempt { generation: 1, n });
    let end = |n, how| Ended { attempt: attempt(n), failures: n, ..ended(job, 1, how) };
    let again = Again { task, tries: 1, failures: 1, losses: 0, not_before: Timestamp(77) };
    // Nobody heard that it was written; a person has seen it.
    settle(&store, vec![end(2, Final::Failed)], vec![again]).await;
    let revived = store.revive(job, Which::All, NOW).await.unwrap();
    assert_eq!(revived, Revived::Tasks(vec![Tried { index: 1, tries: 2 }]));
    settle(&store, vec![end(2, Final::Failed)], vec![again]).await;
    let (view, _) = store.job(job).await.unwrap().unwrap();
    assert_eq!((view.counts.failed, view.counts.ready), (0, 2));
    let row = &store.tasks(job, 1, 1).await.unwrap()[0];
    assert_eq!((row.state, row.failures, row.not_before), (TaskState::Ready, 0, None));
    // What comes of the retry counts, and so does an `ok` of the attempt before it.
    settle(&store, vec![end(3, Final::Failed)], vec![]).await;
    assert_eq!(store.job(job).await.unwrap().unwrap().0.counts.failed, 1);
    store.revive(job, Which::All, NOW).await.unwrap();
    settle(&store, vec![end(2, Final::Ok)], vec![]).await;
    let (view, _) = store.job(job).await.unwrap().unwrap();
    assert_eq!((view.counts.failed, view.counts.ok), (0, 1));
}

async fn a_job_tried_anew_runs_those_that_failed_and_ends_as_they_do(engine: &Engine) {
    let house = house_on(tempfile::tempdir().unwrap(), engine.database().await, None, Terms::default()).await;
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Array { first: 1, last: 6 })).await;
    let mut left = 6;
    while left > 0 {
        for (task, attempt) in handed(&worker.take().await) {
            let verdict = if task.index % 2 == 0 { Verdict::Failed } else { Verdict::Ok };
            worker.voice.done(task, attempt, verdict).await;
            left -= 1;
        }
    }
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.failed), (JobState::Failed, 3));
    assert_eq!(house.jobs.retry_job(&view, Which::All).await.unwrap(), 3);
    let mut again = Vec::new();
    while again.len() < 3 {
        let parcels = worker.take().await;
        again.extend(handed(&parcels));
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    again.sort();
    assert!(again.iter().all(|(task, attempt)| task.index % 2 == 0 && attempt.n == 2), "{again:?}");
    let view = house.until(job.id, "finished again", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.ok, view.counts.total()), (JobState::Ok, 6, 6));
    assert_eq!(house.jobs.retry_job(&view, Which::All).await.unwrap(), 0, "there is nothing left to try");
    house.jobs.stop().await;
}

#[tokio::test]
async fn a_task_of_a_job_that_goes_on_is_tried_anew_beside_the_others() {
    let house = house().await;
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Array { first: 1, last: 2 })).await;
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(handed(&worker.take().await));
    }
    let (failing, staying) = (held[0], held[1]);
    worker.voice.done(failing.0, failing.1, Verdict::Failed).await;
    let view = house.until(job.id, "one failed", |view| view.counts.failed == 1).await;
    assert_eq!(house.jobs.retry_job(&view, Which::One(failing.0.index)).await.unwrap(), 1);
    let parcels = worker.take().await;
    assert_eq!(handed(&parcels)[0].0, failing.0);
    worker.finish_all(&parcels, Verdict::Ok).await;
    worker.voice.done(staying.0, staying.1, Verdict::Ok).await;
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.ok), (JobState::Ok, 2));
}

#[tokio::test]
async fn a_retry_that_its_owner_was_not_told_of_is_found_while_the_job_goes_on() {
    let house = house().await;
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Array { first: 1, last: 2 })).await;
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(handed(&worker.take().await));
    }
    let (failing, staying) = (held[0], held[1]);
    worker.voice.done(failing.0, failing.1, Verdict::Failed).await;
    house.until(job.id, "one failed", |view| view.counts.failed == 1).await;
    let revived = house.store().revive(job.id, Which::All, Timestamp(i64::MAX)).await.unwrap();
    assert_eq!(revived, Revived::Tasks(vec![Tried { index: failing.0.index, tries: 1 }]));
    let parcels = worker.take().await;
    assert_eq!((handed(&parcels)[0].0, handed(&parcels)[0].1.n), (failing.0, 2));
    worker.finish_all(&parcels, Verdict::Ok).await;
    worker.voice.done(staying.0, staying.1, Verdict::Ok).await;
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.ok), (JobState::Ok, 2));
}

#[tokio::test]
async fn all_of_a_queue_are_tried_anew_by_one_word_and_a_cancelled_job_is_left_alone() {
    let house = house().await;
    let mut worker = house.worker().await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let job = house.submit(noop(Spread::Single)).await;
        let parcels = worker.take().await;
        worker.finish_all(&parcels, Verdict::Failed).await;
        jobs.push(house.until(job.id, "finished", |view| view.finished_at.is_some()).await);
    }
    let cancelled = house.submit(noop(Spread::Single)).await;
    house.jobs.cancel_job(cancelled.id).await.unwrap();
    let refused = house.jobs.retry_job(&cancelled, Which::All).await.unwrap_err();
    assert_eq!(refused.status, 409, "{refused:?}");
    let retried = house.jobs.retry_queue(DEFAULT_NAMESPACE, &QueueName::default()).await.unwrap();
    assert_eq!((retried.tasks, retried.jobs), (3, 3));
    let work = worker.work();
    for job in jobs {
        let view = house.until(job.id, "finished again", |view| view.finished_at.is_some()).await;
        assert_eq!(view.state, JobState::Ok);
    }
    work.abort();
}

#[tokio::test]
async fn what_nobody_could_read_is_listed_with_the_reason() {
    let house = house().await;
    let queue = QueueName::default();
    let rubbish = bytes::Bytes::from_static(b"rubbish");
    mutirao_broker::Broker::publish(&*house.broker, &mutirao_core::envelope::results_of(&queue), vec![rubbish])
        .await
        .unwrap();
    for _ in 0..1_000 {
        let letters = house.jobs.letters(&queue, 10).await.unwrap();
        if let Some(letter) = letters.first() {
            assert!(
                letter.way.starts_with("results.") && letter.text == "rubbish" && !letter.reason.is_empty(),
                "{letter:?}"
            );
            return;
        }
        mutirao_core::Clock::sleep(&mutirao_core::SystemClock, std::time::Duration::from_millis(20)).await;
    }
    panic!("no letter");
}
