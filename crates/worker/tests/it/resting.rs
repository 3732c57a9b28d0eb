//! Resting: a worker that is to take nothing new, and stays.

use std::time::Duration;

use mutirao_broker::Broker;
use mutirao_core::envelope::Control;
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{Verdict, WorkerId};

use crate::stage::{Stage, shell, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resting_worker_finishes_what_runs_gives_back_the_rest_and_stays_until_it_is_told_to_go() {
    let stage = Stage::set_with(|config| config.limits.beat_every = Duration::from_millis(50)).await;
    let go = stage.dir.path().join("go");
    // Two run, the third waits for room.
    stage.hand_out(1, shell(&format!("while ! test -e {}; do sleep 0.02; done", go.display())), 0..3).await;
    stage.wait_running(2).await;
    let resting = || stage.beats().iter().any(|beat| beat.draining);
    while !resting() {
        // Said until it was heard, as a manager does.
        stage.tell(Control { rest: vec![WorkerId("w1".into())], ..Control::default() }).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until("what had not begun is given back", || stage.done().len() == 1).await;
    assert_eq!(stage.done()[0].outcome.verdict, Verdict::Returned);

    stage.hand_out(2, TaskSpec::new(Action::Noop {}), 0..1).await;
    std::fs::write(&go, "").unwrap();
    stage.wait_done(3).await;
    let oks = stage.done().iter().filter(|done| done.outcome.verdict == Verdict::Ok).count();
    assert_eq!(oks, 2, "what ran was finished");
    let drained =
        || stage.beats().iter().rev().take(3).all(|beat| beat.draining && !beat.leaving && beat.held.is_empty());
    until("it says that it has drained", drained).await;
    let beats = stage.beats().len();
    until("it stays", || stage.beats().len() > beats + 3).await;
    assert!(!stage.worker.is_finished());
    let waiting = stage.broker.counts("tasks.default").await.unwrap();
    assert_eq!(waiting.ready, 1, "what came later is left for another");
    stage.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_for_another_worker_changes_nothing() {
    let stage = Stage::set_with(|config| config.limits.beat_every = Duration::from_millis(50)).await;
    until("it is there", || !stage.beats().is_empty()).await;
    stage.tell(Control { rest: vec![WorkerId("w2".into())], ..Control::default() }).await;
    stage.hand_out(1, TaskSpec::new(Action::Noop {}), 0..1).await;
    stage.wait_done(1).await;
    assert!(stage.beats().iter().all(|beat| !beat.draining));
    stage.end().await.unwrap();
}
