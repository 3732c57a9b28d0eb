//! How many events a second a core takes from a log through a filter, a map and a jumping window by key, the logs between them
//! included. Nothing is made meanwhile: the log is filled first.
//!
//! ```text
//! cargo run --release -p mutirao-hosts --example replay [-- EVENTS]
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::{Broker, Limits, Memory};
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_hosts::{Ends, Files, Host, HostParts, Manager, ManagerError};
use mutirao_store::blobs::FileBlobs;
use mutirao_streams::graph::{Graph, plan};
use mutirao_streams::mark::Origin;
use mutirao_streams::part::SourceCore;
use mutirao_streams::wire::{
    Beat, Delivered, Delivery, HostView, Mode, Order, Orders, Part, Report, Standing, State, StreamId, What, log_of,
};
use mutirao_tls::{Believe, Trust};
use parking_lot::Mutex;

fn definition(key: &str) -> String {
    format!(
        "\
kind: Stream
name: replay
sources:
  - name: made
    generator:
      rate: [ {{ for: 3600s, rate: 1000000 }} ]
      fields: {{ key: \"{key}\", x: random1 * 100, at: time(n * 10) }}
    time: at
operators:
  - {{ name: some, from: made, filter: x > 10 }}
  - {{ name: more, from: some, add: {{ y: x * 2 + 1 }} }}
  - {{ name: keyed, from: more, key_by: key }}
  - name: sums
    from: keyed
    window: {{ jump: 1s, by: at }}
    aggregate: {{ events: count(), y: sum(y), least: min(x) }}
sinks:
  - {{ name: out, from: sums, file: {{ path: out.jsonl }} }}
"
    )
}

const LOG_BYTES: u64 = 16 << 30;

struct Chief {
    parts: Vec<Part>,
    text: String,
    stream: StreamId,
    reports: Mutex<BTreeMap<Part, Report>>,
    reads: Mutex<bool>,
}

#[async_trait]
impl Manager for Chief {
    async fn beat(&self, beat: Beat) -> Result<Orders, ManagerError> {
        let mut reports = self.reports.lock();
        for report in beat.parts {
            reports.insert(report.part.clone(), report);
        }
        let order = |part: &Part| Order {
            part: part.clone(),
            epoch: 1,
            mode: Mode::Run,
            snapshots: reports.get(part).and_then(|report| report.snapshot.clone()).into_iter().collect(),
            needed: vec![],
        };
        let parts = if *self.reads.lock() { self.parts.iter().map(order).collect() } else { vec![] };
        let definitions = vec![(self.stream.clone(), self.text.clone())];
        Ok(Orders { parts, definitions, log_bytes: LOG_BYTES })
    }

    async fn deliver(&self, _: Delivery) -> Result<Delivered, ManagerError> {
        Ok(Delivered::default())
    }
}

/// Cpu seconds of this process.
fn cpu() -> f64 {
    let at = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    at.tv_sec as f64 + at.tv_nsec as f64 / 1e9
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let events: u64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10_000_000);
    println!(
        "{:<12} {:>12} {:>10} {:>10} {:>14} {:>14}",
        "keys", "counted", "wall s", "cpu s", "events/s", "events/s/core"
    );
    for (name, key) in [("int", "n % 10007"), ("text", "'meter-' + text(n % 10007)")] {
        run(name, &definition(key), events).await;
    }
}

async fn run(name: &str, text: &str, events: u64) {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { log_bytes_max: LOG_BYTES, ..Limits::default() };
    let broker = Memory::new(Some(dir.path().join("logs")), limits);
    let graph = mutirao_streams::definition::check(text).unwrap().remove(0);
    let stream = StreamId("s1".into());
    fill(&*broker, &graph, &stream, events).await;
    let plan = plan(&graph);
    let parts = plan.parts.iter().filter(|part| !matches!(part.what, What::Source(_)));
    let parts: Vec<Part> = parts.map(|part| Part { stream: stream.clone(), what: part.what, replica: 0 }).collect();
    let chief =
        Arc::new(Chief { parts, text: text.into(), stream, reports: Mutex::default(), reads: Mutex::new(true) });
    let view = HostView {
        id: "h".into(),
        name: "h".into(),
        standing: Standing::Apart,
        layer: "cloud".into(),
        labels: BTreeMap::new(),
        cores: 2,
        memory_bytes: 0,
    };
    let trust = Trust::for_url("https:", &Believe::default()).unwrap();
    let ends = Ends { mqtt: None, amqp: None, web: None, trust, files: Files::Within(dir.path().into()) };
    let clock = SystemClock::shared();
    let (begun, spent) = (clock.monotonic(), cpu());
    let host = Host::start(HostParts {
        view,
        broker,
        blobs: Arc::new(FileBlobs::open(&dir.path().join("blobs")).unwrap()),
        manager: chief.clone(),
        ends,
        threads: 2,
        clock: clock.clone(),
        dice: Arc::new(Dice::from_os()),
    });
    let host = host.unwrap();
    let stages = |chief: &Chief| {
        let reports = chief.reports.lock();
        let ended = reports.values().filter(|report| report.state == State::Ended).count();
        ended == chief.parts.len()
    };
    // What is spent after the end, up to a second, is not worth telling apart.
    while !stages(&chief) {
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    let (wall, cpu) = (clock.monotonic().since(begun).as_secs_f64(), cpu() - spent);
    let counted = counted(&dir.path().join("out.jsonl"));
    let rate = |seconds: f64| (events as f64 / seconds) as u64;
    println!("{name:<12} {counted:>12} {wall:>10.2} {cpu:>10.2} {:>14} {:>14}", rate(wall), rate(cpu));
    host.stop(&SystemClock).await;
}

/// How many events the windows say that they had.
fn counted(file: &std::path::Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["events"].as_u64();
    text.lines().filter_map(of).sum()
}

async fn fill(broker: &dyn Broker, graph: &Graph, stream: &StreamId, events: u64) {
    let mut source = SourceCore::of(graph, 0, Origin::Fixed);
    source.begin(0);
    let log = log_of(stream, What::Stage(0)).unwrap();
    let mut made = 0;
    while made < events {
        source.generate(i64::MAX / 2);
        let said = source.cut(1);
        made += said.iter().map(|said| u64::from(said.rows)).sum::<u64>();
        broker.add(&log, said.into_iter().map(|said| said.bytes.into()).collect()).await.unwrap();
    }
    source.end(1);
    broker.add(&log, source.cut(1).into_iter().map(|said| said.bytes.into()).collect()).await.unwrap();
}
