//! The exit code of a job: that of the first of its tasks that was not ok.

use mutirao_client::{Client, ClientError, PageArgs};
use mutirao_core::job::{Counts, JobState, JobView, TaskState, TaskView};

const TIMED_OUT: u8 = 124;
const CANCELLED: u8 = 130;
const SIGNALLED: i32 = 128;
const FAILED: u8 = 1;

/// The code for one task.
pub fn of_task(task: &TaskView) -> u8 {
    match task.state {
        TaskState::Ok => 0,
        TaskState::TimedOut => TIMED_OUT,
        TaskState::Cancelled => CANCELLED,
        TaskState::Failed => match (task.exit, task.signal) {
            (Some(code), _) if code != 0 => u8::try_from(code).unwrap_or(FAILED),
            (_, Some(signal)) => u8::try_from(SIGNALLED + signal).unwrap_or(FAILED),
            _ => FAILED,
        },
        _ => FAILED,
    }
}

/// The code for a job that has ended, and the task it is taken from.
pub async fn of_job(client: &Client, job: &JobView) -> Result<(u8, Option<TaskView>), ClientError> {
    if job.state == JobState::Ok {
        return Ok((0, None));
    }
    let mut first: Option<TaskView> = None;
    for state in not_ok(&job.counts) {
        let Some(task) = first_in(client, job, state).await? else { continue };
        if first.as_ref().is_none_or(|first| task.id.index < first.id.index) {
            first = Some(task);
        }
    }
    Ok((first.as_ref().map_or(FAILED, of_task), first))
}

/// The lowest of a job's tasks in this state. A page of a filtered list may be empty and still have a next.
async fn first_in(client: &Client, job: &JobView, state: TaskState) -> Result<Option<TaskView>, ClientError> {
    let mut page = PageArgs { limit: Some(1), cursor: None };
    loop {
        let found = client.tasks(job.id, Some(state), page).await?;
        match (found.items.into_iter().next(), found.next) {
            (Some(task), _) => return Ok(Some(task)),
            (None, Some(cursor)) => page = PageArgs { limit: Some(1), cursor: Some(cursor) },
            (None, None) => return Ok(None),
        }
    }
}

fn not_ok(counts: &Counts) -> impl Iterator<Item = TaskState> {
    [
        (counts.failed, TaskState::Failed),
        (counts.timed_out, TaskState::TimedOut),
        (counts.cancelled, TaskState::Cancelled),
        (counts.lost, TaskState::Lost),
        (counts.dead, TaskState::Dead),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(_, state)| state)
}

#[cfg(test)]
mod tests {
    use mutirao_core::{JobKey, TaskKey};

    use super::*;

    fn ended(state: TaskState, exit: Option<i32>, signal: Option<i32>) -> u8 {
        let id = TaskKey { job: JobKey(1), index: 1 };
        let text = serde_json::json!({"id": id, "state": state, "exit": exit, "signal": signal});
        of_task(&serde_json::from_value(text).unwrap())
    }

    #[test]
    fn a_tasks_end_is_the_commands_end() {
        assert_eq!(ended(TaskState::Ok, Some(0), None), 0);
        assert_eq!(ended(TaskState::Failed, Some(42), None), 42);
        assert_eq!(ended(TaskState::Failed, None, Some(9)), 137);
        assert_eq!(ended(TaskState::Failed, Some(300), None), 1);
        assert_eq!(ended(TaskState::Failed, None, None), 1);
        assert_eq!(ended(TaskState::TimedOut, None, Some(15)), 124);
        assert_eq!(ended(TaskState::Cancelled, None, Some(15)), 130);
        assert_eq!((ended(TaskState::Lost, None, None), ended(TaskState::Dead, None, None)), (1, 1));
    }
}
