//! What is measured of each monitor, for Prometheus. Recorded by whoever owns a monitor, with each settlement.
//!
//! A series for each monitor is dear, to us and to whoever gathers them: so many have one, first come, first served, and keep
//! it for as long as they are here. The checks of the others are counted together.

use std::collections::HashMap;

use mutirao_core::ShardId;
use mutirao_core::meters::{Kind, Meter};
use mutirao_probes::Check;
use parking_lot::Mutex;

use crate::grid::MonitorKey;
use crate::health::{State, Verdict};
use crate::spec::Subject;
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

/// All of them. The texts are those of the table in docs/operations.md.
pub const METERS: [Meter; 5] = [
    gauge(UP, &["namespace", "monitor"], "1 while a monitor is up, 0 while it is down, NaN while nothing is known."),
    gauge(TOOK, &["namespace", "monitor"], "How long the last check of a monitor took that was answered."),
    gauge(CERTIFICATE, &["namespace", "monitor"], "Days until the certificate ends that the last check saw."),
    Meter {
        name: CHECKS,
        kind: Kind::Counter,
        labels: &["namespace", "monitor", "outcome"],
        help: "Outcomes of a monitor: good, bad, or excused (bad in maintenance).",
    },
    gauge(
        UNNAMED,
        &[],
        "Monitors of this manager past the 1,000 that have series of their own; their checks count as other.",
    ),
];

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Meter {
    Meter { name, kind: Kind::Gauge, labels, help }
}

/// A shard under one generation: whoever comes after in the same process is not confused with it.
pub type Post = (ShardId, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Labels {
    post: Post,
    namespace: String,
    name: String,
}

/// The monitors of one process, all its shards together.
#[derive(Debug, Default)]
pub struct Series(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    named: HashMap<MonitorKey, Labels>,
    unnamed: HashMap<MonitorKey, Post>,
}

impl Known {
    /// A name that is free goes to the next who is here.
    fn know(&mut self, post: Post, row: &MonitorRow) {
        let labels = Labels { post, namespace: row.namespace.clone(), name: row.spec.name.clone() };
        if self.named.len() < NAMED_MAX || self.named.contains_key(&row.key) {
            self.unnamed.remove(&row.key);
            if !self.named.contains_key(&row.key) {
                begin(&labels, &row.spec.subject);
            }
            self.named.insert(row.key, labels);
        } else {
            self.unnamed.insert(row.key, post);
        }
    }

    /// Those that had series.
    fn forget(&mut self, gone: impl Fn(MonitorKey, Post) -> bool) -> Vec<Labels> {
        self.unnamed.retain(|key, post| !gone(*key, *post));
        self.named.extract_if(|key, labels| gone(*key, labels.post)).map(|(_, labels)| labels).collect()
    }
}

impl Series {
    pub fn know<'a>(&self, post: Post, rows: impl IntoIterator<Item = &'a MonitorRow>) {
        let mut known = self.0.lock();
        for row in rows {
            if row.removed_at.is_some() {
                known.forget(|key, _| key == row.key).iter().for_each(silence);
            } else {
                known.know(post, row);
            }
        }
        metrics::gauge!(UNNAMED).set(known.unnamed.len() as f64);
    }

    /// The shard has another owner, who measures it from now on.
    pub fn leave(&self, post: Post) {
        let mut known = self.0.lock();
        known.forget(|_, of| of == post).iter().for_each(silence);
        metrics::gauge!(UNNAMED).set(known.unnamed.len() as f64);
    }

    /// What a settlement says, and how many days were left of the certificates that were seen.
    pub fn settled(&self, settlement: &Settlement, certificates: &[(MonitorKey, i64)]) {
        let Settlement { outcomes, health, .. } = settlement;
        let known = self.0.lock();
        for (key, days) in certificates {
            if let Some(labels) = known.named.get(key) {
                one(CERTIFICATE, labels).set(*days as f64);
            }
        }
        for (key, health) in health {
            if let Some(labels) = known.named.get(key) {
                one(UP, labels).set(match health.state {
                    State::Up => 1.0,
                    State::Down => 0.0,
                    State::New | State::NoData => f64::NAN,
                });
            }
        }
        for outcome in outcomes {
            let Some(labels) = known.named.get(&outcome.monitor) else {
                metrics::counter!(CHECKS, "namespace" => OTHER, "monitor" => OTHER, "outcome" => word(outcome))
                    .increment(1);
                continue;
            };
            let (namespace, name) = (labels.namespace.clone(), labels.name.clone());
            metrics::counter!(CHECKS, "namespace" => namespace, "monitor" => name, "outcome" => word(outcome))
                .increment(1);
            if let Some(took) = outcome.took_us {
                one(TOOK, labels).set(took as f64 / 1e6);
            }
        }
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome.verdict {
        Verdict::Good => "good",
        Verdict::Bad if outcome.excused => "excused",
        Verdict::Bad => "bad",
    }
}

fn one(name: &'static str, labels: &Labels) -> metrics::Gauge {
    metrics::gauge!(name, "namespace" => labels.namespace.clone(), "monitor" => labels.name.clone())
}

/// There from the start, so that a graph shows who is not known yet.
fn begin(labels: &Labels, subject: &Subject) {
    one(UP, labels).set(f64::NAN);
    if matches!(subject.check(), Some(Check::Http(_) | Check::Tls(_))) {
        one(CERTIFICATE, labels).set(f64::NAN);
    }
}

/// A series cannot be taken back; it can say that it knows nothing.
fn silence(labels: &Labels) {
    for name in [UP, TOOK, CERTIFICATE] {
        one(name, labels).set(f64::NAN);
    }
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
