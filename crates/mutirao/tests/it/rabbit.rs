//! An installation on RabbitMQ: what is refused, who knows which password, and what workers do without users.

mod installations;
mod letters;
mod permitted;

use std::time::Duration;

use mutirao_testkit::services::{AMQP_MANAGEMENT_VARIABLE, AMQP_VARIABLE, POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, http, wait};

use crate::said::{SOON, Said, mutirao, refused, run};

/// A vhost of our own on the shared server: what an installation makes there has fixed names.
pub struct Vhost {
    name: String,
    pub broker: String,
    pub management: String,
}

impl Vhost {
    pub fn new() -> Option<Self> {
        let (server, management) = (shared(AMQP_VARIABLE)?, shared(AMQP_MANAGEMENT_VARIABLE)?);
        let name = format!("test-{}", mutirao_core::SessionId::random());
        let vhost = Self { broker: server.replacen("%2f", &name, 1), name, management };
        vhost.put(&format!("/api/vhosts/{}", vhost.name), "{}");
        vhost.permit("guest", ".*");
        Some(vhost)
    }

    fn ask(&self, line: &str, json: &str) -> http::Answer {
        let address = self.management.trim_start_matches("http://").parse().unwrap();
        // guest:guest
        let headers = [("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="), ("Content-Type", "application/json")];
        http::request(address, line, &headers, json.as_bytes()).unwrap()
    }

    #[track_caller]
    fn put(&self, path: &str, json: &str) {
        let answer = self.ask(&format!("PUT {path}"), json);
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.text());
    }

    fn permit(&self, user: &str, pattern: &str) {
        let may = format!(r#"{{"configure":"{pattern}","write":"{pattern}","read":"{pattern}"}}"#);
        self.put(&format!("/api/permissions/{}/{user}", self.name), &may);
    }

    pub fn users(&self) -> String {
        self.ask("GET /api/users", "").text()
    }

    fn url_of(&self, user: &str, password: &str) -> String {
        self.broker.replacen("guest:guest", &format!("{user}:{password}"), 1)
    }
}

impl Drop for Vhost {
    fn drop(&mut self) {
        self.ask(&format!("DELETE /api/vhosts/{}", self.name), "");
    }
}

/// RabbitMQ 3.10 keeps the directory of its quorum queues in a file that it flushes now and then: a queue made less than a
/// moment before a kill -9 is not found again. That is its promise, not ours.
pub fn wait_until_queues_are_known() {
    wait::holds_within(Duration::from_secs(5), || false);
}

fn up_with(url: &str) -> Said {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    let mut command = mutirao(&["up", "--data", &data, "--listen", "127.0.0.1:0"]);
    command.env("MUTIRAO_BROKER", url);
    run(command)
}

#[test]
fn a_broker_that_cannot_be_used_is_one_line_with_the_remedy_and_without_the_password() {
    refused(&up_with("redis://ana:s3cret@h"), 2, &["broker (MUTIRAO_BROKER)", "amqp://user:password@host"]);
    refused(&up_with("amqp://ana:s3cret@127.0.0.1:1/lab"), 1, &["127.0.0.1:1", "is RabbitMQ running there"]);
    let Some(vhost) = Vhost::new() else { return };
    refused(&up_with(&vhost.url_of("guest", "s3cret")), 1, &["no user guest with this password"]);
    let (user, elsewhere) = (format!("u{}", vhost.name), vhost.broker.replacen(&vhost.name, "nowhere", 1));
    refused(&up_with(&elsewhere), 1, &["no vhost nowhere", "rabbitmqctl add_vhost nowhere"]);
    vhost.put(&format!("/api/users/{user}"), r#"{"password":"s3cret","tags":""}"#);
    let url = vhost.url_of(&user, "s3cret");
    refused(&up_with(&url), 1, &["rabbitmqctl set_permissions -p", &user]);
    vhost.permit(&user, "^nothing$");
    refused(&up_with(&url), 1, &["no configure permission on queue 'mutirao.…'", "rabbitmqctl set_permissions"]);
    vhost.ask(&format!("DELETE /api/users/{user}"), "");
}

#[test]
fn workers_have_users_of_their_own_and_never_see_the_managers_password() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    assert_eq!(up.ok(&["submit", "--wait", "--array", "1-50", "--", "true"]).lines().count(), 1);
    assert_eq!(up.stderr().matches("takes tasks and reports over RabbitMQ").count(), 2, "{}", up.stderr());
    for pid in up.worker_pids() {
        for file in ["environ", "cmdline"] {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(!text.contains("guest") && !text.contains("MUTIRAO_BROKER"), "a worker knows too much: {text}");
        }
    }
    assert!(!up.stderr().contains("guest:guest"), "{}", up.stderr());
    let mut show = up.command(&["config", "show"]);
    show.env("MUTIRAO_BROKER", &vhost.broker);
    let shown = Said::from(show.output().unwrap());
    assert!(shown.out.contains("broker") && !shown.out.contains("guest"), "{shown:?}");

    // One that is let in no more loses its user; `up` starts another in its place.
    let worker = up.workers()[0].worker.to_string();
    let user = format!("mutirao.worker.{worker}");
    assert!(vhost.users().contains(&user));
    up.ok(&["worker", "revoke", &worker]);
    assert!(!vhost.users().contains(&user), "it still has a user");
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "on"]), "on\n");

    let mut doctor = up.command(&["doctor"]);
    doctor.env("MUTIRAO_BROKER", &vhost.broker).env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management);
    let found = Said::from(doctor.output().unwrap());
    assert!(found.code == Some(0) && found.out.contains("RabbitMQ 3."), "{found:?}");
    assert!(found.out.contains("quorum and stream queues can be made"), "{found:?}");
    assert!(found.out.contains("workers get users of their own") && !found.out.contains("guest:guest"), "{found:?}");
    let mut doctor = up.command(&["doctor"]);
    doctor.env("MUTIRAO_BROKER", "amqp://ana:s3cret@127.0.0.1:1/lab");
    let found = Said::from(doctor.output().unwrap());
    assert!(found.code == Some(1) && found.out.contains("is RabbitMQ running there"), "{found:?}");
}

#[test]
fn a_worker_revoked_while_the_management_was_away_loses_its_user_when_it_is_back() {
    let Some(vhost) = Vhost::new() else { return };
    let data = tempfile::tempdir().unwrap();
    let start = |management: &str| {
        Installation::setup()
            .workers(1)
            .data(data.path())
            .env("MUTIRAO_BROKER", &vhost.broker)
            .env("MUTIRAO_BROKER_MANAGEMENT", management)
            .start()
    };
    let mut up = start(&vhost.management);
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "once"]), "once\n");
    let worker = up.workers()[0].worker.to_string();
    let user = format!("mutirao.worker.{worker}");
    assert!(vhost.users().contains(&user));
    up.terminate();
    let mut up = start("http://guest:guest@127.0.0.1:1");
    let said = Said::from(up.cli(&["worker", "revoke", &worker]));
    assert!(said.code != Some(0) && said.err.contains("nothing needs to be repeated"), "{said:?}");
    assert!(vhost.users().contains(&user), "nobody could remove it");
    up.terminate();
    let _up = start(&vhost.management);
    wait::until("its user to be gone", SOON, || !vhost.users().contains(&user));
}

#[test]
fn a_worker_on_rabbitmq_hears_that_it_is_drained() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .workers(2)
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    wait::until("both workers", SOON, || up.workers().len() == 2);
    let one = up.workers()[0].worker.clone();
    up.ok(&["worker", "drain", &one.0]);
    wait::until("it to drain", SOON, || {
        let drained = mutirao_core::job::WorkerState::Drained;
        up.workers().iter().any(|view| view.worker == one && view.state == drained)
    });
    assert_eq!(up.ok(&["submit", "--wait", "--array", "1-20", "--", "true"]).lines().count(), 1);
    assert_eq!(up.workers().len(), 2, "it stays");
}

#[test]
fn managers_that_are_different_users_of_rabbitmq_refuse_to_share_queues() {
    let Some(vhost) = Vhost::new() else { return };
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = crate::database::folder();
    let server = Service::postgres(servers.path()).unwrap();
    let up = Installation::setup()
        .manager_alone()
        .env("MUTIRAO_DATABASE", server.url())
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    let user = format!("u{}", vhost.name);
    vhost.put(&format!("/api/users/{user}"), r#"{"password":"s3cret","tags":"administrator"}"#);
    vhost.permit(&user, ".*");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    let mut other = mutirao(&["role", "manager", "--data", &data, "--listen", "127.0.0.1:0"]);
    other.env("MUTIRAO_DATABASE", server.url()).env("MUTIRAO_BROKER", vhost.url_of(&user, "s3cret"));
    other.env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management);
    refused(&run(other), 1, &["is the user guest at RabbitMQ", &user, &up.url(), "--broker"]);

    let look = |broker: &str| {
        let mut doctor = up.command(&["doctor"]);
        doctor.env("MUTIRAO_DATABASE", server.url()).env("MUTIRAO_BROKER", broker);
        doctor.env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management);
        Said::from(doctor.output().unwrap())
    };
    let found = look(&vhost.broker);
    assert!(found.out.contains("every manager is the user guest of RabbitMQ"), "{found:?}");
    assert!(found.out.contains("a manager holds up to 12"), "{found:?}");
    let found = look(&vhost.url_of(&user, "s3cret"));
    assert!(found.out.contains("would not start") && !found.out.contains("s3cret"), "{found:?}");
    vhost.ask(&format!("DELETE /api/users/{user}"), "");
}

#[test]
fn where_workers_cannot_have_users_they_use_the_link_and_the_remedy_is_told() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .workers(1)
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", "http://127.0.0.1:1")
        .start();
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "hi"]), "hi\n");
    let said = up.stderr();
    assert!(said.contains("rabbitmq-plugins enable rabbitmq_management") && said.contains("use the link"), "{said}");
    assert!(!said.contains("reports over RabbitMQ"), "{said}");
}

#[test]
fn a_worker_that_asks_for_the_link_gets_it() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .workers(1)
        .set("worker.way", "link")
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "hi"]), "hi\n");
    assert!(!up.stderr().contains("reports over RabbitMQ"), "{}", up.stderr());
}

#[test]
fn an_installation_says_that_its_broker_is_away_and_goes_on_when_it_is_back() {
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Service::rabbitmq(folder.path()).unwrap();
    let up = Installation::setup()
        .workers(1)
        .env("MUTIRAO_BROKER", server.url())
        .env("MUTIRAO_BROKER_MANAGEMENT", server.management_url().unwrap())
        .start();
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "before"]), "before\n");
    wait_until_queues_are_known();
    server.kill9();
    wait::until("the outage to be told", SOON, || {
        let answer = up.request("GET /readyz", b"");
        answer.status == 503 && answer.text().contains("is RabbitMQ running there")
    });
    // What is accepted meanwhile waits in the store.
    let job = up.ok(&["submit", "--", "true"]);
    let explained = up.ok(&["queue", "explain", "default"]);
    assert!(explained.contains("broker cannot be reached") && explained.contains("doctor"), "{explained}");
    server.restart().unwrap();
    wait::until("the job to end", SOON, || up.ok(&["job", "show", job.trim()]).contains("1 ok"));
}

#[test]
fn a_broker_that_was_away_for_longer_than_a_lease_loses_nobody() {
    const LEASE: Duration = Duration::from_secs(15);
    if shared(AMQP_VARIABLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Service::rabbitmq(folder.path()).unwrap();
    let up = Installation::setup()
        .workers(1)
        .set("jobs.lease", &format!("{}s", LEASE.as_secs()))
        .env("MUTIRAO_BROKER", server.url())
        .env("MUTIRAO_BROKER_MANAGEMENT", server.management_url().unwrap())
        .start();
    wait_until_queues_are_known();
    let (begun, done) = (folder.path().join("begun"), folder.path().join("done"));
    let script =
        format!("echo $MUTIRAO_ATTEMPT >> {}; until test -e {}; do sleep 1; done", begun.display(), done.display());
    let job = up.ok(&["submit", "--", "sh", "-c", &script]);
    wait::until("the task to begin", SOON, || begun.is_file());
    server.kill9();
    wait::holds_within(LEASE + Duration::from_secs(5), || false);
    server.restart().unwrap();
    std::fs::write(&done, "").unwrap();
    wait::until("the job to end", SOON, || up.ok(&["job", "show", job.trim()]).contains("1 ok"));
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "1\n", "it was run twice");
    let task: serde_json::Value =
        serde_json::from_str(&up.ok(&["--json", "task", "show", &format!("{}.1", job.trim())])).unwrap();
    assert_eq!(task["losses"], 0, "{task}");
}
