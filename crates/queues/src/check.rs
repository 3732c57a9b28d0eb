//! Whether a definition makes sense, before it is accepted. Each refusal names the field and what to write instead.

use std::time::Duration;

use mutirao_core::Problem;
use mutirao_core::check::{POOL, SCHEDULERS};
use mutirao_core::limits::{NAME_CHARS_MAX, RETRIES_MAX};
use mutirao_core::quantity::{Bytes, Span};

use crate::spec::{By, Defaults, FairShare, Limits, Policy, QueueSpec, Workers};

/// Names under `shares` of one queue.
const SHARES_MAX: usize = 1_000;
const WEIGHT_MAX: u32 = 1_000_000;
const HALF_LIFE_MIN: Duration = Duration::from_secs(1);
const HALF_LIFE_MAX: Duration = Duration::from_secs(365 * 86_400);
const STARTS_PER_SECOND_MAX: f64 = 1_000_000.0;
/// One a day: a queue that should start less is better paused.
const STARTS_PER_SECOND_MIN: f64 = 1.0 / 86_400.0;
const LABELS_MAX: usize = 64;
/// Less is a slip of the pen: no process fits.
const WORKER_MEMORY_MIN: Bytes = Bytes(1 << 20);

impl QueueSpec {
    /// Everything that can be said against it without looking at what else is there.
    pub fn check(&self) -> Result<(), Problem> {
        for (pool, whose) in [(POOL, "checkers"), (SCHEDULERS, "schedulers")] {
            if self.name.as_str() == pool {
                return Err(
                    wrong("name", format!("{pool} is the name of the pool of {whose}")).remedy("choose another")
                );
            }
        }
        if let Policy::FairShare(fair) = &self.policy {
            fair.check().map_err(|problem| problem.under("policy.fair_share"))?;
        }
        self.workers.check().map_err(|problem| problem.under("workers"))?;
        self.limits.check().map_err(|problem| problem.under("limits"))?;
        self.defaults.check().map_err(|problem| problem.under("defaults"))?;
        match &self.elastic {
            Some(elastic) => elastic.check().map_err(|problem| problem.under("elastic")),
            None => Ok(()),
        }
    }
}

impl FairShare {
    fn check(&self) -> Result<(), Problem> {
        if let By::Label(label) = &self.by
            && (label.is_empty() || label.chars().count() > NAME_CHARS_MAX)
        {
            return Err(wrong("by.label", format!("a label has 1 to {NAME_CHARS_MAX} characters"))
                .remedy("write it like { label: team }"));
        }
        if self.half_life.0 < HALF_LIFE_MIN || self.half_life.0 > HALF_LIFE_MAX {
            return Err(wrong("half_life", format!("{} is not between 1s and a year", self.half_life))
                .remedy("write a time like 1h"));
        }
        if self.shares.len() > SHARES_MAX {
            return Err(wrong("shares", format!("{} are more than {SHARES_MAX}", self.shares.len()))
                .remedy("name only those who get more than one share"));
        }
        for (who, weight) in &self.shares {
            if *weight == 0 || *weight > WEIGHT_MAX {
                return Err(wrong(&format!("shares.{who}"), format!("{weight} is not between 1 and {WEIGHT_MAX}"))
                    .remedy("a share of nothing would never be served; to hold somebody back give the others more"));
            }
        }
        Ok(())
    }
}

impl Workers {
    fn check(&self) -> Result<(), Problem> {
        if self.cpus.is_some_and(|cpus| cpus.milli == 0) {
            return Err(wrong("cpus", "a worker without any cpu runs nothing").remedy("write it like 2, 0.5 or 250m"));
        }
        if let Some(memory) = self.memory.filter(|memory| *memory < WORKER_MEMORY_MIN) {
            return Err(wrong("memory", format!("{memory} is too little for any process"))
                .remedy("write it with a unit, like 512M or 2GiB"));
        }
        let too_long = |text: &str| text.chars().count() > NAME_CHARS_MAX || text.contains('\0');
        if self.labels.len() > LABELS_MAX
            || self.labels.iter().any(|(name, value)| name.is_empty() || too_long(name) || too_long(value))
        {
            return Err(wrong(
                "labels",
                format!("at most {LABELS_MAX}, each name and value of 1 to {NAME_CHARS_MAX} characters"),
            ));
        }
        Ok(())
    }
}

impl Limits {
    fn check(&self) -> Result<(), Problem> {
        const NONE: &str = "leave it out for no limit; to hold work back, pause the queue";
        if self.running == Some(0) {
            return Err(wrong("running", "nothing could ever run").remedy(NONE));
        }
        if let Some(rate) = self.starts_per_second
            && !(STARTS_PER_SECOND_MIN..=STARTS_PER_SECOND_MAX).contains(&rate)
        {
            return Err(wrong(
                "starts_per_second",
                format!("{rate} is not between one a day and {STARTS_PER_SECOND_MAX}"),
            )
            .remedy(NONE));
        }
        if self.waiting == Some(0) {
            return Err(wrong("waiting", "no job could ever be submitted").remedy(NONE));
        }
        Ok(())
    }
}

impl Defaults {
    fn check(&self) -> Result<(), Problem> {
        if let Some(retry) = self.retry.filter(|retry| retry.retries > RETRIES_MAX) {
            let detail = format!("{} is too many, the most is {RETRIES_MAX}", retry.retries);
            return Err(wrong("retry.retries", detail));
        }
        if self.timeout == Some(Span::default()) {
            return Err(wrong("timeout", "is zero").remedy("leave it out for no limit"));
        }
        Ok(())
    }
}

fn wrong(field: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid(field, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(rest: &str) -> String {
        let json = format!(r#"{{"name": "q", {rest}}}"#);
        let queue: QueueSpec = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"));
        queue.check().expect_err(&json).line()
    }

    #[test]
    fn refusals_name_the_field_and_the_remedy() {
        const NONE: &str = "leave it out for no limit; to hold work back, pause the queue";
        for (rest, line) in [
            (r#""limits": {"running": 0}"#, format!("limits.running: nothing could ever run; {NONE}")),
            (
                r#""limits": {"starts_per_second": 0}"#,
                format!("limits.starts_per_second: 0 is not between one a day and 1000000; {NONE}"),
            ),
            (
                r#""limits": {"starts_per_second": -2.5}"#,
                format!("limits.starts_per_second: -2.5 is not between one a day and 1000000; {NONE}"),
            ),
            (r#""limits": {"waiting": 0}"#, format!("limits.waiting: no job could ever be submitted; {NONE}")),
            (
                r#""workers": {"cpus": 0}"#,
                "workers.cpus: a worker without any cpu runs nothing; write it like 2, 0.5 or 250m".into(),
            ),
            (
                r#""workers": {"memory": 4}"#,
                "workers.memory: 4B is too little for any process; write it with a unit, like 512M or 2GiB".into(),
            ),
            (
                r#""policy": {"fair_share": {"half_life": "0s"}}"#,
                "policy.fair_share.half_life: 0s is not between 1s and a year; write a time like 1h".into(),
            ),
            (
                r#""policy": {"fair_share": {"shares": {"ana": 0}}}"#,
                "policy.fair_share.shares.ana: 0 is not between 1 and 1000000; a share of nothing would never be served; \
                 to hold somebody back give the others more"
                    .into(),
            ),
            (
                r#""policy": {"fair_share": {"by": {"label": ""}}}"#,
                "policy.fair_share.by.label: a label has 1 to 200 characters; write it like { label: team }".into(),
            ),
            (r#""defaults": {"timeout": 0}"#, "defaults.timeout: is zero; leave it out for no limit".into()),
            (
                r#""defaults": {"retry": {"retries": 5000}}"#,
                "defaults.retry.retries: 5000 is too many, the most is 1000".into(),
            ),
            (
                r#""elastic": {"preset": "arrebol", "max": 0}"#,
                "elastic.max: no worker could ever start; set it to 1 or more; to hold work back, pause the queue"
                    .into(),
            ),
        ] {
            assert_eq!(refusal(rest), line);
        }
    }
}
