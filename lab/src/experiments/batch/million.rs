//! A million: how fast they are accepted, and what handing one out costs while they wait.

use std::time::Duration;

use mutirao_client::Client;
use mutirao_core::exec::Exec;
use mutirao_core::job::{JobSpec, JobView, Spread};
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{Clock, JobKey, QueueName, SystemClock};
use mutirao_queues::{Policy, QueueSpec};
use mutirao_testkit::Installation;

use super::{Ground, Options, WORKERS, down, on};
use crate::experiments::overhead::{client, middle, noop_job};
use crate::proc;
use crate::report::{Goal, Report};
use crate::services::Backend;

const ARRAY_S: Goal = Goal::AtMost(3.0);
const DISTINCT_S: Goal = Goal::AtMost(20.0);
/// Flat, but for noise.
const FLAT: Goal = Goal::AtMost(1.2);
const FEW_WAITING: u32 = 1_000;
/// Tasks that go first; enough to cost seconds of CPU.
const FIRST: u32 = 400_000;
/// Between these many of their ends it is measured: while everything runs, before and after.
const MEASURED: std::ops::Range<u64> = FIRST as u64 / 10..FIRST as u64 / 10 * 8;
const LOOK_EVERY: Duration = Duration::from_millis(10);
const DISTINCT_PER_JOB: u32 = 100_000;

pub fn measure(options: &Options, ground: &Ground, report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for backend in [Backend::Embedded, Backend::Distributed] {
        let up = ground.up(backend, 0)?;
        let client = client(&up)?;
        let on = on(backend);
        let array = runtime.block_on(seconds_to_accept(&client, vec![noop_job(options.many)]))?;
        report.goal(format!("array of {} accepted, {on}", options.many), array, "s", ARRAY_S);
        let distinct = runtime.block_on(seconds_to_accept(&client, distinct_jobs(options.many)))?;
        report.goal(format!("{} distinct accepted, {on}", options.many), distinct, "s", DISTINCT_S);
        down(up);
        let cost = |waiting: u32| -> anyhow::Result<f64> {
            let up = ground.up(backend, WORKERS)?;
            let cost = runtime.block_on(dispatch_cost_us(&up, waiting))?;
            down(up);
            Ok(cost)
        };
        // In turn, so that a drift of the machine hits both alike.
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for _ in 0..options.runs {
            few.push(cost(FEW_WAITING)?);
            many.push(cost(options.many)?);
        }
        let (few, many) = (middle(few), middle(many));
        report.row(format!("manager's CPU a task, {FEW_WAITING} wait behind it, {on}"), few, "µs");
        report.row(format!("manager's CPU a task, {} wait behind it, {on}", options.many), many, "µs");
        report.goal(format!("the second to the first, {on}"), many / few, "×", FLAT);
    }
    Ok(())
}

async fn seconds_to_accept(client: &Client, jobs: Vec<JobSpec>) -> anyhow::Result<f64> {
    let (begin, mut accepted) = (SystemClock.monotonic(), Vec::new());
    for job in &jobs {
        accepted.push(client.submit(job).await?.id);
    }
    let took = SystemClock.monotonic().since(begin).as_secs_f64();
    // Whoever comes next to this database has no business with them.
    for job in accepted {
        client.cancel_job(job).await?;
        end_of(client, job).await?;
    }
    Ok(took)
}

fn distinct_jobs(tasks: u32) -> Vec<JobSpec> {
    let command =
        |n: u32| vec!["process-one".to_owned(), format!("--input=/data/set-{n:08}.csv"), format!("--seed={}", n * 31)];
    let starts = (0..tasks).step_by(DISTINCT_PER_JOB as usize);
    let job = |first: u32| {
        let commands = (first..tasks.min(first + DISTINCT_PER_JOB)).map(command).collect();
        JobSpec { spread: Spread::Commands(commands), ..JobSpec::new(TaskSpec::new(Action::Exec(Exec::default()))) }
    };
    starts.map(job).collect()
}

/// CPU time of the manager for each task that is handed out and ends, while a job goes first and `waiting` others wait behind
/// it in the same queue. Those count as well as soon as they end: the window is filled with them before the first job is over,
/// and with a million behind it far more of them go out than with a thousand.
async fn dispatch_cost_us(up: &Installation, waiting: u32) -> anyhow::Result<f64> {
    let client = client(up)?;
    let queue = QueueName::default();
    let mut spec = QueueSpec { policy: Policy::Priority, ..QueueSpec::new(queue.clone()) };
    spec.paused = true;
    client.put_queue(&spec, None).await?;
    let behind = client.submit(&noop_job(waiting)).await?.id;
    let first = client.submit(&JobSpec { priority: 1, ..noop_job(FIRST) }).await?.id;
    client.resume_queue(&queue).await?;
    let mut looks = Vec::new();
    for least in [MEASURED.start, MEASURED.end] {
        let ended = ended_of(&client, first, least).await? + client.job(behind).await?.counts.ended();
        looks.push((ended, proc::cpu(up.pid())));
    }
    let ended = end_of(&client, first).await?;
    anyhow::ensure!(ended.counts.ok == u64::from(FIRST), "not every task ended ok: {:?}", ended.counts);
    client.cancel_job(behind).await?;
    end_of(&client, behind).await?;
    let [(begin, before), (end, after)] = looks[..] else { anyhow::bail!("there are two looks") };
    Ok((after - before).as_secs_f64() * 1e6 / (end - begin) as f64)
}

/// How many of a job's tasks have ended, once they are at least so many.
async fn ended_of(client: &Client, job: JobKey, least: u64) -> anyhow::Result<u64> {
    loop {
        let ended = client.job(job).await?.counts.ended();
        if ended >= least {
            return Ok(ended);
        }
        SystemClock.sleep(LOOK_EVERY).await;
    }
}

async fn end_of(client: &Client, job: JobKey) -> anyhow::Result<JobView> {
    loop {
        let view = client.job(job).await?;
        if view.finished_at.is_some() {
            return Ok(view);
        }
        SystemClock.sleep(LOOK_EVERY).await;
    }
}
