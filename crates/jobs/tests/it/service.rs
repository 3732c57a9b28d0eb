//! The whole capability but for the worker, which the test plays: what it is handed, and what its answers lead to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_broker::{Broker, Heard};
use mutirao_core::auth::{DEFAULT_NAMESPACE, Principal, Role};
use mutirao_core::envelope::{Control, Handout, Parcel, Version, control_of, open, results_of, tasks_of};
use mutirao_core::exec::Exec;
use mutirao_core::id::QueueName;
use mutirao_core::job::{JobSpec, JobState, Spread, Variation};
use mutirao_core::outcome::Verdict;
use mutirao_core::quantity::{Bytes as Size, Cpus, Span};
use mutirao_core::task::{Action, Needs, Retry, TaskSpec};
use mutirao_core::{Clock, SystemClock};
use mutirao_jobs::store::queues::Unfinished;
use mutirao_queues::{Limits, QueueSpec};

use crate::house::{Voice, ana, handed, house, noop};

#[tokio::test]
async fn every_task_is_handed_out_with_its_own_entry_and_the_job_ends() {
    let house = house().await;
    let mut worker = house.worker().await;
    let entries: Vec<String> = (1..=2_500).map(|n| format!("entry {n}")).collect();
    let job = house.submit(noop(Spread::Entries(entries.clone()))).await;
    let mut seen = vec![String::new(); entries.len()];
    while seen.iter().any(String::is_empty) {
        let parcels = worker.take().await;
        for handout in parcels.iter().flat_map(|parcel| &parcel.tasks) {
            seen[handout.index as usize - 1] = handout.entry.clone().unwrap();
        }
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    assert_eq!(seen, entries);
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.ok), (JobState::Ok, 2_500));
}

#[tokio::test]
async fn commands_reach_their_tasks() {
    let house = house().await;
    let mut worker = house.worker().await;
    let commands: Vec<Vec<String>> = (1..=3).map(|n| vec!["echo".into(), n.to_string()]).collect();
    let task = TaskSpec::new(Action::Exec(Exec::default()));
    house.submit(JobSpec { spread: Spread::Commands(commands.clone()), ..JobSpec::new(task) }).await;
    let mut got = Vec::new();
    while got.len() < 3 {
        got.extend(worker.take().await.into_iter().flat_map(|p| p.tasks).map(|t| t.command.unwrap()));
    }
    got.sort();
    assert_eq!(got, commands);
}

#[tokio::test]
async fn each_task_of_a_list_is_handed_out_with_what_it_has_of_its_own() {
    let house = house().await;
    let mut worker = house.worker().await;
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let needs = |milli| Needs { cpus: Cpus { milli }, memory: Size(0) };
    let tasks = vec![
        Variation { command: words("make all"), then: vec![words("make test")], ..Variation::default() },
        Variation { command: words("true"), needs: Some(needs(250)), ..Variation::default() },
        Variation { env: [("A".into(), "b".into())].into(), entry: Some("e".into()), ..Variation::default() },
    ];
    let task = TaskSpec::new(Action::Exec(Exec { command: words("printenv A"), ..Exec::default() }));
    let job = house.submit(JobSpec { spread: Spread::Tasks(tasks), ..JobSpec::new(task) }).await;
    let mut got = BTreeMap::new();
    while got.len() < 3 {
        let parcels = worker.take().await;
        for parcel in &parcels {
            assert_eq!(parcel.v, Parcel::version_of(&parcel.templates, &parcel.tasks));
            let spec = |handout: &Handout| parcel.templates[usize::from(handout.t)].spec.clone();
            got.extend(parcel.tasks.iter().map(|handout| (handout.index, (handout.clone(), spec(handout)))));
        }
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    assert_eq!((&got[&1].0.command, &got[&1].0.then), (&Some(words("make all")), &vec![words("make test")]));
    assert_eq!((got[&1].1.needs, got[&2].1.needs, got[&3].1.needs), (needs(1_000), needs(250), needs(1_000)));
    assert_eq!((&got[&3].0.command, got[&3].0.entry.as_deref()), (&None, Some("e")));
    assert_eq!(got[&3].0.env["A"], "b");
    assert!(
        [&got[&1], &got[&3]]
            .iter()
            .all(|(handout, _)| Parcel::version_of(&[], std::slice::from_ref(handout)) == Version::SECOND)
    );
    assert_eq!(
        Parcel::version_of(&[], std::slice::from_ref(&got[&2].0)),
        Version::default(),
        "older workers may run it"
    );
    house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
}

#[tokio::test]
async fn a_failed_task_is_tried_again_and_then_fails_the_job() {
    let house = house().await;
    let mut worker = house.worker().await;
    let mut spec = noop(Spread::Single);
    spec.task.retry = Some(Retry { retries: 1, backoff: Span(Duration::from_millis(50)), ..Retry::default() });
    let job = house.submit(spec).await;
    for n in 1..=2 {
        let parcels = worker.take().await;
        assert_eq!(handed(&parcels)[0].1.n, n);
        worker.finish_all(&parcels, Verdict::Failed).await;
    }
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!((view.state, view.counts.failed), (JobState::Failed, 1));
}

#[tokio::test]
async fn what_a_silent_session_held_goes_to_another() {
    let house = house().await;
    let mut dead = house.worker().await;
    let job = house.submit(noop(Spread::Single)).await;
    let lost = dead.take().await;
    let voice = dead.voice.clone();
    drop(dead);
    let mut alive = house.worker().await;
    let parcels = alive.take().await;
    assert_eq!(handed(&parcels)[0].1.n, 2, "the second attempt");
    alive.finish_all(&parcels, Verdict::Ok).await;
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!(view.counts.ok, 1);
    // The dead come back and speak: nothing changes.
    voice.finish_all(&lost, Verdict::Failed).await;
    voice.finish_all(&lost, Verdict::Ok).await;
    SystemClock.sleep(Duration::from_millis(100)).await;
    assert_eq!(house.jobs.job(job.id).await.unwrap().0.counts, view.counts);
}

#[tokio::test]
async fn cancelling_a_job_ends_it_and_tells_the_workers() {
    let house = house().await;
    let mut worker = house.worker().await;
    let mut control = house.broker.subscribe(&control_of(&QueueName::default())).await.unwrap();
    let job = house.submit(noop(Spread::Array { first: 1, last: 1_000_000 })).await;
    let parcels = worker.take().await;
    let view = house.jobs.cancel_job(job.id).await.unwrap();
    assert_eq!((view.state, view.counts.cancelled, view.counts.total()), (JobState::Cancelled, 1_000_000, 1_000_000));
    let Heard::Message(body) = control.next().await.unwrap() else { panic!() };
    assert_eq!(open::<Control>(&body).unwrap().cancel_jobs, [job.id]);
    worker.finish_all(&parcels, Verdict::Ok).await;
    SystemClock.sleep(Duration::from_millis(100)).await;
    assert_eq!(house.jobs.job(job.id).await.unwrap().0.counts, view.counts);
}

#[tokio::test]
async fn a_restart_forgets_nothing_and_repeats_only_what_had_not_ended() {
    let house = house().await;
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Array { first: 1, last: 50 })).await;
    let mut ended = std::collections::BTreeSet::new();
    while ended.len() < 20 {
        let parcels = worker.take().await;
        ended.extend(handed(&parcels).iter().map(|(task, _)| task.index));
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    let n = ended.len() as u64;
    house.until(job.id, "counted", |view| view.counts.ok == n).await;

    let house = house.restart().await;
    let mut worker = house.worker().await;
    let mut again = std::collections::BTreeSet::new();
    while ended.len() + again.len() < 50 {
        let parcels = worker.take().await;
        again.extend(handed(&parcels).iter().map(|(task, _)| task.index));
        worker.finish_all(&parcels, Verdict::Ok).await;
    }
    assert!(ended.is_disjoint(&again), "ran twice: {:?}", ended.intersection(&again).collect::<Vec<_>>());
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!(view.counts.ok, 50);
}

#[tokio::test]
async fn a_worker_that_outlived_the_manager_is_not_doubled() {
    let house = house().await;
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Single)).await;
    let parcels = worker.take().await;
    let (task, attempt) = handed(&parcels)[0];
    house.until(job.id, "dispatched", |view| view.counts.dispatched == 1).await;
    let session = worker.voice.session.clone();
    drop(worker);

    let house = house.restart().await;
    // Its session was written down, so its queue waits for it to speak.
    let held = Arc::new(tokio::sync::Mutex::new(vec![(task, attempt)]));
    let worker = Voice { session, held, ..Voice::of(&QueueName::default(), &house.broker) };
    worker.beat().await;
    let view = house.until(job.id, "adopted", |view| view.counts.running == 1).await;
    assert_eq!(view.state, JobState::Running);
    worker.done(task, attempt, Verdict::Ok).await;
    let view = house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    assert_eq!(view.counts.ok, 1);
    assert_eq!(house.broker.counts(&tasks_of(&QueueName::default())).await.unwrap().ready, 0, "handed out again");
}

#[tokio::test]
async fn rubbish_in_the_results_goes_to_the_dead_letters_and_blocks_nothing() {
    let house = house().await;
    let results = results_of(&QueueName::default());
    let rubbish = vec![Bytes::from_static(b"\xff\xfe"), Bytes::from_static(br#"{"v":9,"session":"s","worker":"w"}"#)];
    house.broker.publish(&results, rubbish).await.unwrap();
    let mut worker = house.worker().await;
    let job = house.submit(noop(Spread::Single)).await;
    let parcels = worker.take().await;
    worker.finish_all(&parcels, Verdict::Ok).await;
    house.until(job.id, "finished", |view| view.finished_at.is_some()).await;
    let dead = house.broker.dead_letters(&results, 10).await.unwrap();
    assert_eq!(dead.len(), 2);
    assert!(dead[1].reason.contains("newer"), "{}", dead[1].reason);
}

#[tokio::test]
async fn a_job_that_can_never_run_is_refused_at_once() {
    let house = house().await;
    let _worker = house.worker().await;
    while house.jobs.workers().await.0.is_empty() {
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
    let owner =
        Principal { id: "t1".into(), name: "ana".into(), role: Role::Operator, namespace: DEFAULT_NAMESPACE.into() };
    let mut greedy = noop(Spread::Single);
    greedy.task.needs.cpus = Cpus { milli: 64_000 };
    let refusal = house.jobs.submit(&owner, greedy, None, String::new()).await.err().unwrap();
    assert!(refusal.line().contains("needs 64 cpus, the largest worker of queue default has 4"), "{refusal}");
    let own = |memory: u64| Variation {
        command: vec!["true".into()],
        needs: (memory > 0).then_some(Needs { cpus: Cpus { milli: 1 }, memory: Size(memory) }),
        ..Variation::default()
    };
    let some = JobSpec {
        spread: Spread::Tasks(vec![own(0), own(1 << 20), own((1 << 50) + 1)]),
        ..JobSpec::new(TaskSpec::new(Action::Exec(Exec::default())))
    };
    let refusal = house.jobs.submit(&owner, some, None, String::new()).await.err().unwrap();
    assert_eq!(refusal.field.as_deref(), Some("spread.tasks[2].needs.memory"), "{refusal}");
    assert!(refusal.line().contains("needs 1024TiB of memory"), "{refusal}");
    let mut lost = noop(Spread::Single);
    lost.queue = "nowhere".parse().unwrap();
    assert_eq!(
        house.jobs.submit(&owner, lost, None, String::new()).await.err().unwrap().field.as_deref(),
        Some("queue")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_whose_workers_go_home_takes_no_more_jobs_in() {
    let house = house().await;
    let before = house.submit(noop(Spread::Single)).await;
    house.jobs.close();
    let refusal = house.jobs.submit(&ana(), noop(Spread::Single), None, String::new()).await.err().unwrap();
    assert_eq!((refusal.status, refusal.kind.as_str()), (503, "unavailable"), "{refusal}");
    assert_eq!(house.jobs.job(before.id).await.unwrap().0.id, before.id, "and answers everything else");
    house.jobs.stop().await;
}

#[tokio::test]
async fn whoever_asks_again_is_answered_as_before_though_the_queue_is_full_or_gone() {
    let house = house().await;
    let queue: QueueName = "short".parse().unwrap();
    let limits = Limits { waiting: Some(3), ..Limits::default() };
    house.jobs.create_queue(&ana(), QueueSpec { limits, ..QueueSpec::new(queue.clone()) }).await.unwrap();
    let spec = |last| JobSpec { queue: queue.clone(), ..noop(Spread::Array { first: 1, last }) };
    let ask = async |last, key: &str| {
        house.jobs.submit(&ana(), spec(last), Some(key.into()), "0".repeat(32)).await.map(|job| job.view().id)
    };
    let first = ask(3, "a").await.unwrap();
    assert_eq!(ask(3, "b").await.unwrap_err().status, 429, "the queue is full");
    assert_eq!(ask(3, "a").await.unwrap(), first);
    assert_eq!(ask(2, "a").await.unwrap_err().status, 409, "another request under the same key");
    house.jobs.delete_queue(&ana(), &queue, Unfinished::Cancel).await.unwrap();
    assert_eq!(ask(3, "a").await.unwrap(), first);
    assert_eq!(ask(3, "b").await.unwrap_err().status, 422, "there is no such queue");
}
