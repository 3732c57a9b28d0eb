//! Things go wrong while events flow, and the file is the same to the byte.

use mutirao_core::blobs::Blobs;
use mutirao_streams::wire::What;

use crate::world::{World, grid, pause};

/// The hosts on which everything runs, and one that stands by.
async fn flowing(seconds: u32, rate: u32, snapshot: &str) -> World {
    let mut world = World::of(&grid(seconds, rate, snapshot));
    ["a", "b", "c"].iter().for_each(|name| world.start(name));
    world.chief.place_all(&["a", "b", "c"]);
    world.until_lines("out.jsonl", 100, 30).await;
    world
}

fn replace(world: &mut World, gone: &str, by: &str) {
    world.start(by);
    for part in world.chief.parts_of(gone) {
        world.chief.place(&part, by);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_host_may_be_killed() {
    let mut world = flowing(10, 5_000, "1s").await;
    for (gone, by) in [("a", "d"), ("b", "e"), ("c", "f")] {
        world.kill(gone);
        pause(700).await;
        replace(&mut world, gone, by);
        pause(1_300).await;
    }
    world.until_ended(60).await;
    world.check("out.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_hosts_may_be_killed_at_once() {
    let mut world = flowing(8, 5_000, "1s").await;
    ["a", "b", "c"].iter().for_each(|name| world.kill(name));
    for (gone, by) in [("a", "d"), ("b", "e"), ("c", "f")] {
        replace(&mut world, gone, by);
    }
    world.until_ended(60).await;
    world.check("out.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_cut_off_goes_on_when_it_is_back_and_one_that_was_replaced_hurts_nobody() {
    let mut world = flowing(12, 4_000, "1s").await;
    world.cut_off("b");
    pause(2_000).await;
    world.heal("b");
    pause(1_000).await;
    // Replaced while cut off, by one that takes its place: it comes back, and learns that it has nothing to do.
    world.cut_off("a");
    pause(500).await;
    replace(&mut world, "a", "d");
    pause(2_000).await;
    world.heal("a");
    world.until_ended(60).await;
    world.check("out.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_manager_is_away_events_flow() {
    let world = flowing(6, 5_000, "1s").await;
    ["a", "b", "c"].iter().for_each(|name| world.chief.deaf_to(name, true));
    let lines = world.read("out.jsonl").len();
    pause(3_000).await;
    assert!(world.read("out.jsonl").len() > lines);
    ["a", "b", "c"].iter().for_each(|name| world.chief.deaf_to(name, false));
    world.until_ended(60).await;
    world.check("out.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_was_damaged_is_passed_over() {
    let mut world = flowing(10, 5_000, "1s").await;
    let chief = world.chief.clone();
    let window = What::Stage((chief.graph.stages.len() - 1) as u32);
    world.until("two snapshots", 20, |_| chief.snapshots(window).len() == 2).await;
    // Each host that has a replica goes, and the newest snapshot cannot be read.
    let newest = chief.snapshots(window)[0].clone();
    let bytes = world.blobs.read(&newest.key, 0, 1 << 20).await.unwrap();
    let folder = world.folder().join("blobs").join(&newest.key);
    let mut damaged = bytes.to_vec();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    ["a", "b", "c"].iter().for_each(|name| world.kill(name));
    assert!(folder.exists(), "{}", folder.display());
    std::fs::write(&folder, damaged).unwrap();
    for (gone, by) in [("a", "d"), ("b", "e"), ("c", "f")] {
        replace(&mut world, gone, by);
    }
    world.until_ended(60).await;
    world.check("out.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_snapshot_it_begins_with_its_log() {
    let mut world = flowing(8, 5_000, "1h").await;
    world.kill("b");
    world.kill("c");
    replace(&mut world, "b", "e");
    replace(&mut world, "c", "f");
    world.until_ended(60).await;
    world.check("out.jsonl");
}
