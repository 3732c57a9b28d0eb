//! `moving`: a stage that remembers much goes from one host to another, live, while events flow. What whoever reads its output
//! sees of it: the longest time in which nothing came, beside the longest in as much time before.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use mutirao_testkit::Installation;
use serde_json::Value;

use super::apart::Apart;
use crate::report::{Goal, Report};
use crate::span::{Since, pause};

/// What is looked at before the first move, and at each move.
const WINDOW: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_micros(500);
const PATIENCE: Duration = Duration::from_secs(180);
const KEYS: u64 = 1_000;
/// Of each event that a window remembers, about.
const EVENT_BYTES: u64 = 16;

#[derive(Args)]
pub struct Options {
    /// What the stage remembers, about.
    #[arg(long, default_value_t = 100)]
    mib: u64,
    /// Events a second while it moves.
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    #[arg(long, default_value_t = 5)]
    moves: u32,
}

pub fn run(options: Options) -> anyhow::Result<Report> {
    let mut report = Report::new("moving");
    let up = Installation::setup().workers(0).set("streams.host", "inside").start();
    let _hosts = [Apart::start(&up, "one", &[])?, Apart::start(&up, "two", &[])?];
    let inside = named(&up, "inside")?;
    let events = (options.mib << 20) / EVENT_BYTES;
    let definition = definition(&options, events, &inside);
    let file = up.data().join("moving.yaml");
    std::fs::write(&file, definition)?;
    up.ok(&["stream", "deploy", path(&file)?]);
    let mut reader = Arrivals::of(up.data().join("files/out.jsonl"));
    reader.until_some()?;
    // Until it has a snapshot of what it remembers by now.
    let filled = Since::now();
    while part(&up)?["snapshot"].as_u64().unwrap_or(0) == 0 || filled.elapsed() < Duration::from_secs(35) {
        ensure!(filled.elapsed() < PATIENCE, "the stage took no snapshot");
        pause(Duration::from_millis(200));
    }
    let remembers = part(&up)?["measures"]["memory_bytes"].as_f64().unwrap_or(0.0);
    reader.skip();
    let before = reader.gaps(|_| WINDOW)?;
    let (mut worst, mut took, mut medians) = (Duration::ZERO, Vec::new(), Vec::new());
    for _ in 0..options.moves {
        let to = if part(&up)?["host"] == "one" { "two" } else { "one" };
        reader.skip();
        let begun = Since::now();
        let mut command = up.command(&["stream", "migrate", "moved", "means", "--to", to, "--wait", "2m"]);
        let mut child = command.stdout(Stdio::null()).spawn()?;
        let mut ended = None;
        let gaps = reader.gaps(|since| match ended {
            None if matches!(child.try_wait(), Ok(Some(_))) => {
                ended = Some(since);
                since + Duration::from_secs(2)
            }
            None => since + WINDOW,
            Some(at) => at + Duration::from_secs(2),
        })?;
        ensure!(child.wait()?.success(), "the stage did not move");
        took.push(ended.unwrap_or(begun.elapsed()).as_secs_f64());
        worst = worst.max(gaps.longest);
        medians.push(gaps.longest.as_secs_f64() * 1_000.0);
    }
    medians.sort_by(f64::total_cmp);
    took.sort_by(f64::total_cmp);
    let ms = |span: Duration| span.as_secs_f64() * 1_000.0;
    report.row("what the stage remembers", remembers / f64::from(1 << 20), "MiB");
    report.row("longest time without an event before it moves", ms(before.longest), "ms");
    report.row("longest time without an event in a move, the middle of all", medians[medians.len() / 2], "ms");
    report.row("  of all", ms(worst), "ms");
    let seen = (medians[medians.len() / 2] - ms(before.longest)).max(0.0);
    report.goal("the pause that is seen: more than before it moved", seen, "ms", Goal::AtMost(20.0));
    report.row("from asking for a move until it is there, the middle of all", took[took.len() / 2], "s");
    let (lines, twice) = reader.account();
    report.goal("events that came out twice or were left out", twice as f64, "events", Goal::AtMost(0.0));
    report.note(format!(
        "{lines} events came out, numbered without a gap; {} moves, {} events/s",
        options.moves, options.rate
    ));
    report.note("manager, both hosts and whoever reads the file share this machine's cores");
    Ok(report)
}

/// Fills windows of the last events of each key, then goes on slowly; only what comes then is said.
fn definition(options: &Options, events: u64, inside: &str) -> String {
    let (each, fill_rate) = (events / KEYS, 200_000);
    let (fill_s, rate) = (events.div_ceil(fill_rate), options.rate);
    let shown_from = fill_s * fill_rate;
    format!(
        "\
kind: Stream
name: moved
sources:
  - name: made
    generator:
      rate: [ {{ for: {fill_s}s, rate: {fill_rate} }}, {{ for: 600s, rate: {rate} }} ]
      fields: {{ n: n, k: n % {KEYS}, v: float(n % 97) }}
    host: {inside}
operators:
  - {{ name: keyed, from: made, key_by: k }}
  - name: means
    from: keyed
    window: {{ slide: {each} events, every: 1 events }}
    aggregate: {{ mean: mean(v), n: last(n) }}
  - {{ name: shown, from: means, filter: n >= {shown_from} }}
sinks:
  - {{ name: out, from: shown, file: {{ path: out.jsonl }}, host: {inside} }}
"
    )
}

pub(super) fn path(file: &Path) -> anyhow::Result<&str> {
    file.to_str().context("a folder whose name is no text")
}

/// The name of the host that stands so.
pub(super) fn named(up: &Installation, standing: &str) -> anyhow::Result<String> {
    let hosts: Value = serde_json::from_str(&up.ok(&["--json", "stream", "hosts"]))?;
    let found = hosts.as_array().and_then(|all| all.iter().find(|host| host["standing"] == standing));
    Ok(found.and_then(|host| host["name"].as_str()).context("there is no such host")?.to_owned())
}

fn part(up: &Installation) -> anyhow::Result<Value> {
    let view: Value = serde_json::from_str(&up.ok(&["--json", "stream", "show", "moved"]))?;
    let parts = view["parts"].as_array().cloned().unwrap_or_default();
    parts.into_iter().find(|part| part["kind"] == "stage").context("there is no stage")
}

struct Gaps {
    longest: Duration,
}

/// When lines were added to a file, as somebody sees who waits for them.
struct Arrivals {
    path: PathBuf,
    file: Option<File>,
    text: Vec<u8>,
}

impl Arrivals {
    fn of(path: PathBuf) -> Self {
        Self { path, file: None, text: Vec::new() }
    }

    /// Whether something was added.
    fn look(&mut self) -> bool {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return false };
        let before = self.text.len();
        file.read_to_end(&mut self.text).is_ok() && self.text.len() > before
    }

    fn until_some(&mut self) -> anyhow::Result<()> {
        let since = Since::now();
        while !self.look() {
            ensure!(since.elapsed() < PATIENCE, "nothing comes out of the stream");
            pause(Duration::from_millis(100));
        }
        Ok(())
    }

    fn skip(&mut self) {
        self.look();
    }

    /// Looks until the moment that `until` tells anew each time.
    fn gaps(&mut self, mut until: impl FnMut(Duration) -> Duration) -> anyhow::Result<Gaps> {
        let begun = Since::now();
        let (mut last, mut longest, mut asked) = (begun, Duration::ZERO, begun);
        let mut end = until(Duration::ZERO);
        while begun.elapsed() < end {
            ensure!(begun.elapsed() < PATIENCE, "it takes too long");
            if self.look() {
                longest = longest.max(last.elapsed());
                last = Since::now();
            }
            if asked.elapsed() > Duration::from_millis(50) {
                asked = Since::now();
                end = until(begun.elapsed());
            }
            pause(LOOK);
        }
        Ok(Gaps { longest: longest.max(last.elapsed()) })
    }

    /// How many lines there are, and how many times one does not follow on the one before.
    fn account(&mut self) -> (usize, usize) {
        self.look();
        let text = String::from_utf8_lossy(&self.text);
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let number = |line: &str| serde_json::from_str::<Value>(line).ok().and_then(|event| event["n"].as_u64());
        let numbers: Vec<Option<u64>> = whole.lines().map(number).collect();
        let follows = |pair: &[Option<u64>]| pair[0].is_some() && pair[1] == pair[0].map(|n| n + 1);
        (numbers.len(), numbers.windows(2).filter(|pair| !follows(pair)).count())
    }
}
