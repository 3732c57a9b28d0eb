//! Bad input: one clear line on stderr that names what was wrong and what to do, and a code that means it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use mutirao_testkit::Installation;

use crate::said::{Said, mutirao, run};

#[track_caller]
fn refused(said: &Said, code: i32, parts: &[&str]) {
    assert_eq!(said.code, Some(code), "{said:?}");
    assert_eq!((said.err.lines().count(), said.out.as_str()), (1, ""), "one line, and nothing on stdout: {said:?}");
    for part in parts {
        assert!(said.err.contains(part), "no \"{part}\" in {said:?}");
    }
}

#[test]
fn a_set_up_that_cannot_work_is_refused_at_the_start() {
    let up = Installation::start();
    let dir = tempfile::tempdir().unwrap();
    let (data, free) = (up.data().display().to_string(), dir.path().join("free").display().to_string());
    let taken = up.address().to_string();
    refused(&run(mutirao(&["up", "--data", &data, "--listen", "127.0.0.1:0"])), 1, &["in use by process", "--data"]);
    refused(&run(mutirao(&["up", "--data", &free, "--listen", &taken])), 1, &[&taken, "is taken", "--listen"]);
    refused(
        &run(mutirao(&["up", "--data", &free, "--listen", "nowhere"])),
        2,
        &["listen (--listen)", "127.0.0.1:7070"],
    );
    refused(&run(mutirao(&["up", "--data", "/proc/nowhere", "--listen", "127.0.0.1:0"])), 1, &["/proc/nowhere"]);

    let plain = dir.path().join("plain").display().to_string();
    std::fs::write(&plain, "").unwrap();
    refused(&run(mutirao(&["up", "--data", &plain, "--listen", "127.0.0.1:0"])), 1, &[&plain, "choose another"]);

    let file = dir.path().join("bad.toml");
    let path = file.display().to_string();
    for (text, parts) in [
        (&b"drain = 5\n[worker\n"[..], &["bad.toml, line 2", "not TOML"][..]),
        (b"ok = \xff\xfe", &["bad.toml, line 1", "not UTF-8"]),
        (b"[worker]\ncuont = 1\n", &["worker.cuont", "line 2", "worker.count"]),
        (b"[worker]\ncount = 'many'\n", &["worker.count", "line 2", "0 to 256"]),
    ] {
        std::fs::write(&file, text).unwrap();
        refused(&run(mutirao(&["up", "--data", &free, "--config", &path])), 2, parts);
    }
    let mut command = mutirao(&["up", "--data", &free]);
    refused(
        &run({
            command.env("MUTIRAO_DRAIN", "soon");
            command
        }),
        2,
        &["MUTIRAO_DRAIN", "200ms, 30s"],
    );
    assert!(!std::path::Path::new(&free).join("mutirao.db").exists(), "nothing was made for a set-up that was refused");
}

#[test]
fn a_server_that_is_not_there_or_does_not_know_us_is_told_apart() {
    let up = Installation::start();
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().display().to_string();
    refused(&run(mutirao(&["job", "list", "--data", &empty])), 5, &["no installation", "mutirao up"]);
    let at = |url: &str, token: &str| {
        run({
            let mut command = mutirao(&["job", "list", "--data", &empty]);
            command.env("MUTIRAO_URL", url).env("MUTIRAO_TOKEN", token);
            command
        })
    };
    refused(&at("http://127.0.0.1:1", "t"), 5, &["nothing answers at http://127.0.0.1:1", "connection refused"]);
    refused(&at(&up.url(), "t"), 4, &["MUTIRAO_TOKEN"]);
    refused(&at(&up.url(), ""), 4, &["no token for"]);
    refused(&at("nonsense", "t"), 2, &["url (MUTIRAO_URL)", "http://127.0.0.1:7070"]);
}

/// Somebody else's folder. Root may look into every folder, so it becomes nobody first.
#[test]
fn an_installation_of_another_user_is_told_from_none() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("address"), "http://127.0.0.1:1").unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o000)).unwrap();
    let shown = data.display().to_string();
    let as_another = |args: &[&str]| {
        let mut command = mutirao(args);
        if rustix::process::getuid().is_root() {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
            let nobody = dir.path().join("mutirao");
            if !nobody.exists() {
                std::fs::copy(env!("CARGO_BIN_EXE_mutirao"), &nobody).unwrap();
            }
            command = std::process::Command::new(nobody);
            command.args(args).env_clear().current_dir("/").uid(65_534).gid(65_534);
        }
        run(command)
    };
    let denied = "permission denied";
    refused(&as_another(&["job", "list", "--data", &shown]), 4, &[&shown, denied, "MUTIRAO_TOKEN"]);
    let up = as_another(&["up", "--data", &shown, "--listen", "127.0.0.1:0"]);
    refused(&up, 1, &[&shown, "Permission denied", "choose another"]);
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_job_that_cannot_be_is_refused_whole() {
    let up = Installation::start();
    let said = |args: &[&str]| Said::from(up.cli(args));
    refused(&said(&["job", "show", "jzzzzzzz"]), 3, &["there is no job jzzzzzzz"]);
    refused(&said(&["submit", "--retries", "5000", "--", "true"]), 2, &["--retries", "1000"]);
    let remedy = "mutirao queue create nobody";
    refused(&said(&["submit", "--queue", "nobody", "--", "true"]), 2, &["--queue: there is no queue", remedy]);
    refused(&said(&["submit", "--env", "MUTIRAO_X=1", "--", "true"]), 2, &["--env: \"MUTIRAO_X\""]);
    refused(&said(&["submit", "--cpus", "5000", "--", "true"]), 2, &["--cpus: needs 5000"]);
    refused(&said(&["submit", "--timeout", "0", "--", "true"]), 2, &["--timeout: is zero"]);
    refused(&said(&["submit", "--idempotency-key", "a b", "--", "true"]), 2, &["--idempotency-key"]);
    refused(&said(&["job", "list", "--limit", "0"]), 2, &["--limit: 0 is not between"]);
    refused(&said(&["job", "list", "--label", "team"]), 2, &["--label"]);
    refused(&said(&["submit", "--each-line", "/no/such/file", "--", "true"]), 2, &["--each-line /no/such/file"]);
    refused(
        &said(&["submit", "--array", "1-99999999", "--", "true"]),
        2,
        &["--array/--each-line/--from-json: ", "split the job"],
    );
    assert!(up.ok(&["job", "list"]).contains("no jobs"));
}

#[test]
fn what_is_no_command_line_is_a_matter_of_usage() {
    for (args, help) in [
        (&["frobnicate"][..], "`mutirao --help`"),
        (&["submit"], "`mutirao submit --help`"),
        (&["submit", "--array", "x", "--", "true"], "`mutirao submit --help`"),
        (&["job", "show", "x"], "`mutirao job show --help`"),
    ] {
        refused(&run(mutirao(args)), 2, &[help]);
        let said = run(mutirao(&[&["--json"], args].concat()));
        let error: serde_json::Value = serde_json::from_str(&said.err).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        assert!(error["exit"] == 2 && error["error"].as_str().is_some_and(|line| line.contains(help)), "{said:?}");
    }
    let nothing = run(mutirao(&[]));
    assert!(nothing.code == Some(2) && nothing.out.is_empty() && nothing.err.contains("submit"), "{nothing:?}");
    let help = run(mutirao(&["--help"]));
    assert!(help.code == Some(0) && help.out.contains("Exit codes"), "{help:?}");
}
