//! Letting workers in, and keeping them out: where they are sent, what a slip costs them, and how they learn that they must go.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::process::Stdio;

use mutirao_testkit::{Installation, wait};

use crate::said::{SOON, Said, run};
use crate::workers::Worker;

#[test]
fn a_mistyped_queue_does_not_spend_the_one_time_token() {
    let up = Installation::setup().workers(0).start();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("w").display().to_string();
    up.ok(&["queue", "create", "night"]);
    let token = up.ok(&["worker", "invite", "--queue", "night"]);
    let mut mistyped = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir, "--queue", "nigth"]);
    mistyped.env("MUTIRAO_ENROL_TOKEN", token.trim());
    let said = run(mistyped);
    assert!(said.code == Some(2) && said.err.contains("for the queue \"night\""), "{said:?}");
    assert!(said.err.contains("--queue night") && !folder.path().join("w/identity").exists(), "{said:?}");

    let worker = Worker::start(&up, &dir, "night", Some(token.trim()));
    assert_eq!(up.ok(&["submit", "--wait", "--queue", "night", "--", "echo", "hi"]), "hi\n");
    assert_eq!(worker.stop(), Some(0));
}

#[test]
fn an_invitation_names_an_address_that_other_machines_reach() {
    let up = Installation::setup().workers(0).listen(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).start();
    let invited = Said::from(up.cli(&["worker", "invite"]));
    assert!(!invited.err.contains("127.0.0.1") && invited.err.contains("api.url"), "{invited:?}");
    let url = invited.err.split("--url ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let name = url.trim_start_matches("http://");
    // By hand: the name need not be known to this machine's resolver.
    let mut socket = TcpStream::connect(up.address()).unwrap();
    write!(socket, "GET /healthz HTTP/1.0\r\nHost: {name}\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "it does not answer to {name}: {answer}");
    let here = Installation::setup().workers(0).start();
    let invited = Said::from(here.cli(&["worker", "invite"]));
    assert!(invited.err.contains("only this machine") && invited.err.contains("--listen 0.0.0.0"), "{invited:?}");
    let named = Installation::setup().workers(0).set("api.url", "https://lab.example.org:7070").start();
    let invited = Said::from(named.cli(&["worker", "invite"]));
    assert!(invited.err.contains("--url https://lab.example.org:7070"), "{invited:?}");
}

#[test]
fn a_revoked_worker_ends_with_one_line_that_says_why_and_the_code_for_not_allowed() {
    let up = Installation::setup().workers(0).start();
    let folder = tempfile::tempdir().unwrap();
    let (dir, log) = (folder.path().join("w").display().to_string(), folder.path().join("log"));
    let token = up.ok(&["worker", "invite"]);
    let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir]);
    command.env("MUTIRAO_ENROL_TOKEN", token.trim()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut worker = Worker(command.spawn().unwrap());
    wait::until("the worker", SOON, || up.workers().len() == 1);
    let id = up.workers()[0].worker.to_string();
    up.ok(&["worker", "revoke", &id]);
    wait::until("it to end", SOON, || worker.0.try_wait().unwrap().is_some());
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(worker.0.wait().unwrap().code(), Some(4), "{said}");
    assert_eq!(said.matches("does not let this worker in").count(), 1, "{said}");
    assert_eq!(said.matches("the link is refused").count(), 1, "{said}");
    assert!(said.contains("its key was revoked") && said.contains("mutirao worker invite"), "{said}");
}

#[test]
fn a_worker_whose_manager_cannot_be_reached_says_so_at_once_and_says_when_it_is_back() {
    let mut up = Installation::setup().workers(0).start();
    let folder = tempfile::tempdir().unwrap();
    let (dir, log) = (folder.path().join("w").display().to_string(), folder.path().join("log"));
    let token = up.ok(&["worker", "invite"]);
    let first = Worker::start(&up, &dir, "default", Some(token.trim()));
    wait::until("the worker", SOON, || up.workers().len() == 1);
    assert_eq!(first.stop(), Some(0));
    up.kill9();
    let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir]);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let worker = Worker(command.spawn().unwrap());
    let said = || std::fs::read_to_string(&log).unwrap();
    wait::until("it to say that nobody answers", SOON, || said().contains("the manager cannot be reached"));
    assert!(said().contains(&up.address().to_string()), "{}", said());
    // It has been tried many times by then.
    wait::holds_within(std::time::Duration::from_secs(4), || false);
    assert_eq!(said().matches("cannot be reached").count(), 1, "{}", said());
    up.restart();
    wait::until("the worker", SOON, || up.workers().len() == 1);
    assert_eq!(said().matches("the link is up again").count(), 1, "{}", said());
    assert_eq!(worker.stop(), Some(0));
}
