//! What parts remember is damaged, or cannot be had: nothing begins anew that said something before.

use std::sync::atomic::Ordering;

use mutirao_broker::Limits;
use mutirao_streams::wire::{Part, State, What, log_of};

use crate::ends::{append, line, tailed};
use crate::reference;
use crate::world::{LIMITS, World, grid, pause};

/// All snapshots, and what they were.
fn damage(world: &World, what: What) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let folder = world.folder().join("blobs");
    let paths = world.chief.snapshots(what).into_iter().map(|snapshot| folder.join(snapshot.key));
    let damaged = paths.map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        let mut other = bytes.clone();
        let middle = other.len() / 2;
        other[middle] ^= 0xff;
        std::fs::write(&path, other).unwrap();
        (path, bytes)
    });
    damaged.collect()
}

fn is_waiting(world: &World, part: &Part, word: &str) -> bool {
    matches!(world.chief.state_of(part), Some(State::Waiting(why)) if why.contains(word))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_whose_snapshots_are_all_damaged_waits_and_goes_on_when_they_are_back() {
    let mut world = World::of(&tailed("file: { path: out.jsonl }"));
    world.start("a");
    world.chief.place_all(&["a"]);
    let all: Vec<String> = (0..900).map(line).collect();
    append(&world, &all[..500]);
    let source = world.chief.part(What::Source(0), 0);
    let wanted = reference::lines(&world.chief.graph, Some(&all[..500]));
    let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    world.until_lines("out.jsonl", count(&wanted[0]), 30).await;
    pause(2_500).await;
    world.kill("a");
    let before = damage(&world, What::Source(0));
    assert!(!before.is_empty(), "there are snapshots");
    append(&world, &all[500..700]);
    world.start("b");
    world.chief.place_all(&["b"]);
    world.until("the source to wait", 30, |world| is_waiting(world, &source, "--replace")).await;
    append(&world, &all[700..]);
    pause(1_500).await;
    assert_eq!(count(&world.read("out.jsonl")), count(&wanted[0]), "nothing is taken");
    before.into_iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    let wanted = reference::lines(&world.chief.graph, Some(&all));
    world.until_lines("out.jsonl", count(&wanted[0]), 90).await;
    assert_eq!(reference::same(&world.read("out.jsonl"), &wanted[0]), Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_without_a_snapshot_that_reads_well_whose_log_was_shortened_waits() {
    let limits = Limits { segment_bytes: 4 << 10, ..LIMITS };
    let mut world = World::with(&grid(60, 5_000, "1s").replace("replicas: 2", "replicas: 1"), limits);
    world.start("a");
    world.chief.place_all(&["a"]);
    world.until_lines("out.jsonl", 500, 30).await;
    let chief = world.chief.clone();
    let what = What::Stage((chief.graph.stages.len() - 1) as u32);
    let is_far = |_: &World| chief.snapshots(what).get(1).is_some_and(|older| older.offset > 300);
    world.until("two snapshots", 60, is_far).await;
    world.kill("a");
    let log = log_of(&chief.stream, what).unwrap();
    world.broker.trim(&log, chief.snapshots(what)[1].offset).await.unwrap();
    assert!(world.broker.extent(&log).await.unwrap().0 > 0, "it was shortened");
    damage(&world, what);
    world.start("b");
    world.chief.place_all(&["b"]);
    let stage = chief.part(what, 0);
    world.until("the stage to wait", 30, |world| is_waiting(world, &stage, "--replace")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_refused_for_now_is_asked_for_again() {
    let mut world = World::of(&grid(12, 3_000, "1s"));
    ["a", "b"].iter().for_each(|name| world.start(name));
    world.chief.place_all(&["a", "b"]);
    world.until_lines("out.jsonl", 300, 30).await;
    let chief = world.chief.clone();
    let source = chief.part(What::Source(0), 0);
    world.until("a snapshot of the source", 30, |_| !chief.snapshots(What::Source(0)).is_empty()).await;
    ["a", "b"].iter().for_each(|name| world.kill(name));
    world.refuses.store(true, Ordering::SeqCst);
    ["c", "d"].iter().for_each(|name| world.start(name));
    world.chief.place_all(&["c", "d"]);
    world.until("the source to wait", 30, |world| is_waiting(world, &source, "cannot be read now")).await;
    world.refuses.store(false, Ordering::SeqCst);
    world.until_ended(60).await;
    world.check("out.jsonl");
}
