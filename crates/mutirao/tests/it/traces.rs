//! A request that is followed, from the API through the broker to a worker and back: its spans, told by two processes to a
//! real collector, make one tree.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use mutirao_testkit::{Installation, http, wait};
use serde_json::Value;

use crate::said::SOON;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A collector that keeps what it is told: spans, each with who told it.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let kept = spans.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || serve(stream, &kept));
            }
        });
        Self { url, spans }
    }

    fn spans(&self) -> Vec<(String, Value)> {
        self.spans.lock().unwrap().clone()
    }
}

/// Requests of one connection, until it ends or makes no sense.
fn serve(stream: TcpStream, kept: &Mutex<Vec<(String, Value)>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim().to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse().ok()?,
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        assert!(first.starts_with("POST /v1/traces "), "{first}");
        let told: Value = serde_json::from_slice(&body).expect("OTLP in JSON");
        for resource in told["resourceSpans"].as_array()? {
            let teller = resource["resource"]["attributes"].to_string();
            let spans = resource["scopeSpans"].as_array()?.iter().filter_map(|scope| scope["spans"].as_array());
            kept.lock().unwrap().extend(spans.flatten().map(|span| (teller.clone(), span.clone())));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}").ok()?;
    }
}

fn submit(up: &Installation, headers: &[(&str, &str)]) -> String {
    let authorization = format!("Bearer {}", up.token());
    let mut all = vec![("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    all.extend_from_slice(headers);
    let body = br#"{"task": {"action": {"exec": {"command": ["sh", "-c", "echo $TRACEPARENT"]}}}}"#;
    let answer = http::request(up.address(), "POST /v1/jobs", &all, body).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let view: Value = serde_json::from_slice(&answer.body).unwrap();
    let job = view["id"].as_str().unwrap().to_owned();
    up.ok(&["job", "wait", &job]);
    job
}

#[test]
fn the_spans_of_a_task_make_one_tree_across_processes() {
    let collector = Collector::start();
    let up = Installation::setup().env("MUTIRAO_TELEMETRY_OTLP", &collector.url).set("telemetry.sample", "0").start();
    submit(&up, &[]);
    submit(&up, &[("traceparent", &format!("00-{TRACE}-{CALLER}-00"))]);
    let job = submit(&up, &[("traceparent", &format!("00-{TRACE}-{CALLER}-01"))]);
    wait::until("four spans", SOON, || collector.spans().len() >= 4);

    let spans = collector.spans();
    assert_eq!(spans.len(), 4, "only the request whose caller wished it is followed: {spans:?}");
    let by_name: BTreeMap<&str, &(String, Value)> =
        spans.iter().map(|told| (told.1["name"].as_str().unwrap(), told)).collect();
    let id = |name: &str| by_name[name].1["spanId"].as_str().unwrap();
    let parent = |name: &str| by_name[name].1["parentSpanId"].as_str().unwrap();
    assert!(spans.iter().all(|(_, span)| span["traceId"] == TRACE));
    assert_eq!(parent("submit"), CALLER);
    assert_eq!(parent("dispatch"), id("submit"));
    assert_eq!(parent("run"), id("dispatch"));
    assert_eq!(parent("settle"), id("run"));
    assert!(by_name["run"].0.contains("worker") && by_name["settle"].0.contains("manager"));
    // What the command itself does belongs under its run; and people see the trace's plain name.
    assert_eq!(up.ok(&["job", "logs", &job]).trim(), format!("00-{TRACE}-{}-01", id("run")));
    let view: Value = serde_json::from_str(&up.ok(&["--json", "job", "show", &job])).unwrap();
    assert_eq!(view["trace"], TRACE);
}

#[test]
fn a_collector_that_is_away_holds_nothing_up_and_what_it_missed_is_counted() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let up = Installation::setup()
        .env("MUTIRAO_TELEMETRY_OTLP", &format!("http://{gone}"))
        .set("telemetry.sample", "1")
        .start();
    up.ok(&["submit", "--wait", "--array", "1-20", "--", "true"]);
    let dropped = || {
        let text = up.request("GET /metrics", b"").text();
        text.lines().any(|line| line.strip_prefix("mutirao_spans_dropped_total ").is_some_and(|n| n != "0"))
    };
    wait::until("dropped spans to be counted", SOON, dropped);
    let told = up.stderr().matches("the collector does not take spans").count();
    assert!((1..=3).contains(&told), "told {told} times: once by the manager, and by each worker");
}
