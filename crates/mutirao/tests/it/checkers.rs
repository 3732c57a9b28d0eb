//! Checkers that people start themselves.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

use mutirao_testkit::{Installation, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::monitors::{service, state};
use crate::rabbit::Vhost;
use crate::said::{SOON, Said, run};

/// Ends with the test, whichever way that goes.
struct Checker(Child);

impl Checker {
    fn start(up: &Installation, dir: &str, token: Option<&str>, more: &[&str]) -> Self {
        let url = up.url();
        let args = [&["role", "checker", "--url", &url, "--dir", dir], more].concat();
        let mut command = up.command(&args);
        command.envs(token.map(|token| ("MUTIRAO_ENROL_TOKEN", token)));
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn invite(up: &Installation, kinds: &str) -> String {
    up.ok(&["worker", "invite", "--checks", kinds]).trim().to_owned()
}

#[test]
fn an_invited_checker_makes_checks_where_it_stands_and_is_known_ever_after() {
    let (url, _well) = service();
    let up = Installation::setup().workers(0).set("monitors.checker", "none").start();
    up.ok(&["monitor", "add", "shop", "--http", &url, "--every", "1s", "--timeout", "900ms"]);
    assert!(up.ok(&["monitor", "show", "shop"]).contains("no data: no checker for http"));
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("c").display().to_string();

    let token = invite(&up, "http,tcp");
    let checker = Checker::start(&up, &dir, Some(&token), &["--labels", "zone=a"]);
    wait::until("it to be up", SOON, || state(&up, "shop") == "up");
    assert!(up.ok(&["worker", "keys"]).contains("checks of http,tcp"));
    let placed = format!(
        "kind: Monitor\nname: near\nevery: 1s\ntimeout: 900ms\nhttp: {{ url: \"{url}\" }}\non: {{ labels: {{ zone: a }} }}\n---\n\
         kind: Monitor\nname: far\nevery: 1s\ntimeout: 900ms\nhttp: {{ url: \"{url}\" }}\non: {{ labels: {{ zone: b }} }}\n"
    );
    let file = folder.path().join("placed.yaml");
    std::fs::write(&file, placed).unwrap();
    up.ok(&["apply", "-f", &file.display().to_string()]);
    wait::until("the near one to be up", SOON, || state(&up, "near") == "up");
    let far = up.ok(&["monitor", "show", "far"]);
    assert!(far.contains("no data: no checker for http with zone=b"), "{far}");
    assert_eq!(checker.stop(), Some(0));

    let more = run(up.command(&["role", "checker", "--url", &up.url(), "--dir", &dir, "--kinds", "dns"]));
    assert!(more.code == Some(2) && more.err.contains("was invited for http,tcp"), "{more:?}");
    let history = |up: &Installation| -> Value {
        serde_json::from_str(&up.ok(&["--json", "monitor", "history", "shop", "--limit", "1"])).unwrap()
    };
    let before = history(&up)["outcomes"][0]["at"].as_i64().unwrap();
    let again = Checker::start(&up, &dir, None, &[]);
    wait::until("it to go on", SOON, || history(&up)["outcomes"][0]["at"].as_i64().unwrap() > before + 2_000);
    assert_eq!(again.stop(), Some(0));
}

#[test]
fn a_checker_that_nobody_invited_is_turned_away() {
    let up = Installation::setup().workers(0).start();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("c").display().to_string();
    let uninvited = run(up.command(&["role", "checker", "--url", &up.url(), "--dir", &dir]));
    assert!(uninvited.code == Some(4) && uninvited.err.contains("worker invite --checks"), "{uninvited:?}");
    let mut worker = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir, "--queue", "checks"]);
    worker.env("MUTIRAO_ENROL_TOKEN", invite(&up, "http"));
    let said = run(worker);
    assert!(
        said.code == Some(2) && said.err.contains("is for a checker") && said.err.contains("still good"),
        "{said:?}"
    );
    let slip = Said::from(up.cli(&["worker", "invite", "--checks", "ftp"]));
    assert!(slip.code == Some(2) && slip.err.contains("icmp and exec"), "{slip:?}");
}

#[test]
fn a_checker_on_rabbitmq_is_a_user_of_its_own() {
    let Some(vhost) = Vhost::new() else { return };
    let (url, _well) = service();
    let up = Installation::setup()
        .workers(0)
        .set("monitors.checker", "none")
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    up.ok(&["monitor", "add", "shop", "--http", &url, "--every", "1s", "--timeout", "900ms"]);
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("c").display().to_string();
    let token = invite(&up, "http");
    let _checker = Checker::start(&up, &dir, Some(&token), &[]);
    wait::until("it to be up", SOON, || state(&up, "shop") == "up");
    let keys: Value = serde_json::from_str(&up.ok(&["--json", "worker", "keys"])).unwrap();
    let user = format!("mutirao.worker.{}", keys["items"][0]["worker"].as_str().unwrap());
    assert!(vhost.users().contains(&user), "it has no user of its own");
    up.ok(&["worker", "revoke", keys["items"][0]["worker"].as_str().unwrap()]);
    assert!(!vhost.users().contains(&user), "it still has a user");
    wait::until("nobody to be there", SOON, || state(&up, "shop") == "no_data");
    assert!(up.ok(&["monitor", "show", "shop"]).contains("no data: no checker for http"));
}

/// Answers well, then badly, then well.
fn wavering() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (n, mut stream) in listener.incoming().flatten().enumerate() {
            let _ = stream.read(&mut [0; 1024]);
            let status = if n % 2 == 0 { "200 OK" } else { "503 Not Now" };
            let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    url
}

/// The least that a reminder may be asked for is a minute.
#[test]
fn a_program_is_told_of_reminders_of_flapping_and_of_missing_data() {
    let up = Installation::setup().workers(0).set("monitors.checker", "none").set("monitors.exec", "allowed").start();
    let folder = tempfile::tempdir().unwrap();
    let (told, dir) = (folder.path().join("told"), folder.path().join("c").display().to_string());
    let file = folder.path().join("all.yaml");
    let every = "every: 1s\ntimeout: 900ms";
    let text = format!(
        "kind: Channel\nname: script\n\
         exec: {{ command: [ /bin/sh, -c, 'echo $MUTIRAO_ALERT_EVENT $MUTIRAO_ALERT_MONITOR >> {}' ] }}\n---\n\
         kind: Monitor\nname: gone\n{every}\nhttp: {{ url: 'http://127.0.0.1:1/' }}\nalerts: [ {{ to: script, remind: 1m }} ]\n---\n\
         kind: Monitor\nname: wavers\n{every}\nhttp: {{ url: '{}' }}\nalerts: [ {{ to: script }} ]\n",
        told.display(),
        wavering()
    );
    std::fs::write(&file, text).unwrap();
    up.ok(&["apply", "-f", &file.display().to_string()]);
    let count = |line: &str| std::fs::read_to_string(&told).unwrap_or_default().lines().filter(|l| *l == line).count();
    let token = invite(&up, "http");
    let checker = Checker::start(&up, &dir, Some(&token), &[]);
    wait::until("the flapping to be told", SOON, || count("flapping wavers") == 1);
    wait::until("the reminder", Duration::from_secs(180), || count("reminder gone") == 1);
    assert_eq!((count("opened gone"), count("opened wavers")), (1, 0), "{:?}", std::fs::read_to_string(&told));
    assert_eq!(checker.stop(), Some(0));
    wait::until("the missing data to be told", SOON, || count("no_data gone") == 1 && count("no_data wavers") == 1);
    let _again = Checker::start(&up, &dir, None, &[]);
    wait::until("both to be heard again", SOON, || count("heard gone") == 1 && count("heard wavers") == 1);
    assert_eq!((count("flapping wavers"), count("opened gone")), (1, 1), "each is told once");
}
