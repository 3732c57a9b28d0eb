//! kill -9 of RabbitMQ in the middle of a large job, with manager and workers as processes of their own and everything
//! kept in PostgreSQL. Each task ends once.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};

use super::{Effects, LEAVE, TASKS, ends_counted, ends_ok, still_works};
use crate::rabbit::wait_until_queues_are_known;
use crate::said::SOON;
use crate::workers::Worker;

/// Another process, let in by a one-time token; what it says goes to a file.
pub fn worker(up: &Installation, folder: &std::path::Path, name: &str) -> (Worker, std::path::PathBuf) {
    let token = up.ok(&["worker", "invite"]);
    let (dir, log) = (folder.join(name), folder.join(format!("{name}.log")));
    let dir = dir.display().to_string();
    let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir, "--set", "worker.cpus=1"]);
    let said = std::fs::File::create(&log).unwrap();
    command.env("MUTIRAO_ENROL_TOKEN", token.trim()).stdout(Stdio::null()).stderr(said);
    (Worker(command.spawn().unwrap()), log)
}

#[test]
fn a_killed_rabbitmq_loses_no_task_and_counts_none_twice() {
    if shared(AMQP_VARIABLE).is_none() || shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    // PostgreSQL runs as another user, who must be able to pass.
    let passable = std::fs::Permissions::from_mode(0o711);
    let folder = tempfile::Builder::new().permissions(passable).tempdir().unwrap();
    let database = Service::postgres(folder.path()).unwrap();
    let mut broker = Service::rabbitmq(folder.path()).unwrap();
    let up = Installation::setup()
        .manager_alone()
        .env("MUTIRAO_DATABASE", database.url())
        .env("MUTIRAO_BROKER", broker.url())
        .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
        .start();
    let workers = [worker(&up, folder.path(), "one"), worker(&up, folder.path(), "two")];
    wait::until("the workers to come", SOON, || up.workers().len() == 2);
    wait_until_queues_are_known();
    let effects = Effects::new();
    let job = effects.submit(&up, TASKS, "500m", LEAVE);

    effects.wait_for(1_000);
    broker.kill9();
    assert!(effects.count() < TASKS as usize, "it was killed too late to prove anything");
    broker.restart().unwrap();
    effects.wait_for(2_500);
    broker.kill9();
    broker.restart().unwrap();

    ends_ok(&up, &job, TASKS);
    // What was out at a kill may run again, and only that.
    effects.check(TASKS).at_most_by(2, "RabbitMQ killed twice");
    assert_eq!(ends_counted(&up, "ok"), u64::from(TASKS), "outcomes count once");
    still_works(&up);
    for (_, log) in &workers {
        let said = std::fs::read_to_string(log).unwrap();
        assert!(said.contains("takes tasks and reports over RabbitMQ"), "{said}");
    }
}
