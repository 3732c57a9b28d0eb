//! Services that call, as a user meets them.

use mutirao_testkit::http::request;
use mutirao_testkit::{Installation, wait};
use serde_json::Value;

use crate::monitors::state;
use crate::said::{SOON, Said};

/// What the address ends in.
fn token_in(said: &str) -> String {
    let address = said.split_whitespace().find(|word| word.contains("/v1/push/")).expect(said);
    address.rsplit('/').next().unwrap().to_owned()
}

fn call(up: &Installation, line: &str) -> u16 {
    request(up.address(), line, &[], b"").unwrap().status
}

#[test]
fn a_service_that_calls_is_up_and_one_that_stops_is_down_and_its_token_is_shown_once() {
    let up = Installation::setup().workers(0).set("log.level", "debug").start();
    let add = ["monitor", "add", "backup", "--push", "--every", "1s", "--grace", "1s", "--failures", "2"];
    let said = up.ok(&add);
    let token = token_in(&said);
    assert!(said.contains("monitor backup is to call, every 1s") && token.len() == 40, "{said}");
    wait::until("it to be up", SOON, || {
        assert_eq!(call(&up, &format!("POST /v1/push/{token}?ms=12")), 204);
        wait::holds_within(std::time::Duration::from_millis(600), || false);
        state(&up, "backup") == "up"
    });
    assert_eq!(call(&up, &format!("GET /v1/push/{token}?status=down&msg=disk%20full")), 204);
    wait::until("that to be heard", SOON, || up.ok(&["monitor", "history", "backup"]).contains("disk full"));
    wait::until("silence to be noticed", SOON, || up.ok(&["monitor", "history", "backup"]).contains("not called for"));
    assert_eq!(state(&up, "backup"), "down");
    for (line, status) in [
        (format!("POST /v1/push/{token}?status=fine"), 422),
        (format!("POST /v1/push/{token}?mesage=x"), 422),
        (format!("POST /v1/push/{}", "0".repeat(40)), 404),
        (format!("DELETE /v1/push/{token}"), 405),
    ] {
        let got = call(&up, &line);
        assert!(got == status || (status == 422 && got == 400), "{line}: {got}");
    }
    let shown = up.ok(&["monitor", "show", "backup"]) + &up.ok(&["--json", "monitor", "list"]);
    assert!(shown.contains("monitor token backup") && !shown.contains(&token), "{shown}");
    let renewed = token_in(&up.ok(&["monitor", "token", "backup"]));
    assert_eq!(
        (call(&up, &format!("POST /v1/push/{token}")), call(&up, &format!("POST /v1/push/{renewed}"))),
        (404, 204)
    );
    let log = up.stderr() + &up.stdout();
    assert!(!log.contains(&token) && !log.contains(&renewed), "a token is in the log");
    let run = Said::from(up.cli(&["monitor", "run", "backup"]));
    assert!(run.code != Some(0) && run.err.contains("is not asked, it calls"), "{run:?}");
}

#[test]
fn a_file_may_declare_one_and_another_kind_ends_its_token() {
    let up = Installation::setup().workers(0).start();
    let file = up.data().join("m.yaml");
    let apply = |text: &str| {
        std::fs::write(&file, text).unwrap();
        up.ok(&["apply", "-f", file.to_str().unwrap()])
    };
    let calls = "kind: Monitor\nname: backup\nevery: 1h\npush: { grace: 10m }\n";
    let token = token_in(&apply(calls));
    assert!(apply(calls).contains("monitor backup is as declared already"));
    let changed = apply("kind: Monitor\nname: backup\nevery: 2h\npush: { grace: 10m }\n");
    assert!(changed.contains("was changed") && !changed.contains("/v1/push/"), "{changed}");
    assert_eq!(call(&up, &format!("POST /v1/push/{token}")), 204);
    apply("kind: Monitor\nname: backup\nevery: 1h\ntcp: { address: 'x:1' }\n");
    assert_eq!(call(&up, &format!("POST /v1/push/{token}")), 404);
    let placed = up.ok(&["--json", "monitor", "edit", "backup", "--on-layer", "edge", "--on-label", "zone=a"]);
    let placed: Value = serde_json::from_str(&placed).unwrap();
    let on = serde_json::json!({ "layer": "edge", "labels": { "zone": "a" } });
    assert_eq!(placed["definition"]["on"], on);
    assert!(up.ok(&["monitor", "show", "backup"]).contains("layer edge, zone=a"));
    assert!(!up.ok(&["--json", "monitor", "edit", "backup", "--anywhere"]).contains("\"zone\""));
    let channel = "kind: Channel\nname: ops\nwebhook: { url: 'http://127.0.0.1:9/in', secret: s3cret }\n";
    assert!(apply(channel).contains("channel ops was made"));
    assert!(apply(channel).contains("channel ops is as declared already"));
    assert!(apply(&channel.replace("s3cret", "other")).contains("channel ops was changed"));
}
