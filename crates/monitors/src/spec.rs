//! A monitor's definition. Reading one only gives it its shape; [`MonitorSpec::check`] says whether it could work.
//!
//! ```yaml
//! kind: Monitor
//! name: shop
//! every: 30s
//! timeout: 5s
//! http: { url: https://shop.example.org/health }
//! when: [ "status == 200", "json.database == 'up'", "cert.days_left > 14" ]
//! retries: 1
//! thresholds: { failures: 3, successes: 2 }
//! alerts: [ { to: ops, remind: 1h } ]
//! labels: { team: web }
//! on: { layer: edge, labels: { zone: a } }
//! ```

use std::collections::BTreeMap;

use mutirao_core::Problem;
use mutirao_core::check::{checks_at, checks_of};
use mutirao_core::quantity::Span;
use mutirao_probes::Check;
use mutirao_probes::check::{Dns, Exec, Http, Icmp, Tcp, Tls};
use serde::{Deserialize, Serialize};

use crate::agenda::Missed;
use crate::alerts::rule::{self, Rule};
use crate::condition::Conditions;
use crate::grid::Grid;
use crate::health::Thresholds;
use crate::maintenance::{self, Window};
use crate::placement::Place;

const NAME_CHARS_MAX: usize = 100;
const RETRIES_MAX: u32 = 10;
const THRESHOLD_MAX: u32 = 1_000;
const LABELS_MAX: usize = 32;
const LABEL_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct MonitorSpec {
    pub name: String,
    pub every: Span,
    /// How long one check may take, its retries not counted.
    pub timeout: Span,
    pub ask: Check,
    /// What must hold of the answer. With none, any answer is good, but of HTTP only one below 400.
    pub when: Vec<String>,
    /// How often a bad answer is asked for again before it counts.
    pub retries: u32,
    pub thresholds: Thresholds,
    pub missed: Missed,
    /// When it may be away.
    pub maintenance: Vec<Window>,
    /// Who is told.
    pub alerts: Vec<Rule>,
    pub labels: BTreeMap<String, String>,
    /// Who makes its checks; with none, anybody.
    pub on: Option<Place>,
    pub paused: bool,
}

/// As it stands in a file: one key for each kind of check, of which one is there.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    every: Span,
    #[serde(default = "MonitorSpec::timeout")]
    timeout: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<Http>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tcp: Option<Tcp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<Tls>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dns: Option<Dns>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    icmp: Option<Icmp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exec: Option<Exec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    when: Vec<String>,
    #[serde(default)]
    retries: u32,
    #[serde(default)]
    thresholds: Thresholds,
    #[serde(default)]
    missed: Missed,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    maintenance: Vec<Window>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alerts: Vec<Rule>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on: Option<Place>,
    #[serde(default)]
    paused: bool,
}

impl TryFrom<Written> for MonitorSpec {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { http, tcp, tls, dns, icmp, exec, .. } = written;
        let asks = [
            http.map(Check::Http),
            tcp.map(Check::Tcp),
            tls.map(Check::Tls),
            dns.map(Check::Dns),
            icmp.map(Check::Icmp),
            exec.map(Check::Exec),
        ];
        let mut asks = asks.into_iter().flatten();
        let ask = match (asks.next(), asks.next()) {
            (Some(ask), None) => ask,
            (None, _) => return Err("it checks nothing: give one of http, tcp, tls, dns, icmp or exec".into()),
            (Some(one), Some(other)) => {
                return Err(format!(
                    "it has both {} and {}: a monitor makes one kind of check",
                    one.word(),
                    other.word()
                ));
            }
        };
        Ok(Self {
            name: written.name,
            every: written.every,
            timeout: written.timeout,
            ask,
            when: written.when,
            retries: written.retries,
            thresholds: written.thresholds,
            missed: written.missed,
            maintenance: written.maintenance,
            alerts: written.alerts,
            labels: written.labels,
            on: written.on,
            paused: written.paused,
        })
    }
}

impl From<MonitorSpec> for Written {
    fn from(spec: MonitorSpec) -> Self {
        let mut written = Self {
            name: spec.name,
            every: spec.every,
            timeout: spec.timeout,
            http: None,
            tcp: None,
            tls: None,
            dns: None,
            icmp: None,
            exec: None,
            when: spec.when,
            retries: spec.retries,
            thresholds: spec.thresholds,
            missed: spec.missed,
            maintenance: spec.maintenance,
            alerts: spec.alerts,
            labels: spec.labels,
            on: spec.on,
            paused: spec.paused,
        };
        match spec.ask {
            Check::Http(ask) => written.http = Some(ask),
            Check::Tcp(ask) => written.tcp = Some(ask),
            Check::Tls(ask) => written.tls = Some(ask),
            Check::Dns(ask) => written.dns = Some(ask),
            Check::Icmp(ask) => written.icmp = Some(ask),
            Check::Exec(ask) => written.exec = Some(ask),
        }
        written
    }
}

impl MonitorSpec {
    fn timeout() -> Span {
        Span::secs(5)
    }

    /// The work queue in which its checks wait.
    pub fn route(&self) -> String {
        let kind = self.ask.kind();
        self.on.as_ref().map_or_else(|| checks_of(kind), |place| checks_at(kind, &place.mark()))
    }

    pub fn check(&self) -> Result<(), Problem> {
        let Self { name, every, timeout, ask, when, retries, thresholds, labels, .. } = self;
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(fits) {
            let detail = format!("a name has 1 to {NAME_CHARS_MAX} letters, digits, dots, dashes and underscores");
            return Err(wrong("name", detail));
        }
        if every.0 < Grid::EVERY_MIN || every.0 > Grid::EVERY_MAX {
            return Err(wrong("every", format!("{every} is not between 1s and a year")));
        }
        if timeout.0.is_zero() {
            return Err(wrong("timeout", "no service answers in no time").remedy("write a time like 5s"));
        }
        if *retries > RETRIES_MAX {
            return Err(wrong("retries", format!("{retries} are too many, the most is {RETRIES_MAX}")));
        }
        let longest = timeout.0.saturating_mul(retries + 1);
        if longest > every.0 {
            let detail = format!("{every} is shorter than a check may take ({timeout}, tried {} times)", retries + 1);
            return Err(wrong("every", detail).remedy("check less often, or give it less time or fewer retries"));
        }
        let Thresholds { failures, successes, silence } = thresholds;
        for (field, figure) in [("failures", failures), ("successes", successes), ("silence", silence)] {
            if !(1..=THRESHOLD_MAX).contains(figure) {
                return Err(wrong(
                    &format!("thresholds.{field}"),
                    format!("{figure} is not between 1 and {THRESHOLD_MAX}"),
                ));
            }
        }
        if labels.len() > LABELS_MAX {
            return Err(wrong("labels", format!("{} are too many, the most is {LABELS_MAX}", labels.len())));
        }
        let long = |text: &str| text.is_empty() || text.chars().count() > LABEL_CHARS_MAX;
        if let Some((key, _)) = labels.iter().find(|(key, value)| long(key) || long(value)) {
            let field = format!("labels.{}", key.chars().take(40).collect::<String>());
            return Err(wrong(&field, format!("a label and its value have 1 to {LABEL_CHARS_MAX} characters")));
        }
        maintenance::check(&self.maintenance)?;
        rule::check(&self.alerts)?;
        self.on.as_ref().map_or(Ok(()), Place::check)?;
        ask.check()?;
        Conditions::compile(when, ask).map(drop)
    }
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid(field, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rest: &str) -> MonitorSpec {
        let json = format!(r#"{{"name": "shop", "every": "30s", "http": {{"url": "http://x"}}{rest}}}"#);
        serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"))
    }

    #[test]
    fn a_short_definition_is_whole() {
        let spec = read("");
        assert!(spec.check().is_ok());
        assert_eq!((spec.timeout, spec.thresholds.failures, spec.missed), (Span::secs(5), 3, Missed::Skip));
        let again: MonitorSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
    }

    #[test]
    fn it_makes_one_kind_of_check_and_knows_no_other_words() {
        for (json, words) in [
            (r#"{"name": "a", "every": "1m"}"#, "it checks nothing"),
            (r#"{"name": "a", "every": "1m", "tcp": {"address": "x:1"}, "icmp": {"host": "x"}}"#, "both tcp and icmp"),
            (r#"{"name": "a", "every": "1m", "tcp": {"address": "x:1"}, "retrys": 3}"#, "unknown field `retrys`"),
            (r#"{"name": "a", "every": "1m", "tcp": {"adress": "x:1"}}"#, "unknown field `adress`"),
        ] {
            let error = serde_json::from_str::<MonitorSpec>(json).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place_and_the_reason() {
        for (rest, line) in [
            (r#", "timeout": "31s""#, "every: 30s is shorter than a check may take (31s, tried 1 times)"),
            (r#", "timeout": "11s", "retries": 2"#, "every: 30s is shorter than a check may take (11s, tried 3 times)"),
            (r#", "timeout": "0s""#, "timeout: no service answers in no time"),
            (r#", "retries": 11"#, "retries: 11 are too many"),
            (
                r#", "thresholds": {"failures": 0, "successes": 1, "silence": 3}"#,
                "thresholds.failures: 0 is not between",
            ),
            (r#", "labels": {"": "x"}"#, "labels.: a label and its value"),
            (r#", "on": {}"#, "on: it names neither a layer nor labels"),
            (r#", "when": ["status = 200"]"#, "when[0]: status = 200 does not compile"),
        ] {
            let said = read(rest).check().expect_err(rest).line();
            assert!(said.starts_with(line), "{said}");
        }
        let short = MonitorSpec { every: Span(std::time::Duration::from_millis(500)), ..read("") };
        assert!(short.check().unwrap_err().line().starts_with("every: 500ms is not between 1s"));
        let bad = MonitorSpec { name: "a b".into(), ..read("") };
        assert!(bad.check().unwrap_err().line().starts_with("name: a name has"));
    }
}
