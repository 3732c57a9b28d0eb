//! An installation starts, answers, dies, comes back, and leaves nothing.

use std::time::Duration;

use mutirao_testkit::installation::find_binary;
use mutirao_testkit::{Installation, sweep, wait};

/// The binary is another crate's: `./scripts/test` builds it first, a bare `cargo test` of this crate does not.
fn without_binary() -> bool {
    let missing = find_binary().is_none();
    if missing {
        eprintln!("skipped: there is no mutirao binary; run `cargo build -p mutirao`");
    }
    missing
}

#[test]
fn a_killed_installation_comes_back_on_its_address_with_its_workers() {
    if without_binary() {
        return;
    }
    let mut installation = Installation::setup().workers(1).start();
    let (address, token) = (installation.address(), installation.token());
    assert_eq!(installation.request("GET /v1/jobs", b"").status, 200);
    let one_worker = |installation: &Installation| installation.worker_pids().len() == 1;
    assert!(one_worker(&installation));
    installation.kill9_everything();
    assert!(installation.worker_pids().is_empty());
    installation.restart();
    assert_eq!((installation.address(), installation.token()), (address, token));
    assert!(one_worker(&installation));
}

#[test]
fn a_dropped_installation_leaves_no_process_and_no_folder() {
    if without_binary() {
        return;
    }
    let installation = Installation::setup().workers(1).start();
    installation.ok(&["submit", "--", "sleep", "1000"]);
    let folder = installation.data().parent().unwrap().to_path_buf();
    let ours = || sweep::processes().into_iter().filter(|p| sweep::works_in(p.pid, &folder)).collect::<Vec<_>>();
    let sleeps = || ours().iter().any(|p| p.command.first().is_some_and(|program| program.ends_with("sleep")));
    wait::until("the task to run", Duration::from_secs(30), sleeps);
    drop(installation);
    assert!(ours().is_empty(), "{:?}", ours());
    assert!(!folder.exists());
}
