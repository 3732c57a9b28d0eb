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

mod written;

use std::collections::BTreeMap;

use mutirao_core::Problem;
use mutirao_core::check::{checks_at, checks_of};
use mutirao_core::quantity::Span;
use mutirao_probes::Check;
use serde::{Deserialize, Serialize};

use crate::agenda::Missed;
use crate::alerts::rule::{self, Rule};
use crate::condition::Conditions;
use crate::grid::Grid;
use crate::health::Thresholds;
use crate::maintenance::{self, Window};
use crate::placement::Place;
use crate::push::Push;
use written::Written;

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
    pub subject: Subject,
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

/// What is watched.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A service that is asked.
    Check(Check),
    /// One that calls.
    Push(Push),
}

impl Subject {
    pub fn word(&self) -> &'static str {
        match self {
            Subject::Check(check) => check.word(),
            Subject::Push(_) => "push",
        }
    }

    /// What is asked, if anything is.
    pub fn check(&self) -> Option<&Check> {
        match self {
            Subject::Check(check) => Some(check),
            Subject::Push(_) => None,
        }
    }
}

/// The work queue in which checks wait that are to be made somewhere.
pub fn route_of(check: &Check, on: Option<&Place>) -> String {
    on.map_or_else(|| checks_of(check.kind()), |place| checks_at(check.kind(), &place.mark()))
}

impl MonitorSpec {
    fn timeout() -> Span {
        Span::secs(5)
    }

    /// The work queue in which its checks wait, if any are made.
    pub fn route(&self) -> Option<String> {
        self.subject.check().map(|check| route_of(check, self.on.as_ref()))
    }

    /// Whether it could work at all.
    pub fn check(&self) -> Result<(), Problem> {
        let Self { name, every, thresholds, labels, .. } = self;
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(fits) {
            let detail = format!("a name has 1 to {NAME_CHARS_MAX} letters, digits, dots, dashes and underscores");
            return Err(wrong("name", detail));
        }
        if every.0 < Grid::EVERY_MIN || every.0 > Grid::EVERY_MAX {
            return Err(wrong("every", format!("{every} is not between 1s and a year")));
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
        match &self.subject {
            Subject::Check(check) => self.check_asking(check),
            Subject::Push(push) => self.check_waiting(push),
        }
    }

    fn check_asking(&self, check: &Check) -> Result<(), Problem> {
        let Self { every, timeout, when, retries, .. } = self;
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
        self.on.as_ref().map_or(Ok(()), Place::check)?;
        check.check()?;
        Conditions::compile(when, check).map(drop)
    }

    /// What has no meaning for somebody who calls is a slip.
    fn check_waiting(&self, push: &Push) -> Result<(), Problem> {
        for (field, said) in [("when", !self.when.is_empty()), ("retries", self.retries > 0), ("on", self.on.is_some())]
        {
            if said {
                let detail = "nothing is asked of a service that calls";
                return Err(wrong(field, detail).remedy("leave it out, or give a check instead of push"));
            }
        }
        push.check(self.every.0)
    }
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid(field, detail)
}

#[cfg(test)]
mod tests;
