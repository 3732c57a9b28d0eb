//! Two managers as processes of their own, on one PostgreSQL and one RabbitMQ: the one that owns the queue is killed,
//! frozen past its lease, or cut off one of the two, in the middle of a large job. Each task ends once.

use std::time::Duration;

use mutirao_core::envelope::shard_of;
use mutirao_core::shard::{JOBS_SHARDS, ShardView};
use mutirao_core::{Dice, QueueName};
use mutirao_testkit::network::{Between, Network};
use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};
use rustix::process::Signal;

use super::distributed::worker;
use super::{Effects, LEAVE, TASKS, ends_ok, send, services_folder, still_works};
use crate::rabbit::wait_until_queues_are_known;
use crate::said::{SOON, Said};
use crate::workers::Worker;

/// A lease, a takeover, and a busy machine.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(90);

struct Pair {
    owner: Installation,
    other: Installation,
    workers: Vec<Worker>,
    _services: [Service; 2],
    folder: tempfile::TempDir,
}

impl Pair {
    /// None, with a notice, when the run has no services.
    fn start() -> Option<Self> {
        shared(AMQP_VARIABLE)?;
        shared(POSTGRES_VARIABLE)?;
        let folder = services_folder();
        let services = [Service::postgres(folder.path()).unwrap(), Service::rabbitmq(folder.path()).unwrap()];
        let [database, broker] = &services;
        let manager = || {
            Installation::setup()
                .manager_alone()
                .env("MUTIRAO_DATABASE", database.url())
                .env("MUTIRAO_BROKER", broker.url())
                .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
                .start()
        };
        let pair = Self::of(manager(), manager(), services, folder);
        // Let in by one, and heard by whoever owns their queue.
        Some(pair.with_workers(|pair| [&pair.other, &pair.owner]))
    }

    /// Two managers that share everything.
    fn of(one: Installation, two: Installation, services: [Service; 2], folder: tempfile::TempDir) -> Self {
        wait::until("both to have a share", SOON, || {
            let shards = shards(&one);
            [&one, &two].iter().all(|manager| owned(&shards, manager) > 0)
                && owned(&shards, &one) + owned(&shards, &two) == 16
        });
        let home = shard_of(&QueueName::default());
        let owns = shards(&one).iter().any(|view| view.shard == home && view.address == Some(one.url()));
        let (owner, other) = if owns { (one, two) } else { (two, one) };
        Self { owner, other, workers: Vec::new(), _services: services, folder }
    }

    /// And two workers, each let in by a manager.
    fn with_workers(mut self, by: fn(&Self) -> [&Installation; 2]) -> Self {
        let hire = |(manager, name): (&Installation, &str)| worker(manager, self.folder.path(), name).0;
        self.workers = by(&self).into_iter().zip(["one", "two"]).map(hire).collect();
        for manager in [&self.owner, &self.other] {
            wait::until("the workers to come", SOON, || manager.workers().len() == 2);
        }
        wait_until_queues_are_known();
        self
    }
}

/// Those of the queues.
fn shards(manager: &Installation) -> Vec<ShardView> {
    let mut all: Vec<ShardView> = serde_json::from_str(&manager.ok(&["--json", "shard", "list"])).unwrap();
    all.retain(|view| view.group == "jobs");
    all
}

fn owned(shards: &[ShardView], manager: &Installation) -> usize {
    shards.iter().filter(|view| view.address == Some(manager.url())).count()
}

#[test]
fn one_of_two_managers_killed_loses_no_task_and_counts_none_twice() {
    let Some(mut pair) = Pair::start() else { return };
    let effects = Effects::new();
    let job = effects.submit(&pair.other, TASKS, "500m", LEAVE);
    effects.wait_for(1_000);
    pair.owner.kill9();
    assert!(effects.count() < TASKS as usize, "it was killed too late to prove anything");
    let other = &pair.other;
    wait::until("the other to own everything", TAKEN_OVER_WITHIN, || {
        owned(&shards(other), other) == JOBS_SHARDS as usize
    });
    ends_ok(other, &job, TASKS);
    effects.check(TASKS).at_most_by(1, "a manager killed");
    still_works(other);
    wait::until("the shards of the others to be looked after too", TAKEN_OVER_WITHIN, || {
        Said::from(other.cli(&["doctor"])).out.contains("all 80 are looked after, by one manager")
    });
}

#[test]
fn one_of_two_managers_frozen_past_its_lease_changes_nothing_when_it_wakes() {
    let Some(pair) = Pair::start() else { return };
    let effects = Effects::new();
    let job = effects.submit(&pair.owner, TASKS, "500m", LEAVE);
    effects.wait_for(1_000);
    send(pair.owner.pid(), Signal::STOP);
    let other = &pair.other;
    let listed = Said::from(other.cli(&["worker", "list"]));
    assert!(listed.code == Some(0) && listed.err.contains("did not answer"), "{listed:?}");
    wait::until("the other to own everything", TAKEN_OVER_WITHIN, || {
        owned(&shards(other), other) == JOBS_SHARDS as usize
    });
    send(pair.owner.pid(), Signal::CONT);
    ends_ok(other, &job, TASKS);
    effects.check(TASKS).at_most_by(1, "a manager frozen");
    wait::until("both to have a share again", SOON, || owned(&shards(other), &pair.owner) > 0);
    for manager in [&pair.owner, other] {
        still_works(manager);
    }
}

#[test]
fn a_manager_that_is_restarted_gets_its_shards_back_and_the_other_keeps_its_own() {
    let Some(mut pair) = Pair::start() else { return };
    let owners = |manager: &Installation| {
        let views = shards(manager).into_iter();
        views.map(|view| (view.shard, view.owner, view.generation)).collect::<Vec<_>>()
    };
    let before = owners(&pair.other);
    assert!(pair.owner.terminate().success());
    wait::until("the other to own everything", SOON, || {
        owned(&shards(&pair.other), &pair.other) == JOBS_SHARDS as usize
    });
    pair.owner.restart();
    let name = |(shard, owner, _): &(_, _, _)| (*shard, Option::clone(owner));
    wait::until("everybody to have what it had", SOON, || {
        owners(&pair.other).iter().map(name).eq(before.iter().map(name))
    });
    let its_own = shards(&pair.other).into_iter().find(|view| view.address == Some(pair.other.url())).unwrap().owner;
    let kept = |rows: Vec<_>| rows.into_iter().filter(|(_, owner, _)| *owner == its_own).collect::<Vec<_>>();
    assert_eq!(kept(owners(&pair.other)), kept(before), "in the same generation");
    still_works(&pair.owner);
}

/// What one of two managers is cut off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Database,
    Broker,
}

/// Both ends of a connection to RabbitMQ have given it up by then: they wait 20 seconds.
const SILENCE_THAT_RABBITMQ_NOTICES: Duration = Duration::from_secs(26);

/// Each manager reaches both services by addresses of its own, so that one can be cut off without the other.
fn one_of_two_cut_off(cut: Cut) {
    let Some(mut network) = Network::lay(&Dice::from_os()) else { return };
    if shared(POSTGRES_VARIABLE).is_none() || shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = services_folder();
    let services = [Service::postgres(folder.path()).unwrap(), Service::rabbitmq(folder.path()).unwrap()];
    let [database, broker] = &services;
    let mut manager = || {
        let fronts = [database, broker].map(|service| network.front(service.address()).unwrap());
        let by = |service: &Service, front| service.url().replace(&service.address().to_string(), &format!("{front}"));
        let up = Installation::setup()
            .manager_alone()
            .env("MUTIRAO_DATABASE", &by(database, fronts[0]))
            .env("MUTIRAO_BROKER", &by(broker, fronts[1]))
            .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
            .start();
        (up, fronts)
    };
    let ((one, fronts_of_one), (two, fronts_of_two)) = (manager(), manager());
    let url_of_one = one.url();
    let pair = Pair::of(one, two, services, folder);
    let fronts = if pair.owner.url() == url_of_one { fronts_of_one } else { fronts_of_two };
    // They speak with RabbitMQ by the address of whoever let them in, and that is not cut.
    let pair = pair.with_workers(|pair| [&pair.other, &pair.other]);
    let Pair { owner, other, .. } = &pair;
    let between = Between::ManagerAnd(if cut == Cut::Database { fronts[0] } else { fronts[1] });
    let effects = Effects::new();
    let job = effects.submit(other, TASKS, "500m", LEAVE);
    effects.wait_for(1_000);
    network.cut(between).unwrap();
    assert!(effects.count() < TASKS as usize, "it was cut too late to prove anything");
    match cut {
        Cut::Database => wait::until("the other to own everything", TAKEN_OVER_WITHIN, || {
            owned(&shards(other), other) == JOBS_SHARDS as usize
        }),
        Cut::Broker => drop(wait::holds_within(SILENCE_THAT_RABBITMQ_NOTICES, || false)),
    }
    network.mend(between).unwrap();
    ends_ok(other, &job, TASKS);
    effects.check(TASKS).at_most_by(1, "one of two managers cut off");
    wait::until("both to have a share again", TAKEN_OVER_WITHIN, || owned(&shards(other), owner) > 0);
    for manager in [owner, other] {
        still_works(manager);
    }
}

#[test]
fn one_of_two_managers_cut_off_the_database_loses_its_shards_and_no_task() {
    one_of_two_cut_off(Cut::Database);
}

#[test]
fn one_of_two_managers_cut_off_rabbitmq_loses_no_task_and_counts_none_twice() {
    one_of_two_cut_off(Cut::Broker);
}
