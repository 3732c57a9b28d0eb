//! A queue's definition. Reading one only gives it its shape; [`QueueSpec::check`] says whether it makes sense.
//!
//! ```yaml
//! kind: Queue
//! name: simulations
//! policy: { fair_share: { by: owner, half_life: 1h, shares: { physics: 3 } } }
//! workers: { cpus: 2, memory: 4GiB, labels: { disk: ssd }, layer: cloud }
//! limits: { running: 100, starts_per_second: 20, waiting: 1000000 }
//! defaults: { retry: { retries: 2 }, timeout: 10m }
//! elastic: { preset: arrebol, max: 20 }
//! ```

use std::collections::BTreeMap;

use mutirao_core::QueueName;
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::task::{Needs, Retry};
use mutirao_elastic::Elastic;
use mutirao_elastic::packing::{Amounts, Layer, Need};
use serde::{Deserialize, Serialize};

/// Where tasks wait, in which order they go, and what holds them back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    #[schema(value_type = String)]
    pub name: QueueName,
    #[serde(default)]
    pub policy: Policy,
    #[serde(default, skip_serializing_if = "Workers::is_any")]
    pub workers: Workers,
    #[serde(default, skip_serializing_if = "Limits::are_none")]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Defaults::are_none")]
    pub defaults: Defaults,
    /// Nothing is handed out. What is out already goes on.
    #[serde(default)]
    pub paused: bool,
    /// How many workers it gets; see docs/elastic.md.
    #[schema(value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Elastic>,
}

impl QueueSpec {
    /// First come, first served, without limits.
    pub fn new(name: QueueName) -> Self {
        Self {
            name,
            policy: Policy::default(),
            workers: Workers::default(),
            limits: Limits::default(),
            defaults: Defaults::default(),
            paused: false,
            elastic: None,
        }
    }
}

/// Whose task goes next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// First come, first served.
    #[default]
    Fifo,
    /// The highest priority first; among equals, first come.
    Priority,
    /// Whoever has used least lately; each one's own jobs by priority.
    FairShare(FairShare),
}

impl Policy {
    pub fn word(&self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Priority => "priority",
            Policy::FairShare(_) => "fair_share",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FairShare {
    /// Who shares.
    #[serde(default)]
    pub by: By,
    /// After this long, what was used counts half. Nobody who waits is passed over for longer than this.
    #[schema(value_type = String, example = "1h")]
    #[serde(default = "FairShare::half_life")]
    pub half_life: Span,
    /// How much more than others somebody gets. Who is not named counts one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<String, u32>,
}

impl FairShare {
    pub const fn half_life() -> Span {
        Span::secs(3_600)
    }
}

impl Default for FairShare {
    fn default() -> Self {
        Self { by: By::default(), half_life: Self::half_life(), shares: BTreeMap::new() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Whoever submitted the job.
    #[default]
    Owner,
    /// The value of this label of the job; jobs without it are one more.
    Label(String),
}

/// What each worker of the queue is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Workers {
    #[schema(value_type = Option<String>, example = "500m")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    #[schema(value_type = Option<String>, example = "2GiB")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Labels that their node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The layer that their node must be in.
    #[schema(value_type = Option<String>, example = "cloud")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
}

impl QueueSpec {
    /// What is known of its workers before there are any. A resource manager makes those of an elastic queue, with one cpu
    /// where nothing is said; how large others will be is up to whoever starts them.
    pub fn workers_to_come(&self) -> Workers {
        let usual = self.elastic.as_ref().map(|_| Needs::default().cpus);
        Workers { cpus: self.workers.cpus.or(usual), ..self.workers.clone() }
    }
}

impl Workers {
    /// What each of them takes of a node. One that is not told its size has room for one ordinary task.
    pub fn need(&self) -> Need {
        let usual = Needs::default();
        Need {
            amounts: Amounts::of(self.cpus.unwrap_or(usual.cpus), self.memory.unwrap_or(usual.memory)),
            labels: self.labels.clone(),
            layer: self.layer,
        }
    }

    fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

/// What holds a queue back. Absent: nothing does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Tasks that workers have at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// Tasks handed out in a second, on average and in bursts of at most a tenth of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_per_second: Option<f64>,
    /// Tasks that may wait; past it, submitting answers 429.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
}

impl Limits {
    fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// For jobs that do not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    #[schema(value_type = Option<String>, example = "10m")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

impl Defaults {
    fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<QueueSpec, String> {
        serde_json::from_str(json).map_err(|e| e.to_string())
    }

    #[test]
    fn a_name_alone_is_a_queue_and_what_is_written_reads_back() {
        let plain = QueueSpec::new("night".parse().unwrap());
        assert_eq!(read(r#"{"name": "night"}"#), Ok(plain.clone()));
        let whole = read(
            r#"{"name": "night", "policy": {"fair_share": {"by": {"label": "team"}, "half_life": "2h", "shares": {"a": 3}}},
                "workers": {"cpus": "500m", "memory": "1GiB", "labels": {"disk": "ssd"}, "layer": "fog"},
                "limits": {"running": 3, "starts_per_second": 0.5, "waiting": 10},
                "defaults": {"retry": {"retries": 2}, "timeout": "5m"}, "paused": true,
                "elastic": {"preset": "arrebol", "max": 4}}"#,
        )
        .unwrap();
        for queue in [plain, whole] {
            let text = serde_json::to_string(&queue).unwrap();
            assert_eq!(read(&text), Ok(queue), "{text}");
        }
    }

    #[test]
    fn workers_that_a_resource_manager_makes_have_a_size_before_they_are_there() {
        let cpus = |json: &str| read(json).unwrap().workers_to_come().cpus;
        assert_eq!(cpus(r#"{"name": "q"}"#), None);
        assert_eq!(cpus(r#"{"name": "q", "elastic": {"preset": "arrebol"}}"#), Some(Cpus::ONE));
        let sized = r#"{"name": "q", "workers": {"cpus": 4}, "elastic": {"preset": "arrebol"}}"#;
        assert_eq!(cpus(sized), Some(Cpus { milli: 4_000 }));
    }

    #[test]
    fn short_forms_get_their_defaults() {
        let queue = read(r#"{"name": "q", "policy": {"fair_share": {}}}"#).unwrap();
        assert_eq!(queue.policy, Policy::FairShare(FairShare::default()));
    }

    #[test]
    fn unknown_words_are_named_with_what_there_is() {
        for (json, said) in [
            (r#"{"name": "q", "policy": "lifo"}"#, "unknown variant `lifo`, expected one of `fifo`, `priority`"),
            (r#"{"name": "q", "limits": {"runing": 1}}"#, "unknown field `runing`, expected one of `running`"),
            (r#"{"name": "q", "workers": {"layer": "sky"}}"#, "unknown variant `sky`"),
            (r#"{"name": "a b"}"#, "is not a queue name"),
            (r#"{"policy": "fifo"}"#, "missing field `name`"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}
