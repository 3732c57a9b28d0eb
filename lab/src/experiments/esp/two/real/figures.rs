//! What is seen of a run: what hosts measure each second, and what came out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::plot::Line;

/// Of one replica in one second: milliseconds, and how many events.
#[derive(Clone, Copy, PartialEq)]
struct Second {
    mean: f64,
    p95: f64,
    events: f64,
}

#[derive(Default)]
pub struct Figures {
    fast: Vec<(f64, Second)>,
    slow: Vec<(f64, Second)>,
    /// Of each replica: when it was heard last, and where it was.
    last: BTreeMap<(String, u64), (String, String)>,
    moves: u32,
    cpu: f64,
    events: f64,
    lines_before: usize,
    lines_in_time: usize,
    lines: usize,
    missing: u64,
}

impl Figures {
    pub fn begin(outputs: &[PathBuf]) -> Self {
        Self { lines_before: count(outputs), ..Self::default() }
    }

    pub fn second(&mut self, at: Duration, parts: &[Value]) {
        let mut operators: BTreeMap<&str, Vec<Second>> = BTreeMap::new();
        for part in parts.iter().filter(|part| part["kind"] == "stage") {
            let text = |key: &str| part[key].as_str().unwrap_or_default();
            let key = (text("name").to_owned(), part["replica"].as_u64().unwrap_or(0));
            let now = (text("heard_at").to_owned(), text("host").to_owned());
            let before = self.last.insert(key, now.clone());
            self.moves += u32::from(before.as_ref().is_some_and(|(_, host)| *host != now.1));
            if before.is_some_and(|(heard, _)| heard == now.0) {
                continue;
            }
            let figure = |key: &str| part["measures"][key].as_f64().unwrap_or(0.0);
            let events = figure("events_in");
            self.cpu += figure("cpu");
            self.events += events;
            if events > 0.0 && figure("latency_us_mean") > 0.0 {
                let (mean, p95) = (figure("latency_us_mean") / 1_000.0, figure("latency_us_p95") / 1_000.0);
                operators.entry(text("name")).or_default().push(Second { mean, p95, events });
            }
        }
        for mut replicas in operators.into_values() {
            replicas.sort_by(|a, b| a.mean.total_cmp(&b.mean));
            let at = at.as_secs_f64();
            self.fast.extend(replicas.first().map(|second| (at, *second)));
            // Of one that is alone nobody is the slower.
            self.slow.extend(replicas.get(1).map(|second| (at, *second)));
        }
    }

    pub fn in_time(&mut self, outputs: &[PathBuf]) {
        self.lines_in_time = count(outputs).saturating_sub(self.lines_before);
    }

    /// All that was said has come out; each numbered as it should be.
    pub fn end(&mut self, outputs: &[PathBuf]) -> anyhow::Result<()> {
        for file in outputs {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            for (expected, line) in (0_u64..).zip(text.lines()) {
                let event: Value = serde_json::from_str(line)?;
                self.missing += u64::from(event["n"].as_u64() != Some(expected));
                self.lines += 1;
            }
        }
        self.lines = self.lines.saturating_sub(self.lines_before);
        Ok(())
    }

    pub fn rows(&self) -> Vec<(&'static str, f64, &'static str)> {
        vec![
            ("fast, mean", mean(&self.fast), "ms"),
            ("fast, p99", p99(&self.fast), "ms"),
            ("slow, mean", mean(&self.slow), "ms"),
            ("slow, p99", p99(&self.slow), "ms"),
            ("moves", f64::from(self.moves), "moves"),
            ("events processed by the end of the last period", self.lines_in_time as f64, "events"),
            ("events in all", self.lines as f64, "events"),
            ("core of an event", self.cpu / self.events.max(1.0) * 1e6, "us"),
        ]
    }

    /// Events that came twice, not at all or out of order.
    pub fn wrong(&self) -> f64 {
        self.missing as f64
    }

    /// Means of each second.
    pub fn lines(&self, strategy: &str) -> Vec<Line> {
        [(&self.slow, "slow"), (&self.fast, "fast")]
            .into_iter()
            .map(|(seconds, which)| {
                let mut course: BTreeMap<u64, Vec<(f64, Second)>> = BTreeMap::new();
                seconds.iter().for_each(|one| course.entry(one.0 as u64).or_default().push(*one));
                let points = course.into_iter().map(|(at, seconds)| (at as f64, mean(&seconds))).collect();
                Line { name: format!("{strategy}, {which}, ms"), points }
            })
            .collect()
    }
}

fn count(outputs: &[PathBuf]) -> usize {
    let lines = |file: &PathBuf| std::fs::read(file).unwrap_or_default().iter().filter(|byte| **byte == b'\n').count();
    outputs.iter().map(lines).sum()
}

fn mean(seconds: &[(f64, Second)]) -> f64 {
    let all: f64 = seconds.iter().map(|(_, second)| second.events).sum();
    seconds.iter().map(|(_, second)| second.mean * second.events).sum::<f64>() / all.max(1.0)
}

fn p99(seconds: &[(f64, Second)]) -> f64 {
    let mut sorted: Vec<Second> = seconds.iter().map(|(_, second)| *second).collect();
    sorted.sort_by(|a, b| a.p95.total_cmp(&b.p95));
    let all: f64 = sorted.iter().map(|second| second.events).sum();
    let mut below = 0.0;
    for second in sorted {
        below += second.events;
        if below >= 0.99 * all {
            return second.p95;
        }
    }
    0.0
}
