//! The horizontal autoscaler of Kubernetes (autoscaling/v2) as a user writes it here. Names follow this product; the meaning
//! of each field is Kubernetes'.
//!
//! | there | here |
//! |---|---|
//! | External and Object metric, `averageValue` | `target: { per_worker: N }` |
//! | External and Object metric, `value` | `target: { total: N }`, `{ wait: 30s }` |
//! | Resource metric, `averageUtilization` and `averageValue` | `target: { percent: N }`, `{ per_worker: N }` |
//! | `stabilizationWindowSeconds`, `selectPolicy`, `tolerance` | `window`, `select`, `tolerance` |
//! | policy of type `Pods` or `Percent`, `periodSeconds` | `{ count: N, per: 60s }`, `{ percent: N, per: 60s }` |

use mutirao_core::quantity::Span;
use serde::{Deserialize, Serialize};

use crate::measure::Source;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hpa {
    /// The largest count that any of them asks for is taken.
    pub metrics: Vec<Metric>,
    /// Absent: up to twice as many (or four) at once, down by the highest recommendation of five minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behaviour: Option<Behaviour>,
    /// How far from the target a figure may be without any change, where `behaviour` says nothing else.
    #[serde(default = "Hpa::tolerance")]
    pub tolerance: f64,
    /// How long after its report the cpu of a worker is not believed: starting up is busy work.
    #[serde(default = "Hpa::settle")]
    pub settle: Span,
}

impl Hpa {
    pub(crate) fn tolerance() -> f64 {
        0.1
    }

    pub(crate) fn settle() -> Span {
        Span::secs(30)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    pub source: Source,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TargetShape", into = "TargetShape")]
pub enum Target {
    /// Each worker's share of the figure; millicores or bytes for `cpu` and `memory`.
    PerWorker(f64),
    /// The figure as a whole.
    Total(f64),
    /// Of what the workers asked for, or of the machine.
    Percent(f64),
    /// Of the first in line.
    Wait(Span),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "BehaviourShape")]
pub struct Behaviour {
    pub up: Rules,
    pub down: Rules,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Up, the lowest recommendation of this window counts; down, the highest.
    pub window: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    pub select: Select,
    pub policies: Vec<Rate>,
}

/// Which of several rates counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// The one that allows the largest change.
    #[default]
    Max,
    /// The one that allows the smallest.
    Min,
    /// No change in this direction.
    Disabled,
}

/// By how much the count may change within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RateShape", into = "RateShape")]
pub struct Rate {
    pub step: Step,
    pub per: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Percent(u32),
    Count(u32),
}

impl Rate {
    pub const fn percent(percent: u32, per: Span) -> Self {
        Self { step: Step::Percent(percent), per }
    }

    pub const fn count(count: u32, per: Span) -> Self {
        Self { step: Step::Count(count), per }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step {
            Step::Percent(percent) => write!(f, "{percent} % in {}", self.per),
            Step::Count(count) => write!(f, "{count} in {}", self.per),
        }
    }
}

impl Rules {
    /// Doubling, or four more, every 15 s.
    pub fn up() -> Self {
        let per = Span::secs(15);
        Self {
            window: Span::secs(0),
            tolerance: None,
            select: Select::Max,
            policies: vec![Rate::percent(100, per), Rate::count(4, per)],
        }
    }

    /// All of them, once nobody has asked for more in five minutes.
    pub fn down() -> Self {
        Self {
            window: Span::secs(300),
            tolerance: None,
            select: Select::Max,
            policies: vec![Rate::percent(100, Span::secs(15))],
        }
    }

    pub fn window(self, window: Span) -> Self {
        Self { window, ..self }
    }

    pub fn policies(self, policies: Vec<Rate>) -> Self {
        Self { policies, ..self }
    }
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { up: Rules::up(), down: Rules::down() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BehaviourShape {
    #[serde(default)]
    up: RulesShape,
    #[serde(default)]
    down: RulesShape,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesShape {
    window: Option<Span>,
    tolerance: Option<f64>,
    #[serde(default)]
    select: Select,
    policies: Option<Vec<Rate>>,
}

impl RulesShape {
    fn over(self, base: Rules) -> Rules {
        Rules {
            window: self.window.unwrap_or(base.window),
            tolerance: self.tolerance,
            select: self.select,
            policies: self.policies.unwrap_or(base.policies),
        }
    }
}

impl From<BehaviourShape> for Behaviour {
    fn from(shape: BehaviourShape) -> Self {
        Self { up: shape.up.over(Rules::up()), down: shape.down.over(Rules::down()) }
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetShape {
    #[serde(skip_serializing_if = "Option::is_none")]
    per_worker: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Span>,
}

impl TryFrom<TargetShape> for Target {
    type Error = &'static str;

    fn try_from(shape: TargetShape) -> Result<Self, Self::Error> {
        match (shape.per_worker, shape.total, shape.percent, shape.wait) {
            (Some(each), None, None, None) => Ok(Target::PerWorker(each)),
            (None, Some(total), None, None) => Ok(Target::Total(total)),
            (None, None, Some(percent), None) => Ok(Target::Percent(percent)),
            (None, None, None, Some(wait)) => Ok(Target::Wait(wait)),
            _ => Err("a target is exactly one of per_worker, total, percent and wait"),
        }
    }
}

impl From<Target> for TargetShape {
    fn from(target: Target) -> Self {
        let none = Self::default();
        match target {
            Target::PerWorker(each) => Self { per_worker: Some(each), ..none },
            Target::Total(total) => Self { total: Some(total), ..none },
            Target::Percent(percent) => Self { percent: Some(percent), ..none },
            Target::Wait(wait) => Self { wait: Some(wait), ..none },
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateShape {
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    per: Span,
}

impl TryFrom<RateShape> for Rate {
    type Error = &'static str;

    fn try_from(shape: RateShape) -> Result<Self, Self::Error> {
        match (shape.percent, shape.count) {
            (Some(percent), None) => Ok(Rate::percent(percent, shape.per)),
            (None, Some(count)) => Ok(Rate::count(count, shape.per)),
            _ => Err("a policy is exactly one of percent and count, with its period: { percent: 50, per: 60s }"),
        }
    }
}

impl From<Rate> for RateShape {
    fn from(rate: Rate) -> Self {
        let (percent, count) = match rate.step {
            Step::Percent(percent) => (Some(percent), None),
            Step::Count(count) => (None, Some(count)),
        };
        Self { percent, count, per: rate.per }
    }
}
