//! What a user writes under `elastic:` of a queue (or of another target), and what it means:
//!
//! ```yaml
//! elastic:
//!   min: 1
//!   max: 10
//!   policy:
//!     kind: hpa
//!     metrics:
//!       - { source: ready, target: { per_worker: 200 } }
//!     behaviour:
//!       up: { window: 60s, policies: [{ percent: 50, per: 60s }, { count: 2, per: 60s }] }
//!       down: { window: 120s }
//! ```
//!
//! or `elastic: { preset: sentryweb-workers }`, where anything said beside the preset replaces that part of it.
//!
//! Reading a policy only gives it its shape; [`Elastic::check`] says whether it makes sense. Not here: what follows from it
//! ([`decide`](mod@crate::decide)).

mod check;
pub mod hpa;
mod preset;
mod wait_goal;

use mutirao_core::quantity::Span;
use serde::{Deserialize, Serialize};

use crate::measure::Source;
pub use hpa::{Behaviour, Hpa, Metric, Rate, Rules, Select, Step, Target};
pub use preset::Preset;
pub use wait_goal::{Forecast, WaitGoal};

/// How old figures may be before they count as missing.
const STALE_AFTER: Span = Span::secs(60);

/// How many workers a target may have, and who decides between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Shape")]
pub struct Elastic {
    pub min: u32,
    pub max: u32,
    /// Figures older than this count as missing.
    pub stale_after: Span,
    pub policy: Policy,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Policy {
    NForN(NForN),
    Hpa(Hpa),
    Threshold(Threshold),
    WaitGoal(WaitGoal),
}

/// A worker for each task that waits or runs, at once; one less only when it has been spare for a while. Arrebol compared
/// with waiting tasks alone, which would remove the workers that are busy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NForN {
    /// How long a worker is idle before it may go.
    #[serde(default = "NForN::idle_wait")]
    pub idle_wait: Span,
    /// How many tasks one worker runs at once.
    #[serde(default = "one")]
    pub tasks_per_worker: u32,
}

impl NForN {
    fn idle_wait() -> Span {
        Span::secs(60)
    }
}

/// A step up while a figure is above a line, a step down while it is below another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    pub source: Source,
    /// A count, seconds, or percent, as the source has it.
    pub above: f64,
    /// Absent: nothing is ever removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    #[serde(default = "one")]
    pub step: u32,
    /// How long the figure must have been there.
    #[serde(default)]
    pub hold: Span,
    /// Between two steps: what was added takes time to show in the figure.
    #[serde(default = "Threshold::pause")]
    pub pause: Span,
}

impl Threshold {
    fn pause() -> Span {
        Span::secs(60)
    }
}

fn one() -> u32 {
    1
}

/// As it is written: a preset, or all of it, or a preset with parts replaced.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    preset: Option<Preset>,
    min: Option<u32>,
    max: Option<u32>,
    stale_after: Option<Span>,
    policy: Option<Policy>,
}

impl TryFrom<Shape> for Elastic {
    type Error = &'static str;

    fn try_from(shape: Shape) -> Result<Self, Self::Error> {
        let base = shape.preset.map(Preset::elastic);
        let from_base = |part: fn(&Elastic) -> u32| base.as_ref().map(part);
        Ok(Self {
            min: shape.min.or(from_base(|b| b.min)).unwrap_or(0),
            max: shape
                .max
                .or(from_base(|b| b.max))
                .ok_or("max is missing: say how many workers there may be at most")?,
            stale_after: shape.stale_after.or(base.as_ref().map(|b| b.stale_after)).unwrap_or(STALE_AFTER),
            policy: shape
                .policy
                .or(base.map(|b| b.policy))
                .ok_or("policy is missing: name one (kind: n_for_n, hpa, threshold or wait_goal), or a preset")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Elastic, String> {
        serde_json::from_str(json).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_written_reads_back_whole() {
        for preset in Preset::ALL {
            let elastic = preset.elastic();
            let text = serde_json::to_string(&elastic).unwrap();
            assert_eq!(read(&text), Ok(elastic), "{text}");
        }
    }

    #[test]
    fn a_preset_may_be_changed_in_part() {
        let elastic = read(r#"{"preset": "sentryweb-workers", "max": 25}"#).unwrap();
        assert_eq!((elastic.min, elastic.max), (1, 25));
        assert_eq!(elastic.policy, Preset::SentrywebWorkers.elastic().policy);
    }

    #[test]
    fn short_forms_get_their_defaults() {
        let elastic = read(r#"{"max": 5, "policy": {"kind": "n_for_n"}}"#).unwrap();
        let expected = NForN { idle_wait: Span::secs(60), tasks_per_worker: 1 };
        assert_eq!((elastic.min, elastic.policy), (0, Policy::NForN(expected)));
    }

    #[test]
    fn slips_are_named() {
        for (json, said) in [
            (r#"{"policy": {"kind": "n_for_n"}}"#, "max is missing"),
            (r#"{"max": 3}"#, "policy is missing"),
            (r#"{"max": 3, "policy": {"kind": "n_for_n", "idle": 5}}"#, "unknown field `idle`"),
            (r#"{"max": 3, "policy": {"kind": "magic"}}"#, "unknown variant `magic`"),
            (r#"{"preset": "kv-004"}"#, "unknown variant `kv-004`"),
            (r#"{"max": 3, "min_workers": 2, "preset": "arrebol"}"#, "unknown field `min_workers`"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}
