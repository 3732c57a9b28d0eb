//! An installation that keeps everything in PostgreSQL: what is refused, what survives, and who may see the password.

use std::os::unix::fs::PermissionsExt;

use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};

use crate::said::{SOON, Said, mutirao, refused, run};

/// PostgreSQL runs as another user, who must be able to pass.
pub fn folder() -> tempfile::TempDir {
    let passable = std::fs::Permissions::from_mode(0o711);
    tempfile::Builder::new().permissions(passable).tempdir().unwrap()
}

/// Runs one statement as the test's user. The tests of this crate have no client of their own.
pub fn say(url: &str, statement: &str) {
    let mut psql = std::process::Command::new("psql");
    let said = psql.args(["--no-psqlrc", "--quiet", "--command", statement, url]).output().expect("psql is there");
    assert!(said.status.success(), "{statement}: {}", String::from_utf8_lossy(&said.stderr));
}

fn up_with(url: &str) -> Said {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    let mut command = mutirao(&["up", "--data", &data, "--listen", "127.0.0.1:0"]);
    command.env("MUTIRAO_DATABASE", url);
    run(command)
}

#[test]
fn a_database_that_cannot_be_used_is_one_line_with_the_remedy_and_without_the_password() {
    refused(&up_with("mysql://ana:s3cret@h/d"), 2, &["database (MUTIRAO_DATABASE)", "postgres://user:password@host"]);
    refused(&up_with("postgres://ana:s3cret@h/d?sslmode=prefer"), 2, &["sslmode=require"]);
    refused(
        &up_with("postgres://ana:s3cret@127.0.0.1:1/d"),
        1,
        &["postgres://ana@127.0.0.1:1/d", "is it running there"],
    );
    if let Some(server) = shared(POSTGRES_VARIABLE) {
        let (_, place) = server.rsplit_once('@').unwrap();
        refused(&up_with(&format!("postgres://mutirao:s3cret@{place}")), 1, &["check user and password"]);
    }
}

#[test]
fn jobs_survive_the_death_of_everything_and_the_database_is_looked_at_by_doctor() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = folder();
    let mut server = Service::postgres(servers.path()).unwrap();
    let mut up = Installation::setup().env("MUTIRAO_DATABASE", server.url()).start();
    assert_eq!(up.ok(&["submit", "--wait", "--", "sh", "-c", "seq 1 30000 | tail -1"]), "30000\n");
    assert!(!up.data().join("mutirao.db").exists() && !up.data().join("blobs").exists());
    for pid in up.worker_pids() {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains("MUTIRAO_DATABASE"), "a worker knows the password");
    }
    let job = up.ok(&["submit", "--array", "1-600", "--", "sh", "-c", "echo $MUTIRAO_TASK_INDEX"]);
    let job = job.trim();
    server.kill9();
    up.kill9_everything();
    server.restart().unwrap();
    up.restart();
    let waited = Said::from(up.cli(&["job", "wait", job]));
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert_eq!(up.ok(&["job", "logs", job, "--task", "600"]), "600\n");

    let look = || {
        let mut doctor = up.command(&["doctor"]);
        doctor.env("MUTIRAO_DATABASE", server.url());
        Said::from(doctor.output().unwrap())
    };
    let found = look();
    assert!(found.code == Some(0) && found.out.contains("PostgreSQL"), "{found:?}");
    assert!(found.out.contains("tables        are those of this version"), "{found:?}");
}

#[test]
fn a_manager_outlives_its_database_and_goes_on_when_it_is_back() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = folder();
    let mut server = Service::postgres(servers.path()).unwrap();
    let up = Installation::setup().env("MUTIRAO_DATABASE", server.url()).start();
    let job = up.ok(&["submit", "--array", "1-600", "--", "true"]);
    let job = job.trim();
    wait::until("some tasks to end", SOON, || up.ok(&["job", "list"]).contains("running"));
    server.kill9();
    // What serves a connection lives on for a moment after the server itself was killed.
    let refusal = wait::some("a refusal", SOON, || {
        let said = Said::from(up.cli(&["submit", "--", "true"]));
        (said.code != Some(0)).then_some(said)
    });
    assert!(refusal.code == Some(5) && refusal.err.contains("database cannot be reached"), "{refusal:?}");
    server.restart().unwrap();
    wait::until("the manager to find it again", SOON, || up.cli(&["submit", "--", "true"]).status.success());
    let waited = Said::from(up.cli(&["job", "wait", job]));
    assert_eq!(waited.code, Some(0), "{waited:?}");
}

#[test]
fn whoever_forgets_to_name_the_server_gets_neither_an_empty_installation_nor_a_backup_of_one() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = folder();
    let server = Service::postgres(servers.path()).unwrap();
    let mut up = Installation::setup().workers(0).env("MUTIRAO_DATABASE", server.url()).start();
    up.terminate();
    let data = up.data().to_str().unwrap().to_owned();
    let token = std::fs::read_to_string(up.data().join("admin.token")).unwrap();
    let to = servers.path().join("b.mutirao-backup");
    for args in [
        &["up", "--data", &data, "--listen", "127.0.0.1:0"][..],
        &["role", "manager", "--data", &data, "--listen", "127.0.0.1:0"],
        &["backup", "create", to.to_str().unwrap(), "--data", &data],
    ] {
        refused(&crate::said::run(crate::said::mutirao(args)), 1, &["kept in postgres://", "MUTIRAO_DATABASE"]);
    }
    assert!(!up.data().join("mutirao.db").exists() && !to.exists());
    assert_eq!(std::fs::read_to_string(up.data().join("admin.token")).unwrap(), token, "and its token is its token");
}

#[test]
fn two_managers_without_a_broker_in_common_refuse_to_share_a_database() {
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = folder();
    let server = Service::postgres(servers.path()).unwrap();
    let mut up = Installation::setup().workers(1).env("MUTIRAO_DATABASE", server.url()).start();
    refused(&up_with(server.url()), 1, &["uses this database", &up.url(), "--broker"]);
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "undisturbed"]), "undisturbed\n");
    let shards = up.ok(&["shard", "list"]);
    assert!(shards.lines().count() == 1 + 5 * 16 && shards.contains(&up.url()), "{shards}");
    for group in ["flows", "jobs", "kv", "monitors", "streams"] {
        assert_eq!(shards.lines().filter(|line| line.starts_with(group)).count(), 16, "{shards}");
    }
    // Whoever comes after it in the same folder waits for no lease.
    up.kill9_everything();
    up.restart();
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "again"]), "again\n");
    wait::until("doctor to find all shards looked after", SOON, || {
        Said::from(up.cli(&["doctor"])).out.contains("all 80 are looked after, by one manager")
    });
}
