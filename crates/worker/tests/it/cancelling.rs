//! Stopping tasks: in time, by cancel, and when the worker goes home.

use std::time::Duration;

use mutirao_core::envelope::Control;
use mutirao_core::quantity::Span;
use mutirao_core::{JobKey, TaskKey, Verdict};

use crate::stage::{Stage, alive, marker, shell, until};

#[tokio::test]
async fn a_task_out_of_time_gets_a_sigterm_and_may_say_goodbye() {
    let stage = Stage::set().await;
    let mut spec = shell("trap 'echo bye; exit 9' TERM; echo hello; while :; do sleep 0.02; done");
    spec.timeout = Some(Span(Duration::from_millis(300)));
    let outcome = stage.outcome(spec).await;
    assert_eq!((outcome.verdict, outcome.exit), (Verdict::TimedOut, Some(9)));
    assert_eq!(outcome.reason.as_deref(), Some("ran longer than its 300ms"));
    assert!(outcome.stdout.tail.ends_with(b"bye\n"));
}

#[tokio::test]
async fn a_task_that_ignores_sigterm_is_killed_after_its_grace() {
    let stage = Stage::set().await;
    let mut spec = shell("trap '' TERM; while :; do sleep 0.05; done");
    spec.timeout = Some(Span(Duration::from_millis(100)));
    spec.grace = Span(Duration::from_millis(300));
    let outcome = stage.outcome(spec).await;
    assert_eq!((outcome.verdict, outcome.signal), (Verdict::TimedOut, Some(9)));
    assert!(outcome.usage.wall_us >= 400_000, "{:?}", outcome.usage);
}

#[tokio::test]
async fn grandchildren_die_with_their_task_also_those_that_left_its_group() {
    let stage = Stage::set().await;
    let marker = marker();
    let mut spec = shell(&format!(
        "trap '' TERM; for i in 1 2 3; do sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' {marker} & done; \
         setsid sh -c 'while :; do sleep 0.1; done' {marker} & wait"
    ));
    spec.timeout = Some(Span(Duration::from_millis(500)));
    spec.grace = Span(Duration::from_millis(100));
    stage.hand_out(1, spec, 1..2).await;
    until("the tree", || alive(&marker).len() >= 5).await;
    assert_eq!(stage.wait_done(1).await[0].outcome.verdict, Verdict::TimedOut);
    until("the end of the tree", || alive(&marker).is_empty()).await;
}

#[tokio::test]
async fn what_is_left_of_a_group_ends_with_its_leader() {
    let stage = Stage::set().await;
    let marker = marker();
    let outcome = stage.outcome(shell(&format!("sh -c 'while :; do sleep 0.1; done' {marker} & exit 0"))).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    until("the end of the group", || alive(&marker).is_empty()).await;
}

#[tokio::test]
async fn a_cancel_reaches_what_runs_and_what_waits_and_nothing_else() {
    let stage = Stage::set().await;
    stage.hand_out(1, shell("sleep 600"), 1..5).await;
    stage.wait_running(2).await;
    stage.hand_out(2, shell("true"), 1..2).await;
    let one = TaskKey { job: JobKey(1), index: 4 };
    stage.tell(Control { cancel_tasks: vec![one], ..Control::default() }).await;
    let done = stage.wait_done(1).await;
    assert_eq!((done[0].task, done[0].outcome.verdict), (one, Verdict::Cancelled));
    stage.tell(Control { cancel_jobs: vec![JobKey(1)], ..Control::default() }).await;
    let done = stage.wait_done(5).await;
    for done in done {
        let expected = if done.task.job == JobKey(1) { Verdict::Cancelled } else { Verdict::Ok };
        assert_eq!(done.outcome.verdict, expected, "{done:?}");
    }
}

#[tokio::test]
async fn a_drain_finishes_what_runs_and_gives_back_what_waits() {
    let stage = Stage::set().await;
    stage.hand_out(1, shell("sleep 1; echo finished"), 1..5).await;
    stage.wait_running(2).await;
    let heard = stage.heard.clone();
    stage.end().await.unwrap();
    let reports = heard.lock().unwrap().clone();
    let verdicts: Vec<_> = reports.iter().flat_map(|r| r.done.iter().map(|done| done.outcome.verdict)).collect();
    assert_eq!(verdicts, [Verdict::Returned, Verdict::Returned, Verdict::Ok, Verdict::Ok]);
    let last = reports.last().unwrap().beat.as_ref().unwrap();
    assert!(last.leaving && last.draining && last.held.is_empty());
}

#[tokio::test]
async fn now_stops_what_runs_and_gives_it_back() {
    let stage = Stage::set_with(|config| config.limits.stop_grace_max = Duration::from_millis(200)).await;
    let mut patient = shell("trap '' TERM; while :; do sleep 0.05; done");
    patient.grace = Span(Duration::from_secs(3600));
    stage.hand_out(1, patient, 1..2).await;
    stage.wait_running(1).await;
    stage.stopper.now();
    let done = stage.wait_done(1).await;
    assert_eq!(done[0].outcome.verdict, Verdict::Returned);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn the_manager_can_send_one_session_home() {
    let stage = Stage::set().await;
    stage.tell(Control { drain: vec![mutirao_core::SessionId("another".into())], ..Control::default() }).await;
    until("a beat", || !stage.beats().is_empty()).await;
    assert!(!stage.worker.is_finished());
    until("the end", || {
        let control = Control { drain: vec![stage.session.clone()], ..Control::default() };
        let body = mutirao_core::envelope::seal(&control);
        announce(&stage, body);
        stage.worker.is_finished()
    })
    .await;
}

/// Control words are repeated while they matter, so the test repeats them too.
fn announce(stage: &Stage, body: bytes::Bytes) {
    let broker = stage.broker.clone();
    tokio::spawn(async move {
        use mutirao_broker::Broker;
        let _ = broker.announce("control.default", body).await;
    });
}
