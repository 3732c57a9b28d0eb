//! The network between any two goes silent in the middle of a large job, for longer than a lease, and comes back. Each
//! process lives in a network namespace, so that nobody is told: no connection breaks, nothing is refused.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use mutirao_core::Dice;
use mutirao_testkit::network::{Between, Network};
use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, installation::Setup, wait};

use super::{Effects, LEAVE, TASKS, ends_counted, ends_ok, services_folder, still_works};
use crate::said::SOON;

const LEASE: &str = "3s";
/// More than twice the lease: whoever is cut off is given up, and comes back to find out.
const SILENCE: Duration = Duration::from_secs(8);
/// Both ends of a connection to RabbitMQ have given it up by then: they wait 20 seconds.
const SILENCE_THAT_RABBITMQ_NOTICES: Duration = Duration::from_secs(26);

/// Two workers in their own namespace. They end with the test.
struct Away(Vec<Child>, #[expect(dead_code, reason = "their folders")] tempfile::TempDir);

impl Away {
    fn start(network: &Network, up: &Installation) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = |n: u32| {
            let token = up.ok(&["worker", "invite"]);
            let dir = folder.path().join(n.to_string()).display().to_string();
            let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir]);
            command.env("MUTIRAO_ENROL_TOKEN", token.trim());
            let mut command = network.among_workers(&command);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let away = Self((1..=2).map(start).collect(), folder);
        wait::until("the workers to show up", SOON, || up.workers().len() == 2);
        away
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn installation(network: &Network) -> Setup {
    Installation::setup().workers(0).listen(network.manager().into()).set("jobs.lease", LEASE)
}

/// Runs a large job with a silence in its middle.
fn survives(up: &Installation, network: &Network, between: Between, silence: Duration) {
    let workers = Away::start(network, up);
    let effects = Effects::new();
    let job = effects.submit(up, TASKS, "500m", LEAVE);
    effects.wait_for(1_500);
    network.cut(between).unwrap();
    wait::holds_within(silence, || false);
    assert!(effects.count() < TASKS as usize, "it was cut too late to prove anything");
    network.mend(between).unwrap();
    ends_ok(up, &job, TASKS);
    effects.check(TASKS).at_most_by(2, "two workers cut off at once");
    assert_eq!(ends_counted(up, "ok"), u64::from(TASKS), "outcomes count once");
    still_works(up);
    drop(workers);
}

/// A job over RabbitMQ with PostgreSQL behind the manager, and a silence between RabbitMQ and somebody.
fn survives_without_rabbitmq(between: fn(SocketAddr) -> Between) {
    let Some(mut network) = Network::lay(&Dice::from_os()) else { return };
    if shared(POSTGRES_VARIABLE).is_none() || shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = services_folder();
    let (database, broker) = (Service::postgres(folder.path()).unwrap(), Service::rabbitmq(folder.path()).unwrap());
    let front = network.front(broker.address()).unwrap();
    let up = installation(&network)
        .manager_alone()
        .env("MUTIRAO_DATABASE", database.url())
        .env("MUTIRAO_BROKER", &broker.url().replace(&broker.address().to_string(), &front.to_string()))
        .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
        .start();
    survives(&up, &network, between(front), SILENCE_THAT_RABBITMQ_NOTICES);
}

#[test]
fn a_silence_between_manager_and_workers_loses_no_task_and_counts_none_twice() {
    let Some(network) = Network::lay(&Dice::from_os()) else { return };
    let up = installation(&network).start();
    survives(&up, &network, Between::ManagerAndWorkers, SILENCE);
}

#[test]
fn a_silence_between_manager_and_database_loses_no_task_and_counts_none_twice() {
    let Some(mut network) = Network::lay(&Dice::from_os()) else { return };
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let folder = services_folder();
    let server = Service::postgres(folder.path()).unwrap();
    let front = network.front(server.address()).unwrap();
    let url = server.url().replace(&server.address().to_string(), &front.to_string());
    let up = installation(&network).env("MUTIRAO_DATABASE", &url).start();
    survives(&up, &network, Between::ManagerAnd(front), SILENCE);
}

#[test]
fn a_silence_between_manager_and_rabbitmq_loses_no_task_and_counts_none_twice() {
    survives_without_rabbitmq(Between::ManagerAnd);
}

#[test]
fn a_silence_between_workers_and_rabbitmq_loses_no_task_and_counts_none_twice() {
    survives_without_rabbitmq(Between::WorkersAnd);
}
