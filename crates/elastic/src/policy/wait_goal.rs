//! A promise about waiting, kept with as few workers as it takes.

use mutirao_core::quantity::Span;
use serde::{Deserialize, Serialize};

use super::one;

/// So many of the tasks wait no longer than this before they begin. What is not said is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitGoal {
    /// The longest wait that is meant to happen.
    pub wait: Span,
    /// The share of the tasks for which it is promised, under a load that goes on.
    #[serde(default = "WaitGoal::share")]
    pub share: f64,
    /// How many tasks one worker runs at once.
    #[serde(default = "one")]
    pub tasks_per_worker: u32,
    /// What a task takes, until some have ended.
    #[serde(default = "WaitGoal::task")]
    pub task: Span,
    /// From wanting a worker to its first word, until one has come.
    #[serde(default = "WaitGoal::boot")]
    pub boot: Span,
    /// How long a worker without work is kept. Absent: as long as a new one takes to come, and half a minute at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_wait: Option<Span>,
    /// Whether the same hours of past days count.
    #[serde(default)]
    pub forecast: Forecast,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forecast {
    #[default]
    PastDays,
    None,
}

impl WaitGoal {
    fn share() -> f64 {
        0.95
    }

    fn task() -> Span {
        Span::secs(60)
    }

    fn boot() -> Span {
        Span::secs(60)
    }

    /// With everything else as usual.
    pub fn of(wait: Span) -> Self {
        Self {
            wait,
            share: Self::share(),
            tasks_per_worker: one(),
            task: Self::task(),
            boot: Self::boot(),
            idle_wait: None,
            forecast: Forecast::default(),
        }
    }
}
