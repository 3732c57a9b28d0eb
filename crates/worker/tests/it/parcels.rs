//! Taking and reporting: room, order, heartbeats, and parcels that make no sense.

use std::collections::BTreeSet;
use std::time::Duration;

use mutirao_broker::Broker;
use mutirao_core::envelope::{RESULTS_FORMER, Reports, open};
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{JobKey, TaskKey, Verdict};

use crate::stage::{Stage, shell, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_noops_are_each_reported_once() {
    let stage = Stage::set().await;
    for parcel in 0..40 {
        stage.hand_out(1, TaskSpec::new(Action::Noop {}), parcel * 500..(parcel + 1) * 500).await;
    }
    let done = stage.wait_done(20_000).await;
    let mut tasks: Vec<_> = done.iter().map(|done| done.task.index).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, (0..20_000).collect::<Vec<_>>());
    assert!(done.iter().all(|done| done.outcome.verdict == Verdict::Ok && done.trace.len() == 32));
    // Named again with what is said of their tasks.
    let taken: BTreeSet<_> = stage.heard.lock().unwrap().iter().flat_map(|reports| reports.taken.clone()).collect();
    assert_eq!(taken.len(), 40);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn an_unreadable_parcel_goes_to_the_dead_letters_with_the_reason() {
    let stage = Stage::set().await;
    stage.broker.publish("tasks.default", vec!["rubbish".into(), r#"{"v":99}"#.into()]).await.unwrap();
    stage.hand_out(1, TaskSpec::new(Action::Noop {}), 0..1).await;
    stage.wait_done(1).await;
    let dead = stage.broker.dead_letters("tasks.default", 10).await.unwrap();
    assert_eq!(dead.len(), 2);
    assert!(dead[0].reason.contains("not an envelope of ours"), "{}", dead[0].reason);
    assert!(dead[1].reason.contains("newer"), "{}", dead[1].reason);
}

#[tokio::test]
async fn only_a_lasting_task_is_reported_as_started() {
    let stage = Stage::set().await;
    stage.hand_out(1, shell("true"), 1..2).await;
    stage.hand_out(2, shell("sleep 0.5"), 1..2).await;
    stage.wait_done(2).await;
    let started: Vec<_> = stage.started().iter().map(|started| started.task).collect();
    assert_eq!(started, [TaskKey { job: JobKey(2), index: 1 }]);
}

/// Managers of the version before there were shards hear everything in one place, and say so in their parcels.
#[tokio::test]
async fn a_worker_beats_where_its_manager_listens_and_before_it_knows_also_where_a_former_one_would() {
    let stage = Stage::set_with(|config| config.limits.beat_every = Duration::from_millis(50)).await;
    let mut former = stage.broker.consume(RESULTS_FORMER, 100).await.unwrap();
    let copy: Reports = open(&former.next().await.unwrap()[0].body).unwrap();
    assert!(copy.beat.is_some() && copy.detour);
    until("it beats at home", || !stage.beats().is_empty()).await;
    stage.hand_out(1, TaskSpec::new(Action::Noop {}), 0..1).await;
    stage.wait_done(1).await;
    let beats = stage.beats().len();
    until("it goes on", || stage.beats().len() > beats + 2).await;
    assert!(stage.heard.lock().unwrap().iter().all(|reports| !reports.detour));
    let left = stage.broker.counts(RESULTS_FORMER).await.unwrap();
    let beats = stage.beats().len();
    until("it goes on", || stage.beats().len() > beats + 3).await;
    assert_eq!(stage.broker.counts(RESULTS_FORMER).await.unwrap().ready, left.ready, "it knows by now");
}

#[tokio::test]
async fn a_beat_lists_all_that_is_held() {
    let stage = Stage::set_with(|config| config.limits.beat_every = Duration::from_millis(50)).await;
    stage.hand_out(1, shell("sleep 600"), 1..5).await;
    let held = || stage.beats().last().map(|beat| beat.held.clone()).unwrap_or_default();
    until("four held", || held().len() == 4).await;
    until("two running", || held().iter().filter(|held| held.running).count() == 2).await;
    let beat = stage.beats().pop().unwrap();
    assert!(!beat.draining && !beat.leaving && beat.pid == std::process::id());
    stage.stopper.now();
    stage.wait_done(4).await;
}

#[tokio::test]
async fn a_worker_with_slow_tasks_leaves_parcels_to_its_neighbours() {
    let busy = Stage::set().await;
    for job in 1..=10 {
        busy.hand_out(job, shell("sleep 600"), 1..2).await;
    }
    busy.wait_running(2).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Two run, and no more wait than come at a time; nothing is kept back from others.
    let counts = busy.broker.counts("tasks.default").await.unwrap();
    assert!(counts.ready >= 6 && counts.unacked == 0, "{counts:?}");
    busy.stopper.now();
    busy.wait_done(10 - counts.ready as usize).await;
}

#[tokio::test]
async fn tasks_run_together_as_far_as_they_fit() {
    let stage = Stage::set().await;
    let mut small = shell("sleep 600");
    small.needs.cpus = "250m".parse().unwrap();
    stage.hand_out(1, small, 1..12).await;
    stage.wait_running(8).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(stage.started().len(), 8);
    stage.stopper.now();
    stage.wait_done(11).await;
}

#[tokio::test]
async fn a_worker_without_a_task_for_long_drains_and_ends_and_one_at_work_does_not() {
    let stage = Stage::set_with(|config| config.idle_end = Some(Duration::from_millis(800))).await;
    stage.hand_out(1, shell("sleep 3"), 1..2).await;
    let done = stage.wait_done(1).await;
    assert_eq!(done[0].outcome.verdict, Verdict::Ok, "it was waited for");
    until("the worker ends", || stage.worker.is_finished()).await;
    assert!(stage.beats().last().is_some_and(|beat| beat.leaving), "it said goodbye");
}
