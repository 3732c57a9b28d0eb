//! Nothing goes wrong.

use mutirao_streams::wire::{State, What};

use crate::world::{World, grid, pause};

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_out_is_what_one_place_alone_would_have_written() {
    let mut world = World::of(&grid(3, 10_000, "1s"));
    ["a", "b", "c"].iter().for_each(|name| world.start(name));
    world.chief.place_all(&["a", "b", "c"]);
    world.until_ended(30).await;
    world.check("out.jsonl");
    let chief = &world.chief;
    let stage = chief.report(&chief.part(What::Stage(0), 0)).unwrap();
    assert!(stage.snapshot.is_some() && stage.next > 0, "{stage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_second_says_how_long_events_took_and_what_that_cost() {
    let mut world = World::of(&grid(8, 5_000, "1s"));
    ["a", "b"].iter().for_each(|name| world.start(name));
    world.chief.place_all(&["a", "b"]);
    let chief = world.chief.clone();
    let stage = chief.part(What::Stage(0), 0);
    world
        .until("measures of a stage", 20, |_| {
            let Some(report) = chief.report(&stage) else { return false };
            let seen = report.measures;
            seen.events_in > 1_000
                && seen.events_out > 0
                && seen.cpu > 0.0
                && seen.latency_us_mean > 0
                && seen.latency_us_p95 >= seen.latency_us_mean / 2
                && seen.wait_us_mean + seen.service_us_mean <= seen.latency_us_mean + 2
                && seen.network_bytes > 0
        })
        .await;
    world.until_ended(30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_paused_takes_nothing_and_goes_on_where_it_was() {
    let mut world = World::of(&grid(4, 5_000, "1s"));
    world.start("a");
    world.start("b");
    world.chief.place_all(&["a", "b"]);
    world.until_lines("out.jsonl", 10, 20).await;
    world.chief.pause(true);
    pause(2_500).await;
    let before = world.read("out.jsonl").len();
    pause(1_500).await;
    assert_eq!(world.read("out.jsonl").len(), before);
    world.chief.pause(false);
    world.until_ended(30).await;
    world.check("out.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_stopped_leaves_what_it_remembers_and_another_goes_on_from_there() {
    let mut world = World::of(&grid(6, 5_000, "1h").replace("replicas: 2", "replicas: 1"));
    world.start("a");
    world.chief.place_all(&["a"]);
    world.until_lines("out.jsonl", 500, 20).await;
    world.stop("a").await;
    let stage = world.chief.report(&world.chief.part(What::Stage(0), 0)).unwrap();
    let left = stage.snapshot.clone().expect("a snapshot was left");
    assert_eq!(left.offset, stage.next);
    world.start("b");
    world.chief.place_all(&["b"]);
    world.until_ended(30).await;
    world.check("out.jsonl");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_cannot_be_read_is_said_and_hurts_no_other_part() {
    let mut world = World::of(
        "kind: Stream\nname: x\nschema: { n: int }\nsources:\n  - { name: f, file: { path: ../out } }\nsinks:\n  - { name: s, from: f, stdout: {} }\n",
    );
    world.start("a");
    world.chief.place_all(&["a"]);
    let source = world.chief.part(What::Source(0), 0);
    world
        .until("a refusal", 10, |world| {
            matches!(world.chief.state_of(&source), Some(State::Waiting(why)) if why.contains("streams.files=anywhere"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_was_paused_says_the_same_again_after_a_crash() {
    let mut world = World::of(
        "\
kind: Stream
name: paused
sources:
  - name: made
    generator: { rate: [ { for: 12s, rate: 200 } ], fields: { n: n, at: at } }
sinks:
  - { name: out, from: made, file: { path: out.jsonl } }
",
    );
    world.start("a");
    world.chief.place_all(&["a"]);
    world.until_lines("out.jsonl", 400, 30).await;
    world.chief.pause(true);
    pause(5_000).await;
    let lines = |world: &World| world.read("out.jsonl").iter().filter(|byte| **byte == b'\n').count();
    let before = lines(&world);
    world.chief.pause(false);
    world.until_lines("out.jsonl", before + 1, 30).await;
    world.kill("a");
    world.start("b");
    world.chief.place_all(&["b"]);
    world.until_ended(60).await;
    let text = String::from_utf8(world.read("out.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let at = |row: &serde_json::Value| mutirao_streams::time::parse(row["at"].as_str().unwrap()).unwrap();
    assert_eq!(rows.len(), 2_400);
    let gaps: Vec<i64> = rows.windows(2).map(|pair| at(&pair[1]) - at(&pair[0])).collect();
    // The pause is one gap at most: after it each comes 5 ms after the one before.
    let others: Vec<&i64> = gaps.iter().filter(|gap| **gap != 5_000).collect();
    assert!(others.len() <= 1 && others.iter().all(|gap| **gap >= 5_000), "{others:?}");
}
