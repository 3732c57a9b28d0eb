//! `mutirao job …`

use clap::{Args, Subcommand, ValueEnum};
use mutirao_client::{Client, JobFilter, PageArgs, Reach};
use mutirao_core::blobs::LogStream;
use mutirao_core::job::{JobState, JobView};
use mutirao_core::{Clock, JobKey, QueueName, SystemClock, TaskKey};

use super::logs::{self, Streams};
use super::out::{Out, Shape};
use super::{Globals, merged, reach, show, submit, task, wait, watch};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct JobArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Submit a job; the same as `mutirao submit`
    Submit(Box<submit::SubmitArgs>),
    /// Show jobs, the newest first
    List(ListArgs),
    /// Show one job
    Show { id: JobKey },
    /// Stay until the job has ended, and end as it did
    Wait { id: JobKey },
    /// Print a line for each change of jobs, queues and workers, until Ctrl-C
    Watch,
    /// Print what its tasks wrote
    Logs(LogsArgs),
    /// Try those of its tasks anew that failed, timed out, were lost or given up
    Retry { id: JobKey },
    /// Stop it: running tasks are ended, waiting ones never begin
    Cancel { id: JobKey },
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only those in this state
    #[arg(long)]
    state: Option<StateArg>,
    /// Only those of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// Only those of this name
    #[arg(long)]
    name: Option<String>,
    /// Only those with this label
    #[arg(long, value_name = "NAME=VALUE")]
    label: Option<String>,
    /// How many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Go on where a former page ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
struct LogsArgs {
    id: JobKey,
    /// Only this task's
    #[arg(long, value_name = "INDEX")]
    task: Option<u32>,
    /// Stay and print more as it comes, until the end; of many tasks merged line by line, each line with its task's index
    #[arg(short, long)]
    follow: bool,
    /// Only this stream
    #[arg(long)]
    stream: Option<StreamArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateArg {
    Waiting,
    Running,
    Ok,
    Failed,
    Cancelled,
}

impl From<StateArg> for JobState {
    fn from(arg: StateArg) -> Self {
        match arg {
            StateArg::Waiting => JobState::Waiting,
            StateArg::Running => JobState::Running,
            StateArg::Ok => JobState::Ok,
            StateArg::Failed => JobState::Failed,
            StateArg::Cancelled => JobState::Cancelled,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StreamArg {
    Stdout,
    Stderr,
}

pub async fn run(globals: &Globals, args: JobArgs) -> Result<u8, Failure> {
    let verb = match args.verb {
        Verb::Submit(args) => return submit::run(globals, *args).await,
        verb => verb,
    };
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match verb {
        Verb::Submit(_) => unreachable!("answered above"),
        Verb::List(args) => list(&client, args, out).await.map(|()| 0),
        Verb::Show { id } => show_job(&client, id, out).await.map(|()| 0),
        Verb::Wait { id } => {
            let job = client.job(id).await?;
            wait::with_bar(&client, &job, out).await
        }
        Verb::Watch => watch::run(&client, out).await.map(|()| 0),
        Verb::Logs(args) => logs_of(&client, args, out).await.map(|()| 0),
        Verb::Retry { id } => {
            let retried = client.retry_job(id).await?;
            if retried.tasks == 0 {
                let why = format!("no task of job {id} failed, timed out, was lost or given up");
                return Err(task::nothing_to_retry(out, &retried, &why));
            }
            out.answer(&retried, |retried| match retried.tasks {
                1 => format!("1 task of job {id} is tried anew"),
                tasks => format!("{tasks} tasks of job {id} are tried anew"),
            })?;
            Ok(0)
        }
        Verb::Cancel { id } => {
            let job = client.cancel_job(id).await?;
            out.answer(&job, |job| format!("job {} is {}: {}", job.id, job.state.as_str(), show::counts(&job.counts)))?;
            Ok(0)
        }
    }
}

async fn list(client: &Client, args: ListArgs, out: Out) -> Result<(), Failure> {
    let page = PageArgs { limit: Some(args.limit), cursor: args.cursor };
    let filter = JobFilter { state: args.state.map(Into::into), queue: args.queue, name: args.name, label: args.label };
    let choosy = filter != JobFilter::default();
    let jobs = client.jobs(filter, page).await?;
    let now = SystemClock.now();
    out.answer(&jobs, |jobs| match jobs.items.as_slice() {
        [] if choosy => "no such jobs".into(),
        [] => "no jobs; `mutirao submit -- echo hello` makes one".into(),
        some => show::jobs(some, now),
    })?;
    if let Some(cursor) = &jobs.next {
        out.note(format!("there are more: add --cursor {cursor}"));
    }
    Ok(())
}

async fn show_job(client: &Client, id: JobKey, out: Out) -> Result<(), Failure> {
    let job = client.job(id).await?;
    let now = SystemClock.now();
    out.answer(&job, |job| show::job(job, now))?;
    if out.shape == Shape::Json {
        return Ok(());
    }
    if let Some(why) = why_waiting(client, &job).await? {
        out.note(why);
    }
    if job.counts.ended() > job.counts.ok {
        let culprit = super::verdict::of_job(client, &job).await?.1;
        if let Some(task) = &culprit {
            out.note(format!("the first that was not ok: {} {}", task.id, show::fate(task)));
            out.note(format!("its output: mutirao job logs {id} --task {}", task.id.index));
        }
    }
    Ok(())
}

/// The most common reason for a job that does not move.
async fn why_waiting(client: &Client, job: &JobView) -> Result<Option<String>, Failure> {
    if job.state != JobState::Waiting || !job.waits_for.is_empty() {
        return Ok(None);
    }
    let there = client.workers().await?.into_iter().any(|worker| worker.queue == job.queue && !worker.draining);
    let queue = &job.queue;
    Ok((!there)
        .then(|| format!("it waits because no worker takes tasks of the queue {queue}; see `mutirao worker list`")))
}

async fn logs_of(client: &Client, args: LogsArgs, out: Out) -> Result<(), Failure> {
    let streams = match args.stream {
        None => Streams::Both,
        Some(StreamArg::Stdout) => Streams::One(LogStream::Stdout),
        Some(StreamArg::Stderr) => Streams::One(LogStream::Stderr),
    };
    let reach = if args.follow { Reach::ToTheEnd } else { Reach::SoFar };
    let task = match args.task {
        Some(index) => TaskKey { job: args.id, index },
        None => {
            let job = client.job(args.id).await?;
            if job.tasks > 1 && reach == Reach::SoFar {
                return logs::copy_all(client, &job, streams, out).await;
            }
            if job.tasks > 1 {
                return merged::follow(client, &job, streams, out).await;
            }
            logs::only_task(client, job.id).await?
        }
    };
    logs::copy(client, task, streams, reach, out).await
}
