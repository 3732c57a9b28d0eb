//! Output: short, long, too long, binary, live, and when it cannot be sent.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_core::limits::TAIL_BYTES_MAX;
use mutirao_core::{JobKey, Verdict};

use crate::stage::{Stage, command, shell, until};

const STDOUT: &str = "1/3-1/stdout";

fn key(job: u64) -> String {
    format!("logs/{}/{STDOUT}", JobKey(job))
}

#[tokio::test]
async fn binary_output_is_kept_byte_for_byte() {
    let stage = Stage::set().await;
    let outcome = stage.outcome(shell(r"printf '\000\377\200\n\001'")).await;
    assert_eq!(outcome.stdout.tail, [0, 255, 128, b'\n', 1]);
}

#[tokio::test]
async fn an_output_longer_than_its_tail_is_whole_in_the_blobs() {
    let stage = Stage::set().await;
    let outcome = stage.outcome(command(&["seq", "1", "30000"])).await;
    let whole: String = (1..=30000).map(|n| format!("{n}\n")).collect();
    assert_eq!(outcome.stdout.bytes, whole.len() as u64);
    assert!(outcome.stdout.in_blobs && !outcome.stdout.truncated);
    assert_eq!(outcome.stdout.tail, &whole.as_bytes()[whole.len() - TAIL_BYTES_MAX..]);
    let blob = stage.blobs.get(&key(900)).unwrap();
    assert_eq!(blob.start, whole.as_bytes());
}

#[tokio::test]
async fn two_hundred_megabytes_are_cut_with_a_marker_and_never_held_in_memory() {
    let stage = Stage::set().await;
    let before = memory_peak_kib();
    let outcome = stage.outcome(shell("head -c 200000000 /dev/zero; echo; echo the end")).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    assert_eq!(outcome.stdout.bytes, 200_000_009);
    assert!(outcome.stdout.truncated && outcome.stdout.in_blobs);
    assert!(outcome.stdout.tail.len() <= TAIL_BYTES_MAX && outcome.stdout.tail.ends_with(b"the end\n"));
    let marker = b"\n[mutirao: output cut after 64MiB]\n";
    let blob = stage.blobs.get(&key(900)).unwrap();
    assert_eq!(blob.len, (64 << 20) + marker.len() as u64);
    assert!(blob.end.ends_with(marker));
    let grown = memory_peak_kib() - before;
    assert!(grown < 48 << 10, "grew by {grown} KiB");
}

fn memory_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[tokio::test]
async fn a_running_task_can_be_read_along() {
    let stage = Stage::set().await;
    stage.hand_out(1, shell("echo one; sleep 1; echo two; sleep 30"), 1..2).await;
    let read = || stage.blobs.get(&key(1)).map(|blob| String::from_utf8(blob.start).unwrap()).unwrap_or_default();
    until("the first line", || read() == "one\n").await;
    until("the second line", || read() == "one\ntwo\n").await;
    assert!(stage.done().is_empty());
    stage.stopper.now();
    let done = stage.wait_done(1).await;
    assert_eq!(done[0].outcome.verdict, Verdict::Returned);
    assert!(done[0].outcome.stdout.in_blobs);
}

#[tokio::test]
async fn uploads_are_tried_again_and_the_outcome_waits_for_them() {
    let stage = Stage::set().await;
    stage.blobs.away.store(true, Ordering::SeqCst);
    stage.hand_out(1, command(&["seq", "1", "30000"]), 1..2).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(stage.done().is_empty());
    // Waiting for blobs takes no capacity: others run meanwhile.
    stage.hand_out(2, command(&["true"]), 1..9).await;
    stage.wait_done(8).await;
    stage.blobs.away.store(false, Ordering::SeqCst);
    let done = stage.wait_done(9).await;
    assert!(done[8].outcome.stdout.in_blobs && done[8].outcome.reason.is_none());
    assert_eq!(stage.blobs.get(&key(1)).unwrap().len, done[8].outcome.stdout.bytes);
}

#[tokio::test]
async fn an_outcome_does_not_wait_for_blobs_for_ever() {
    let stage = Stage::set_with(|config| config.limits.upload_wait_max = Duration::from_millis(200)).await;
    stage.blobs.away.store(true, Ordering::SeqCst);
    let outcome = stage.outcome(command(&["seq", "1", "30000"])).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    assert!(!outcome.stdout.in_blobs && outcome.stdout.truncated);
    assert!(outcome.stdout.tail.ends_with(b"30000\n"));
    assert!(outcome.reason.unwrap().contains("output is incomplete"));
}

#[tokio::test]
async fn a_background_process_that_keeps_the_pipe_does_not_keep_the_task() {
    let stage = Stage::set().await;
    let outcome = stage.outcome(shell("sleep 600 & echo started")).await;
    assert_eq!((outcome.verdict, &outcome.stdout.tail[..]), (Verdict::Ok, &b"started\n"[..]));
    assert!(outcome.usage.wall_us < 30_000_000);
}

#[tokio::test]
async fn a_full_spool_cuts_the_output_and_the_task_goes_on() {
    let stage = Stage::set().await;
    until("the worker", || !stage.beats().is_empty()).await;
    // Without its folder nothing can be spooled, as on a disk without room for another file.
    std::fs::remove_dir(stage.dir.path().join("spool")).unwrap();
    let outcome = stage.outcome(command(&["seq", "1", "30000"])).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    assert!(outcome.stdout.truncated && !outcome.stdout.in_blobs && outcome.stdout.tail.ends_with(b"30000\n"));
}
