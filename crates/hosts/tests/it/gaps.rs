//! A log whose end cannot be read whole.

use bytes::Bytes;
use mutirao_streams::mark::Origin;
use mutirao_streams::part::{PartCore, SourceCore};
use mutirao_streams::wire::State;

use crate::world::World;

const TEXT: &str = "\
kind: Stream
name: gap
schema: { n: int }
sources:
  - { name: in, http: {} }
operators:
  - { name: some, from: in, filter: n >= 0, replicas: 2 }
sinks:
  - { name: out, from: some, file: { path: out.jsonl } }
";

/// What a replica of the stage says of two events, a record each.
fn records(world: &World) -> [Bytes; 2] {
    let graph = &world.chief.graph;
    let mut source = SourceCore::of(graph, 0, Origin::Free(1));
    let mut stage = PartCore::of(graph, 0, 0).unwrap();
    let mut offset = 0;
    [1, 2].map(|n| {
        source.message(format!("{{\"n\": {n}}}").as_bytes(), n);
        for said in source.cut(n) {
            stage.hear(offset, &said.bytes, n).unwrap();
            offset += 1;
        }
        Bytes::from(stage.cut(n).remove(0).bytes)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_waits_at_a_gap_behind_which_nothing_comes_says_so_until_it_is_filled() {
    let mut world = World::of(TEXT);
    let ([first, second], sink) = (records(&world), world.sink());
    let log = sink.log().unwrap();
    world.broker.append(&log, vec![second]).await.unwrap();
    world.start("a");
    world.chief.place(&sink, "a");
    let waits = |world: &World| match world.chief.state_of(&sink) {
        Some(State::Waiting(why)) => why.contains("one event of some cannot be read in its log"),
        _ => false,
    };
    world.until("it to say what it waits for", 30, waits).await;
    assert!(world.read("out.jsonl").is_empty());
    world.broker.append(&log, vec![first]).await.unwrap();
    world.until_lines("out.jsonl", 2, 30).await;
    world.until("it to be well", 30, |world| world.chief.state_of(&sink) == Some(State::Running)).await;
    assert_eq!(world.read("out.jsonl"), b"{\"n\":1}\n{\"n\":2}\n");
}
