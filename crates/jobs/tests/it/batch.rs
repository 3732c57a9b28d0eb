//! What ties jobs to each other and to themselves: keys that one open job has, jobs that begin after others, and tasks that
//! outlive no more workers than they may.

use std::sync::Arc;

use mutirao_core::auth::DEFAULT_NAMESPACE;
use mutirao_core::id::{JobKey, WorkerId};
use mutirao_core::job::{JobSpec, JobState, Spread, TaskState};
use mutirao_core::life::Final;
use mutirao_core::outcome::Verdict;
use mutirao_core::{ShardId, Timestamp};
use mutirao_jobs::service::Submitted;
use mutirao_jobs::store::held::{Released, Rest, Until};
use mutirao_jobs::store::{Created, Forgotten, NewJob, Shared};
use mutirao_shards::Terms;

use crate::engine::{Engine, on_both};
use crate::house::{House, ana, get, handed, house, house_on, noop};
use crate::store::{create, ended, home, new_job, settle};

on_both! {
    a_unique_key_is_had_by_one_open_job_at_a_time,
    a_job_is_on_nobodys_desk_until_those_it_waits_for_have_ended,
    who_waits_for_an_end_that_is_not_ok_is_cancelled_and_so_are_those_who_wait_for_it,
    what_is_waited_for_is_not_forgotten_before_it_was_judged,
    jobs_begin_when_those_they_wait_for_have_ended_and_not_in_vain,
}

const NOW: Timestamp = Timestamp(1_000);

async fn a_unique_key_is_had_by_one_open_job_at_a_time(engine: &Engine) {
    let store = engine.open().await;
    let keyed = || NewJob { unique: Some("nightly".into()), ..new_job(1) };
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        tries.spawn(async move { store.create(keyed()).await.unwrap() });
    }
    let all = tries.join_all().await;
    let made: Vec<JobKey> =
        all.iter().filter_map(|made| if let Created::New(job) = made { Some(*job) } else { None }).collect();
    let [first] = made[..] else { panic!("{all:?}") };
    assert_eq!(all.iter().filter(|made| **made == Created::Taken(first)).count(), 7, "{all:?}");
    let elsewhere = NewJob { namespace: "other".into(), ..keyed() };
    assert!(matches!(store.create(elsewhere).await.unwrap(), Created::New(_)));
    assert_eq!(store.job(first).await.unwrap().unwrap().0.unique.as_deref(), Some("nightly"));
    settle(&store, vec![ended(first, 1, Final::Failed)], vec![]).await;
    let Created::New(second) = store.create(keyed()).await.unwrap() else { panic!("the key is free again") };
    // And the first cannot be taken up while the second is open.
    let revived = store.revive(first, mutirao_jobs::store::dead::Which::All, NOW).await.unwrap();
    assert_eq!(revived, mutirao_jobs::store::dead::Revived::Taken(second));
}

async fn held(store: &Shared, waits: &[(JobKey, Until)]) -> JobKey {
    match store.create(NewJob { waits: waits.to_vec(), ..new_job(3) }).await.unwrap() {
        Created::New(job) => job,
        other => panic!("{other:?}"),
    }
}

async fn release(store: &Shared) -> Released {
    store.release(vec![home()], NOW).await.unwrap()
}

async fn a_job_is_on_nobodys_desk_until_those_it_waits_for_have_ended(engine: &Engine) {
    let store = engine.open().await;
    let (one, two) = (create(&store, 1).await, create(&store, 1).await);
    let waiting = held(&store, &[(one, Until::Ended), (two, Until::Ok)]).await;
    assert_eq!(store.open_keys(home()).await.unwrap(), [one, two]);
    assert_eq!(store.job(waiting).await.unwrap().unwrap().0.waits_for, [one, two]);
    assert_eq!(release(&store).await, Released { rest: Rest::Some, ..Released::default() });
    settle(&store, vec![ended(one, 1, Final::Failed)], vec![]).await;
    assert!(release(&store).await.is_empty());
    assert_eq!(store.job(waiting).await.unwrap().unwrap().0.waits_for, [two]);
    store.place().await.unwrap();
    assert_eq!(store.open_keys(home()).await.unwrap(), [two], "nor does a start put it there");
    settle(&store, vec![ended(two, 1, Final::Ok)], vec![]).await;
    assert_eq!(store.release(vec![ShardId(home().0 + 1)], NOW).await.unwrap(), Released::default(), "another's");
    let released = release(&store).await;
    assert_eq!((released.free[0].0, released.cancelled.len(), released.rest), (waiting, 0, Rest::None));
    assert_eq!(store.open_keys(home()).await.unwrap(), [waiting]);
    assert!(store.job(waiting).await.unwrap().unwrap().0.waits_for.is_empty());
    assert!(release(&store).await.is_empty(), "once");
    let unknown = NewJob { waits: vec![(JobKey(999), Until::Ended)], ..new_job(1) };
    assert_eq!(store.create(unknown).await.unwrap(), Created::NoJob(JobKey(999)));
    let foreign = NewJob { namespace: "other".into(), waits: vec![(one, Until::Ended)], ..new_job(1) };
    assert_eq!(store.create(foreign).await.unwrap(), Created::NoJob(one), "another's jobs do not exist");
}

async fn who_waits_for_an_end_that_is_not_ok_is_cancelled_and_so_are_those_who_wait_for_it(engine: &Engine) {
    let store = engine.open().await;
    let first = create(&store, 2).await;
    let second = held(&store, &[(first, Until::Ok)]).await;
    let third = held(&store, &[(second, Until::Ok)]).await;
    let anyhow = held(&store, &[(second, Until::Ended)]).await;
    settle(&store, vec![ended(first, 1, Final::Ok), ended(first, 2, Final::Failed)], vec![]).await;
    let mut cancelled = Vec::new();
    let mut free = Vec::new();
    loop {
        let released = release(&store).await;
        if released.is_empty() {
            break;
        }
        cancelled.extend(released.cancelled);
        free.extend(released.free.into_iter().map(|(job, _)| job));
    }
    assert_eq!((cancelled, free), (vec![(second, 3), (third, 3)], vec![anyhow]));
    let (view, _) = store.job(second).await.unwrap().unwrap();
    assert_eq!((view.state, view.counts.cancelled, view.counts.total()), (JobState::Cancelled, 3, 3));
    let reason = view.reason.unwrap();
    assert!(reason.contains(&first.to_string()), "{reason}");
}

async fn forget(store: &Shared) -> Vec<JobKey> {
    let mut gone = Vec::new();
    loop {
        let Forgotten { jobs, done } = store.forget(Timestamp(i64::MAX)).await.unwrap();
        gone.extend(jobs);
        if done {
            return gone;
        }
    }
}

async fn what_is_waited_for_is_not_forgotten_before_it_was_judged(engine: &Engine) {
    let store = engine.open().await;
    let (good, late, unrelated) = (create(&store, 1).await, create(&store, 1).await, create(&store, 1).await);
    let waiting = held(&store, &[(good, Until::Ok), (late, Until::Ok)]).await;
    settle(&store, vec![ended(good, 1, Final::Ok), ended(unrelated, 1, Final::Ok)], vec![]).await;
    assert_eq!(forget(&store).await, [unrelated]);
    assert!(release(&store).await.is_empty(), "it still waits for the other");
    settle(&store, vec![ended(late, 1, Final::Ok)], vec![]).await;
    assert_eq!(forget(&store).await, []);
    let released = release(&store).await;
    assert_eq!((released.free[0].0, released.cancelled), (waiting, vec![]));
    let mut gone = forget(&store).await;
    gone.sort();
    assert_eq!(gone, [good, late], "nobody waits for them any more");
    assert_eq!(store.job(waiting).await.unwrap().unwrap().0.state, JobState::Waiting);
}

async fn finish(house: &House, verdict: Verdict) {
    let mut worker = house.worker().await;
    let parcels = worker.take().await;
    worker.finish_all(&parcels, verdict).await;
}

async fn jobs_begin_when_those_they_wait_for_have_ended_and_not_in_vain(engine: &Engine) {
    let house = house_on(tempfile::tempdir().unwrap(), engine.database().await, None, Terms::default()).await;
    let first = house.submit(noop(Spread::Single)).await;
    let after = JobSpec { after: vec![first.id], ..noop(Spread::Array { first: 1, last: 2 }) };
    let second = house.submit(after).await;
    assert_eq!((second.waits_for.as_slice(), second.counts.ready), (&[first.id][..], 2));
    let explained = get(house.jobs.clone(), format!("/v1/jobs/{}/tasks/1/explain", second.id)).await;
    assert!(String::from_utf8_lossy(&explained).contains(&first.id.to_string()), "{explained:?}");
    let in_vain = house.submit(JobSpec { after_ok: vec![first.id], ..noop(Spread::Single) }).await;
    finish(&house, Verdict::Failed).await;
    house.until(first.id, "finished", |view| view.finished_at.is_some()).await;
    let view = house.until(in_vain.id, "cancelled", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.reason.is_some()), (JobState::Cancelled, true));
    let work = house.worker().await.work();
    let view = house.until(second.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.ok), (JobState::Ok, 2));
    // What had ended before is waited for no longer than a look takes.
    let late = house.submit(JobSpec { after: vec![first.id], after_ok: vec![second.id], ..noop(Spread::Single) }).await;
    let view = house.until(late.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!(view.state, JobState::Ok);
    work.abort();
    let unknown = JobSpec { after: vec![JobKey(12_345)], ..noop(Spread::Single) };
    let refused = house.jobs.submit(&ana(), unknown, None, "0".repeat(32)).await.err().unwrap();
    assert_eq!((refused.status, refused.field.as_deref()), (422, Some("after")));
    house.jobs.stop().await;
}

#[tokio::test]
async fn a_job_that_waits_outlives_a_restart() {
    let house = house().await;
    let first = house.submit(noop(Spread::Single)).await;
    let second = house.submit(JobSpec { after_ok: vec![first.id], ..noop(Spread::Single) }).await;
    let house = house.restart().await;
    assert_eq!(house.jobs.job(second.id).await.unwrap().0.waits_for, [first.id]);
    let work = house.worker().await.work();
    let view = house.until(second.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!(view.state, JobState::Ok);
    work.abort();
}

#[tokio::test]
async fn a_second_submit_under_a_unique_key_is_given_the_first() {
    let house = house().await;
    let keyed = || JobSpec { unique: Some("k".into()), ..noop(Spread::Single) };
    let first = house.submit(keyed()).await;
    let again = house.jobs.submit(&ana(), keyed(), None, "0".repeat(32)).await.unwrap();
    let Submitted::Joined(view) = again else { panic!("another was made") };
    assert!(view.id == first.id && view.joined && !first.joined);
    finish(&house, Verdict::Ok).await;
    house.until(first.id, "finished", |view| view.finished_at.is_some()).await;
    assert_ne!(house.submit(keyed()).await.id, first.id, "the key is free again");
}

#[tokio::test]
async fn a_task_under_which_so_many_workers_died_is_given_up_with_the_reason() {
    let house = house().await;
    let job = house.submit(JobSpec { crash_limit: Some(2), ..noop(Spread::Single) }).await;
    for n in 1..=2 {
        let mut worker = house.worker().await;
        let parcels = worker.take().await;
        assert_eq!(handed(&parcels)[0].1.n, n);
        house.jobs.process_died(WorkerId("w1".into()), "here".into(), 1).await;
    }
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.dead), (JobState::Failed, 1));
    let filter =
        mutirao_jobs::store::dead::DeadFilter { namespace: DEFAULT_NAMESPACE.into(), limit: 9, ..Default::default() };
    let dead = house.jobs.dead(filter).await.unwrap();
    assert_eq!((dead[0].task.state, dead[0].task.losses), (TaskState::Dead, 2));
    assert!(dead[0].task.reason.as_deref().unwrap().contains("2 workers vanished under it"), "{dead:?}");
}

/// The next event of this name in a stream of them.
async fn next(
    events: &mut (impl futures_util::Stream<Item = Result<bytes::Bytes, axum::Error>> + Unpin),
    name: &str,
) -> String {
    let mut text = String::new();
    loop {
        if let Some(at) = text.find(&format!("event: {name}\n")) {
            let from = text[..at].rfind("\n\n").map_or(0, |end| end + 2);
            if let Some(end) = text[from..].find("\n\n") {
                return text[from..from + end].to_owned();
            }
        }
        let chunk = futures_util::StreamExt::next(events).await.expect("the stream goes on").unwrap();
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
}

async fn everything(house: &House, after: Option<&str>) -> axum::body::BodyDataStream {
    let request = axum::http::Request::get("/v1/events").extension(Arc::new(ana()));
    let request = match after {
        Some(id) => request.header("last-event-id", id),
        None => request,
    };
    let request = request.body(axum::body::Body::empty()).unwrap();
    let answer = tower::ServiceExt::oneshot(house.jobs.capability().router, request).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body().into_data_stream()
}

#[tokio::test]
async fn who_follows_everything_hears_of_jobs_queues_and_workers_and_can_come_back() {
    let house = house().await;
    let mut events = everything(&house, None).await;
    let job = house.submit(noop(Spread::Single)).await;
    let told = next(&mut events, "job").await;
    assert!(told.contains(&job.id.to_string()), "{told}");
    let id = told.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    house.jobs.pause_queue(&ana(), &Default::default()).await.unwrap();
    let told = next(&mut events, "queue").await;
    assert!(told.contains("\"paused\":true"), "{told}");
    house.jobs.resume_queue(&ana(), &Default::default()).await.unwrap();
    let worker = house.worker().await;
    assert!(next(&mut events, "worker").await.contains("\"w1\""));
    drop((events, worker));
    // What changed meanwhile is told to whoever comes back, and who comes with another's number is told of a gap.
    let second = house.submit(noop(Spread::Single)).await;
    let told = next(&mut everything(&house, Some(&id)).await, "job").await;
    assert!(told.contains(&second.id.to_string()), "{told}");
    next(&mut everything(&house, Some("elsewhere/7")).await, "gap").await;
}
