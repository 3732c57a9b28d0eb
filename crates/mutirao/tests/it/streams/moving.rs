//! Replicas that go to another host while they run, and what comes out meanwhile.

use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use serde_json::Value;

use super::apart::Apart;
use super::running::{deploy, health, read, show, written};
use crate::said::{Said, refused};

const LATER: Duration = Duration::from_secs(90);
const WINDOWS: i64 = 60;

/// 6,000 events in 30 seconds, 10 ms of their own time apart, counted and summed in windows of a second.
fn counted(replicas: u32, file_on: &str) -> String {
    format!(
        "\
kind: Stream
name: counted
replicas: {replicas}
snapshot: 1s
sources:
  - name: made
    generator:
      rate: [ {{ for: 30s, rate: 200 }} ]
      fields: {{ n: n, at: time(n * 10000) }}
    time: at
operators:
  - name: counts
    from: made
    window: {{ jump: 1s, by: at }}
    aggregate: {{ events: count(), sum: sum(n) }}
sinks:
  - {{ name: out, from: counts, file: {{ path: out.jsonl }}, host: {file_on} }}
"
    )
}

fn expected_lines() -> String {
    let at = |w: i64| mutirao_streams::time::format(w * 1_000_000).unwrap();
    let line = |w: i64| {
        let (start, end, sum) = (at(w), at(w + 1), (w * 100..(w + 1) * 100).sum::<i64>());
        format!("{{\"start\":\"{start}\",\"end\":\"{end}\",\"events\":100,\"sum\":{sum}}}\n")
    };
    (0..WINDOWS).map(line).collect()
}

fn start(up: &Installation, definition: &str) {
    let said = deploy(up, &[], &written(up, "counted.yaml", definition));
    assert_eq!(said.code, Some(0), "{said:?}");
    let runs = || {
        let parts = parts(up);
        !parts.is_empty() && parts.iter().all(|part| part["state"]["is"] == "running" || part["kind"] == "source")
    };
    wait::until("it to run", LATER, runs);
}

fn parts(up: &Installation) -> Vec<Value> {
    show(up, "counted")["parts"].as_array().unwrap().clone()
}

fn stage(up: &Installation, replica: u64) -> Value {
    parts(up).into_iter().find(|part| part["kind"] == "stage" && part["replica"] == replica).unwrap()
}

fn migrate(up: &Installation, more: &[&str]) -> Said {
    Said::from(up.cli(&[&["stream", "migrate", "counted", "counts"], more].concat()))
}

/// All of it came once, in order.
fn nothing_is_lost_or_doubled(up: &Installation, lines: &std::path::Path) {
    wait::until("its end", LATER, || health(up, "counted") == "ended");
    wait::until("the last line", LATER, || {
        std::fs::read_to_string(lines).is_ok_and(|text| text.lines().count() as i64 >= WINDOWS)
    });
    assert_eq!(std::fs::read_to_string(lines).unwrap(), expected_lines());
}

#[test]
fn a_stage_goes_to_and_fro_while_it_runs_and_no_event_is_lost_or_doubled() {
    let up = Installation::setup().workers(0).set("streams.host", "none").start();
    let lines = Apart::start(&up, "lines", &[]);
    let _others = ["one", "two"].map(|name| Apart::start(&up, name, &[]));
    start(&up, &counted(1, "lines"));
    for _ in 0..3 {
        for to in ["one", "two"] {
            let from = stage(&up, 0)["host"].clone();
            if from == to {
                continue;
            }
            let said = migrate(&up, &["--to", to, "--wait", "1m"]);
            assert_eq!(said.code, Some(0), "{said:?}");
            assert_eq!(said.out.trim(), format!("stage counts, replica 0, is on {to}"));
            assert_eq!(stage(&up, 0)["host"], to);
        }
    }
    let explained = up.ok(&["stream", "explain", "counted"]);
    assert!(explained.contains("it had caught up after"), "{explained}");
    nothing_is_lost_or_doubled(&up, &lines.file("out.jsonl"));
}

#[test]
fn what_cannot_move_is_refused_with_the_reason_and_stays() {
    let up = Installation::setup().workers(0).start();
    let inside = read(&up.ok(&["--json", "stream", "hosts"]))[0]["name"].as_str().unwrap().to_owned();
    let _one = Apart::start(&up, "one", &[]);
    start(&up, &counted(2, &inside));
    let at = |replica| stage(&up, replica)["host"].as_str().unwrap().to_owned();
    let (first, second) = (at(0), at(1));
    for (args, words) in [
        (vec!["--to", "nowhere"], "there is no host of streams \"nowhere\""),
        (vec!["--to", &first], "already"),
        (vec!["--to", &second], "has another replica of it"),
        (vec!["--to", &second, "--replica", "7"], "has replicas 0 to 1"),
    ] {
        let said = migrate(&up, &args);
        assert!(said.err.contains(words) && said.code.is_some_and(|code| code != 0), "{said:?}");
    }
    let sink = Said::from(up.cli(&["stream", "migrate", "counted", "out", "--to", "one"]));
    assert!(sink.err.contains("only stages move while they run"), "{sink:?}");
    let none = Said::from(up.cli(&["stream", "migrate", "counted", "cuonts", "--to", "one"]));
    assert!(none.err.contains("its stages are counts"), "{none:?}");
    assert_eq!((at(0), at(1)), (first, second));
}

/// The manager, the host that it comes from and the one that it goes to, each killed in the middle of moves.
#[test]
fn whoever_is_killed_while_a_stage_moves_it_ends_in_one_of_two_places_and_nothing_is_lost() {
    let mut up = Installation::setup().workers(0).set("streams.host", "none").start();
    let lines = Apart::start(&up, "lines", &[]);
    let mut others = ["one", "two", "three"].map(|name| Some(Apart::start(&up, name, &[])));
    start(&up, &counted(1, "lines"));
    let names = ["lines", "one", "two", "three"];
    let place = |up: &Installation| stage(up, 0)["host"].as_str().unwrap_or("-").to_owned();
    let not_moving = |up: &Installation| stage(up, 0)["moves"].is_null() && stage(up, 0)["host"].is_string();
    let other = |than: &str| names[1..].iter().find(|name| **name != than).copied().unwrap();
    // The manager: who comes back finds the move in its store.
    let from = place(&up);
    let to = other(&from);
    assert_eq!(migrate(&up, &["--to", to]).code, Some(0));
    up.kill9();
    up.restart();
    wait::until("it to come or to stay", LATER, || not_moving(&up));
    assert!([from.as_str(), to].contains(&place(&up).as_str()));
    // The one that it goes to, and then the one that it comes from.
    for kill_target in [true, false] {
        let from = place(&up);
        let alive = |name: &&&str| **name != from && others[name_index(name)].is_some();
        let to = names[1..].iter().find(alive).copied().unwrap();
        assert_eq!(migrate(&up, &["--to", to]).code, Some(0));
        let victim = if kill_target { to } else { from.as_str() };
        if let Some(n) = ["one", "two", "three"].iter().position(|name| *name == victim)
            && let Some(mut host) = others[n].take()
        {
            host.kill9();
        }
        wait::until("it to come or to stay", LATER, || not_moving(&up) && place(&up) != victim);
    }
    nothing_is_lost_or_doubled(&up, &lines.file("out.jsonl"));
}

fn name_index(name: &str) -> usize {
    ["one", "two", "three"].iter().position(|one| *one == name).unwrap()
}

#[test]
fn help_says_how_a_stage_is_moved() {
    let said = crate::said::run(crate::said::mutirao(&["stream", "migrate", "--help"]));
    assert!(said.out.contains("mutirao stream migrate grid means --to"), "{said:?}");
    let bare = crate::said::run(crate::said::mutirao(&["stream", "migrate", "grid", "means"]));
    refused(&bare, 2, &["--to"]);
}
