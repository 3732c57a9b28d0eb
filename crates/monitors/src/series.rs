//! What is measured of each monitor, for Prometheus. Recorded by whoever owns a monitor, with each settlement.
//!
//! A series for each monitor is dear, to us and to whoever gathers them: so many have one, first come, first served, and keep
//! it for as long as they are here. The checks of the others are counted together.

use std::collections::HashMap;
use std::fmt::Write;

use mutirao_core::ShardId;
use mutirao_core::meters::{Kind, Meter};
use mutirao_probes::Check;
use parking_lot::Mutex;

use crate::grid::MonitorKey;
use crate::health::{State, Verdict};
use crate::store::{MonitorRow, Outcome, Settlement};

const UP: &str = "mutirao_monitor_up";
const TOOK: &str = "mutirao_monitor_last_seconds";
const CERTIFICATE: &str = "mutirao_monitor_certificate_days";
const CHECKS: &str = "mutirao_monitor_checks_total";
const UNNAMED: &str = "mutirao_monitors_unnamed";

/// Monitors of one process that have series of their own: at most six series each.
pub const NAMED_MAX: usize = 1_000;
/// What stands in place of the name of any other.
const OTHER: &str = "other";

/// Those of each monitor. The texts are those of the table in docs/operations.md.
pub const METERS: [Meter; 4] = [
    gauge(UP, &["namespace", "monitor"], "1 while a monitor is up, 0 while it is down, NaN while nothing is known."),
    gauge(TOOK, &["namespace", "monitor"], "How long the last check of a monitor took that was answered."),
    gauge(CERTIFICATE, &["namespace", "monitor"], "Days until the certificate ends that the last check saw."),
    Meter {
        name: CHECKS,
        kind: Kind::Counter,
        labels: &["namespace", "monitor", "outcome"],
        help: "Outcomes of a monitor: good, bad, or excused (bad in maintenance).",
    },
];

/// How many have none.
pub const UNNAMED_METER: Meter = gauge(
    UNNAMED,
    &[],
    "Monitors of this manager past the 1,000 that have series of their own; their checks count as other.",
);

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Meter {
    Meter { name, kind: Kind::Gauge, labels, help }
}

/// A shard under one generation: whoever comes after in the same process is not confused with it.
pub type Post = (ShardId, u64);

/// Good, bad and excused ones.
type Counts = [u64; 3];
const OUTCOMES: [&str; 3] = ["good", "bad", "excused"];

/// What is shown of one. What is not known yet is NaN, what it never has is not there.
#[derive(Clone, Debug)]
struct Figures {
    post: Post,
    namespace: String,
    name: String,
    up: f64,
    took: Option<f64>,
    certificate: Option<f64>,
    checks: Counts,
}

/// The monitors of one process, all its shards together.
#[derive(Debug, Default)]
pub struct Series(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    named: HashMap<MonitorKey, Figures>,
    unnamed: HashMap<MonitorKey, Post>,
    /// Of those without a name.
    other: Counts,
}

impl Known {
    /// A name that is free goes to the next who is here.
    fn know(&mut self, post: Post, row: &MonitorRow) {
        if let Some(figures) = self.named.get_mut(&row.key) {
            figures.post = post;
            return;
        }
        if self.named.len() >= NAMED_MAX {
            self.unnamed.insert(row.key, post);
            return;
        }
        self.unnamed.remove(&row.key);
        // There from the start, so that a graph shows who is not known yet.
        let certificate = matches!(row.spec.subject.check(), Some(Check::Http(_) | Check::Tls(_))).then_some(f64::NAN);
        let (namespace, name) = (row.namespace.clone(), row.spec.name.clone());
        let figures = Figures { post, namespace, name, up: f64::NAN, took: None, certificate, checks: [0; 3] };
        self.named.insert(row.key, figures);
    }

    fn forget(&mut self, gone: impl Fn(MonitorKey, Post) -> bool) {
        self.unnamed.retain(|key, post| !gone(*key, *post));
        self.named.retain(|key, figures| !gone(*key, figures.post));
    }
}

impl Series {
    pub fn know<'a>(&self, post: Post, rows: impl IntoIterator<Item = &'a MonitorRow>) {
        let mut known = self.0.lock();
        for row in rows {
            if row.removed_at.is_some() {
                known.forget(|key, _| key == row.key);
            } else {
                known.know(post, row);
            }
        }
        metrics::gauge!(UNNAMED).set(known.unnamed.len() as f64);
    }

    /// The shard has another owner, who measures it from now on.
    pub fn leave(&self, post: Post) {
        let mut known = self.0.lock();
        known.forget(|_, of| of == post);
        metrics::gauge!(UNNAMED).set(known.unnamed.len() as f64);
    }

    /// What a settlement says, and how many days were left of the certificates that were seen.
    pub fn settled(&self, settlement: &Settlement, certificates: &[(MonitorKey, i64)]) {
        let Settlement { outcomes, health, .. } = settlement;
        let mut known = self.0.lock();
        for (key, days) in certificates {
            if let Some(figures) = known.named.get_mut(key) {
                figures.certificate = Some(*days as f64);
            }
        }
        for (key, health) in health {
            if let Some(figures) = known.named.get_mut(key) {
                figures.up = match health.state {
                    State::Up => 1.0,
                    State::Down => 0.0,
                    State::New | State::NoData => f64::NAN,
                };
            }
        }
        for outcome in outcomes {
            let Some(figures) = known.named.get_mut(&outcome.monitor) else {
                known.other[place(outcome)] += 1;
                continue;
            };
            figures.checks[place(outcome)] += 1;
            figures.took = outcome.took_us.map(|took| took as f64 / 1e6).or(figures.took);
        }
    }

    /// As Prometheus reads it. Those that are gone are not in it.
    pub fn text(&self) -> String {
        let known = self.0.lock();
        let mut all: Vec<&Figures> = known.named.values().collect();
        all.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let labels =
            |namespace: &str, name: &str| format!("namespace=\"{}\",monitor=\"{}\"", escaped(namespace), escaped(name));
        let mut text = String::new();
        for meter in &METERS {
            let kind = if meter.kind == Kind::Counter { "counter" } else { "gauge" };
            let _ = writeln!(text, "# HELP {} {}\n# TYPE {} {kind}", meter.name, meter.help, meter.name);
            let mut counts = |namespace: &str, name: &str, counts: &Counts| {
                for (outcome, many) in OUTCOMES.iter().zip(counts).filter(|(_, many)| **many > 0) {
                    let labels = labels(namespace, name);
                    let _ = writeln!(text, "{}{{{labels},outcome=\"{outcome}\"}} {many}", meter.name);
                }
            };
            if meter.name == CHECKS {
                all.iter().for_each(|one| counts(&one.namespace, &one.name, &one.checks));
                counts(OTHER, OTHER, &known.other);
                continue;
            }
            for one in &all {
                let figure = match meter.name {
                    UP => Some(one.up),
                    TOOK => one.took,
                    _ => one.certificate,
                };
                if let Some(figure) = figure {
                    let _ = writeln!(text, "{}{{{}}} {figure}", meter.name, labels(&one.namespace, &one.name));
                }
            }
        }
        text
    }
}

/// In [`OUTCOMES`].
fn place(outcome: &Outcome) -> usize {
    match outcome.verdict {
        Verdict::Good => 0,
        Verdict::Bad if outcome.excused => 2,
        Verdict::Bad => 1,
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use mutirao_core::Timestamp;

    use super::*;

    fn row(key: u64) -> MonitorRow {
        let spec = format!(r#"{{"name": "m{key}", "every": "10s", "tcp": {{"address": "x:1"}}}}"#);
        MonitorRow {
            key: MonitorKey(key),
            uuid: String::new(),
            shard: ShardId(0),
            spec: serde_json::from_str(&spec).unwrap(),
            revision: 1,
            namespace: "default".into(),
            owner: "ana".into(),
            created_at: Timestamp(1),
            changed_at: Timestamp(1),
            changed_by: "ana".into(),
            removed_at: None,
        }
    }

    #[test]
    fn one_that_is_removed_or_has_another_owner_is_shown_no_more() {
        let (series, here, there) = (Series::default(), (ShardId(0), 1), (ShardId(1), 1));
        series.know(here, [&row(1), &row(2)]);
        series.know(there, [&row(3)]);
        let outcome = |key| Outcome {
            monitor: MonitorKey(key),
            at: Timestamp(1),
            verdict: Verdict::Good,
            took_us: Some(1_500),
            detail: None,
            excused: false,
        };
        let outcomes = vec![outcome(1), outcome(2), outcome(3), outcome(9)];
        series.settled(&Settlement { outcomes, ..Settlement::default() }, &[]);
        let text = series.text();
        for line in [
            "mutirao_monitor_up{namespace=\"default\",monitor=\"m1\"} NaN",
            "mutirao_monitor_last_seconds{namespace=\"default\",monitor=\"m1\"} 0.0015",
            "mutirao_monitor_checks_total{namespace=\"default\",monitor=\"m3\",outcome=\"good\"} 1",
            "mutirao_monitor_checks_total{namespace=\"other\",monitor=\"other\",outcome=\"good\"} 1",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is not in {text}");
        }
        series.know(here, [&MonitorRow { removed_at: Some(Timestamp(2)), ..row(1) }]);
        series.leave(there);
        let text = series.text();
        assert!(text.contains("\"m2\"") && !text.contains("\"m1\"") && !text.contains("\"m3\""), "{text}");
    }

    #[test]
    fn so_many_have_series_of_their_own_and_no_more() {
        let (series, one, other) = (Series::default(), (ShardId(0), 1), (ShardId(1), 1));
        let rows: Vec<MonitorRow> = (0..NAMED_MAX as u64 + 5).map(row).collect();
        let half = NAMED_MAX / 2;
        series.know(one, &rows[..half]);
        series.know(other, &rows[half..]);
        let count = || {
            let known = series.0.lock();
            (known.named.len(), known.unnamed.len())
        };
        assert_eq!(count(), (NAMED_MAX, 5));
        series.know(one, &rows[..7]);
        assert_eq!(count(), (NAMED_MAX, 5), "who has a name keeps it");
        series.know((ShardId(0), 2), &rows[..7]);
        series.leave(one);
        assert_eq!(count(), (half + 7, 5), "its successor here has taken over seven");
        series.know(other, [&rows[NAMED_MAX]]);
        assert_eq!(count(), (half + 8, 4), "a free name goes to who comes next");
        series.know(other, [&MonitorRow { removed_at: Some(Timestamp(2)), ..rows[half].clone() }]);
        assert_eq!(count(), (half + 7, 4));
    }
}
