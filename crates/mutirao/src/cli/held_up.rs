//! What is said while somebody waits for a job and nothing of it runs: why, and what would let it go on.

use std::convert::Infallible;
use std::time::Duration;

use mutirao_client::{Client, ClientError, PageArgs};
use mutirao_core::job::TaskState;
use mutirao_core::{Clock, JobKey, SystemClock};
use mutirao_queues::{Explanation, Reason};

/// Between two looks. Most jobs begin before the first.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Who waits is told the first; `task explain` has them all.
const REASONS_MAX: usize = 2;

/// Said once, until other reasons take their place. Who cannot be asked now is asked again: the wait itself goes on.
pub async fn say(client: &Client, job: JobKey, note: impl Fn(String)) -> Infallible {
    let mut said = Vec::new();
    loop {
        SystemClock.sleep(LOOK_EVERY).await;
        let Ok(found) = why(client, job).await else { continue };
        // Known again by its remedy: figures such as the time until a retry change from look to look.
        let known: Vec<_> = found.iter().map(|reason| reason.remedy.clone()).collect();
        if !found.is_empty() && known != said {
            note(line(&found));
        }
        said = known;
    }
}

/// The weightiest reasons; none while something runs or nothing waits.
async fn why(client: &Client, job: JobKey) -> Result<Vec<Reason>, ClientError> {
    let view = client.job(job).await?;
    if view.counts.running + view.counts.dispatched > 0 || view.state.is_final() {
        return Ok(Vec::new());
    }
    let first = PageArgs { limit: Some(1), cursor: None };
    let waiting = client.tasks(job, Some(TaskState::Ready), first).await?;
    let Some(task) = waiting.items.first() else { return Ok(Vec::new()) };
    let Explanation { reasons, .. } = client.explain_task(task.id).await?;
    Ok(reasons.into_iter().take(REASONS_MAX).collect())
}

fn line(reasons: &[Reason]) -> String {
    let mut line = "nothing of it runs:".to_owned();
    for Reason { why, remedy } in reasons {
        line += &format!("\n- {why}");
        line.extend(remedy.iter().map(|remedy| format!("\n  {remedy}")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_with_what_would_change_it() {
        let reason = Reason { why: "it is paused".into(), remedy: Some("`mutirao queue resume q`".into()) };
        assert_eq!(line(&[reason]), "nothing of it runs:\n- it is paused\n  `mutirao queue resume q`");
    }
}
