//! What a worker tells about tasks of requests that are followed: that they ran, from when to when, and how it ended.

use std::time::Duration;

use mutirao_core::Verdict;
use mutirao_core::envelope::Reports;
use mutirao_core::trace::{self, Followed, Span, Step};

pub(crate) fn ran(reports: &Reports) {
    for done in &reports.done {
        // Nearly none is.
        let Ok(followed) = done.trace.parse::<Followed>() else { continue };
        let outcome = &done.outcome;
        let verdict = outcome.verdict.as_str();
        let failed = (outcome.verdict != Verdict::Ok).then(|| outcome.reason.clone().unwrap_or_else(|| verdict.into()));
        trace::tell(Span {
            trace: followed.trace,
            id: followed.step(Step::Run, done.task, done.attempt),
            parent: followed.step(Step::Dispatch, done.task, done.attempt),
            name: "run",
            began_at: outcome.started_at,
            took: Duration::from_micros(outcome.usage.wall_us),
            notes: vec![
                ("mutirao.task", done.task.to_string()),
                ("mutirao.attempt", done.attempt.to_string()),
                ("mutirao.verdict", verdict.into()),
            ],
            failed,
        });
    }
}
