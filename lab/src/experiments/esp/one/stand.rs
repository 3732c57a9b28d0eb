//! Two hosts, as on two machines: one makes events, the other has the operators. What a manager would do, the lab does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_broker::{Limits, Memory, Shared};
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_hosts::{Ends, Files, Host, HostParts, Manager, ManagerError};
use mutirao_store::blobs::FileBlobs;
use mutirao_streams::graph::plan;
use mutirao_streams::wire::{
    Beat, Delivered, Delivery, HostView, Measures, Mode, Order, Orders, Part, Report, Snapshot, Standing, StreamId,
    What,
};
use mutirao_tls::{Believe, Trust};
use parking_lot::Mutex;

use super::link::Narrow;
use super::load::{Load, Operator};
use super::{Latency, Point, Seen};
use crate::proc;

const LOG_BYTES: u64 = 1 << 30;
/// Until everything runs, and not counted.
const WARM: Duration = Duration::from_secs(3);
const MAKES: &str = "makes";
const WORKS: &str = "works";

/// A number and a text, about a hundred bits an event with what a record adds.
fn definition(events_s: u32, operators: usize, seconds: u64) -> String {
    let sinks: String = (0..operators)
        .map(|n| format!("  - {{ name: operator-{n}, from: made, kv: {{ key: 'k', value: n }} }}\n"))
        .collect();
    format!(
        "\
kind: Stream
name: lab
sources:
  - name: made
    generator:
      rate: [ {{ for: {seconds}s, rate: {events_s} }} ]
      fields: {{ n: n }}
sinks:
{sinks}"
    )
}

struct Chief {
    stream: StreamId,
    text: String,
    parts: Vec<(Part, &'static str)>,
    snapshots: Mutex<BTreeMap<Part, Snapshot>>,
    operators: BTreeMap<What, Mutex<Operator>>,
    /// Each beat of each operator.
    seen: Mutex<Vec<(What, Measures)>>,
    done: Mutex<u64>,
}

#[async_trait]
impl Manager for Chief {
    async fn beat(&self, beat: Beat) -> Result<Orders, ManagerError> {
        let mut snapshots = self.snapshots.lock();
        for Report { part, snapshot, measures, .. } in beat.parts {
            if matches!(part.what, What::Sink(_)) {
                self.seen.lock().push((part.what, measures));
            }
            snapshots.extend(snapshot.map(|snapshot| (part, snapshot)));
        }
        let order = |part: &Part| Order {
            part: part.clone(),
            epoch: 1,
            mode: Mode::Run,
            snapshots: snapshots.get(part).cloned().into_iter().collect(),
            needed: vec![],
        };
        let here = self.parts.iter().filter(|(_, host)| *host == beat.host.id);
        let parts = here.map(|(part, _)| order(part)).collect();
        let definitions = vec![(self.stream.clone(), self.text.clone())];
        Ok(Orders { parts, definitions, log_bytes: LOG_BYTES })
    }

    /// The operator.
    async fn deliver(&self, delivery: Delivery) -> Result<Delivered, ManagerError> {
        let operator = self.operators.get(&delivery.part.what);
        let operator = operator.ok_or_else(|| ManagerError::Refused("there is no such operator".into()))?;
        for _ in &delivery.items {
            operator.lock().work().map_err(|error| ManagerError::Away(error.to_string()))?;
            *self.done.lock() += 1;
        }
        Ok(Delivered::default())
    }
}

fn host(dir: &Path, name: &str, broker: Shared, chief: &Arc<Chief>, threads: usize) -> anyhow::Result<Host> {
    let view = HostView {
        id: name.into(),
        name: name.into(),
        standing: Standing::Apart,
        layer: "cloud".into(),
        labels: BTreeMap::new(),
        cores: threads as u32,
        memory_bytes: 0,
    };
    let trust = Trust::for_url("https:", &Believe::default())?;
    Ok(Host::start(HostParts {
        view,
        broker,
        blobs: Arc::new(FileBlobs::open(&dir.join("blobs"))?),
        manager: chief.clone(),
        ends: Ends { mqtt: None, amqp: None, web: None, trust, files: Files::Within(dir.into()) },
        threads,
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::from_os()),
    })?)
}

/// The latency of the operators while events come, by their own measures of each second.
pub async fn run(dir: &Path, point: &Point, measured: Duration) -> anyhow::Result<Seen> {
    std::fs::create_dir_all(dir)?;
    let &Point { load, events_s, operators, .. } = point;
    let text = definition(events_s, operators, (WARM + measured).as_secs() + 60);
    let graph = mutirao_streams::definition::check(&text).map_err(|faults| anyhow::anyhow!("{faults:?}"))?.remove(0);
    let stream = StreamId("lab".into());
    let place = |what| match what {
        What::Source(_) => MAKES,
        What::Stage(_) | What::Sink(_) => WORKS,
    };
    let part = |what| (Part { stream: stream.clone(), what, replica: 0 }, place(what));
    let parts: Vec<_> = plan(&graph).parts.iter().map(|planned| part(planned.what)).collect();
    let made = |n: usize| Ok((What::Sink(n as u32), Mutex::new(Operator::of(load, &dir.join(format!("disk-{n}")))?)));
    let works = (0..operators).map(made).collect::<anyhow::Result<_>>()?;
    let chief = Arc::new(Chief {
        stream: stream.clone(),
        text,
        parts,
        snapshots: Mutex::default(),
        operators: works,
        seen: Mutex::default(),
        done: Mutex::default(),
    });
    let broker: Shared = Memory::new(Some(dir.join("logs")), Limits::default());
    let way: Shared = match load {
        Load::Network => Arc::new(Narrow::of(broker.clone())),
        _ => broker.clone(),
    };
    let hosts = [host(dir, MAKES, broker, &chief, 1)?, host(dir, WORKS, way, &chief, operators)?];
    let clock = SystemClock;
    clock.sleep(WARM).await;
    let (begun, spent, before) = (clock.monotonic(), proc::cpu(std::process::id()), *chief.done.lock());
    chief.seen.lock().clear();
    clock.sleep(measured).await;
    let took = clock.monotonic().since(begun).as_secs_f64();
    let cpu = (proc::cpu(std::process::id()) - spent).as_secs_f64() / took;
    let done = (*chief.done.lock() - before) as f64 / (took * f64::from(events_s) * operators as f64);
    let seen = std::mem::take(&mut *chief.seen.lock());
    drop(hosts);
    Ok(told(&seen, done.min(1.0), cpu))
}

/// Seconds weigh as much as they had events.
fn told(seen: &[(What, Measures)], done: f64, cpu: f64) -> Seen {
    let ms = |us: u64| us as f64 / 1_000.0;
    let told = seen.iter().map(|(_, measures)| measures).filter(|measures| measures.latency_us_mean > 0);
    let (mut weight, mut mean, mut p95) = (0.0, 0.0, 0.0);
    for measures in told {
        let events = measures.events_out.max(1) as f64;
        weight += events;
        mean += ms(measures.latency_us_mean) * events;
        p95 += ms(measures.latency_us_p95) * events;
    }
    let first = seen.iter().filter(|(what, _)| *what == What::Sink(0));
    let course = first.enumerate().map(|(n, (_, measures))| (n as f64, ms(measures.latency_us_mean))).collect();
    let latency = (weight > 0.0).then(|| Latency { mean: mean / weight, p95: p95 / weight });
    Seen { latency, done, course, cpu }
}
