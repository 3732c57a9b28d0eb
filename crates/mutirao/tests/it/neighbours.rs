//! Workers beside each other: what one cannot begin, another that is free does.

use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};

use crate::faults::{distributed::worker, services_folder};
use crate::rabbit::wait_until_queues_are_known;
use crate::said::{SOON, Said};

const WORKERS: usize = 3;
/// Who gets what differs from time to time.
const TIMES: usize = 4;

/// Each task of a job waits for all the others, of which there are as many as places: were one to wait behind another, none
/// would ever end.
fn as_many_tasks_as_places_run_at_once(up: &Installation) {
    let folder = tempfile::tempdir().unwrap();
    let everybody = format!("1-{WORKERS}");
    for time in 0..TIMES {
        let here = folder.path().join(time.to_string());
        std::fs::create_dir(&here).unwrap();
        let here = here.display();
        let script = format!(
            "touch {here}/$MUTIRAO_TASK_INDEX; while [ $(ls {here} | wc -l) -lt {WORKERS} ]; do sleep 0.1; done"
        );
        let job = ["submit", "--wait", "--timeout", "60s", "--array", &everybody, "--", "sh", "-c", &script];
        let said = Said::from(up.cli(&job));
        assert_eq!(said.code, Some(0), "the {time}th time: {said:?}\n{}", up.stderr());
    }
}

#[test]
fn no_task_waits_at_a_busy_worker_while_another_is_idle() {
    let up = Installation::setup().workers(WORKERS as u32).set("worker.cpus", "1").start();
    as_many_tasks_as_places_run_at_once(&up);
}

#[test]
fn no_task_waits_at_a_busy_worker_while_another_is_idle_on_rabbitmq() {
    if shared(AMQP_VARIABLE).is_none() || shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let folder = services_folder();
    let broker = Service::rabbitmq(folder.path()).unwrap();
    let up = Installation::setup()
        .manager_alone()
        .env("MUTIRAO_BROKER", broker.url())
        .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
        .start();
    let _workers = ["one", "two", "three"].map(|name| worker(&up, folder.path(), name));
    wait::until("the workers to come", SOON, || up.workers().len() == WORKERS);
    wait_until_queues_are_known();
    as_many_tasks_as_places_run_at_once(&up);
}
