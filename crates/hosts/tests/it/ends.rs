//! Sources and sinks.

use std::io::Write;

use mutirao_streams::wire::State;

use crate::reference;
use crate::world::{World, pause};

pub fn tailed(sink: &str) -> String {
    format!(
        "\
kind: Stream
name: tailed
schema: {{ n: int, key: text }}
sources:
  - name: lines
    file: {{ path: in.jsonl, start: beginning }}
operators:
  - name: some
    from: lines
    filter: n % 3 != 0
sinks:
  - name: out
    from: some
    {sink}
  - name: unfit
    from: lines.unfit
    file: {{ path: unfit.jsonl }}
"
    )
}

pub fn line(n: usize) -> String {
    match n % 50 {
        17 => format!("{{\"n\": \"{n}\", \"key\": \"a\"}}"),
        18 => "rubbish".to_owned(),
        _ => format!("{{\"n\": {n}, \"key\": \"k{}\"}}", n % 7),
    }
}

pub fn append(world: &World, lines: &[String]) {
    let mut file = std::fs::File::options().create(true).append(true).open(world.file("in.jsonl")).unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_file_are_each_taken_once_while_hosts_are_killed_and_what_does_not_fit_comes_out_too() {
    let mut world = World::of(&tailed("file: { path: out.jsonl }"));
    world.start("a");
    world.chief.place_all(&["a"]);
    let all: Vec<String> = (0..6_000).map(line).collect();
    for (n, some) in all.chunks(1_000).enumerate() {
        append(&world, some);
        pause(400).await;
        if n % 2 == 1 {
            let (gone, by) = (format!("{}", (b'a' + n as u8 / 2) as char), format!("{}", (b'b' + n as u8 / 2) as char));
            world.kill(&gone);
            world.start(&by);
            world.chief.place_all(&[&by]);
        }
    }
    let wanted = reference::lines(&world.chief.graph, Some(&all));
    let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    world.until_lines("out.jsonl", count(&wanted[0]), 30).await;
    world.until_lines("unfit.jsonl", count(&wanted[1]), 30).await;
    assert_eq!(reference::same(&world.read("out.jsonl"), &wanted[0]), Ok(()));
    assert_eq!(reference::same(&world.read("unfit.jsonl"), &wanted[1]), Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_whose_file_is_missing_waits_for_it() {
    let mut world = World::of(&tailed("file: { path: out.jsonl }"));
    world.start("a");
    world.chief.place_all(&["a"]);
    let source = world.chief.part(mutirao_streams::wire::What::Source(0), 0);
    world
        .until(
            "the source to say that it waits",
            10,
            |world| matches!(world.chief.state_of(&source), Some(State::Waiting(why)) if why.contains("is not there")),
        )
        .await;
    append(&world, &[line(1)]);
    world.until_lines("out.jsonl", 1, 15).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_whose_other_side_is_away_says_so_and_each_row_counts_once_in_the_end() {
    let mut world = World::of(&tailed("kv: { key: 'x/{key}', value: n }"));
    world.start("a");
    world.chief.place_all(&["a"]);
    append(&world, &(0..500).map(line).collect::<Vec<_>>());
    world.until("the first rows", 15, |world| !world.chief.items().is_empty()).await;
    world.chief.away(true);
    append(&world, &(500..1_000).map(line).collect::<Vec<_>>());
    let sink = world.sink();
    world
        .until(
            "the sink to say that it waits",
            10,
            |world| matches!(world.chief.state_of(&sink), Some(State::Waiting(why)) if why.contains("away")),
        )
        .await;
    world.kill("a");
    world.start("b");
    world.chief.place_all(&["b"]);
    pause(1_500).await;
    world.chief.away(false);
    let wanted: Vec<i64> = (0..1_000).filter(|n| n % 3 != 0 && !matches!(n % 50, 17 | 18)).collect();
    world.until("all rows", 30, |world| world.chief.items().len() >= wanted.len()).await;
    let items = world.chief.items();
    let found: Vec<i64> = items.iter().filter_map(|item| item.value.as_i64()).collect();
    assert_eq!(found, wanted, "in their order, each once");
    assert_eq!(items[0].key.as_deref(), Some("x/k1"));
}
