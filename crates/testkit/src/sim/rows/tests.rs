//! The model of the store against the real one: the same random history, and after each step the same books.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::id::QueueName;
use mutirao_core::task::{Action, TaskSpec};
use mutirao_core::{Dice, Outcome, Timestamp, Verdict};
use mutirao_jobs::desk::order::Rank;
use mutirao_jobs::entries::Kind;
use mutirao_jobs::store::{Created as ReallyCreated, NewJob, Settling, Shared, open};
use mutirao_jobs::{GROUP, MIGRATIONS};
use mutirao_queues::QueueSpec;
use mutirao_shards::store::{self as leases, Mark};
use mutirao_shards::{Fence, MemberId};
use mutirao_store::{Database, Migration, Sqlite};

use super::*;

const HISTORIES: u64 = 12;
const STEPS: usize = 40;
const TASKS: u32 = 6;
const JOBS_MAX: u64 = 4;

fn definition(queue: &QueueName) -> Definition {
    let spec = TaskSpec::new(Action::Noop {});
    let (retry, needs) = (spec.retry.unwrap_or_default(), spec.needs);
    let shard = shard_of_queue(queue);
    let rank = Rank::default();
    Definition { queue: queue.clone(), shard, first: 1, total: TASKS, retry, needs, rank, spec: Arc::new(spec) }
}

fn new_job(definition: &Definition, key: u64) -> NewJob {
    NewJob {
        namespace: "default".into(),
        owner: "ana".into(),
        name: None,
        queue: definition.queue.clone(),
        labels: "{}".into(),
        priority: 0,
        spec: serde_json::to_string(&*definition.spec).unwrap(),
        kind: Kind::Index,
        first: definition.first,
        total: definition.total,
        segments: Vec::new(),
        trace: "0".repeat(32),
        created_at: Timestamp(1),
        idempotency: Some((key.to_string(), Vec::new())),
        unique: None,
        waits: Vec::new(),
    }
}

/// Ends, retries, last words and sessions, at random, of jobs that may be over or not exist.
fn settlement(dice: &Dice) -> Settlement {
    let task = || TaskKey { job: JobKey(1 + dice.below(JOBS_MAX)), index: 1 + dice.below(u64::from(TASKS)) as u32 };
    let attempt = || Some(Attempt { generation: 1, n: 1 + dice.below(3) as u32 });
    let ended = |how: Final| Ended {
        task: task(),
        how,
        attempt: attempt(),
        failures: dice.below(3) as u32,
        losses: 0,
        worker: Some(WorkerId("w".into())),
        outcome: Some(Outcome::new(Verdict::Ok, Timestamp(5))),
        at: Timestamp(9),
    };
    let again = || {
        let (tries, failures, losses) = (1, dice.below(3) as u32, dice.below(3) as u32);
        Again { task: task(), tries, failures, losses, not_before: Timestamp(dice.below(100) as i64) }
    };
    let session = || SessionId(format!("s{}", dice.below(3)));
    let change = || match dice.below(2) {
        0 => SessionChange::Came(session(), WorkerId("w".into()), QueueName::default()),
        _ => SessionChange::Went(session()),
    };
    Settlement {
        ended: (0..dice.below(5)).map(|_| ended(Final::ALL[dice.below(6) as usize])).collect(),
        late: (0..dice.below(2)).map(|_| ended(Final::Cancelled)).collect(),
        again: (0..dice.below(3)).map(|_| again()).collect(),
        sessions: (0..dice.below(2)).map(|_| change()).collect(),
        at: Timestamp(10),
    }
}

/// What a next owner would find, and what a person would see.
async fn books(store: &Shared, jobs: u64) -> Vec<String> {
    let shard = mutirao_core::envelope::shard_of(&QueueName::default());
    let open = store.open_jobs(store.open_keys(shard).await.unwrap()).await.unwrap().jobs;
    let mut lines: Vec<String> = open.iter().map(|job| recalled(job.key, &job.traces)).collect();
    for key in 1..=jobs {
        let (view, _) = store.job(JobKey(key)).await.unwrap().unwrap();
        lines.push(counted(JobKey(key), view.counts, view.finished_at.is_some()));
    }
    let mut sessions = store.sessions(shard).await.unwrap();
    sessions.sort();
    lines.push(format!("{sessions:?}"));
    lines
}

fn books_of_model(rows: &Rows) -> Vec<String> {
    let loaded = rows.load(shard_of_queue(&QueueName::default()), 0);
    let mut lines: Vec<String> = loaded.jobs.iter().map(|(job, _)| recalled(job.key, &job.traces)).collect();
    lines.extend(rows.jobs.iter().map(|(key, row)| counted(*key, row.counts, row.finished)));
    lines.push(format!("{:?}", loaded.sessions));
    lines
}

fn recalled(job: JobKey, traces: &[Trace]) -> String {
    let mut traces: Vec<String> = traces.iter().map(|trace| format!("{trace:?}")).collect();
    traces.sort();
    format!("{job:?}: {traces:?}")
}

fn counted(job: JobKey, counts: Counts, finished: bool) -> String {
    let Counts { ok, failed, timed_out, cancelled, lost, dead, .. } = counts;
    format!("{job:?}: {ok} {failed} {timed_out} {cancelled} {lost} {dead}, finished: {finished}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_of_the_store_keeps_the_same_books_as_the_real_one() {
    for seed in 0..HISTORIES {
        let dice = Dice::seeded(seed);
        let folder = tempfile::tempdir().unwrap();
        // The model counts from one, as stores do that were there before each began at a place of its own.
        let first_key = |step: &Migration| (step.component, step.version) == ("jobs", 7);
        let mut steps = [leases::sqlite::MIGRATIONS, MIGRATIONS].concat();
        steps.retain(|step| !first_key(step));
        let database: Database = Sqlite::open(&folder.path().join("store.db"), &steps).unwrap().into();
        let shards = leases::open(&database, None).await.unwrap();
        let (shard, me) = (ShardId(0), MemberId("m".into()));
        shards.claim(GROUP, shard, Mark::default(), &me, Duration::from_secs(10)).await.unwrap();
        let (store, mut rows) = (open(&database), Rows::default());
        let spec = Some(Rc::new(QueueSpec::new(QueueName::default())));
        rows.change_queue(&QueueChange { queue: QueueName::default(), number: 0, spec });
        for step in 0..STEPS {
            match dice.below(10) {
                0 | 1 => {
                    let (key, definition) = (dice.below(JOBS_MAX), definition(&QueueName::default()));
                    let real = store.create(new_job(&definition, key)).await.unwrap();
                    let model = rows.create(key, Rc::new(definition), None).unwrap();
                    let same = match real {
                        ReallyCreated::New(job) => (job, Created::New),
                        ReallyCreated::Before(job) | ReallyCreated::Clash(job) => (job, Created::Before),
                        other => panic!("a plain job in the queue default is made: {other:?}"),
                    };
                    assert_eq!(model, same, "seed {seed}, step {step}");
                }
                2 => {
                    let job = JobKey(1 + dice.below(JOBS_MAX));
                    let real = store.cancel(job, Timestamp(7)).await.unwrap();
                    assert_eq!(rows.cancel(job).is_some(), real, "seed {seed}, step {step}");
                }
                _ => {
                    let settlement = Arc::new(settlement(&dice));
                    let generation = 1 + u64::from(dice.below(8) == 0);
                    let fence = Fence { group: GROUP, shard, generation };
                    let real = store.settle(settlement.clone(), fence).await.unwrap();
                    assert_eq!(real == Settling::Written, generation == 1, "seed {seed}, step {step}");
                    if generation == 1 {
                        rows.settle(&settlement, None);
                    }
                }
            }
            let real = books(&store, rows.jobs.len() as u64).await;
            assert_eq!(books_of_model(&rows), real, "seed {seed}, step {step}");
        }
        database.close().await;
    }
}
