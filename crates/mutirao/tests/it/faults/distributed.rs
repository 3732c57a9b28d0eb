//! kill -9 in the middle of a large job, with manager and workers as processes of their own on a RabbitMQ and a PostgreSQL:
//! of each of the four. Each task ends once.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};

use super::{Effects, LEAVE, TASKS, ends_counted, ends_ok, services_folder, still_works};
use crate::rabbit::wait_until_queues_are_known;
use crate::said::SOON;
use crate::workers::Worker;

/// Another process, let in by a one-time token; what it says goes to a file.
pub fn worker(up: &Installation, folder: &Path, name: &str) -> (Worker, PathBuf) {
    let token = up.ok(&["worker", "invite"]);
    let (dir, log) = (folder.join(name), folder.join(format!("{name}.log")));
    let dir = dir.display().to_string();
    let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir, "--set", "worker.cpus=1"]);
    let said = std::fs::File::create(&log).unwrap();
    command.env("MUTIRAO_ENROL_TOKEN", token.trim()).stdout(Stdio::null()).stderr(said);
    (Worker(command.spawn().unwrap()), log)
}

/// A manager, two workers, and the two services.
struct Distributed {
    workers: Vec<(Worker, PathBuf)>,
    up: Installation,
    broker: Service,
    database: Service,
    folder: tempfile::TempDir,
}

impl Distributed {
    /// None, with a notice, when the run has no services.
    fn start() -> Option<Self> {
        shared(AMQP_VARIABLE)?;
        shared(POSTGRES_VARIABLE)?;
        let folder = services_folder();
        let database = Service::postgres(folder.path()).unwrap();
        let broker = Service::rabbitmq(folder.path()).unwrap();
        let up = Installation::setup()
            .manager_alone()
            // Shorter than the default, so that what a dead worker held does not wait for long.
            .set("jobs.lease", "3s")
            .env("MUTIRAO_DATABASE", database.url())
            .env("MUTIRAO_BROKER", broker.url())
            .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
            .start();
        let workers = vec![worker(&up, folder.path(), "one"), worker(&up, folder.path(), "two")];
        wait::until("the workers to come", SOON, || up.workers().len() == 2);
        wait_until_queues_are_known();
        Some(Self { workers, up, broker, database, folder })
    }
}

/// A large job with two disasters in its middle. How many ends the manager that runs at the end has counted; none, when
/// the run has no services.
fn survives_twice(what: &str, mut disaster: impl FnMut(&mut Distributed)) -> Option<u32> {
    let mut all = Distributed::start()?;
    let effects = Effects::new();
    let job = effects.submit(&all.up, TASKS, "500m", LEAVE);
    for effects_before in [1_000, 2_500] {
        effects.wait_for(effects_before);
        assert!(effects.count() < TASKS as usize, "it came too late to prove anything");
        disaster(&mut all);
    }
    ends_ok(&all.up, &job, TASKS);
    // What was out at a kill may run again, and only that.
    effects.check(TASKS).at_most_by(2, what);
    let counted = ends_counted(&all.up, "ok") as u32;
    still_works(&all.up);
    for (_, log) in &all.workers {
        let said = std::fs::read_to_string(log).unwrap();
        assert!(said.contains("takes tasks and reports over RabbitMQ"), "{said}");
    }
    Some(counted)
}

#[test]
fn a_killed_rabbitmq_loses_no_task_and_counts_none_twice() {
    let counted = survives_twice("RabbitMQ killed twice", |all| {
        all.broker.kill9();
        all.broker.restart().unwrap();
    });
    assert!(counted.is_none_or(|counted| counted == TASKS), "outcomes count once: {counted:?}");
}

#[test]
fn a_killed_postgresql_loses_no_task_and_counts_none_twice() {
    let counted = survives_twice("PostgreSQL killed twice", |all| {
        all.database.kill9();
        all.database.restart().unwrap();
    });
    assert!(counted.is_none_or(|counted| counted == TASKS), "outcomes count once: {counted:?}");
}

#[test]
fn killed_workers_on_rabbitmq_lose_no_task_and_count_none_twice() {
    let mut names = ["three", "four"].into_iter();
    let counted = survives_twice("two workers killed in turn", |all| {
        // Dropping it kills it, and waits until it is gone.
        drop(all.workers.remove(0));
        let (up, folder) = (&all.up, all.folder.path());
        all.workers.push(worker(up, folder, names.next().expect("two disasters")));
    });
    assert!(counted.is_none_or(|counted| counted == TASKS), "outcomes count once: {counted:?}");
}

#[test]
fn a_manager_killed_on_rabbitmq_loses_no_task_and_counts_none_twice() {
    let counted = survives_twice("the manager killed twice", |all| {
        all.up.kill9();
        all.up.restart();
    });
    assert!(counted.is_none_or(|counted| counted < TASKS), "what the first life counted, the third does not");
}
