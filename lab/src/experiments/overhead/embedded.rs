//! Manager, broker and two workers in this one process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::memory::{Limits, Memory};
use mutirao_core::auth::{DEFAULT_NAMESPACE, Principal, Role};
use mutirao_core::id::{QueueName, WorkerId};
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::task::Needs;
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_jobs::service::Submitted;
use mutirao_jobs::{Jobs, JobsParts, JobsSettings};
use mutirao_shards::{MemberId, Terms, store as leases};
use mutirao_store::blobs::FileBlobs;
use mutirao_store::{Database, FolderLock, Sqlite};

use super::{IN_PROCESS, Options, middle, noop_job};
use crate::proc;
use crate::report::Report;

pub fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rates = Vec::new();
    let mut ledger: BTreeMap<String, f64> = BTreeMap::new();
    for _ in 0..options.runs {
        let run = runtime.block_on(one_run(options.tasks))?;
        rates.push(run.tasks_per_s);
        for (thread, spent) in run.cpu {
            *ledger.entry(thread).or_default() += spent.as_secs_f64() * 1e6 / f64::from(options.tasks);
        }
    }
    report.goal("in-process workers", middle(rates), "tasks/s", IN_PROCESS);
    for (thread, us) in ledger {
        let per_task = us / options.runs as f64;
        if per_task >= 0.05 {
            report.row(format!("  CPU, threads \"{thread}\""), per_task, "µs/task");
        }
    }
    Ok(())
}

struct Run {
    tasks_per_s: f64,
    /// By name of thread, while the tasks ran.
    cpu: Vec<(String, Duration)>,
}

fn spent_since(before: &[(String, Duration)]) -> Vec<(String, Duration)> {
    let was = |thread: &str| before.iter().find(|(name, _)| name == thread).map_or(Duration::ZERO, |(_, cpu)| *cpu);
    let spent = |(name, cpu): (String, Duration)| {
        let cpu = cpu.saturating_sub(was(&name));
        (name, cpu)
    };
    proc::cpu_by_thread().into_iter().map(spent).collect()
}

async fn one_run(tasks: u32) -> anyhow::Result<Run> {
    let folder = tempfile::tempdir()?;
    let clock = SystemClock::shared();
    let dice = Arc::new(Dice::from_os());
    let steps = [leases::sqlite::MIGRATIONS, mutirao_jobs::MIGRATIONS].concat();
    let store = Sqlite::open(&folder.path().join("store.db"), &steps)?;
    let held = FolderLock::take(folder.path())?;
    let database = Database::from(store.clone());
    let broker = Memory::new(None, Limits::default());
    let blobs = Arc::new(FileBlobs::open(&folder.path().join("blobs"))?);
    let jobs = Jobs::start(JobsParts {
        store: database.clone(),
        leases: leases::open(&database, Some(&held)).await?,
        terms: Terms::alone(),
        member: MemberId::mint("lab"),
        address: "here".into(),
        broker: broker.clone(),
        roll: None,
        blobs: blobs.clone(),
        clock: clock.clone(),
        dice: dice.clone(),
        settings: JobsSettings::default(),
    })
    .await?;
    let mut workers = Vec::new();
    for n in 0..2 {
        let capacity = Needs { cpus: Cpus::ONE, memory: Bytes(1 << 30) };
        let dir = folder.path().join(format!("w{n}"));
        let config = mutirao_worker::Config::new(WorkerId(format!("w{n}")), QueueName::default(), capacity, dir);
        let (stopper, stop) = mutirao_worker::stop();
        let worker = mutirao_worker::run(config, broker.clone(), blobs.clone(), clock.clone(), dice.clone(), stop);
        workers.push((stopper, tokio::spawn(worker)));
    }
    while jobs.workers().await.0.len() < 2 {
        clock.sleep(Duration::from_millis(5)).await;
    }
    let owner =
        Principal { id: "lab".into(), name: "lab".into(), role: Role::Admin, namespace: DEFAULT_NAMESPACE.into() };
    let before = proc::cpu_by_thread();
    let begin = clock.monotonic();
    let Submitted::New(job) = jobs.submit(&owner, noop_job(tasks), None, "0".repeat(32)).await? else {
        anyhow::bail!("a job without a key cannot have come before");
    };
    wait_for_end(&jobs, job.id, clock.as_ref()).await?;
    let took = clock.monotonic().since(begin);
    let cpu = spent_since(&before);
    for (stopper, worker) in workers {
        stopper.now();
        worker.await??;
    }
    jobs.stop().await;
    store.close().await;
    Ok(Run { tasks_per_s: f64::from(tasks) / took.as_secs_f64(), cpu })
}

async fn wait_for_end(jobs: &Jobs, job: mutirao_core::JobKey, clock: &dyn Clock) -> anyhow::Result<()> {
    loop {
        let (view, _) = jobs.job(job).await?;
        if view.finished_at.is_some() {
            anyhow::ensure!(view.counts.ok == view.tasks, "not every task ended ok: {:?}", view.counts);
            return Ok(());
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
}
