//! Bad input to commands: one clear line (where the words themselves are wrong, the usual few), a code that means it, and
//! a server that never noticed. What is refused before anything runs is in `refusals`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use mutirao_testkit::Installation;

use super::{json, nothing_was_accepted, still_works};
use crate::said::{Said, mutirao, run};

#[track_caller]
fn one_line(said: &Said, code: i32, parts: &[&str]) {
    assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (Some(code), 1, ""), "{said:?}");
    for part in parts {
        assert!(said.err.contains(part), "no \"{part}\" in {said:?}");
    }
}

/// Refused by the parser of the command line, which adds how to get help.
#[track_caller]
fn usage(said: &Said, parts: &[&str]) {
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{said:?}");
    let first = said.err.lines().next().unwrap_or_default();
    for part in parts {
        assert!(first.contains(part), "no \"{part}\" in the first line of {said:?}");
    }
}

#[test]
fn a_command_that_makes_no_sense_is_refused_in_a_line_and_harms_nobody() {
    let up = Installation::start();
    let said = |args: &[&str]| Said::from(up.cli(args));
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };

    usage(&said(&["frobnicate"]), &["frobnicate"]);
    usage(&said(&["submit", "--frobnicate", "--", "true"]), &["--frobnicate"]);
    usage(&said(&["submit", "--array", "10-1", "--", "true"]), &["--array", "10-1 is empty", "smaller index first"]);
    usage(&said(&["submit", "--array", "1-99999999999", "--", "true"]), &["--array", "99999999999 is too large"]);
    usage(&said(&["submit", "--cpus", "lots", "--", "true"]), &["--cpus", "write it like 2, 0.5 or 250m"]);
    usage(&said(&["submit", "--queue", "../x", "--", "true"]), &["--queue", "is not a queue name"]);

    one_line(&said(&["submit", "--each-line", "/", "--", "true"]), 2, &["--each-line /", "directory"]);
    let binary = file("binary", b"ok\n\xff\xfe\n");
    one_line(&said(&["submit", "--each-line", &binary, "--", "true"]), 2, &["--each-line", "line 2 is not UTF-8"]);
    let empty = file("empty", b"");
    one_line(&said(&["submit", "--each-line", &empty, "--", "true"]), 2, &["--each-line", "no line"]);
    let long = file("long", "x".repeat(65 << 10).as_bytes());
    one_line(&said(&["submit", "--each-line", &long, "--", "true"]), 2, &["too long", "put large inputs in files"]);

    one_line(&said(&["submit", "--cpus", "64", "--", "true"]), 2, &["cpus", "the largest worker", "worker.cpus"]);
    one_line(
        &said(&["submit", "--mem", "900TiB", "--", "true"]),
        2,
        &["memory", "the largest worker", "worker.memory"],
    );
    one_line(&said(&["submit", "--queue", "nobody", "--", "true"]), 2, &["queue", "nobody", "queue create nobody"]);
    one_line(&said(&["submit", "--", ""]), 2, &["program's name is empty"]);

    one_line(&said(&["job", "list", "--set", "colour=red"]), 2, &["colour", "config list"]);
    one_line(&said(&["job", "list", "--set", "worker.cuont=3"]), 2, &["worker.cuont", "did you mean worker.count"]);
    one_line(&said(&["job", "list", "--set", "colour"]), 2, &["colour", "key=value"]);
    one_line(&said(&["job", "list", "--set", "worker.count=many"]), 2, &["worker.count", "0 to 256"]);
    one_line(&said(&["job", "list", "--set", "jobs.lease=1s"]), 2, &["jobs.lease", "3s or more"]);
    one_line(&said(&["job", "list", "--config", "/"]), 2, &["configuration file /", "directory"]);

    nothing_was_accepted(&up);
    still_works(&up);
}

#[test]
fn a_corrupt_configuration_file_is_named_with_its_line_by_every_command() {
    let up = Installation::start();
    std::fs::write(up.data().join("mutirao.toml"), "drain = '5s'\n[worker]\ncount = = 2\n").unwrap();
    for args in [&["job", "list"][..], &["submit", "--", "true"], &["doctor"], &["up"]] {
        one_line(&Said::from(up.cli(args)), 2, &["mutirao.toml, line 3", "not TOML"]);
    }
    std::fs::write(up.data().join("mutirao.toml"), [0u8, 159, 146, 150]).unwrap();
    one_line(&Said::from(up.cli(&["job", "list"])), 2, &["mutirao.toml, line 1"]);
    std::fs::remove_file(up.data().join("mutirao.toml")).unwrap();
    still_works(&up);
}

#[test]
fn a_data_folder_that_cannot_serve_is_refused_and_left_as_it_was() {
    let up = Installation::start();
    let dir = tempfile::tempdir().unwrap();
    let start = |data: &str, listen: &str| run(mutirao(&["up", "--data", data, "--listen", listen]));
    let path = |name: &str| dir.path().join(name).display().to_string();

    let (used, taken) = (up.data().display().to_string(), up.address().to_string());
    one_line(&start(&used, "127.0.0.1:0"), 1, &["in use by process", &up.pid().to_string(), "--data"]);
    one_line(&start(&path("new"), &taken), 1, &[&taken, "taken", "--listen"]);

    std::fs::write(dir.path().join("file"), "").unwrap();
    one_line(&start(&path("file"), "127.0.0.1:0"), 1, &["file", "where a folder should be"]);
    std::fs::create_dir(dir.path().join("corrupt")).unwrap();
    let rubbish = "no database ".repeat(1_000);
    std::fs::write(dir.path().join("corrupt/mutirao.db"), &rubbish).unwrap();
    one_line(&start(&path("corrupt"), "127.0.0.1:0"), 1, &["mutirao.db", "not a SQLite database", "move it away"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("corrupt/mutirao.db")).unwrap(), rubbish);
    still_works(&up);
}

#[test]
fn a_token_that_is_no_good_lets_nobody_in() {
    let up = Installation::start();
    let with = |token: &[u8]| {
        let mut command = up.command(&["job", "list"]);
        command.env("MUTIRAO_TOKEN", OsStr::from_bytes(token));
        run(command)
    };
    one_line(&with(b"rubbish"), 4, &["not known here", "MUTIRAO_TOKEN"]);
    one_line(&with("x".repeat(9_000).as_bytes()), 4, &["MUTIRAO_TOKEN"]);
    one_line(&with(b"\xff\xfe"), 2, &["MUTIRAO_TOKEN", "not UTF-8"]);

    let created = json(&up.ok(&["--json", "token", "create", "--role", "viewer", "--name", "gone"]));
    let (id, secret) = (created["id"].as_str().unwrap(), created["secret"].as_str().unwrap());
    assert_eq!(with(secret.as_bytes()).code, Some(0));
    let (last, rest) = (secret.len() - 1, &secret[..secret.len() - 1]);
    let forged = format!("{rest}{}", if secret.as_bytes()[last] == b'0' { '1' } else { '0' });
    one_line(&with(forged.as_bytes()), 4, &["MUTIRAO_TOKEN"]);
    up.ok(&["token", "revoke", id]);
    one_line(&with(secret.as_bytes()), 4, &["revoked"]);
    still_works(&up);
}
