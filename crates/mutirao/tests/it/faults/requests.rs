//! Bad input over HTTP: a 4xx with problem details that name the field, nothing accepted, and a server that goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use mutirao_testkit::http::{self, Answer};
use mutirao_testkit::{Installation, wait};

use super::{json, nothing_was_accepted, still_works};
use crate::said::SOON;

#[track_caller]
fn refused(answer: &Answer, status: u16, field: Option<&str>, word: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{}", answer.head);
    let problem = json(&answer.text());
    assert_eq!((problem["status"].as_u64(), problem["field"].as_str()), (Some(status.into()), field), "{problem}");
    let said = ["title", "detail", "remedy"].map(|part| problem[part].as_str().unwrap_or_default()).join("; ");
    assert!(said.contains(word) && !said.contains('\n'), "no \"{word}\" in {problem}");
}

#[test]
fn a_job_that_is_wrong_in_one_field_is_refused_by_that_field() {
    let up = Installation::start();
    let job = |text: &str| up.request("POST /v1/jobs", text.as_bytes());
    let with = |rest: &str| job(&format!(r#"{{"task": {{"action": {{"noop": {{}}}}}}, {rest}}}"#));
    let task = |rest: &str| job(&format!(r#"{{"task": {{"action": {{"noop": {{}}}}, {rest}}}}}"#));
    let action = |text: &str| job(&format!(r#"{{"task": {{"action": {text}}}}}"#));

    refused(&with(r#""colour": "red""#), 422, Some("colour"), "unknown field");
    refused(&task(r#""needs": {"gpus": 1}"#), 422, Some("task.needs.gpus"), "`cpus` or `memory`");
    refused(&action(r#"{"noop": {"x": 1}}"#), 422, Some("task.action.noop.x"), "unknown field");
    refused(
        &with(r#""spread": {"array": {"first": 1, "last": 2, "step": 3}}"#),
        422,
        Some("spread.array.step"),
        "unknown",
    );
    refused(&action(r#"{"dance": {}}"#), 422, Some("task.action"), "`exec` or `noop`");
    assert_eq!(action(r#"{"noop": {}, "exec": {"command": ["true"]}}"#).status, 422);
    refused(&job(r#"{"spread": "single"}"#), 422, Some("task"), "missing field");

    refused(&action(r#"{"exec": {"command": []}}"#), 422, Some("task.action.exec.command"), "give the program");
    refused(&action(r#"{"exec": {"command": ["a\u0000b"]}}"#), 422, Some("task.action.exec.command[0]"), "NUL");
    refused(
        &action(r#"{"exec": {"command": ["true"], "dir": "x"}}"#),
        422,
        Some("task.action.exec.dir"),
        "start it with /",
    );
    refused(&task(r#""timeout": "soon""#), 422, Some("task.timeout"), "200ms, 30s, 5m");
    refused(&task(r#""timeout": 0"#), 422, Some("task.timeout"), "leave it out");
    refused(&task(r#""retry": {"retries": -1}"#), 422, Some("task.retry.retries"), "-1");
    refused(&task(r#""retry": {"retries": 1001}"#), 422, Some("task.retry.retries"), "1000");
    refused(&task(r#""needs": {"cpus": 64}"#), 422, Some("task.needs.cpus"), "start larger workers");
    refused(&with(r#""queue": "nobody""#), 422, Some("queue"), "queue create nobody");
    refused(&with(r#""queue": "../../etc""#), 422, Some("queue"), "is not a queue name");
    refused(
        &with(r#""spread": {"array": {"first": 10, "last": 1}}"#),
        422,
        Some("spread.array"),
        "smaller index first",
    );
    refused(&with(r#""spread": {"array": {"first": 0, "last": 4294967295}}"#), 422, Some("spread"), "split the job");
    refused(&with(r#""spread": {"entries": []}"#), 422, Some("spread"), "no task");
    refused(&with(&format!(r#""name": "{}""#, "n".repeat(201))), 422, Some("name"), "200 characters");
    nothing_was_accepted(&up);
    still_works(&up);
}

#[test]
fn a_body_that_is_none_is_refused_and_so_is_one_past_its_bound() {
    let up = Installation::start();
    let post = |body: &[u8]| up.request("POST /v1/jobs", body);
    refused(&post(b""), 400, None, "send a JSON value");
    refused(&post(b"{nope"), 400, None, "not JSON");
    refused(&post(b"{\"name\": \"\xff\xfe\"}"), 400, None, "send the text as UTF-8");
    assert_eq!(post("[".repeat(1 << 20).as_bytes()).status / 100, 4, "nested without end");
    // One byte past what a job may bring along.
    refused(&post(&vec![b' '; (128 << 20) + 1]), 413, None, "send less at a time");

    let token = format!("Bearer {}", up.token());
    let good = br#"{"task": {"action": {"noop": {}}}}"#;
    let plain = [("Authorization", token.as_str()), ("Content-Type", "text/plain")];
    refused(&http::request(up.address(), "POST /v1/jobs", &plain, good).unwrap(), 415, None, "application/json");
    let key = "k".repeat(201);
    let keyed = [plain[0], ("Content-Type", "application/json"), ("Idempotency-Key", key.as_str())];
    refused(&http::request(up.address(), "POST /v1/jobs", &keyed, good).unwrap(), 422, Some("Idempotency-Key"), "200");
    nothing_was_accepted(&up);
    still_works(&up);
}

#[test]
fn what_is_not_there_or_not_for_you_is_told_apart() {
    let up = Installation::start();
    let get = |path: &str| up.request(&format!("GET {path}"), b"");
    refused(&get("/v1/jobs/rubbish"), 404, None, "expected the form");
    refused(&get("/v1/jobs/jzzzzzzz"), 404, None, "there is no job jzzzzzzz");
    refused(&get("/v1/jobs/%ff%fe"), 400, None, "not UTF-8");
    refused(&get("/v1/nowhere"), 404, None, "/v1/openapi.json");
    refused(&up.request("PATCH /v1/jobs", b""), 405, None, "does not take PATCH");
    refused(&get("/v1/jobs?limit=0"), 422, Some("limit"), "1000");
    refused(&get("/v1/jobs?cursor=rubbish"), 422, Some("cursor"), "leave it out");
    refused(&get("/v1/jobs?state=odd"), 422, Some("state"), "`waiting`");

    let ask = |headers: &[(&str, &str)]| http::request(up.address(), "GET /v1/jobs", headers, b"").unwrap();
    refused(&ask(&[]), 401, None, "Authorization: Bearer");
    for rubbish in ["Bearer rubbish", "Bearer", "Basic eDp5", "\u{1}", "Mutirao-Ed25519 key=w,time=1,nonce=a,sig=AAAA"]
    {
        assert_eq!(ask(&[("Authorization", rubbish)]).status / 100, 4, "{rubbish}");
    }
    still_works(&up);
}

/// Sends bytes that are no request, and reads what comes back until the server hangs up or has said enough.
fn throw(up: &Installation, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(up.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    // It may hang up in the middle; that is as good an answer.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn what_is_no_http_is_hung_up_on() {
    let up = Installation::start();
    let noise: Vec<u8> = (0..64u32 << 10).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 | 0x80).collect();
    let endless = format!("GET / HTTP/1.1\r\nHost: {}\r\nX: {}", up.address(), "y".repeat(4 << 20));
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let cases = [&noise[..], hello, b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n", b"\0", endless.as_bytes()];
    for bytes in cases {
        let answer = String::from_utf8_lossy(&throw(&up, bytes)).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    // Many that say nothing at all hold nobody up.
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(up.address()).expect("it listens")).collect();
    still_works(&up);
    drop(silent);
    wait::until("it to be well", SOON, || up.request("GET /readyz", b"").status == 200);
}
