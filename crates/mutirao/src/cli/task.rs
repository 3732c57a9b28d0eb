//! `mutirao task …`

use clap::{Args, Subcommand, ValueEnum};
use mutirao_client::PageArgs;
use mutirao_core::job::TaskState;
use mutirao_core::{Clock, JobKey, SystemClock, TaskKey};

use super::out::Out;
use super::{Globals, reach, show};
use crate::failure::Failure;

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
