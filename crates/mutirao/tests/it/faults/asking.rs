//! Clients that submit while the manager dies and comes back: what was answered with yes is there, once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::Duration;

use mutirao_testkit::{Installation, http, wait};

use super::{jobs_listed, json};
use crate::said::SOON;

/// What a client does with a request that got no answer.
#[derive(Clone, Copy, PartialEq)]
enum Temper {
    /// Sends it again, under the same key, until it is answered.
    Stubborn,
    /// Turns to the next.
    Fickle,
}

struct Client {
    name: &'static str,
    temper: Temper,
    at: SocketAddr,
    authorization: String,
}

impl Client {
    /// Submits one job. Its id, when the answer was yes.
    fn submit(&self, name: &str) -> Option<String> {
        let body = format!(r#"{{"name": "{name}", "task": {{"action": {{"noop": {{}}}}}}}}"#);
        let headers = [
            ("Authorization", self.authorization.as_str()),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", name),
        ];
        let answer = http::request(self.at, "POST /v1/jobs", &headers, body.as_bytes()).ok()?;
        // A server on its way down or up may say that it cannot; it must not say that the request is wrong.
        assert!(matches!(answer.status, 200 | 201 | 429 | 503), "{}: {}", answer.status, answer.text());
        (answer.status < 300).then(|| json(&answer.text())["id"].as_str().expect("an id").to_owned())
    }

    /// Submits until told to stop: names and ids of what was answered with yes, and how much was not answered.
    fn run(&self, stop: &AtomicBool) -> (HashMap<String, String>, usize) {
        let (mut accepted, mut unanswered) = (HashMap::new(), 0);
        for n in 0.. {
            let name = format!("{}-{n}", self.name);
            while !stop.load(Ordering::Relaxed) {
                if let Some(id) = self.submit(&name) {
                    accepted.insert(name, id);
                    break;
                }
                unanswered += 1;
                if self.temper == Temper::Fickle {
                    break;
                }
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        (accepted, unanswered)
    }
}

fn start<'s>(
    scope: &'s Scope<'s, '_>,
    up: &Installation,
    name: &'static str,
    temper: Temper,
    stop: &'s AtomicBool,
) -> std::thread::ScopedJoinHandle<'s, (HashMap<String, String>, usize)> {
    let client = Client { name, temper, at: up.address(), authorization: format!("Bearer {}", up.token()) };
    scope.spawn(move || client.run(stop))
}

/// Every job there is: id by name. A name that comes twice fails the test.
fn jobs_by_name(up: &Installation) -> HashMap<String, String> {
    let mut jobs = HashMap::new();
    for job in jobs_listed(up, "") {
        let text = |field: &str| job[field].as_str().expect("a text").to_owned();
        let before = jobs.insert(text("name"), text("id"));
        assert_eq!(before, None, "two jobs of the name {}", text("name"));
    }
    jobs
}

#[test]
fn what_was_accepted_while_the_manager_died_three_times_is_there_once() {
    // Rates are not what is tested here.
    let mut up = Installation::setup().set("api.rate", "1000000").set("api.burst", "1000000").start();
    let stop = AtomicBool::new(false);
    let (stubborn, fickle) = std::thread::scope(|scope| {
        let stubborn = start(scope, &up, "stubborn", Temper::Stubborn, &stop);
        let fickle = start(scope, &up, "fickle", Temper::Fickle, &stop);
        for _ in 0..3 {
            wait::holds_within(Duration::from_millis(700), || false);
            up.kill9();
            up.restart();
        }
        wait::holds_within(Duration::from_millis(300), || false);
        stop.store(true, Ordering::Relaxed);
        (stubborn.join().expect("the client ends"), fickle.join().expect("the client ends"))
    });

    let there = jobs_by_name(&up);
    for (accepted, _) in [&stubborn, &fickle] {
        assert!(accepted.len() > 50, "too few to prove anything: {}", accepted.len());
        for (name, id) in accepted {
            assert_eq!(there.get(name), Some(id), "{name} was accepted");
        }
    }
    assert!(stubborn.1 > 0 && fickle.1 > 0, "no request was cut off");
    eprintln!("{} and {} accepted, {} there", stubborn.0.len(), fickle.0.len(), there.len());
    let all_ended = || jobs_listed(&up, "").iter().all(|job| job["state"] == "ok");
    wait::until("every job to end", SOON, all_ended);
}
