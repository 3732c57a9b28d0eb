//! A broker that goes away.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_broker::Broker;
use mutirao_core::Verdict;
use mutirao_core::task::{Action, TaskSpec};
use mutirao_worker::WorkerError;

use crate::stage::{Stage, alive, marker, shell, until};

#[tokio::test]
async fn a_worker_without_its_broker_keeps_its_tasks_and_reports_when_it_is_back() {
    let stage = Stage::set().await;
    stage.hand_out(1, shell("sleep 0.6; echo done"), 1..3).await;
    stage.wait_running(2).await;
    stage.broker.cut.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(stage.done().is_empty());
    stage.broker.cut.store(false, Ordering::SeqCst);
    let done = stage.wait_done(2).await;
    assert!(done.iter().all(|done| done.outcome.verdict == Verdict::Ok && done.outcome.stdout.tail == b"done\n"));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn when_reports_cannot_leave_no_more_is_started() {
    let stage = Stage::set_with(|config| config.limits.outbox_reports_max = 100).await;
    until("the worker", || !stage.beats().is_empty()).await;
    stage.broker.cut.store(true, Ordering::SeqCst);
    for parcel in 0..20 {
        stage.hand_out(1, TaskSpec::new(Action::Noop {}), parcel * 100..(parcel + 1) * 100).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(stage.done().is_empty());
    let counts = stage.broker.counts("tasks.default").await.unwrap();
    assert!(counts.ready + counts.unacked >= 16, "took more than it could report: {counts:?}");
    stage.broker.cut.store(false, Ordering::SeqCst);
    let mut tasks: Vec<_> = stage.wait_done(2_000).await.iter().map(|done| done.task.index).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, (0..2_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_worker_that_must_go_without_a_broker_says_what_it_could_not_report() {
    let stage = Stage::set_with(|config| {
        config.limits.stop_grace_max = Duration::from_millis(100);
        config.limits.upload_wait_max = Duration::from_millis(100);
        config.limits.goodbye_wait_max = Duration::from_millis(100);
    })
    .await;
    stage.hand_out(1, shell("sleep 600"), 1..2).await;
    stage.wait_running(1).await;
    stage.broker.cut.store(true, Ordering::SeqCst);
    stage.stopper.now();
    let ended = tokio::time::timeout(crate::stage::PATIENCE, stage.worker).await.unwrap().unwrap();
    assert!(matches!(ended, Err(WorkerError::Unreported { tasks: 1 })), "{ended:?}");
}

#[tokio::test]
async fn a_drained_worker_with_nothing_left_to_say_goes_also_when_nobody_hears_its_goodbye() {
    let stage = Stage::set_with(|config| config.limits.goodbye_wait_max = Duration::from_millis(100)).await;
    until("the worker", || !stage.beats().is_empty()).await;
    stage.broker.cut.store(true, Ordering::SeqCst);
    stage.stopper.drain();
    let ended = tokio::time::timeout(crate::stage::PATIENCE, stage.worker).await.unwrap().unwrap();
    assert!(ended.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn a_worker_whom_nobody_would_hear_goes_as_soon_as_nothing_runs() {
    let stage = Stage::set_with(|config| config.limits.goodbye_wait_max = Duration::from_secs(600)).await;
    stage.hand_out(1, shell("sleep 600"), 1..2).await;
    stage.wait_running(1).await;
    stage.broker.cut.store(true, Ordering::SeqCst);
    stage.stopper.unheard();
    let ended = tokio::time::timeout(crate::stage::PATIENCE, stage.worker).await.unwrap().unwrap();
    assert!(ended.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn a_worker_whom_nobody_seemed_to_hear_still_reports_what_ended_to_whoever_comes_back() {
    let stage = Stage::set_with(|config| config.limits.goodbye_wait_max = Duration::from_secs(600)).await;
    let marker = marker();
    stage.hand_out(1, shell(&format!("sleep 600; : {marker}")), 1..2).await;
    stage.wait_running(1).await;
    stage.broker.cut.store(true, Ordering::SeqCst);
    stage.stopper.unheard();
    until("what runs to be stopped", || alive(&marker).is_empty()).await;
    stage.broker.cut.store(false, Ordering::SeqCst);
    stage.wait_done(1).await;
}
