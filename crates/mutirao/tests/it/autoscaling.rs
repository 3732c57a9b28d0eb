//! SentryWeb's presets with real workers: up under load, held there, and down once their windows have passed. The windows are
//! made short; what is measured, the targets and the order of things are the presets'.

use mutirao_core::quantity::Span;
use mutirao_elastic::policy::{Policy, Preset};
use mutirao_testkit::{Installation, wait};
use serde_json::{Value, json};

use crate::growing::{LEASE, SETTLED_WITHIN, json as read, settles, told};

const WINDOW: Span = Span::secs(3);
const MAX: u32 = 3;

/// The preset in a hurry.
fn hurried(preset: Preset) -> Value {
    let mut elastic = preset.elastic();
    elastic.max = MAX;
    let Policy::Hpa(hpa) = &mut elastic.policy else { panic!("not an hpa") };
    hpa.settle = Span::secs(1);
    let behaviour = hpa.behaviour.as_mut().expect("it says how");
    for rules in [&mut behaviour.up, &mut behaviour.down] {
        rules.window = WINDOW;
        rules.policies.iter_mut().for_each(|rate| rate.per = WINDOW);
    }
    serde_json::to_value(elastic).expect("json")
}

fn installation(name: &str, cpus: f64, preset: Preset) -> Installation {
    let up = Installation::setup().workers(0).set("jobs.lease", LEASE).set("elastic.cpus", "4").start();
    let body = json!({ "name": name, "workers": { "cpus": cpus }, "elastic": hurried(preset) }).to_string();
    let answer = up.request("POST /v1/queues", body.as_bytes());
    assert!(answer.status < 300, "{}", answer.text());
    settles(&up, name, 1);
    up
}

/// Each change of how many are wanted, the first first: when, to how many, and why.
fn changes(up: &Installation, queue: &str) -> Vec<(i64, u64, String)> {
    let page = read(&up.ok(&["--json", "elastic", "history", "--queue", queue]));
    let items = page["items"].as_array().expect("a page").iter().rev();
    let line = |line: &Value| {
        let because = line["because"].as_str().expect("why").to_owned();
        (line["at"].as_i64().expect("when"), line["to"].as_u64().expect("to"), because)
    };
    items.map(line).collect()
}

/// Goes up while the job runs, stays, and comes down after it: each once, and down no sooner than its window allows.
#[track_caller]
fn follows(up: &Installation, queue: &str, job: &str, figure: &str) {
    let most = u64::from(MAX);
    wait::until("all to be there", SETTLED_WITHIN, || {
        told(up, queue) == (most, most) && up.worker_pids().len() == MAX as usize
    });
    up.ok(&["job", "cancel", job]);
    let cancelled_at = read(&up.ok(&["--json", "job", "show", job]))["finished_at"].as_i64().expect("it is over");
    settles(up, queue, 1);
    let changes = changes(up, queue);
    let counts: Vec<u64> = changes.iter().map(|(_, to, _)| *to).collect();
    let peak = counts.iter().position(|to| *to == most).unwrap_or_else(|| panic!("{changes:?}"));
    let (rise, fall) = counts.split_at(peak + 1);
    assert!(rise.is_sorted() && fall.is_sorted_by(|a, b| a >= b) && fall.last() == Some(&1), "{changes:?}");
    assert!(changes[peak].2.contains(figure), "it says why: {changes:?}");
    let down_at = changes[peak + 1].0;
    // A look before the end may have been a part of a second old.
    let least_ms = WINDOW.0.as_millis() as i64 - 1_000;
    assert!(down_at - cancelled_at >= least_ms, "{} ms after the end: {changes:?}", down_at - cancelled_at);
}

#[test]
fn workers_of_sentryweb_follow_the_tasks_that_wait_and_go_after_their_window() {
    let up = installation("checks", 1.0, Preset::SentrywebWorkers);
    // Fifty slots a worker; what waits asks for more workers than there may be.
    let flags = ["submit", "--queue", "checks", "--array", "1-900", "--cpus", "0.02"];
    let job = up.ok(&[&flags[..], &["--", "sleep", "3600"]].concat()).trim().to_owned();
    follows(&up, "checks", &job, "ready");
}

#[test]
fn schedulers_of_sentryweb_follow_their_cpu_and_go_after_their_window() {
    // A fifth of a cpu each: a loop uses several times that also on a machine that does much else.
    let up = installation("planning", 0.2, Preset::SentrywebSchedulers);
    let flags = ["submit", "--queue", "planning", "--array", "1-3", "--cpus", "0.2"];
    let job = up.ok(&[&flags[..], &["--", "sh", "-c", "while :; do :; done"]].concat()).trim().to_owned();
    follows(&up, "planning", &job, "cpu");
}
