//! A killed worker's tasks die with it. The worker and its keeper are this test's own binary, started again in a role.

use std::path::Path;
use std::process::{Command, Stdio};

use mutirao_core::SessionId;
use mutirao_worker::{Keeper, keeper};

use crate::stage::{Stage, alive, marker, shell, until};

const MARKER: &str = "KEEPING_MARKER";

#[tokio::test]
async fn killing_a_worker_kills_its_tasks_also_those_that_left_their_group() {
    let marker = marker();
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "keeping::role_worker", "--ignored", "--nocapture"])
        .env(MARKER, &marker)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the tasks", || alive(&marker).len() >= 3).await;
    worker.kill().unwrap();
    worker.wait().unwrap();
    until("the end of the tasks", || alive(&marker).is_empty()).await;
}

#[tokio::test]
async fn a_worker_that_goes_home_takes_its_keeper_along() {
    let stage = Stage::set_with(with_keeper).await;
    let marker = marker();
    stage.outcome(shell(&format!("setsid sh -c 'while :; do sleep 0.1; done' {marker} & sleep 0.1"))).await;
    assert!(!alive(&marker).is_empty());
    let session = stage.session.0.clone();
    assert!(!alive(&session).is_empty());
    stage.end().await.unwrap();
    assert!(alive(&marker).is_empty() && alive(&session).is_empty());
}

fn with_keeper(config: &mut mutirao_worker::Config) {
    let exe = std::env::current_exe().unwrap();
    let args = ["--exact", "keeping::role_keeper", "--ignored"];
    config.keeper = Some(Keeper::start(Path::new(&exe), &args, &config.session).unwrap());
}

#[test]
#[ignore = "a role for other tests, not a test"]
fn role_keeper() {
    // Started by hand or by `--ignored` for all, there is no session to keep.
    let last = std::env::args().next_back().unwrap_or_default();
    if last.len() == 24 {
        keeper::main(&SessionId(last));
    }
}

#[tokio::test]
#[ignore = "a role for other tests, not a test"]
async fn role_worker() {
    let Ok(marker) = std::env::var(MARKER) else { return };
    let stage = Stage::set_with(with_keeper).await;
    stage.hand_out(1, shell(&format!("sh -c 'while :; do sleep 0.1; done' {marker} & wait")), 1..2).await;
    stage.hand_out(2, shell(&format!("setsid sh -c 'while :; do sleep 0.1; done' {marker} & wait")), 1..2).await;
    std::future::pending::<()>().await;
}
