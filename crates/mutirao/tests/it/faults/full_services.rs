//! The disk of a service fills up in the middle of a large job, and has room again later. Nothing that was accepted is
//! lost, whoever asks meanwhile is told in one line, and the work goes on by itself.

use std::time::Duration;

use mutirao_testkit::disk::{SmallDisk, tmpfs};
use mutirao_testkit::services::{AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};

use super::disk::{Ballast, submit_until_refused};
use super::{Effects, LEAVE, TASKS, ends_counted, ends_ok, json, services_folder, still_works};
use crate::database::say;
use crate::rabbit::wait_until_queues_are_known;
use crate::said::{SOON, Said};

/// RabbitMQ of the test kit stops taking messages when less than 50 MB are free.
const BELOW_THE_ALARM_BYTES: u64 = 30 << 20;
const LEASE: &str = "6s";
/// More than twice the lease.
const HELD_UP: Duration = Duration::from_secs(14);

/// Fills the disk of a RabbitMQ until it takes nothing more, and the installation says so.
fn fill_up(disk: &SmallDisk, up: &Installation) -> Ballast {
    let ballast = Ballast::leaving(disk.path(), BELOW_THE_ALARM_BYTES);
    wait::until("the shortage to be told", SOON, || {
        let answer = up.request("GET /readyz", b"");
        answer.status == 503 && answer.text().contains("short of memory or of disk")
    });
    ballast
}

#[test]
fn a_rabbitmq_without_room_on_its_disk_loses_no_task_and_runs_none_twice() {
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let Some(disk) = tmpfs("400m") else { return };
    let broker = Service::rabbitmq(disk.path()).unwrap();
    let up = Installation::setup()
        .set("jobs.lease", LEASE)
        .env("MUTIRAO_BROKER", broker.url())
        .env("MUTIRAO_BROKER_MANAGEMENT", broker.management_url().unwrap())
        .start();
    wait_until_queues_are_known();
    let (long, quick) = (Effects::new(), Effects::new());
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    // They say that they began, and outlast the shortage.
    let lasting = format!("{LEAVE}; until test -e {}; do sleep 0.2; done", done.display());
    let running = long.submit(&up, 2, "100m", &lasting);
    long.wait_for(2);
    // RabbitMQ looks at its disk every ten seconds or so: the job must not be over by then.
    let job = quick.submit(&up, TASKS, "500m", &format!("{LEAVE}; sleep 0.03"));
    quick.wait_for(1_000);

    let ballast = fill_up(&disk, &up);
    // Small enough for any worker: those that run all the time leave no whole cpu.
    let meanwhile = up.ok(&["submit", "--cpus", "100m", "--", "true"]);
    wait::holds_within(HELD_UP, || false);
    assert!(quick.count() < TASKS as usize, "it was short of room too late to prove anything");

    ballast.drop_it();
    ends_ok(&up, &job, TASKS);
    ends_ok(&up, meanwhile.trim(), 1);

    // Again, with nothing to hand out: the manager must not take its silent workers for dead.
    let ballast = fill_up(&disk, &up);
    wait::holds_within(HELD_UP, || false);
    ballast.drop_it();
    std::fs::write(&done, "").unwrap();
    ends_ok(&up, &running, 2);
    assert_eq!(long.check(2).doubled, 0, "what ran all the time was run again");
    quick.check(TASKS).at_most_by(1, "RabbitMQ short of disk");
    assert_eq!(ends_counted(&up, "ok"), u64::from(TASKS) + 3, "outcomes count once");
    wait::until("it to be ready again", SOON, || up.request("GET /readyz", b"").status == 200);
    still_works(&up);
}

/// The tables are on the small disk, the log of the server is not: it refuses each write that needs room, and lives on.
#[test]
fn a_database_without_room_refuses_clearly_and_loses_nothing() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let Some(disk) = tmpfs("64m") else { return };
    let folder = services_folder();
    let server = Service::postgres(folder.path()).unwrap();
    let place = disk.path().join("tables");
    std::fs::create_dir(&place).unwrap();
    server.give(&place).unwrap();
    say(server.url(), &format!("CREATE TABLESPACE small LOCATION '{}'", place.display()));
    say(server.url(), "CREATE DATABASE lab TABLESPACE small");
    let (place, _) = server.url().rsplit_once('/').unwrap();
    goes_on_after(&format!("{place}/lab"), || Ballast::in_folder(disk.path()), Ballast::drop_it);
}

/// Everything is on the small disk. A PostgreSQL that cannot write its log stops, and is started again by whoever made
/// room, as people do.
#[test]
fn a_database_that_stopped_for_want_of_room_is_gone_on_with_when_it_is_back() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let Some(disk) = tmpfs("160m") else { return };
    let mut server = Service::postgres(disk.path()).unwrap();
    let url = server.url().to_owned();
    let fill = || Ballast::in_folder(disk.path());
    goes_on_after(&url, fill, |ballast| {
        ballast.drop_it();
        server.restart().unwrap();
    });
}

/// A large job on this database, which is filled up in its middle until a submission is refused, and given room again.
fn goes_on_after(url: &str, fill: impl Fn() -> Ballast, give_room: impl FnOnce(Ballast)) {
    /// Jobs that still find room in pages and segments that are there already.
    const TRIES_MAX: usize = 20_000;
    let up = Installation::setup().env("MUTIRAO_DATABASE", url).start();
    let effects = Effects::new();
    let job = effects.submit(&up, TASKS, "500m", LEAVE);
    effects.wait_for(1_000);
    let ballast = fill();
    let (accepted, refusal) = submit_until_refused(&up, TRIES_MAX);
    assert!(matches!(refusal.status, 429 | 503), "{}", refusal.text());
    let problem = json(&refusal.text());
    let why = problem["detail"].as_str().unwrap_or_default();
    assert!(why.contains("disk is full") || why.contains("database cannot be reached"), "{problem}");
    let said = Said::from(up.cli(&["submit", "--", "true"]));
    // The command asks again for a while; it is let in only if room was found for so small a job.
    let told = said.err.lines().filter(|line| !line.contains("trying again in"));
    assert!(said.code == Some(0) || told.count() == 1, "{said:?}");
    eprintln!("{} small jobs accepted before the disk was full; then {} {why}", accepted.len(), refusal.status);
    assert_eq!(up.request("GET /healthz", b"").status, 200);

    give_room(ballast);
    ends_ok(&up, &job, TASKS);
    for job in &accepted {
        ends_ok(&up, job, 1);
    }
    effects.check(TASKS).at_most_by(1, "a database without room");
    wait::until("it to be ready again", SOON, || up.request("GET /readyz", b"").status == 200);
    still_works(&up);
}
