//! Streams as a user meets them: deployed, looked at, pushed to, tapped, paused, replaced and deleted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use serde_json::{Value, json};

use crate::said::{Said, refused};

/// Hosts beat each second, and what they hear takes them a moment.
pub const SOON: Duration = Duration::from_secs(30);

pub fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A definition in a file beside the installation.
pub fn written(up: &Installation, name: &str, text: &str) -> PathBuf {
    let file = up.data().join(name);
    std::fs::write(&file, text).unwrap();
    file
}

pub fn deploy(up: &Installation, more: &[&str], file: &Path) -> Said {
    Said::from(up.cli(&[&["stream", "deploy"], more, &[file.to_str().unwrap()]].concat()))
}

pub fn show(up: &Installation, name: &str) -> Value {
    read(&up.ok(&["--json", "stream", "show", name]))
}

pub fn health(up: &Installation, name: &str) -> String {
    show(up, name)["health"].as_str().unwrap_or_default().to_owned()
}

/// Lines that a sink of kind file has written.
pub fn lines(up: &Installation, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(up.data().join("files").join(file)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(read).collect()
}

/// 600 events, 10 ms of their own time apart, made in a few seconds: windows of a second have 100 each, of which the filter
/// leaves the even ones.
pub fn counting(name: &str, out: &str, rate: u32, more: &str) -> String {
    format!(
        "\
kind: Stream
name: {name}
sources:
  - name: made
    generator:
      rate: [ {{ for: {}s, rate: {rate} }} ]
      fields: {{ n: n, at: time(n * 10000), key: text(n % 3) }}
    time: at
operators:
  - name: even
    from: made
    filter: n % 2 == 0
  - name: counts
    from: even
    window: {{ jump: 1s, by: at }}
    aggregate: {{ events: count(), sum: sum(n){more} }}
sinks:
  - name: out
    from: counts
    file: {{ path: {out} }}
",
        600 / rate
    )
}

/// What [`counting`] must come to.
pub fn counted() -> Vec<Value> {
    let window = |n: i64| {
        let sum: i64 = (0..100).map(|i| n * 100 + i).filter(|i| i % 2 == 0).sum();
        let at = |second: i64| format!("1970-01-01T00:00:0{second}Z");
        json!({"start": at(n), "end": at(n + 1), "events": 50, "sum": sum})
    };
    (0..6).map(window).collect()
}

#[test]
fn a_stream_is_deployed_runs_to_its_end_and_the_same_again_changes_nothing() {
    let up = Installation::setup().workers(0).start();
    let file = written(&up, "counting.yaml", &counting("counting", "out.jsonl", 200, ""));
    let said = deploy(&up, &[], &file);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("stream counting is deployed"), "{said:?}");
    wait::until("the windows in the file", SOON, || lines(&up, "out.jsonl").len() >= 6);
    assert_eq!(lines(&up, "out.jsonl"), counted());
    wait::until("its end", SOON, || health(&up, "counting") == "ended");
    let id = show(&up, "counting")["id"].clone();
    let again = written(&up, "again.yaml", &format!("# the same\n{}", counting("counting", "out.jsonl", 200, "")));
    let said = deploy(&up, &[], &again);
    assert!(said.code == Some(0) && said.out.contains("as it is already"), "{said:?}");
    let view = show(&up, "counting");
    assert_eq!((&view["id"], view["parts"].as_array().unwrap().len()), (&id, 4), "{view}");
    assert_eq!(lines(&up, "out.jsonl"), counted());
    let list = up.ok(&["stream", "list"]);
    assert!(list.contains("counting") && list.contains("ended"), "{list}");
    let explained = up.ok(&["stream", "explain", "counting"]);
    assert!(explained.contains("the only host") && explained.contains("deploy"), "{explained}");
    let hosts = read(&up.ok(&["--json", "stream", "hosts"]));
    assert_eq!((&hosts[0]["standing"], &hosts[0]["alive"]), (&json!("inside"), &json!(true)), "{hosts}");
}

#[test]
fn one_that_says_something_else_takes_the_place_only_when_asked_to() {
    let up = Installation::setup().workers(0).start();
    let file = written(&up, "a.yaml", &counting("counting", "first.jsonl", 10, ""));
    assert_eq!(deploy(&up, &[], &file).code, Some(0));
    let first = show(&up, "counting")["id"].clone();
    let other = written(&up, "b.yaml", &counting("counting", "second.jsonl", 200, ", most: max(n)"));
    let said = deploy(&up, &[], &other);
    refused(&said, 2, &["b.yaml: ", "says something else", "--replace"]);
    assert_eq!(show(&up, "counting")["id"], first);
    let said = deploy(&up, &["--replace"], &other);
    assert!(said.code == Some(0) && said.out.contains("takes the place"), "{said:?}");
    assert_ne!(show(&up, "counting")["id"], first);
    wait::until("the windows of the other", SOON, || lines(&up, "second.jsonl").len() >= 6);
    assert_eq!(lines(&up, "second.jsonl")[1]["most"], json!(198));
    let apply = Said::from(up.cli(&["apply", "-f", file.to_str().unwrap()]));
    refused(&apply, 2, &["a.yaml: ", "says something else"]);
}

#[test]
fn what_is_paused_takes_nothing_and_goes_on_where_it_was() {
    let up = Installation::setup().workers(0).start();
    let file = written(&up, "slow.yaml", &counting("slow", "slow.jsonl", 50, ""));
    assert_eq!(deploy(&up, &[], &file).code, Some(0));
    wait::until("the first window", SOON, || !lines(&up, "slow.jsonl").is_empty());
    up.ok(&["stream", "pause", "slow"]);
    wait::until("the pause", SOON, || health(&up, "slow") == "paused");
    let source = |up: &Installation| {
        let view = show(up, "slow");
        view["parts"][0]["measures"]["events_out"].as_u64().unwrap()
    };
    wait::until("the source to rest", SOON, || source(&up) == 0);
    let before = lines(&up, "slow.jsonl").len();
    assert!(before < 6, "it ended before it was paused");
    up.ok(&["stream", "resume", "slow"]);
    wait::until("the rest", SOON, || lines(&up, "slow.jsonl").len() >= 6);
    assert_eq!(lines(&up, "slow.jsonl"), counted());
}

/// Files below a folder, by their paths.
pub fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(below(&path)),
            path => found.push(path),
        }
    }
    found
}

#[test]
fn nothing_is_left_of_a_stream_that_is_deleted() {
    let up = Installation::setup().workers(0).start();
    let file = written(&up, "gone.yaml", &counting("gone", "gone.jsonl", 50, ""));
    assert_eq!(deploy(&up, &[], &file).code, Some(0));
    let id = show(&up, "gone")["id"].as_str().unwrap().to_owned();
    let traces = || -> Vec<PathBuf> {
        let all = below(up.data()).into_iter();
        all.filter(|path| path.strip_prefix(up.data()).unwrap().to_string_lossy().contains(&id)).collect()
    };
    let snapshots = || traces().iter().any(|path| path.to_string_lossy().contains("blobs/streams"));
    wait::until("logs and snapshots", SOON, || snapshots() && !lines(&up, "gone.jsonl").is_empty());
    up.ok(&["stream", "delete", "gone"]);
    let said = Said::from(up.cli(&["stream", "show", "gone"]));
    refused(&said, 3, &["there is no stream \"gone\"", "mutirao stream list"]);
    wait::until("nothing to be left", SOON, || traces().is_empty());
    assert!(!lines(&up, "gone.jsonl").is_empty(), "what it wrote is the user's");
    assert_eq!(deploy(&up, &[], &file).code, Some(0), "its name is free");
}

#[test]
fn events_are_pushed_and_tapped_and_what_does_not_fit_is_counted() {
    let up = Installation::setup().workers(0).start();
    let text = "\
kind: Stream
name: pushed
schema: { k: int, v: float }
sources:
  - { name: in, http: {} }
operators:
  - { name: double, from: in, add: { twice: v * 2 } }
sinks:
  - { name: kept, from: double, kv: { key: 'pushed/{k}', value: twice } }
  - { name: odd, from: in.unfit, file: { path: odd.jsonl } }
";
    let file = written(&up, "pushed.yaml", text);
    assert_eq!(deploy(&up, &[], &file).code, Some(0));
    let events = written(&up, "events.jsonl", "{\"k\": 1, \"v\": 1.5}\n{\"k\": 2, \"v\": 2}\n{\"k\": \"x\"}\n");
    let said = Said::from(up.cli(&["stream", "push", "pushed", "in", events.to_str().unwrap()]));
    assert!(said.code == Some(0) && said.out.contains("2 events taken; 1 event did not fit"), "{said:?}");
    let kept = |key: &str| Said::from(up.cli(&["kv", "get", key])).out.trim().to_owned();
    wait::until("the keys", SOON, || kept("pushed/2") == "4.0" || kept("pushed/2") == "4");
    assert_eq!(read(&kept("pushed/1")), json!(3.0));
    wait::until("the other", SOON, || lines(&up, "odd.jsonl").len() == 1);
    let tapped = up.ok(&["stream", "tap", "pushed", "double", "--from", "0", "--count", "2"]);
    let tapped: Vec<Value> = tapped.lines().map(read).collect();
    assert_eq!(tapped, [json!({"k": 1, "v": 1.5, "twice": 3.0}), json!({"k": 2, "v": 2.0, "twice": 4.0})]);
    let said = Said::from(up.cli(&["stream", "tap", "pushed", "nothing"]));
    refused(&said, 3, &["\"nothing\" cannot be tapped", "in, in.unfit, double"]);
    let said = Said::from(up.cli(&["stream", "push", "pushed", "out", events.to_str().unwrap()]));
    refused(&said, 3, &["has no source \"out\"", "there is in"]);
    let nothing = written(&up, "nothing.jsonl", " \n");
    let said = Said::from(up.cli(&["stream", "push", "pushed", "in", nothing.to_str().unwrap()]));
    refused(&said, 2, &["nothing.jsonl: there is nothing in it"]);
    let array = up.request("POST /v1/streams/pushed/sources/in", br#"[{"k": 3, "v": 1}, {"k": 4, "v": 1}]"#);
    assert_eq!((array.status, read(&array.text())), (202, json!({"taken": 2, "unfit": 0})));
    up.ok(&["stream", "pause", "pushed"]);
    let said = Said::from(up.cli(&["stream", "push", "pushed", "in", events.to_str().unwrap()]));
    refused(&said, 1, &["is paused", "mutirao stream resume pushed"]);
}

#[test]
fn a_bad_definition_is_refused_with_its_place_by_the_command_and_by_the_api() {
    let up = Installation::setup().workers(0).start();
    let good = counting("good", "good.jsonl", 200, "");
    let bad = format!("kind: Queue\nname: q\n---\n{}", good.replace("n % 2 == 0", "m % 2 == 0"));
    let file = written(&up, "bad.yaml", &bad);
    let line = 1 + bad.lines().position(|line| line.contains("m % 2")).unwrap();
    let said = deploy(&up, &[], &file);
    refused(&said, 2, &[&format!("bad.yaml:{line}:"), "there is no field \"m\""]);
    let apply = Said::from(up.cli(&["apply", "-f", file.to_str().unwrap()]));
    refused(&apply, 2, &["bad.yaml, document 2: ", &format!("{line}:"), "there is no field \"m\""]);
    let queues = up.ok(&["--json", "queue", "list"]);
    assert!(!queues.contains("\"q\""), "nothing of the file is made: {queues}");
    let answer = up.request("POST /v1/streams", good.replace("n % 2 == 0", "m % 2 == 0").as_bytes());
    let problem = read(&answer.text());
    assert_eq!(answer.status, 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("there is no field \"m\""), "{problem}");
    let none = written(&up, "none.yaml", "kind: Queue\nname: q\n");
    refused(&deploy(&up, &[], &none), 2, &["none.yaml: it defines no stream"]);
}

#[test]
fn a_file_that_declares_a_flow_and_the_stream_that_starts_it_is_applied_whole() {
    let up = Installation::setup().workers(0).start();
    let text = "\
kind: Stream
name: alarms
schema: { who: text, level: int }
sources:
  - { name: in, http: {} }
operators:
  - { name: high, from: in, filter: level > 5 }
sinks:
  - { name: run, from: high, flow: { name: remember } }
---
kind: Flow
name: remember
steps:
  - { name: put, action: builtin.kv_put, input: { key: input.who, value: input.level } }
";
    let file = written(&up, "both.yaml", text);
    let said = Said::from(up.cli(&["apply", "-f", file.to_str().unwrap()]));
    assert!(said.code == Some(0) && said.out.contains("stream alarms was made"), "{said:?}");
    let again = Said::from(up.cli(&["apply", "-f", file.to_str().unwrap()]));
    assert!(again.out.contains("stream alarms is as declared already"), "{again:?}");
    let body = br#"[{"who": "ana", "level": 7}, {"who": "bo", "level": 2}]"#;
    assert_eq!(up.request("POST /v1/streams/alarms/sources/in", body).status, 202);
    wait::until("the flow", SOON, || Said::from(up.cli(&["kv", "get", "ana"])).out.trim() == "7");
    let runs = read(&up.ok(&["--json", "flow", "runs", "remember"]));
    assert_eq!(runs.as_array().unwrap().len(), 1, "{runs}");
}

#[test]
fn only_who_may_deploy_and_only_hosts_beat() {
    let up = Installation::setup().workers(0).start();
    let viewer = read(&up.ok(&["--json", "token", "create", "--name", "eve", "--role", "viewer"]));
    let token = viewer["secret"].as_str().unwrap();
    let file = written(&up, "a.yaml", &counting("a", "a.jsonl", 200, ""));
    let mut command = up.command(&["stream", "deploy", file.to_str().unwrap()]);
    let said = crate::said::run({
        command.env("MUTIRAO_TOKEN", token);
        command
    });
    refused(&said, 4, &["operator"]);
    let answer = up.request("POST /v1/streams/beat", b"{}");
    assert_eq!(answer.status, 403, "{}", answer.text());
    let answer = up.request("GET /v1/blobs/streams/s1/stage-0/0/1-1-1/state", b"");
    assert_eq!(answer.status, 403, "{}", answer.text());
}
