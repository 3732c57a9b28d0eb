//! Whether a policy makes sense, before it is accepted. Each refusal names the field and what to write instead.

use std::time::Duration;

use mutirao_core::Problem;
use mutirao_core::quantity::Span;

use super::{Elastic, Hpa, Metric, NForN, Policy, Rules, Step, Target, Threshold, WaitGoal};
use crate::WORKERS_MAX;
use crate::measure::Source;

/// Metrics of one policy: each is looked at in every pass.
const METRICS_MAX: usize = 16;
/// Rates of one direction.
const RATES_MAX: usize = 16;
/// As long as Kubernetes remembers recommendations.
const WINDOW_MAX: Duration = Duration::from_secs(3_600);
/// Longer waits are no goal that a policy would be needed for.
const WAIT_MAX: Duration = Duration::from_secs(86_400);
/// Between what is no promise and what no number of workers can give.
const SHARE_MIN: f64 = 0.5;
const SHARE_MAX: f64 = 0.999;
/// Tasks that one worker runs at once.
const SLOTS_MAX: u32 = 1_000;
/// As long as Kubernetes remembers changes.
const PERIOD_MAX: Duration = Duration::from_secs(1_800);

impl Elastic {
    pub fn check(&self) -> Result<(), Problem> {
        if self.max == 0 {
            return Err(wrong("max", "no worker could ever start")
                .remedy("set it to 1 or more; to hold work back, pause the queue"));
        }
        if self.max > WORKERS_MAX {
            return Err(
                wrong("max", format!("{} workers are more than {WORKERS_MAX}", self.max)).remedy("set it lower")
            );
        }
        if self.min > self.max {
            return Err(wrong("min", format!("the floor {} is above the ceiling {}", self.min, self.max))
                .remedy("raise max or lower min"));
        }
        if self.stale_after.0.is_zero() {
            return Err(wrong("stale_after", "every figure would be too old").remedy("write a time like 60s"));
        }
        match &self.policy {
            Policy::NForN(policy) => policy.check(),
            Policy::Hpa(policy) => policy.check(self.min),
            Policy::Threshold(policy) => policy.check(),
            Policy::WaitGoal(policy) => policy.check(),
        }
        .map_err(|problem| problem.under("policy"))
    }
}

impl NForN {
    fn check(&self) -> Result<(), Problem> {
        if self.tasks_per_worker == 0 {
            return Err(
                wrong("tasks_per_worker", "a worker that runs nothing helps nobody").remedy("set it to 1 or more")
            );
        }
        within("idle_wait", self.idle_wait, WINDOW_MAX)
    }
}

impl Threshold {
    fn check(&self) -> Result<(), Problem> {
        positive("above", self.above)?;
        if let Some(below) = self.below {
            if !below.is_finite() || below < 0.0 {
                return Err(
                    wrong("below", format!("{below} is not a line to fall below")).remedy("write a number from 0")
                );
            }
            if below >= self.above {
                return Err(wrong(
                    "below",
                    format!("{below} is not under above, {}: it would add and remove in turn", self.above),
                )
                .remedy("leave a gap between the two"));
            }
        }
        if self.step == 0 {
            return Err(wrong("step", "a step of nothing changes nothing").remedy("set it to 1 or more"));
        }
        within("hold", self.hold, WINDOW_MAX)?;
        within("pause", self.pause, WINDOW_MAX)
    }
}

impl WaitGoal {
    fn check(&self) -> Result<(), Problem> {
        for (field, span, max) in
            [("wait", self.wait, WAIT_MAX), ("task", self.task, WAIT_MAX), ("boot", self.boot, WINDOW_MAX)]
        {
            if span.0.is_zero() {
                return Err(wrong(field, "no time at all cannot be kept to").remedy("write a time like 30s"));
            }
            within(field, span, max)?;
        }
        if !(SHARE_MIN..=SHARE_MAX).contains(&self.share) {
            return Err(wrong("share", format!("{} is not a share that can be promised", self.share))
                .remedy(format!("write a number from {SHARE_MIN} to {SHARE_MAX}, such as 0.95")));
        }
        if self.tasks_per_worker == 0 {
            return Err(
                wrong("tasks_per_worker", "a worker that runs nothing helps nobody").remedy("set it to 1 or more")
            );
        }
        if self.tasks_per_worker > SLOTS_MAX {
            return Err(wrong("tasks_per_worker", format!("{} are more than {SLOTS_MAX}", self.tasks_per_worker))
                .remedy("set it lower"));
        }
        within("idle_wait", self.idle_wait.unwrap_or_default(), WINDOW_MAX)
    }
}

impl Hpa {
    fn check(&self, min: u32) -> Result<(), Problem> {
        if self.metrics.is_empty() {
            return Err(
                wrong("metrics", "there is nothing to decide by").remedy("name at least one source with its target")
            );
        }
        if self.metrics.len() > METRICS_MAX {
            return Err(
                wrong("metrics", format!("{} are more than {METRICS_MAX}", self.metrics.len())).remedy("name fewer")
            );
        }
        for (i, metric) in self.metrics.iter().enumerate() {
            metric.check().map_err(|problem| problem.under(&format!("metrics[{i}].target")))?;
        }
        if min == 0 && !self.metrics.iter().any(|m| m.source.needs_no_worker()) {
            return Err(wrong(
                "metrics",
                "without a worker there is no cpu or memory of workers to measure, so none would ever start",
            )
            .remedy("add a metric of the queue, or set min to 1"));
        }
        tolerance("tolerance", self.tolerance)?;
        within("settle", self.settle, WINDOW_MAX)?;
        let Some(behaviour) = &self.behaviour else { return Ok(()) };
        behaviour.up.check().map_err(|problem| problem.under("behaviour.up"))?;
        behaviour.down.check().map_err(|problem| problem.under("behaviour.down"))
    }
}

impl Metric {
    fn check(&self) -> Result<(), Problem> {
        let (fits, takes) = match self.source {
            Source::Ready | Source::Running | Source::Unacknowledged => {
                (matches!(self.target, Target::PerWorker(_) | Target::Total(_)), "per_worker or total")
            }
            Source::OldestWait => (matches!(self.target, Target::Wait(_)), "wait"),
            Source::Cpu | Source::Memory => {
                (matches!(self.target, Target::Percent(_) | Target::PerWorker(_)), "percent or per_worker")
            }
            Source::HostCpu | Source::HostMemory => (matches!(self.target, Target::Percent(_)), "percent"),
        };
        if !fits {
            return Err(
                wrong("", format!("{} has no target of this kind", self.source.name())).remedy(format!("give {takes}"))
            );
        }
        match self.target {
            Target::PerWorker(value) => positive("per_worker", value),
            Target::Total(value) => positive("total", value),
            Target::Percent(value) => positive("percent", value),
            Target::Wait(wait) if wait.0.is_zero() => {
                Err(wrong("wait", "nobody can wait for no time").remedy("write a time like 30s"))
            }
            Target::Wait(_) => Ok(()),
        }
    }
}

impl Rules {
    fn check(&self) -> Result<(), Problem> {
        within("window", self.window, WINDOW_MAX)?;
        if let Some(value) = self.tolerance {
            tolerance("tolerance", value)?;
        }
        if self.policies.is_empty() {
            return Err(wrong("policies", "none is left")
                .remedy("leave the field out for the usual ones, or set select to disabled"));
        }
        if self.policies.len() > RATES_MAX {
            return Err(
                wrong("policies", format!("{} are more than {RATES_MAX}", self.policies.len())).remedy("name fewer")
            );
        }
        for (i, rate) in self.policies.iter().enumerate() {
            let under = |problem: Problem| problem.under(&format!("policies[{i}]"));
            let (Step::Percent(step) | Step::Count(step)) = rate.step;
            if step == 0 {
                return Err(under(
                    wrong("", "a step of 0 allows no change").remedy("set it to 1 or more, or select to disabled"),
                ));
            }
            if rate.per.0.is_zero() {
                return Err(under(wrong("per", "a period of no time").remedy("write a time like 60s")));
            }
            within("per", rate.per, PERIOD_MAX).map_err(under)?;
        }
        Ok(())
    }
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid(field, detail)
}

fn positive(field: &str, value: f64) -> Result<(), Problem> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(wrong(field, format!("{value} is no target to aim at")).remedy("write a number above 0"))
}

fn tolerance(field: &str, value: f64) -> Result<(), Problem> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(wrong(field, format!("{value} is not a share of the target"))
        .remedy("write a number from 0 to below 1, such as 0.1"))
}

fn within(field: &str, span: Span, max: Duration) -> Result<(), Problem> {
    if span.0 <= max {
        return Ok(());
    }
    Err(wrong(field, format!("{span} is longer than {}", Span(max))).remedy("set it lower"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;

    fn refusal(json: &str) -> String {
        let elastic: Elastic = serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"));
        elastic.check().expect_err(json).line()
    }

    #[test]
    fn presets_make_sense() {
        for preset in Preset::ALL {
            assert_eq!(preset.elastic().check(), Ok(()), "{preset:?}");
        }
    }

    #[test]
    fn refusals_name_the_field_and_the_remedy() {
        let hpa = |rest: &str| {
            format!(
                r#"{{"min": 1, "max": 9, "policy": {{"kind": "hpa", "metrics": [{{"source": "ready", "target": {{"per_worker": 5}}}}], {rest}}}}}"#
            )
        };
        let metric =
            |metric: &str| format!(r#"{{"min": 1, "max": 9, "policy": {{"kind": "hpa", "metrics": [{metric}]}}}}"#);
        for (json, line) in [
            (
                r#"{"preset": "arrebol", "max": 0}"#.into(),
                "max: no worker could ever start; set it to 1 or more; to hold work back, pause the queue",
            ),
            (
                r#"{"preset": "arrebol", "min": 5, "max": 4}"#.into(),
                "min: the floor 5 is above the ceiling 4; raise max or lower min",
            ),
            (r#"{"preset": "arrebol", "max": 10001}"#.into(), "max: 10001 workers are more than 10000; set it lower"),
            (
                r#"{"max": 4, "policy": {"kind": "n_for_n", "tasks_per_worker": 0}}"#.into(),
                "policy.tasks_per_worker: a worker that runs nothing helps nobody; set it to 1 or more",
            ),
            (
                r#"{"max": 4, "policy": {"kind": "n_for_n", "idle_wait": "2h"}}"#.into(),
                "policy.idle_wait: 2h is longer than 1h; set it lower",
            ),
            (
                r#"{"max": 4, "policy": {"kind": "threshold", "source": "host_memory", "above": 70, "below": 75}}"#
                    .into(),
                "policy.below: 75 is not under above, 70: it would add and remove in turn; leave a gap between the two",
            ),
            (
                r#"{"max": 4, "policy": {"kind": "wait_goal", "wait": "0s"}}"#.into(),
                "policy.wait: no time at all cannot be kept to; write a time like 30s",
            ),
            (
                r#"{"max": 4, "policy": {"kind": "wait_goal", "wait": "2d"}}"#.into(),
                "policy.wait: 2days is longer than 1day; set it lower",
            ),
            (
                r#"{"max": 4, "policy": {"kind": "wait_goal", "wait": "30s", "share": 1}}"#.into(),
                "policy.share: 1 is not a share that can be promised; write a number from 0.5 to 0.999, such as 0.95",
            ),
            (
                r#"{"max": 4, "policy": {"kind": "wait_goal", "wait": "30s", "tasks_per_worker": 0}}"#.into(),
                "policy.tasks_per_worker: a worker that runs nothing helps nobody; set it to 1 or more",
            ),
            (
                r#"{"max": 4, "policy": {"kind": "wait_goal", "wait": "30s", "boot": "2h"}}"#.into(),
                "policy.boot: 2h is longer than 1h; set it lower",
            ),
            (
                r#"{"max": 4, "policy": {"kind": "hpa", "metrics": []}}"#.into(),
                "policy.metrics: there is nothing to decide by; name at least one source with its target",
            ),
            (
                metric(r#"{"source": "cpu", "target": {"wait": "5s"}}"#),
                "policy.metrics[0].target: cpu has no target of this kind; give percent or per_worker",
            ),
            (
                metric(r#"{"source": "ready", "target": {"total": 0}}"#),
                "policy.metrics[0].target.total: 0 is no target to aim at; write a number above 0",
            ),
            (
                metric(r#"{"source": "cpu", "target": {"percent": 70}}"#).replace(r#""min": 1"#, r#""min": 0"#),
                "policy.metrics: without a worker there is no cpu or memory of workers to measure, so none would ever start; add a metric of the queue, or set min to 1",
            ),
            (
                hpa(r#""tolerance": 1.5"#),
                "policy.tolerance: 1.5 is not a share of the target; write a number from 0 to below 1, such as 0.1",
            ),
            (
                hpa(r#""behaviour": {"up": {"policies": []}}"#),
                "policy.behaviour.up.policies: none is left; leave the field out for the usual ones, or set select to disabled",
            ),
            (
                hpa(r#""behaviour": {"down": {"policies": [{"percent": 10, "per": "1h"}]}}"#),
                "policy.behaviour.down.policies[0].per: 1h is longer than 30m; set it lower",
            ),
            (
                hpa(r#""behaviour": {"down": {"policies": [{"count": 0, "per": "1m"}]}}"#),
                "policy.behaviour.down.policies[0]: a step of 0 allows no change; set it to 1 or more, or select to disabled",
            ),
        ] {
            assert_eq!(refusal(&json), line);
        }
    }
}
