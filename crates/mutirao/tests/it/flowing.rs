//! Flows as a user meets them: what the manager runs itself, with no more rights than it needs.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use serde_json::{Value, json};

use crate::said::Said;

const SOON: Duration = Duration::from_secs(60);

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn declare(up: &Installation, flow: &Value) {
    let file = up.data().join("flow.json");
    std::fs::write(&file, flow.to_string()).unwrap();
    up.ok(&["flow", "apply", "-f", &file.display().to_string()]);
}

/// What a run gave, or why it failed.
fn run(up: &Installation, flow: &str, input: &Value) -> Value {
    let said = Said::from(up.cli(&["--json", "flow", "run", flow, "--input", &input.to_string(), "--watch"]));
    read(&said.out)
}

#[test]
fn steps_of_a_flow_keep_and_read_keys_and_events_tell_how_they_end() {
    let up = Installation::setup().workers(0).start();
    let flow = json!({"kind": "Flow", "name": "remember", "output": "steps.get.output.value", "steps": [
        {"name": "put", "action": "builtin.kv_put", "input": {"key": "'lamp'", "value": "input"}},
        {"name": "get", "action": "builtin.kv_get", "after": ["put"], "input": {"key": "'lamp'"}},
    ]});
    declare(&up, &flow);
    let view = run(&up, "remember", &json!({"on": true}));
    assert_eq!((&view["state"], &view["output"]), (&json!("done"), &json!({"on": true})), "{view}");
    assert_eq!(read(&up.ok(&["kv", "get", "lamp"])), json!({"on": true}));
    // What it is kept as is the manager's doing, not the admin's.
    let tokens = up.ok(&["--json", "token", "list"]);
    assert!(!tokens.contains("\"keys\""), "what the manager lends itself is written nowhere: {tokens}");
    let number = view["run"].to_string();
    let events = up.request(&format!("GET /v1/runs/{number}/events"), b"").text();
    assert!(events.contains("event: run") && events.contains("\"state\":\"done\""), "{events}");
    let none = Said::from(up.cli(&["flow", "show", "999999"]));
    assert!(none.code != Some(0) && none.err.contains("there is no run 999999"), "{none:?}");
    // Whoever takes the output of a run for its own gets no words about it in there.
    let step = |expression: &str| json!({"name": "a", "action": "builtin.cel", "retries": 0, "input": {"expression": expression}});
    declare(&up, &json!({"kind": "Flow", "name": "good", "steps": [step("'6 * 7.0'")]}));
    declare(&up, &json!({"kind": "Flow", "name": "bad", "steps": [step("'1 / 0'")]}));
    let good = Said::from(up.cli(&["flow", "run", "good", "--watch"]));
    assert_eq!((good.code, good.out.trim()), (Some(0), "42.0"), "{good:?}");
    assert!(good.err.contains("run 2 of good has begun") && good.err.contains("a: ok on manager"), "{good:?}");
    let bad = Said::from(up.cli(&["flow", "run", "bad", "--watch"]));
    assert_eq!((bad.code, &*bad.out), (Some(1), ""), "{bad:?}");
    assert!(bad.err.contains("run 3 failed at a: "), "{bad:?}");
    let page = Said::from(up.cli(&["flow", "runs", "--limit", "1"]));
    assert!(page.out.contains("bad") && page.err.contains("--before 3"), "{page:?}");
    assert!(up.ok(&["flow", "runs", "--before", "3"]).contains("good"));
}

#[test]
fn what_a_user_mistypes_is_told_in_the_words_that_were_typed() {
    let up = Installation::setup().workers(0).start();
    let file = up.data().join("flow.json");
    let mut flow = json!({"kind": "Flow", "name": "calc", "steps": [
        {"name": "a", "action": "builtin.sel", "retries": 1000}, {"name": "b", "action": "builtin.cel", "input": "steps.aa.output"}]});
    std::fs::write(&file, flow.to_string()).unwrap();
    let wrong = Said::from(up.cli(&["flow", "apply", "-f", &file.display().to_string()]));
    for part in ["builtin.cel", "retries", "did you mean \"a\"?"] {
        assert!(wrong.code != Some(0) && wrong.err.contains(part), "{part}: {wrong:?}");
    }
    flow["steps"] =
        json!([{"name": "a", "action": "builtin.cel", "input": {"expression": "'1'"}, "on": {"node": "manger"}}]);
    std::fs::write(&file, flow.to_string()).unwrap();
    let made = up.ok(&["flow", "apply", "-f", &file.display().to_string()]);
    let warning = "warning: step a waits until a node can be given it: there is no node manger; did you mean manager?";
    assert!(made.contains("flow calc was made") && made.contains(warning), "{made}");
    let number = read(&up.ok(&["--json", "flow", "run", "calc"]))["run"].to_string();
    let explained = || up.ok(&["flow", "explain", &number]);
    wait::until("explain says why it waits", SOON, || explained().contains("did you mean manager?"));
    let key = Said::from(up.cli(&["flow", "run", "calc", "--key", "a b"]));
    assert!(key.code != Some(0) && key.err.contains("--key: a key has 1 to 200"), "{key:?}");
    let runs = Said::from(up.cli(&["flow", "runs", "nope"]));
    assert!(runs.code != Some(0) && runs.err.contains("there is no flow \"nope\""), "{runs:?}");
    for (typed, told) in [(["explain", "calc"], "runs have numbers"), (["runs", "--limit=0"], "--limit")] {
        let said = Said::from(up.cli(&[&["flow"], &typed[..]].concat()));
        assert!(said.code == Some(2) && said.err.contains(told), "{said:?}");
    }
}

/// Answers every request with a text, until it is dropped with the test.
fn shop() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Ok(copy) = stream.try_clone() else { return };
            let head = BufReader::new(copy).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            head.for_each(drop);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nopen");
        }
    });
    format!("http://{address}/")
}

#[test]
fn a_flow_calls_the_machine_itself_only_where_a_setting_lets_it() {
    let flow = json!({"kind": "Flow", "name": "call", "output": "steps.a.output.body",
        "steps": [{"name": "a", "action": "builtin.http", "input": {"url": "input"}, "retries": 0}]});
    let shop = shop();
    let up = Installation::setup().workers(0).start();
    declare(&up, &flow);
    for (url, setting) in [(shop.as_str(), "flows.loopback"), ("http://169.254.169.254/", "flows.surroundings")] {
        let view = run(&up, "call", &json!(url));
        assert_eq!(view["state"], "failed", "{view}");
        assert!(view["reason"].as_str().is_some_and(|why| why.contains(setting)), "{view}");
    }
    let up = Installation::setup().workers(0).set("flows.loopback", "allowed").start();
    declare(&up, &flow);
    assert_eq!(run(&up, "call", &json!(shop))["output"], "open");
}

#[test]
fn actions_are_listed_with_who_offers_them() {
    let up = Installation::setup().workers(0).start();
    let listed = up.ok(&["action", "list"]);
    assert!(listed.contains("builtin.cel") && listed.contains("1 ready"), "{listed}");
    let all = read(&up.ok(&["--json", "action", "list"]));
    let names: Vec<&str> = all.as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(names.is_sorted() && names.contains(&"builtin.http"), "{names:?}");
    let shown = up.ok(&["action", "show", "builtin.cel"]);
    for part in ["urn:mutirao:Action:builtin.cel", "manager", "registered", "ok"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(up.ok(&["action", "show", "urn:mutirao:Action:builtin.cel"]), shown);
    let none = Said::from(up.cli(&["action", "show", "builtin.sel"]));
    assert!(none.code != Some(0) && none.err.contains("mutirao action list"), "{none:?}");
}
