//! A database that is spoilt under a running manager, by a right or a password that is taken away or by rows that cannot be
//! read: what callers are told, what the log says, and that it goes on by itself.

use std::time::Duration;

use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};

use crate::database::{folder, say};
use crate::said::{SOON, Said, mutirao, run};

const TASKS: usize = 300;
/// Long enough for everything that asks the database now and then to have been refused.
const REFUSED: Duration = Duration::from_secs(7);

/// A database `lab` that belongs to a user `lab`, who is nobody else.
struct Lab {
    server: Service,
    _folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Option<Self> {
        shared(POSTGRES_VARIABLE)?;
        let folder = folder();
        let server = Service::postgres(folder.path()).unwrap();
        say(server.url(), "CREATE ROLE lab LOGIN PASSWORD 's3cret'");
        say(server.url(), "CREATE DATABASE lab OWNER lab");
        Some(Self { server, _folder: folder })
    }

    fn url_of(&self, who: &str) -> String {
        let (scheme, rest) = self.server.url().split_once("//").unwrap();
        let place = rest.rsplit_once('@').unwrap().1.split_once('/').unwrap().0;
        format!("{scheme}//{who}@{place}/lab")
    }

    fn url(&self) -> String {
        self.url_of("lab:s3cret")
    }

    /// As the server's administrator, in that database.
    fn say(&self, statement: &str) {
        let (_, rest) = self.server.url().split_once("//").unwrap();
        say(&self.url_of(rest.rsplit_once('@').unwrap().0), statement);
    }
}

/// Takes something away in the middle of a job, and gives it back. What callers and the log are told meanwhile has these words.
fn goes_on_after(lab: &Lab, take: &str, give: &str, words: [&str; 2]) {
    let up = Installation::setup().env("MUTIRAO_DATABASE", &lab.url()).start();
    let array = format!("1-{TASKS}");
    let job = up.ok(&["submit", "--array", &array, "--cpus", "500m", "--", "sleep", "0.1"]);
    let job = job.trim();
    wait::until("some tasks to end", SOON, || counts(&up, job)["ok"].as_u64() > Some(10));
    lab.say(take);
    let refusal = wait::some("a refusal with the remedy", SOON, || {
        let said = Said::from(up.cli(&["submit", "--", "true"]));
        (said.code != Some(0) && said.err.contains(words[0])).then_some(said)
    });
    assert!(refusal.code == Some(5) && refusal.err.lines().count() == 1, "{refusal:?}");
    assert!(refusal.err.contains(words[1]) && !refusal.err.contains("s3cret"), "{refusal:?}");
    wait::until("it not to be ready", SOON, || up.request("GET /readyz", b"").status == 503);
    wait::holds_within(REFUSED, || false);
    let asked = up.request("GET /v1/jobs", b"");
    assert!(asked.status == 503 || asked.status == 200, "{}: {}", asked.status, asked.text());
    lab.say(give);
    wait::until("it to be ready again", SOON, || up.request("GET /readyz", b"").status == 200);
    let waited = Said::from(up.cli(&["job", "wait", job]));
    assert_eq!(waited.code, Some(0), "{waited:?}\n{}", up.stderr());
    assert_eq!(counts(&up, job)["ok"], TASKS, "each ended once");
    assert!(up.cli(&["submit", "--wait", "--", "true"]).status.success());
    // One line each time, and one when it is over. It may come twice: a login that was under way when the right was given
    // back can be refused after another was let in.
    wait::until("as many to be told as over as were told", SOON, || {
        let log = up.stderr();
        // The resource manager, who asks over HTTP, says what it was answered; that is its own log.
        let of_manager = || log.lines().filter(|line| !line.contains("mutirao_resource"));
        let told = of_manager().filter(|line| line.contains(words[0]) && line.contains(words[1])).count();
        let over = of_manager().filter(|line| line.contains("allows again what it had refused")).count();
        told == over && (1..=2).contains(&told)
    });
    let log = up.stderr();
    assert!(!log.contains("s3cret") && !log.contains("the store failed"), "{log}");
}

fn counts(up: &Installation, job: &str) -> serde_json::Value {
    let shown: serde_json::Value = serde_json::from_str(&up.ok(&["--json", "job", "show", job])).unwrap();
    shown["counts"].clone()
}

#[test]
fn a_right_that_is_taken_while_a_manager_runs_is_told_with_the_remedy_and_got_over() {
    let Some(lab) = Lab::new() else { return };
    let words = ["permission denied for table jobs", "GRANT ALL ON ALL TABLES"];
    goes_on_after(&lab, "REVOKE INSERT, UPDATE ON jobs FROM lab", "GRANT ALL ON jobs TO lab", words);
}

#[test]
fn a_password_that_is_changed_while_a_manager_runs_is_told_with_the_remedy_and_got_over() {
    let Some(lab) = Lab::new() else { return };
    let hang_up = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'lab'";
    let words = ["password authentication failed for user", "check user and password in the address"];
    let take = format!("ALTER USER lab PASSWORD 'another'; {hang_up}");
    goes_on_after(&lab, &take, "ALTER USER lab PASSWORD 's3cret'", words);
}

#[test]
fn a_restore_without_rights_says_what_a_start_without_them_says() {
    let Some(lab) = Lab::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("b").display().to_string();
    let up = Installation::setup().workers(0).start();
    up.ok(&["backup", "create", &archive]);
    lab.say("ALTER DATABASE lab OWNER TO mutirao; REVOKE ALL ON SCHEMA public FROM PUBLIC, lab; GRANT USAGE ON SCHEMA public TO lab");
    let data = dir.path().join("data").display().to_string();
    let with = |args: &[&str]| {
        let mut command = mutirao(args);
        command.env("MUTIRAO_DATABASE", lab.url());
        run(command)
    };
    let remedy = "GRANT CREATE, USAGE ON SCHEMA public TO it";
    let started = with(&["up", "--data", &data, "--listen", "127.0.0.1:0"]);
    assert!(started.code == Some(1) && started.err.contains(remedy), "{started:?}");
    let restored = with(&["backup", "restore", &archive, "--data", &data]);
    assert!(restored.code == Some(1) && restored.err.contains(remedy), "{restored:?}");
    assert!(restored.err.contains("permission denied") && !restored.err.contains("s3cret"), "{restored:?}");
}

#[test]
fn doctor_counts_jobs_that_cannot_be_read_with_the_remedy() {
    let Some(lab) = Lab::new() else { return };
    let up = Installation::setup().workers(0).env("MUTIRAO_DATABASE", &lab.url()).start();
    for _ in 0..3 {
        up.ok(&["submit", "--array", "1-5", "--", "true"]);
    }
    let doctor = || Said::from(up.cli(&["doctor"])).out;
    assert!(!doctor().contains("cannot read"), "{}", doctor());
    lab.say("UPDATE jobs SET kind = 99 WHERE key > (SELECT min(key) FROM jobs)");
    let found = doctor();
    assert!(found.contains("2 jobs have rows that this version cannot read, so 10 tasks wait"), "{found}");
    assert!(found.contains("mutirao job show") && found.contains("upgrade the managers"), "{found}");
    let first = found.split("mutirao job show ").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    assert!(up.ok(&["job", "show", first]).contains("this version cannot read it"));
    lab.say("UPDATE jobs SET kind = (SELECT kind FROM jobs ORDER BY key LIMIT 1)");
    assert!(!doctor().contains("cannot read"), "{}", doctor());
}
