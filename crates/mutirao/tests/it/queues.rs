//! Queues, as a person makes, changes, reads and deletes them.

use mutirao_testkit::Installation;

use crate::said::Said;

#[test]
fn a_queue_is_made_changed_paused_explained_and_deleted() {
    let up = Installation::setup().workers(0).start();
    let said = |args: &[&str]| Said::from(up.cli(args));
    assert!(up.ok(&["queue", "list"]).contains("default"));

    up.ok(&["queue", "create", "night", "--policy", "priority", "--running-max", "8", "--retries", "2"]);
    let twice = said(&["queue", "create", "night"]);
    assert!(twice.code == Some(1) && twice.err.contains("there is a queue \"night\" already"), "{twice:?}");
    let shown = up.ok(&["queue", "show", "night"]);
    assert!(shown.contains("priority") && shown.contains("running max  8"), "{shown}");
    let wrong = said(&["queue", "edit", "night", "--running-max", "0"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("--running-max: nothing could ever run"), "{wrong:?}");

    up.ok(&["queue", "edit", "night", "--running-max", "none", "--starts-per-second", "5"]);
    let json: serde_json::Value = serde_json::from_str(&up.ok(&["--json", "queue", "show", "night"])).unwrap();
    assert_eq!(json["definition"]["limits"], serde_json::json!({"starts_per_second": 5.0}));
    assert_eq!(json["load"]["waiting"], 0);

    let slip = said(&["submit", "--queue", "nigth", "--", "true"]);
    assert!(slip.code == Some(2) && slip.err.contains("did you mean \"night\"?"), "{slip:?}");
    let job = up.ok(&["submit", "--queue", "night", "--priority", "-5", "--array", "1-3", "--", "true"]);
    up.ok(&["queue", "pause", "night"]);
    let why = up.ok(&["queue", "explain", "night"]);
    assert!(why.contains("it is paused") && why.contains("`mutirao queue resume night`"), "{why}");
    let why = up.ok(&["task", "explain", &format!("{}.1", job.trim())]);
    assert!(why.contains("waits") && why.contains("no worker takes tasks of queue night"), "{why}");
    up.ok(&["queue", "resume", "night"]);

    let busy = said(&["queue", "delete", "night"]);
    assert!(
        busy.code == Some(1) && busy.err.contains("1 jobs with 3 tasks") && busy.err.contains("--cancel"),
        "{busy:?}"
    );
    assert!(up.ok(&["queue", "delete", "night", "--cancel"]).contains("1 job was cancelled"));
    assert!(up.ok(&["job", "show", job.trim()]).contains("cancelled"));
    let gone = said(&["queue", "show", "night"]);
    assert!(gone.code == Some(3) && gone.err.contains("there is no queue \"night\""), "{gone:?}");
    let always = said(&["queue", "delete", "default"]);
    assert!(always.code == Some(1) && always.err.contains("always there"), "{always:?}");
}

#[test]
fn a_file_makes_every_queue_what_it_says_or_nothing_at_all() {
    let up = Installation::setup().workers(0).start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let yaml = "kind: Queue\nname: one\npolicy: { fair_share: { by: { label: team }, shares: { physics: 3 } } }\n\
                limits: { running: 4 }\n---\nkind: Queue\nname: two\nelastic: { preset: arrebol, max: 20 }\n";
    let told = up.ok(&["apply", "-f", &file("queues.yaml", yaml)]);
    assert!(told.contains("queue one") && told.contains("queue two"), "{told}");
    assert!(up.ok(&["queue", "show", "one"]).contains("fair_share by label team"));
    let toml = "kind = \"Queue\"\nname = \"one\"\npolicy = \"priority\"\n";
    up.ok(&["apply", "-f", &file("queue.toml", toml)]);
    assert!(up.ok(&["queue", "show", "one"]).contains("priority"));
    up.ok(&["apply", "-f", &file("queue.json", r#"{"kind": "Queue", "name": "one"}"#)]);
    assert!(up.ok(&["queue", "show", "one"]).contains("fifo"));

    up.ok(&["queue", "pause", "one"]);
    let told = up.ok(&["apply", "-f", &file("queue.json", r#"{"kind": "Queue", "name": "one"}"#)]);
    assert!(told.contains("as declared already"), "{told}");
    let told = up.ok(&["apply", "-f", &file("queue.toml", toml)]);
    assert!(told.contains("was changed") && up.ok(&["queue", "show", "one"]).contains("paused"), "{told}");
    up.ok(&["apply", "-f", &file("queue.json", r#"{"kind": "Queue", "name": "one", "paused": false}"#)]);
    assert!(up.ok(&["queue", "show", "one"]).contains("open"));

    for (name, text, words) in [
        ("a.yaml", "kind: Queue\nname: three\n---\nkind: Queue\nname: four\nlimits: { running: 0 }\n", "document 2"),
        ("b.yaml", "kind: Queue\nname: three\n---\nkind: Kettle\nname: four\n", "Kettle"),
        ("c.yaml", "kind: Queue\nname: three\nlimits: { runing: 1 }\n", "runing"),
        ("d.yaml", "kind: Queue\nname: [three\n", "d.yaml"),
        ("e.toml", "kind = Queue", "e.toml"),
        ("f.txt", "kind: Queue", ".yaml, .toml or .json"),
    ] {
        let said = Said::from(up.cli(&["apply", "-f", &file(name, text)]));
        assert!(said.code == Some(2) && said.err.contains(words) && said.err.lines().count() == 1, "{name}: {said:?}");
    }
    assert!(!up.ok(&["queue", "list"]).contains("three"), "nothing half done");
}
