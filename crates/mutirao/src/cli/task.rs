//! `mutirao task …`

mod letters;

use clap::{Args, Subcommand, ValueEnum};
use mutirao_client::{Client, DeadFilter, PageArgs};
use mutirao_core::job::{Retried, TaskState};
use mutirao_core::{Clock, JobKey, QueueName, SystemClock, TaskKey};

use super::out::{Out, Shape};
use super::{Globals, reach, show};
use crate::failure::{Exit, Failure};

#[derive(Debug, Args)]
pub struct TaskArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the tasks of a job
    List(ListArgs),
    /// Show one task, by an id such as j7f3k9q2.17
    Show { id: TaskKey },
    /// Say why it does not run, and what would let it
    Explain { id: TaskKey },
    /// Show tasks of all jobs that failed, timed out, were lost or given up
    Dead(DeadArgs),
    /// Try tasks anew that failed, timed out, were lost or given up
    Retry(RetryArgs),
    /// Show what the broker keeps because a worker or a manager could not make sense of it, or remove it
    #[command(args_conflicts_with_subcommands = true)]
    Letters(LettersArgs),
    /// Stop one task
    Cancel { id: TaskKey },
}

#[derive(Debug, Args)]
struct ListArgs {
    job: JobKey,
    /// Only those in this state
    #[arg(long)]
    state: Option<StateArg>,
    /// How many
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Go on where a former page ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
struct DeadArgs {
    /// Only those of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// Only those of this job
    #[arg(long)]
    job: Option<JobKey>,
    /// How many
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Go on where a former page ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
struct RetryArgs {
    /// Tasks, by ids such as j7f3k9q2.17
    #[arg(required_unless_present = "queue")]
    ids: Vec<TaskKey>,
    /// All of this queue
    #[arg(long, conflicts_with = "ids")]
    queue: Option<QueueName>,
}

#[derive(Debug, Args)]
struct LettersArgs {
    #[command(subcommand)]
    verb: Option<LettersVerb>,
    /// Of this queue only
    #[arg(long)]
    queue: Option<QueueName>,
    /// How many of each way
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

#[derive(Debug, Subcommand)]
enum LettersVerb {
    /// Remove such letters for good; the tasks they were about are handed out again without them
    Rm {
        /// Letters, by their ids
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// All there are
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Of this queue only
        #[arg(long)]
        queue: Option<QueueName>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateArg {
    Ready,
    Dispatched,
    Running,
    Ok,
    Failed,
    TimedOut,
    Cancelled,
    Lost,
    Dead,
}

impl From<StateArg> for TaskState {
    fn from(arg: StateArg) -> Self {
        match arg {
            StateArg::Ready => TaskState::Ready,
            StateArg::Dispatched => TaskState::Dispatched,
            StateArg::Running => TaskState::Running,
            StateArg::Ok => TaskState::Ok,
            StateArg::Failed => TaskState::Failed,
            StateArg::TimedOut => TaskState::TimedOut,
            StateArg::Cancelled => TaskState::Cancelled,
            StateArg::Lost => TaskState::Lost,
            StateArg::Dead => TaskState::Dead,
        }
    }
}

pub async fn run(globals: &Globals, args: TaskArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::List(args) => {
            let page = PageArgs { limit: Some(args.limit), cursor: args.cursor };
            let tasks = client.tasks(args.job, args.state.map(Into::into), page).await?;
            out.answer(&tasks, |tasks| show::tasks(&tasks.items))?;
            if let Some(cursor) = &tasks.next {
                out.note(format!("there are more: add --cursor {cursor}"));
            }
            Ok(())
        }
        Verb::Dead(args) => dead(&client, args, out).await,
        Verb::Retry(args) => retry(&client, args, out).await,
        Verb::Letters(LettersArgs { verb: Some(LettersVerb::Rm { ids, all: _, queue }), .. }) => {
            letters::remove(&client, queue.as_ref(), ids, out).await
        }
        Verb::Letters(LettersArgs { verb: None, queue, limit }) => {
            letters::list(&client, queue.as_ref(), limit, out).await
        }
        Verb::Show { id } => {
            let task = client.task(id).await?;
            out.answer(&task, |task| show::task(task, SystemClock.now()))
        }
        Verb::Explain { id } => out.answer(&client.explain_task(id).await?, show::explanation),
        Verb::Cancel { id } => {
            let task = client.cancel_task(id).await?;
            out.answer(&task, |task| format!("task {} is {}", task.id, show::state(task.state)))
        }
    }
}

async fn dead(client: &Client, args: DeadArgs, out: Out) -> Result<(), Failure> {
    let page = PageArgs { limit: Some(args.limit), cursor: args.cursor };
    let dead = client.dead_tasks(DeadFilter { queue: args.queue, job: args.job }, page).await?;
    let now = SystemClock.now();
    out.answer(&dead, |dead| show::dead_tasks(&dead.items, now))?;
    if let Some(cursor) = &dead.next {
        out.note(format!("there are more: add --cursor {cursor}"));
    }
    Ok(())
}

async fn retry(client: &Client, args: RetryArgs, out: Out) -> Result<(), Failure> {
    let mut sum = Retried::default();
    if let Some(queue) = &args.queue {
        sum = client.retry_queue(queue).await?;
    }
    for id in args.ids {
        let one = client.retry_task(id).await?;
        sum = Retried { tasks: sum.tasks + one.tasks, jobs: sum.jobs + one.jobs };
    }
    if sum.tasks == 0 {
        return Err(nothing_to_retry(out, &sum, "no such task failed, timed out, was lost or given up"));
    }
    out.answer(&sum, |sum| match sum.tasks {
        1 => "1 task is tried anew".into(),
        tasks => format!("{tasks} tasks are tried anew"),
    })
}

/// Nothing was there to be tried anew. A program is given the count all the same.
pub(super) fn nothing_to_retry(out: Out, retried: &Retried, why: &str) -> Failure {
    if out.shape == Shape::Json
        && let Err(failure) = out.answer(retried, |_| String::new())
    {
        return failure;
    }
    Failure::new(Exit::NotFound, format!("nothing is tried anew: {why}; `mutirao task dead` shows what could be"))
}
