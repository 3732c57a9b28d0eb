//! What streams hand over to others, and others to them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::{Installation, wait};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::applications::trades::publish;
use super::running::{SOON, deploy, lines, read, written};
use crate::rabbit::Vhost;
use crate::said::Said;

/// What takes its time on a busy machine.
const LATER: Duration = Duration::from_secs(120);

/// Takes what is posted to it, or not: as it is told by the number of the request.
pub struct Receiver {
    address: SocketAddr,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Default)]
struct Heard {
    asked: usize,
    /// Keys and bodies of what it answered well.
    taken: Vec<(String, String)>,
}

impl Receiver {
    pub fn start(answer: impl Fn(usize) -> u16 + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let hears = heard.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some((key, body)) = request(&mut BufReader::new(&stream)) else { continue };
                let mut heard = hears.lock();
                let status = answer(heard.asked);
                heard.asked += 1;
                if (200..300).contains(&status) {
                    heard.taken.push((key, body));
                }
                drop(heard);
                let _ = write!(stream, "HTTP/1.1 {status} So\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
        });
        Self { address, heard }
    }

    pub fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }

    pub fn asked(&self) -> usize {
        self.heard.lock().asked
    }

    pub fn taken(&self) -> Vec<(String, String)> {
        self.heard.lock().taken.clone()
    }
}

/// Its `Idempotency-Key` and its body.
fn request(reader: &mut impl BufRead) -> Option<(String, String)> {
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        match name.to_lowercase().as_str() {
            "idempotency-key" => key = value.trim().to_owned(),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((key, String::from_utf8(body).ok()?))
}

fn events(numbers: std::ops::Range<u32>, text: &str) -> Vec<u8> {
    let events: Vec<Value> = numbers.map(|n| json!({"n": n, "text": text})).collect();
    Value::from(events).to_string().into_bytes()
}

fn number(body: &str) -> u32 {
    read(body)["n"].as_u64().unwrap() as u32
}

fn pushed_to(name: &str, sinks: &str) -> String {
    format!(
        "\
kind: Stream
name: {name}
schema: {{ n: int, text: text }}
sources:
  - {{ name: in, http: {{}} }}
operators:
  - {{ name: all, from: in, filter: n >= 0 }}
sinks:
{sinks}"
    )
}

fn start(up: &Installation, name: &str, definition: &str) {
    let file = written(up, &format!("{name}.yaml"), definition);
    let said = deploy(up, &[], &file);
    assert_eq!(said.code, Some(0), "{said:?}");
}

fn explained(up: &Installation, name: &str) -> String {
    up.ok(&["stream", "explain", name])
}

#[test]
fn a_webhook_that_fails_now_and_then_hears_each_event_by_its_number_also_through_a_kill() {
    // Away at first and every so often, and one is refused for good.
    let refused: Arc<Mutex<BTreeSet<usize>>> = Arc::default();
    let (refuses, tries) = (refused.clone(), Arc::new(Mutex::new(0)));
    let desk = Receiver::start(move |n| match n {
        0..4 => 503,
        60 => {
            refuses.lock().insert(n);
            422
        }
        _ if n % 17 == 5 => {
            *tries.lock() += 1;
            [500, 429, 408][*tries.lock() % 3]
        }
        _ => 200,
    });
    let mut up = Installation::setup().workers(0).set("flows.loopback", "allowed").start();
    let sinks = format!(
        "  - {{ name: desk, from: all, webhook: {{ url: '{}' }} }}\n  - {{ name: printed, from: all, stdout: {{}} }}\n",
        desk.url()
    );
    start(&up, "hooked", &pushed_to("hooked", &sinks));
    let push =
        |up: &Installation, numbers| up.request("POST /v1/streams/hooked/sources/in", &events(numbers, "x")).status;
    assert_eq!(push(&up, 0..100), 202);
    wait::until("some of them", SOON, || desk.taken().len() >= 30);
    up.kill9_everything();
    up.restart();
    wait::until("it to be taken", SOON, || push(&up, 100..200) == 202);
    // All but the one that was refused, if it is not told again after the kill.
    let distinct = |taken: &[(String, String)]| taken.iter().map(|(_, body)| number(body)).collect::<BTreeSet<u32>>();
    let refused = || refused.lock().len();
    wait::until("all of them", LATER, || distinct(&desk.taken()).len() + refused() >= 200);
    let mut bodies: BTreeMap<String, u32> = BTreeMap::new();
    for (key, body) in desk.taken() {
        assert_eq!(*bodies.entry(key).or_insert(number(&body)), number(&body), "a number is always the same event");
    }
    assert_eq!(bodies.values().collect::<BTreeSet<_>>().len(), bodies.len(), "and no event has two numbers");
    let mut seen = BTreeSet::new();
    let firsts: Vec<u32> = desk.taken().iter().map(|(_, body)| number(body)).filter(|n| seen.insert(*n)).collect();
    assert!(firsts.is_sorted(), "in their order: {firsts:?}");
    let printed = || -> BTreeSet<u32> {
        let out = up.stdout();
        out.lines().filter(|line| line.starts_with("{\"n\":")).map(number).collect()
    };
    wait::until("all to be printed", SOON, || printed().into_iter().eq(0..200));
}

/// Bytes of all logs of streams.
fn kept_bytes(up: &Installation) -> u64 {
    fn below(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| match entry.metadata() {
                Ok(data) if data.is_dir() => below(&entry.path()),
                Ok(data) => data.len(),
                Err(_) => 0,
            })
            .sum()
    }
    below(&up.data().join("log"))
}

/// A desk that is closed until it is told to be open.
fn desk() -> (Receiver, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(false));
    let is_open = open.clone();
    (Receiver::start(move |_| if is_open.load(Ordering::Relaxed) { 200 } else { 503 }), open)
}

/// With small logs: what is handed through is several times as much as one keeps.
fn tight() -> Installation {
    let setup = Installation::setup().workers(0).set("flows.loopback", "allowed");
    setup.set("streams.log_size", "4MiB").start()
}

const LOG_BYTES: u64 = 4 << 20;
const EVENTS: u32 = 1_500;

#[test]
fn whoever_pushes_to_a_stream_that_is_held_back_hears_429_until_it_drains_and_nothing_is_lost() {
    let (up, (desk, open)) = (tight(), desk());
    let sinks = format!("  - {{ name: desk, from: all, webhook: {{ url: '{}' }} }}\n", desk.url());
    start(&up, "held", &pushed_to("held", &sinks));
    let text = "x".repeat(16 << 10);
    let push = |n: u32| up.request("POST /v1/streams/held/sources/in", &events(n..n + 10, &text));
    // Several times what its logs keep, and what is on its way between them.
    let (mut next, mut held_since) = (0, None);
    while next < EVENTS {
        let answer = push(next);
        match answer.status {
            202 => (next, held_since) = (next + 10, None),
            429 => {
                assert!(answer.text().contains("the stream is held back"), "{}", answer.text());
                assert!(answer.header("retry-after").is_some(), "{}", answer.head);
                let since = *held_since.get_or_insert_with(|| SystemClock.monotonic());
                // A stage may just have been slower than we; so long only the desk makes it wait.
                if SystemClock.monotonic().since(since) > Duration::from_secs(5) && !open.load(Ordering::Relaxed) {
                    let said = explained(&up, "held");
                    assert!(said.contains("sink desk waits") && said.contains("answers with status 503"), "{said}");
                    assert!(kept_bytes(&up) < 3 * LOG_BYTES, "{}", kept_bytes(&up));
                    assert!(desk.taken().is_empty());
                    open.store(true, Ordering::Relaxed);
                }
                wait::holds_within(Duration::from_millis(200), || false);
            }
            other => panic!("{other}: {}", answer.text()),
        }
    }
    assert!(open.load(Ordering::Relaxed), "it was never held back");
    wait::until("all of them", LATER, || desk.taken().len() >= EVENTS as usize);
    let numbers: Vec<u32> = desk.taken().iter().map(|(_, body)| number(body)).collect();
    assert!(numbers.into_iter().eq(0..EVENTS), "each once, in their order");
}

#[test]
fn a_log_that_is_full_holds_the_source_back_and_nothing_is_lost() {
    let (up, (desk, open)) = (tight(), desk());
    // About 28 KiB an event.
    let text = format!("replace('{}', 'a', '{}')", "a".repeat(1_800), "x".repeat(16));
    let definition = format!(
        "\
kind: Stream
name: full
sources:
  - name: made
    generator:
      rate: [ {{ for: 5s, rate: 300 }} ]
      fields: {{ n: n, text: \"{text}\" }}
operators:
  - {{ name: all, from: made, filter: n >= 0 }}
  - {{ name: keyed, from: all, key_by: n }}
  - {{ name: each, from: keyed, window: {{ jump: 1 events }}, aggregate: {{ text: last(text) }} }}
sinks:
  - {{ name: desk, from: each, webhook: {{ url: '{}' }} }}
",
        desk.url()
    );
    start(&up, "full", &definition);
    wait::until("all to be held back", SOON, || {
        let said = explained(&up, "full");
        said.contains("source made waits") && said.contains("as full as it may be") && said.contains("sink desk waits")
    });
    assert!(kept_bytes(&up) < 3 * LOG_BYTES, "{}", kept_bytes(&up));
    assert!(desk.taken().is_empty());
    open.store(true, Ordering::Relaxed);
    wait::until("all of them", LATER, || desk.taken().len() >= EVENTS as usize);
    let numbers: Vec<u32> = desk.taken().iter().map(|(_, body)| number(body)).collect();
    assert!(numbers.into_iter().eq(0..EVENTS), "each once, in their order");
}

#[test]
fn a_sink_to_a_flow_that_is_missing_says_so_and_goes_on_once_it_is_there() {
    let up = Installation::setup().workers(0).start();
    let sinks = "  - { name: run, from: all, flow: { name: later } }\n  - { name: kept, from: all, file: { path: kept.jsonl } }\n";
    start(&up, "early", &pushed_to("early", sinks));
    let push = |numbers| up.request("POST /v1/streams/early/sources/in", &events(numbers, "x")).status;
    assert_eq!(push(0..20), 202);
    wait::until("the reason", SOON, || {
        let said = explained(&up, "early");
        said.contains("sink run waits") && said.contains("there is no flow \"later\"")
    });
    // What else reads the same is not kept waiting.
    assert_eq!(push(20..40), 202);
    wait::until("the other sink", SOON, || lines(&up, "kept.jsonl").len() == 40);
    let flow = "kind: Flow\nname: later\nsteps:\n  - { name: put, action: builtin.kv_put, input: { key: \"'late/' + string(input.n)\", value: input.n } }\n";
    let flow = written(&up, "later.yaml", flow);
    up.ok(&["flow", "apply", "-f", flow.to_str().unwrap()]);
    let there = |n: u32| Said::from(up.cli(&["kv", "get", &format!("late/{n}")])).out.trim() == n.to_string();
    wait::until("the last", LATER, || there(39));
    let runs = read(&up.ok(&["--json", "flow", "runs", "later", "--limit", "1000"]));
    assert_eq!(runs.as_array().unwrap().len(), 40, "each once");
    wait::until("it to be well", SOON, || !explained(&up, "early").contains("waits"));
}

/// Where the installation has RabbitMQ, MQTT is what goes by its topic exchange: its MQTT plugin puts messages there.
#[test]
fn mqtt_of_an_installation_on_rabbitmq_is_its_topic_exchange() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .workers(0)
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    let definition = "\
kind: Stream
name: topics
schema: { n: int }
sources:
  - { name: readings, mqtt: { topic: grid/+/reading } }
  - { name: heard, mqtt: { topic: grid/+/alarm } }
operators:
  - { name: high, from: readings, filter: n % 2 == 1 }
sinks:
  - { name: told, from: high, mqtt: { topic: 'grid/{n}/alarm' } }
  - { name: back, from: heard, file: { path: back.jsonl } }
";
    start(&up, "topics", definition);
    // Both have to be there: what nobody hears is routed nowhere.
    wait::until("a reading to be heard", SOON, || publish(&vhost, "amq.topic", "grid.m-1.reading", "{\"n\": 0}"));
    wait::until("an alarm to be heard", SOON, || publish(&vhost, "amq.topic", "grid.m-1.alarm", "{\"n\": 0}"));
    for n in 1..100 {
        assert!(publish(&vhost, "amq.topic", &format!("grid.m-{}.reading", n % 5), &format!("{{\"n\": {n}}}")));
    }
    wait::until("all that is high to come back", LATER, || lines(&up, "back.jsonl").len() > 50);
    let numbers: Vec<u64> = lines(&up, "back.jsonl").iter().map(|line| line["n"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = std::iter::once(0).chain((1..100).filter(|n| n % 2 == 1)).collect();
    assert_eq!(numbers, expected, "each once");
}
