//! Programs: one for each task, and ones that stay.

use std::path::Path;
use std::sync::Arc;

use mutirao_nodes::errand::End;
use serde_json::json;

use crate::stage::{Stage, eventually, ok, why};

#[tokio::test]
async fn a_program_is_given_its_input_and_what_it_writes_is_the_output() {
    let stage = Stage::new();
    stage.write("double.sh", "#!/bin/sh\nread n\necho $((n * 2))\n");
    stage.define(json!({"kind": "Action", "name": "double", "command": ["./double.sh"]}));
    assert_eq!(stage.run("double", "21\n").await, ok("42"));
    stage.define(json!({"kind": "Action", "name": "quiet", "command": ["true"]}));
    assert_eq!(stage.run("quiet", &"x".repeat(200_000)).await, ok("null"), "who does not read its input may end");
}

#[tokio::test]
async fn a_program_that_fails_says_why_in_its_last_line() {
    let stage = Stage::new();
    stage.write("bad.sh", "#!/bin/sh\necho first >&2\necho 'no sensor on pin 4' >&2\nexit 3\n");
    stage.define(json!({"kind": "Action", "name": "bad", "command": ["bad.sh"]}));
    assert_eq!(why(stage.run("bad", "{}").await), "no sensor on pin 4");
    stage.define(json!({"kind": "Action", "name": "mute", "command": ["sh", "-c", "exit 7"]}));
    assert!(why(stage.run("mute", "{}").await).contains('7'));
    stage.define(json!({"kind": "Action", "name": "none", "command": ["./nothing"]}));
    assert!(why(stage.run("none", "{}").await).contains("there is no such program"));
    stage.define(json!({"kind": "Action", "name": "long", "command": ["sh", "-c", "yes"], "output_max": "1KiB"}));
    assert_eq!(why(stage.run("long", "{}").await), "it gave back more than 1024 bytes");
}

#[tokio::test]
async fn nothing_of_the_node_s_environment_is_seen_but_what_was_given() {
    let stage = Stage::new();
    let command =
        ["sh", "-c", "env | grep -v -e ^MUTIRAO_ -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort | tr '\\n' ' '"];
    stage.define(json!({"kind": "Action", "name": "env", "command": command, "env": {"UNIT": "volt"}}));
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok(), "there would be something to see");
    assert_eq!(stage.run("env", "{}").await, ok("PATH=/usr/local/bin:/usr/bin:/bin UNIT=volt"));
}

#[tokio::test]
async fn json_that_was_cut_off_is_a_failure_where_json_is_declared_and_a_text_elsewhere() {
    let stage = Stage::new();
    for (name, said) in [("whole", r#"{"rows": [1, 2]}"#), ("cut", r#"{"rows": [1,"#), ("silent", "")] {
        let command = ["printf", "%s", said];
        stage.define(json!({"kind": "Action", "name": name, "command": command, "output": "json"}));
        stage.define(json!({"kind": "Action", "name": format!("{name}.any"), "command": command}));
    }
    assert_eq!(stage.run("whole", "{}").await, ok(r#"{"rows": [1, 2]}"#));
    let line = why(stage.run("cut", "{}").await);
    assert!(line.starts_with("what it gave back is no JSON: EOF while parsing"), "{line}");
    assert!(why(stage.run("silent", "{}").await).starts_with("what it gave back is no JSON"));
    assert_eq!(stage.run("cut.any", "{}").await, ok(r#"{"rows": [1,"#));
    assert_eq!(stage.run("silent.any", "{}").await, ok("null"));
}

/// With all that it started, in sessions of their own too, however it is held here.
fn both_ways() -> Vec<Stage> {
    let session = mutirao_core::SessionId::random();
    let grouped = mutirao_worker::Confinement::prepare(&session)
        .inspect_err(|why| eprintln!("not tried with control groups: {why}"))
        .map(|confinement| Stage { confinement: Arc::new(confinement), ..Stage::new() });
    std::iter::once(Stage::new()).chain(grouped).collect()
}

async fn silence(file: &Path) {
    let size = || std::fs::metadata(file).map_or(0, |about| about.len());
    let mut last = u64::MAX;
    eventually("silence", async || {
        let now = size();
        mutirao_core::Clock::sleep(&mutirao_core::SystemClock, std::time::Duration::from_millis(300)).await;
        std::mem::replace(&mut last, now) == now
    })
    .await;
    assert!(last > 0, "it never ran");
}

#[tokio::test]
async fn at_its_deadline_a_program_goes_with_all_that_it_started() {
    for stage in both_ways() {
        let file = stage.folder.path().join("beats");
        for (name, apart) in [("near", ""), ("far", "setsid")] {
            let beat = format!("while :; do echo x >> {}; sleep 0.05; done", file.display());
            let hang = format!("{apart} sh -c '{beat}' </dev/null >/dev/null 2>&1 & sleep 300");
            stage.define(json!({"kind": "Action", "name": name, "command": ["sh", "-c", hang], "timeout": "1s"}));
            assert_eq!(why(stage.run(name, "{}").await), "it took longer than 1000ms");
            silence(&file).await;
            std::fs::remove_file(&file).unwrap();
        }
    }
}

/// Its answer waits for nobody that it left behind, and that goes too.
#[tokio::test]
async fn what_a_program_leaves_behind_when_it_ends_goes_as_well() {
    for stage in both_ways() {
        let file = stage.folder.path().join("beats");
        let beat = format!("while :; do echo x >> {}; sleep 0.05; done", file.display());
        // It holds the pipes of the program.
        let leave = format!("setsid sh -c '{beat}' & until [ -e {} ]; do sleep 0.02; done; echo 7", file.display());
        stage.define(json!({"kind": "Action", "name": "leaves", "command": ["sh", "-c", leave], "timeout": "5m"}));
        assert_eq!(stage.run("leaves", "{}").await, ok("7"));
        silence(&file).await;
    }
}

#[tokio::test]
async fn memory_is_bounded_where_asked_for() {
    let stage = Stage::new();
    let command = ["python3", "-c", "x = bytearray(400 << 20); print(len(x))"];
    stage.define(json!({"kind": "Action", "name": "free", "command": command}));
    assert_eq!(stage.run("free", "{}").await, ok(&(400 << 20).to_string()));
    stage.define(json!({"kind": "Action", "name": "bounded", "command": command, "memory": "200MiB"}));
    assert!(why(stage.run("bounded", "{}").await).contains("MemoryError"));
}

/// Where the kernel lets us; else there is a notice, as for whoever starts a node.
#[tokio::test]
async fn programs_are_held_to_their_memory_and_cpus_together_with_all_that_they_start() {
    let session = mutirao_core::SessionId::random();
    let confinement = match mutirao_worker::Confinement::prepare(&session) {
        Ok(confinement) => Arc::new(confinement),
        Err(why) => return eprintln!("not tried: {why}"),
    };
    let stage = Stage { confinement, ..Stage::new() };
    let groups = ["cat", "/proc/self/cgroup"];
    stage.define(json!({"kind": "Action", "name": "free", "command": groups}));
    stage.define(json!({"kind": "Action", "name": "held", "command": groups, "cpus": "0.5"}));
    let within = |end: End| match end {
        End::Ok(text) => text.contains(&format!("mutirao-{session}/program-")),
        End::Failed(why) => panic!("{why}"),
    };
    assert!(within(stage.run("free", "{}").await));
    assert!(within(stage.run("held", "{}").await));
    // Each of its processes is small enough, and both together are not.
    let half = "x = bytearray(120 << 20)";
    let two = format!("import subprocess, sys; {half}; sys.exit(subprocess.call([sys.executable, '-c', '{half}']))");
    let command = ["python3", "-c", &two];
    stage.define(json!({"kind": "Action", "name": "two", "command": command, "memory": "200MiB"}));
    let line = why(stage.run("two", "{}").await);
    assert!(line.contains("more memory than its definition"), "{line}");
}

const STAYS: &str = r#"#!/usr/bin/env python3
import json, os, sys
n = 0
for line in sys.stdin:
    asked = json.loads(line)
    what = asked["input"]
    n += 1
    if what == "die":
        print("out of luck", file=sys.stderr, flush=True)
        sys.exit(1)
    if what == "hang":
        import time
        time.sleep(3600)
    if what == "bad":
        said = {"id": asked["id"], "error": "not this"}
    else:
        said = {"id": asked["id"], "output": {"n": n, "pid": os.getpid(), "got": what}}
    print(json.dumps(said), flush=True)
"#;

fn stays(stage: &Stage, at_once: u32, timeout: &str) {
    stage.write("stays.py", STAYS);
    let command = ["./stays.py"];
    stage.define(json!({"kind": "Action", "name": "stays", "command": command, "mode": "lines", "at_once": at_once,
        "timeout": timeout}));
}

fn read(end: mutirao_nodes::errand::End) -> serde_json::Value {
    match end {
        mutirao_nodes::errand::End::Ok(output) => serde_json::from_str(&output).unwrap(),
        mutirao_nodes::errand::End::Failed(why) => panic!("{why}"),
    }
}

#[tokio::test]
async fn a_program_that_stays_answers_many_and_comes_back_when_it_dies() {
    let stage = Stage::new();
    stays(&stage, 1, "30s");
    let first = read(stage.run("stays", r#"{"a":[1]}"#).await);
    assert_eq!((first["n"].clone(), first["got"].clone()), (json!(1), json!({"a": [1]})));
    let second = read(stage.run("stays", "not json").await);
    assert_eq!((&second["n"], &second["pid"], &second["got"]), (&json!(2), &first["pid"], &json!("not json")));
    assert_eq!(why(stage.run("stays", r#""bad""#).await), "not this");
    assert_eq!(why(stage.run("stays", r#""die""#).await), "the program ended: out of luck");
    let third = read(stage.run("stays", "1").await);
    assert!(third["n"] == json!(1) && third["pid"] != first["pid"], "a new one, from its beginning: {third}");
}

#[tokio::test]
async fn one_that_hangs_is_ended_and_the_next_task_has_a_new_one() {
    let stage = Stage::new();
    stays(&stage, 1, "2s");
    let first = read(stage.run("stays", "1").await);
    assert!(why(stage.run("stays", r#""hang""#).await).starts_with("it took longer"));
    let mut next = None;
    eventually("a new process", async || {
        next = match stage.run("stays", "2").await {
            mutirao_nodes::errand::End::Ok(output) => serde_json::from_str::<serde_json::Value>(&output).ok(),
            mutirao_nodes::errand::End::Failed(_) => None,
        };
        next.is_some()
    })
    .await;
    assert_ne!(next.unwrap()["pid"], first["pid"]);
}

#[tokio::test]
async fn one_that_says_much_and_answers_nothing_is_ended_too() {
    let stage = Stage::new();
    let noisy = "#!/usr/bin/env python3\nimport os, sys, time\nopen('began', 'a').write('x')\nwhile True:\n    \
                 print('still here', flush=True)\n    time.sleep(0.02)\n";
    stage.write("noisy.py", noisy);
    stage.define(
        json!({"kind": "Action", "name": "noisy", "command": ["./noisy.py"], "mode": "lines", "timeout": "1s"}),
    );
    let began = || std::fs::read(stage.folder.path().join("began")).unwrap_or_default().len();
    eventually("another process", async || {
        why(stage.run("noisy", "1").await);
        began() > 1
    })
    .await;
}

/// A pipe holds 64 KiB: whoever writes more waits until it is read.
#[tokio::test]
async fn one_that_does_not_read_what_it_is_given_is_ended_too() {
    let stage = Stage::new();
    stays(&stage, 2, "2s");
    let large = json!("x".repeat(200_000)).to_string();
    let (hung, unread) = tokio::join!(stage.run("stays", r#""hang""#), stage.run("stays", &large));
    assert!(why(hung).starts_with("it took longer"));
    why(unread);
    eventually("a new process", async || matches!(stage.run("stays", "2").await, mutirao_nodes::errand::End::Ok(_)))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_on_a_program_that_stays_finish_when_it_is_replaced() {
    let stage = Arc::new(Stage::new());
    stage.write("slow.py", "#!/usr/bin/env python3\nimport json, os, sys, time\nfor line in sys.stdin:\n    a = json.loads(line)\n    open('begun', 'w').close()\n    while not os.path.exists('go'): time.sleep(0.02)\n    print(json.dumps({'id': a['id'], 'output': 'old'}), flush=True)\nopen('left', 'w').close()\n");
    stage.define(json!({"kind": "Action", "name": "a", "version": 1, "command": ["./slow.py"], "mode": "lines"}));
    let running = tokio::spawn({
        let stage = stage.clone();
        async move { stage.run("a", "1").await }
    });
    let there = |name: &str| stage.folder.path().join(name).exists();
    eventually("it began", async || there("begun")).await;
    stage.define(json!({"kind": "Action", "name": "a", "version": 2, "command": ["echo", "\"new\""]}));
    assert_eq!(stage.run("a", "1").await, ok("\"new\""));
    std::fs::write(stage.folder.path().join("go"), "").unwrap();
    assert_eq!(running.await.unwrap(), ok("\"old\""));
    eventually("the old one leaves", async || there("left")).await;
}
