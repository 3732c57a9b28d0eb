//! Private services: they come up, survive a kill with their data, and do not survive us.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use mutirao_testkit::services::{self, Service};
use mutirao_testkit::{sweep, wait};

/// PostgreSQL runs as another user, who must be able to pass.
fn folder() -> tempfile::TempDir {
    let passable = std::fs::Permissions::from_mode(0o711);
    tempfile::Builder::new().permissions(passable).tempdir().unwrap()
}

/// `--fast` runs have no services, and perhaps not the packages either.
fn without_services() -> bool {
    services::shared(services::REDIS_VARIABLE).is_none()
}

fn psql(postgres: &Service, sql: &str) -> String {
    let output = Command::new("psql").args([postgres.url(), "-qAtc", sql]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn postgres_keeps_what_was_committed_through_a_kill() {
    if without_services() {
        return;
    }
    let folder = folder();
    let mut postgres = Service::postgres(folder.path()).unwrap();
    let address = postgres.address();
    psql(&postgres, "create table t as select 7 as n");
    postgres.kill9();
    assert!(TcpStream::connect(address).is_err());
    postgres.restart().unwrap();
    assert_eq!(postgres.address(), address);
    assert_eq!(psql(&postgres, "select n from t"), "7");
    assert_eq!(psql(&postgres, "show fsync"), "on");
}

#[test]
fn rabbitmq_comes_back_on_its_port_after_a_kill() {
    if without_services() {
        return;
    }
    let folder = folder();
    let mut rabbitmq = Service::rabbitmq(folder.path()).unwrap();
    let (address, first) = (rabbitmq.address(), rabbitmq.pid());
    rabbitmq.kill9();
    assert!(TcpStream::connect(address).is_err());
    rabbitmq.restart().unwrap();
    assert_eq!(rabbitmq.address(), address);
    assert_ne!(rabbitmq.pid(), first);
}

#[test]
fn a_frozen_service_keeps_its_connections_and_answers_later() {
    if without_services() {
        return;
    }
    let folder = folder();
    let redis = Service::redis(folder.path()).unwrap();
    let mut stream = TcpStream::connect(redis.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    redis.freeze();
    stream.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    assert!(stream.read_exact(&mut answer).is_err());
    redis.thaw();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

/// The whole of it, as `scripts/test` uses it: three services, a command that sees them, nothing left afterwards.
#[test]
fn the_services_program_leaves_nothing_behind_however_it_ends() {
    if without_services() {
        return;
    }
    for ending in ["exit", "INT", "KILL"] {
        let folder = folder();
        let mut program = Command::new(env!("CARGO_BIN_EXE_services"))
            .args([
                "run",
                "--",
                "sh",
                "-c",
                "env > $TMPDIR/seen.part; mv $TMPDIR/seen.part $TMPDIR/seen; exec sleep $SLEEP",
            ])
            .env("TMPDIR", folder.path())
            .env("SLEEP", if ending == "exit" { "0" } else { "1000" })
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let seen = folder.path().join("seen");
        wait::until("the command to run", Duration::from_secs(120), || seen.exists());
        let environment = std::fs::read_to_string(&seen).unwrap();
        let line = |name: &str| environment.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        assert!(line("MUTIRAO_TEST_POSTGRES=postgres://mutirao:").is_some(), "{environment}");
        assert!(line("MUTIRAO_TEST_AMQP=amqp://").is_some() && line("MUTIRAO_TEST_REDIS=redis://").is_some());
        let mark = line("MUTIRAO_TEST_RUN=").unwrap();
        if ending != "exit" {
            let pid = program.id().to_string();
            assert!(Command::new("kill").args(["-s", ending, &pid]).status().unwrap().success());
        }
        let status = program.wait().unwrap();
        assert_eq!(status.success(), ending == "exit", "{status}");

        let (variable, value) = mark.split_once('=').unwrap();
        let services_left = || {
            let all = sweep::processes();
            // A killed supervisor cannot end its command; the kernel ends its services.
            all.into_iter().filter(|p| p.command[0] != "sleep" && sweep::is_marked(p.pid, variable, value)).count()
        };
        wait::until(&format!("the services to be gone after {ending}"), Duration::from_secs(20), || {
            services_left() == 0
        });
        if ending == "KILL" {
            assert!(sweep::kill_all(|p| sweep::is_marked(p.pid, variable, value)));
            continue;
        }
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["seen"], "after {ending}");
    }
}
