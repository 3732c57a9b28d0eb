//! kv as a user meets it.

use std::io::{BufRead, BufReader, Write};

use mutirao_testkit::services::{AMQP_VARIABLE, REDIS_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};
use rustix::process::Signal;
use serde_json::Value;

use crate::said::{SOON, Said};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn values_are_kept_through_a_kill_of_the_manager_and_told_by_their_keys() {
    let mut up = Installation::setup().workers(0).start();
    assert!(up.ok(&["kv", "put", "greeting/pt", "olá"]).contains("greeting/pt is kept, applied, revision "));
    let first = json(&up.ok(&["--json", "kv", "put", "greeting/en", "hello"]));
    up.kill9_everything();
    up.restart();
    assert_eq!(up.ok(&["kv", "get", "greeting/pt"]), "olá");
    let second = json(&up.ok(&["--json", "kv", "put", "greeting/en", "hi", "--content-type", "text/plain"]));
    assert!(second["revision"].as_u64() > first["revision"].as_u64(), "{first} {second}");
    let asked = json(&up.ok(&["--json", "kv", "write", first["write"].as_str().unwrap()]));
    assert_eq!((asked["state"].as_str(), &asked["revision"]), (Some("superseded"), &first["revision"]));
    let listed = up.ok(&["kv", "list", "greeting/", "--values"]);
    assert!(listed.contains("greeting/pt") && listed.contains("olá") && listed.contains("hi"), "{listed}");
    up.ok(&["kv", "del", "greeting/en"]);
    let gone = Said::from(up.cli(&["kv", "get", "greeting/en"]));
    assert_ne!(gone.code, Some(0));
    assert!(gone.err.contains("there is nothing under"), "{gone:?}");
}

#[test]
fn conditions_are_held_and_rubbish_is_refused_with_the_reason() {
    let up = Installation::setup().workers(0).start();
    let made = json(&up.ok(&["--json", "kv", "put", "a", "1", "--create"]));
    let revision = made["revision"].to_string();
    let refused = |args: &[&str], why: &str| {
        let said = Said::from(up.cli(args));
        assert!(said.code != Some(0) && said.err.contains(why), "{args:?}: {said:?}");
    };
    refused(&["kv", "put", "a", "2", "--create"], &format!("the key is there, at revision {revision}"));
    refused(&["kv", "put", "a", "2", "--if-revision", "999"], "nothing was written");
    refused(&["kv", "del", "b", "--if-revision", "1"], "the key is not there");
    refused(&["kv", "put", &"k".repeat(513), "x"], "513 bytes are too many, the most is 512");
    refused(&["kv", "put", "", "x"], "key: it is empty");
    refused(&["kv", "put", "a", "x", "--ttl", "soon"], "--ttl: \"soon\" is not a time");
    refused(&["kv", "put", "a", "x", "--content-type", "a\nb"], "--content-type: it has characters");
    refused(&["kv", "write", "nonsense"], "is not the id of a write");
    refused(&["kv", "write", "w0-00000000000000ff-1-0"], "no write w0-00000000000000ff-1-0 was applied");
    refused(&["kv", "watch", "--cursor", "nonsense"], "cursor");
    refused(&["kv", "get", "a", "--min-rev", "99999", "--wait", "1s"], "before 99999");
    up.ok(&["kv", "put", "a", "3", "--if-revision", &revision]);
    assert_eq!(up.ok(&["kv", "get", "a"]), "3");

    let huge = up.request("PUT /v1/kv/huge", &vec![b'x'; (1 << 20) + 1]);
    assert!(huge.text().contains("the most is 1048576"), "{}", huge.text());
    assert_eq!(json(&up.request("PUT /v1/kv/large", &vec![b'x'; 1 << 20]).text())["state"], "applied");
    let batch = br#"{"operations": [{"key": "ok", "value": "1"}, {"key": "bad"}]}"#;
    let answer = up.request("POST /v1/kv", batch);
    assert!(answer.text().contains("operations[1].value"), "{}", answer.text());
    assert_ne!(Said::from(up.cli(&["kv", "get", "ok"])).code, Some(0), "none was made");
}

#[test]
fn whoever_watches_is_told_everything_once_also_over_a_restart() {
    let mut up = Installation::setup().workers(0).start();
    up.ok(&["kv", "put", "before", "x"]);
    let mut child = up.command(&["--json", "kv", "watch", "w/"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    let (send, told) = std::sync::mpsc::sync_channel::<Value>(100);
    std::thread::spawn(move || lines.lines().map_while(Result::ok).for_each(|line| send.send(json(&line)).unwrap()));
    let next = || {
        let mut one = None;
        wait::until("an event", SOON, || {
            one = told.try_recv().ok();
            one.is_some()
        });
        let event = one.unwrap();
        (event["event"].as_str().unwrap().to_owned(), event["data"]["key"].as_str().unwrap_or("").to_owned())
    };
    let is = |event: &str, key: &str| (event.to_owned(), key.to_owned());
    assert_eq!(next(), is("begin", ""));
    up.ok(&["kv", "put", "w/a", "1"]);
    up.ok(&["kv", "put", "other", "1"]);
    up.ok(&["kv", "put", "w/b", "1", "--ttl", "300ms"]);
    assert_eq!((next(), next(), next()), (is("put", "w/a"), is("put", "w/b"), is("expire", "w/b")));
    up.restart();
    up.ok(&["kv", "del", "w/a"]);
    assert_eq!((next(), next()), (is("begin", ""), is("delete", "w/a")));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
}

#[test]
fn every_key_can_be_reached_also_one_that_is_a_step_in_a_path() {
    let up = Installation::setup().workers(0).start();
    let keys = [".", "..", "...", "a/../b", "%2e%2e", "?key=x", "#", "a b", "writes", "key"];
    for key in keys {
        let revision = json(&up.ok(&["--json", "kv", "put", key, &format!("of {key}")]))["revision"].to_string();
        assert_eq!(up.ok(&["kv", "get", key, "--min-rev", &revision]), format!("of {key}"));
        up.ok(&["kv", "put", key, "again", "--ttl", "1h", "--if-revision", &revision]);
        assert_eq!(json(&up.ok(&["--json", "kv", "get", key]))["value"], "again", "{key}");
    }
    let listed = json(&up.ok(&["--json", "kv", "list"]));
    let mut told: Vec<&str> = listed.as_array().unwrap().iter().map(|entry| entry["key"].as_str().unwrap()).collect();
    told.sort_by_key(|key| keys.iter().position(|known| known == key));
    assert_eq!(told, keys);
    for key in keys {
        up.ok(&["kv", "del", key]);
        assert_ne!(Said::from(up.cli(&["kv", "get", key])).code, Some(0), "{key}");
    }
    assert_eq!(json(&up.ok(&["--json", "kv", "list"])), json("[]"));

    // What has the key in its query is the same for any key.
    assert_eq!(json(&up.request("PUT /v1/kv?key=a%2Fb&sync=1", b"1").text())["state"], "applied");
    assert_eq!(up.ok(&["kv", "get", "a/b"]), "1");
    let wrong = [
        ("PUT /v1/kv", "key"),
        ("PUT /v1/kv?key=", "empty"),
        ("GET /v1/kv?key=a&prefix=b", "prefix"),
        ("DELETE /v1/kv?ley=a", "ley"),
        ("GET /v1/kv?min_rev=3", "min_rev"),
        ("GET /v1/kv/a?min_rev=x", "\\\"x\\\" is not a revision"),
        ("GET /v1/kv?watch=1&limit=3", "limit"),
        ("GET /v1/kv?prefix=a%00b", "prefix"),
        ("GET /v1/kv?watch=1&cursor=x", "to watch from"),
    ];
    for (line, what) in wrong {
        let answer = up.request(line, b"");
        assert!((400..500).contains(&answer.status) && answer.text().contains(what), "{line}: {}", answer.text());
    }
}

/// Requests for one key that are nothing but that go past the router; by the same gate.
#[test]
fn the_short_way_lets_nobody_in_whom_the_long_one_would_not() {
    let up = Installation::setup().workers(0).set("api.rate", "1000").set("api.burst", "1000").start();
    up.ok(&["kv", "put", "a", "mine"]);
    let made = |role: &str| json(&up.ok(&["--json", "token", "create", "--role", role, "--name", role]));
    let (viewer, gone) = (made("viewer"), made("operator"));
    up.ok(&["token", "revoke", gone["id"].as_str().unwrap()]);
    let ask = |line: &str, token: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        mutirao_testkit::http::request(up.address(), line, &[("Authorization", &bearer)], body.as_bytes()).unwrap()
    };
    for (who, token) in [("nobody", ""), ("a guesser", "rubbish"), ("one who is out", gone["secret"].as_str().unwrap())]
    {
        for line in ["GET /v1/kv/a", "PUT /v1/kv/a"] {
            let answer = ask(line, token, "theirs");
            assert_eq!(answer.status, 401, "{who}, {line}: {}", answer.text());
            assert!(!answer.text().contains("mine"), "{who}, {line}");
        }
    }
    let viewer = viewer["secret"].as_str().unwrap();
    assert_eq!(ask("PUT /v1/kv/a", viewer, "theirs").status, 403);
    let read = ask("GET /v1/kv/a", viewer, "");
    assert_eq!((read.status, read.text().as_str()), (200, "mine"), "and nobody has written");
    assert_eq!(ask("PUT /v1/kv/a", &up.token(), "anew").status, 200, "whoever may is let in");
}

#[test]
fn a_redis_keeps_what_is_read_at_hand_with_sqlite_too() {
    if shared(REDIS_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let redis = Service::redis(folder.path()).unwrap();
    let up = Installation::setup().workers(0).env("MUTIRAO_CACHE", redis.url()).start();
    up.ok(&["kv", "put", "a", "1"]);
    let is_there = || {
        let mut stream = std::net::TcpStream::connect(redis.address()).unwrap();
        stream.write_all(b"KEYS *:default/a\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.trim() == "*1"
    };
    wait::until("the value in the Redis", SOON, || {
        assert_eq!(up.ok(&["kv", "get", "a"]), "1");
        is_there()
    });
}

#[test]
fn a_write_that_nobody_confirmed_is_told_to_programs_by_its_name_and_state() {
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rabbitmq = Service::rabbitmq(folder.path()).unwrap();
    let up = Installation::setup().workers(0).env("MUTIRAO_BROKER", rabbitmq.url()).start();
    up.ok(&["kv", "put", "a", "1"]);
    rabbitmq.freeze();
    let said = Said::from(up.cli(&["--json", "kv", "put", "a", "2"]));
    rabbitmq.thaw();
    let told = json(&said.out);
    assert_eq!((said.code, told["state"].as_str()), (Some(5), Some("in_doubt")), "{said:?}");
    let write = told["write"].as_str().unwrap();
    assert!(write.starts_with('d') && said.err.contains(&format!("a is in doubt, write {write}: ")), "{said:?}");
    // What comes after it settles it.
    wait::until("what became of it", 4 * SOON, || {
        up.cli(&["kv", "put", "a", "3"]);
        let asked = Said::from(up.cli(&["--json", "kv", "write", write, "--wait", "1s"]));
        asked.code == Some(0) && json(&asked.out)["state"] != "in_doubt"
    });
}

#[test]
fn an_import_that_is_cut_off_says_how_far_it_came_and_one_that_is_too_fast_waits() {
    let up = Installation::setup().workers(0).set("api.rate", "2").set("api.burst", "4").start();
    let file = up.data().join("entries.jsonl");
    let line = |n: usize| format!("{{\"key\": \"bulk/{n:06}\", \"value\": \"v{n}\"}}\n");
    std::fs::write(&file, (0..4_000).map(line).collect::<String>()).unwrap();
    // Eight batches, where four requests may be made at once.
    assert_eq!(up.ok(&["kv", "import", &file.display().to_string()]).trim(), "4000 entries are kept");

    let mut up = Installation::setup().workers(0).start();
    let mut child = up
        .command(&["kv", "import", "-"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut feed = |from: usize| input.write_all((from..from + 500).map(line).collect::<String>().as_bytes()).is_ok();
    assert!(feed(0));
    wait::until("the first batch", SOON, || up.ok(&["kv", "list", "bulk/000499"]).contains("bulk/000499"));
    up.kill9();
    assert!(feed(500));
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("; 500 before it were written, "), "{said}");
}

#[test]
fn what_was_exported_can_be_imported_elsewhere() {
    let up = Installation::setup().workers(0).start();
    let file = up.data().join("entries.jsonl");
    let lines: String = (0..1_200).map(|n| format!("{{\"key\": \"bulk/{n:04}\", \"value\": \"v{n}\"}}\n")).collect();
    let odd = "{\"key\": \"bulk/odd\", \"base64\": \"AP8=\", \"content_type\": \"image/x\"}\n";
    std::fs::write(&file, lines + odd).unwrap();
    let file = file.display().to_string();
    assert_eq!(up.ok(&["kv", "import", &file]).trim(), "1201 entries are kept");
    let exported = up.ok(&["kv", "export", "bulk/"]);
    assert_eq!(exported.lines().count(), 1_201);
    let other = Installation::setup().workers(0).start();
    std::fs::write(&file, &exported).unwrap();
    other.ok(&["kv", "import", &file]);
    assert_eq!(other.ok(&["kv", "export", "bulk/"]), exported);
    // However many there are, they are one list; and no more are shown than were asked for.
    let list = |args: &[&str]| json(&other.ok(&[&["--json", "kv", "list", "bulk/"], args].concat()));
    let keys: Vec<String> =
        list(&[]).as_array().unwrap().iter().map(|entry| entry["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!((keys.len(), keys[0].as_str(), keys[1_200].as_str()), (1_201, "bulk/0000", "bulk/odd"));
    assert!(keys.is_sorted());
    for (limit, many) in [("1", 1), ("1000", 1_000), ("1100", 1_100), ("5000", 1_201)] {
        assert_eq!(list(&["--limit", limit]).as_array().unwrap().len(), many);
    }
    assert_eq!(json(&other.ok(&["--json", "kv", "list", "nothing/"])), json("[]"));
    let shown = other.ok(&["kv", "list", "bulk/"]);
    assert_eq!((shown.lines().count(), shown.matches("REVISION").count()), (1_202, 1), "with one heading");
    assert_eq!(other.ok(&["kv", "list", "bulk/", "--limit", "3"]).lines().count(), 4);
    let said = Said::from(other.cli(&["kv", "import", "/nonexistent"]));
    assert!(said.code != Some(0) && said.err.contains("cannot be read"), "{said:?}");
}

#[test]
fn the_routes_of_the_original_are_there_when_they_are_switched_on_and_ask_nobody_who_it_is() {
    let ask = |up: &Installation, line: &str, body: &str| {
        let headers = [("Content-Type", "application/json")];
        mutirao_testkit::http::request(up.address(), line, &headers, body.as_bytes()).unwrap()
    };
    let closed = Installation::setup().workers(0).start();
    assert_eq!(ask(&closed, "PUT /api", r#"{"key": "a", "value": "1"}"#).status, 404, "off unless somebody says so");

    let up = Installation::setup().workers(0).set("kv.legacy_routes", "on").start();
    assert_eq!(json(&ask(&up, "GET /api/all", "").text()), serde_json::json!([]));
    for (key, value) in [("b", "2"), ("a", "olá \\\"1\\\""), ("c", "3")] {
        let kept = ask(&up, "PUT /api", &format!(r#"{{"key": "{key}", "value": "{value}"}}"#));
        assert_eq!((kept.status, kept.text().as_str()), (200, r#"{"status":"queued"}"#));
    }
    assert_eq!(json(&ask(&up, "GET /api?key=a", "").text())["value"], "olá \"1\"");
    assert_eq!(up.ok(&["kv", "get", "b"]), "2", "it is the same store");
    // As `curl -d` sends it, and as it is when nobody says what it is.
    for headers in [&[("Content-Type", "application/x-www-form-urlencoded")][..], &[]] {
        let body = br#"{"key": "form", "value": "4"}"#;
        let kept = mutirao_testkit::http::request(up.address(), "PUT /api", headers, body).unwrap();
        assert_eq!(kept.status, 200, "{}", kept.text());
    }
    assert_eq!(ask(&up, "DELETE /api?key=form", "").status, 200);
    assert_eq!(ask(&up, "DELETE /api?key=b", "").text(), r#"{"status":"queued"}"#);
    assert_eq!(ask(&up, "GET /api?key=b", "").status, 404);
    let all = json(&ask(&up, "GET /api/all", "").text());
    let keys: Vec<&str> = all.as_array().unwrap().iter().map(|pair| pair["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a", "c"]);
    for (line, body) in [("PUT /api", "rubbish"), ("PUT /api", r#"{"key": "", "value": ""}"#), ("GET /api", "")] {
        let status = ask(&up, line, body).status;
        assert!((400..500).contains(&status), "{line} {body}: {status}");
    }
    assert_eq!(ask(&up, "GET /v1/kv/a", "").status, 401, "everything else asks as before");
}
