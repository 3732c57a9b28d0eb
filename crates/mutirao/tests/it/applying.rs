//! `mutirao apply`: a file is made so whole, or nothing of it is, whoever finds the mistake.

use std::path::Path;

use mutirao_testkit::Installation;
use serde_json::Value;

use crate::elastic::{offer, resource_manager};
use crate::said::Said;

const QUEUE: &str = "kind: Queue\nname: ";

fn monitor(name: &str, more: &str) -> String {
    format!("kind: Monitor\nname: {name}\nevery: 1h\ntcp: {{ address: '127.0.0.1:1' }}\npaused: true\n{more}")
}

fn apply(up: &Installation, documents: &[String]) -> Said {
    let file = up.data().join("all.yaml");
    std::fs::write(&file, documents.join("\n---\n")).unwrap();
    Said::from(up.cli(&["apply", "-f", file.to_str().unwrap()]))
}

fn names(up: &Installation, noun: &[&str]) -> Vec<String> {
    let all: Value = serde_json::from_str(&up.ok(&[&["--json"], noun, &["list"]].concat())).unwrap();
    let name = |one: &Value| one["definition"]["name"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(name).collect()
}

/// Nothing but what every installation has.
fn assert_untouched(up: &Installation) {
    assert_eq!(names(up, &["queue"]), ["default"]);
    for noun in [&["monitor"][..], &["monitor", "channel"], &["flow"]] {
        assert!(names(up, noun).is_empty(), "{noun:?}: {:?}", names(up, noun));
    }
}

/// The lines of a refusal are these, each with its place.
fn assert_refused(said: &Said, file: &Path, expected: &[(usize, &str)]) {
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(said.code == Some(2) && lines.len() == expected.len(), "{said:?}");
    for (line, (document, words)) in lines.iter().zip(expected) {
        let place = format!("{}, document {document}: ", file.display());
        assert!(line.contains(&place) && line.contains(words), "{place}{words}: {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_only_the_manager_can_refuse_keeps_the_others_from_being_made() {
    let up = Installation::setup().manager_alone().start();
    let (client, generation) = resource_manager(&up).await;
    let huge = |name: &str| format!("{QUEUE}{name}\nworkers: {{ cpus: 64 }}\nelastic: {{ preset: arrebol }}");
    client.elastic_offer(&offer(generation)).await.unwrap();
    let said = apply(&up, &[format!("{QUEUE}first"), huge("imp"), format!("{QUEUE}third")]);
    assert_refused(&said, &up.data().join("all.yaml"), &[(2, "needs 64 cpus")]);
    assert_untouched(&up);
}

#[test]
fn every_bad_row_is_named_with_its_place_and_nothing_of_any_kind_is_made() {
    let up = Installation::setup().workers(0).start();
    let file = up.data().join("all.yaml");
    let to = |channel: &str| format!("alerts: [ {{ to: {channel} }} ]");
    let channel = "kind: Channel\nname: newchan\nslack: { url: 'https://hooks.example.org/x' }".to_owned();
    let all = [
        format!("{QUEUE}m1"),
        channel,
        monitor("good", &to("newchan")),
        monitor("bad", &to("nobody")),
        "kind: Kettle\nname: k".into(),
        format!("{QUEUE}m1"),
        monitor("good", ""),
        "kind: Flow\nname: f\nsteps: [ { name: a, action: actions.nowhere } ]".into(),
        monitor("program", "").replace("tcp: { address: '127.0.0.1:1' }", "exec: { command: [ 'true' ] }"),
        "kind: Channel\nname: shout\nexec: { command: [ 'true' ] }".into(),
        format!("{QUEUE}m2\nlimits: {{ running: 0 }}"),
        format!("{QUEUE}m3"),
    ];
    let expected = [
        (4, "alerts[0].to: there is no channel \"nobody\""),
        (5, "there is no kind \"Kettle\""),
        (6, "it is declared twice, first in"),
        (7, "it is declared twice, first in"),
        (8, "actions.nowhere"),
        (9, "monitors.exec=allowed"),
        (10, "monitors.exec=allowed"),
        (11, "limits.running"),
    ];
    assert_refused(&apply(&up, &all), &file, &expected);
    assert_untouched(&up);
    // What is left without them is sound, and made, also what names something of the same file.
    let sound: Vec<String> = [0, 1, 2, 11].map(|n| all[n].clone()).into();
    let said = apply(&up, &sound);
    assert!(said.code == Some(0), "{said:?}");
    assert_eq!(names(&up, &["queue"]), ["default", "m1", "m3"]);
    assert_eq!(
        (names(&up, &["monitor"]), names(&up, &["monitor", "channel"])),
        (vec!["good".into()], vec!["newchan".into()])
    );
    let again = apply(&up, &sound);
    assert!(
        again.out.lines().count() == 4 && again.out.lines().all(|line| line.ends_with("is as declared already")),
        "{again:?}"
    );
}

#[test]
fn a_file_of_four_thousand_monitors_is_taken_at_once() {
    let up = Installation::setup().workers(0).start();
    let all: Vec<String> = (0..4_000)
        .map(|n| monitor(&format!("shop-{n:04}"), &format!("labels: {{ note: '{}' }}", "x".repeat(200))))
        .collect();
    let said = apply(&up, &all);
    assert!(std::fs::metadata(up.data().join("all.yaml")).unwrap().len() > 1_114_112);
    assert!(said.code == Some(0) && said.out.lines().count() == 4_000, "{:?} {}", said.code, said.err);
}
