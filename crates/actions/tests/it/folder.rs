//! A folder that changes.

use serde_json::json;

use crate::stage::{Stage, named, ok, why};

#[tokio::test]
async fn what_is_added_changed_broken_and_removed_is_seen_without_a_restart() {
    let stage = Stage::new();
    let mut watcher = stage.watcher();
    assert!(watcher.look().is_empty());
    stage.write("say.sh", "#!/bin/sh\necho '\"one\"'\n");
    stage.write("a.json", &json!({"kind": "Action", "name": "a", "command": ["./say.sh"]}).to_string());
    assert!(watcher.look().is_empty());
    assert_eq!(stage.run("a", "{}").await, ok("\"one\""));

    stage.write("say.sh", "#!/bin/sh\necho '\"two!\"'\n");
    assert!(watcher.look().is_empty());
    assert_eq!(stage.run("a", "{}").await, ok("\"two!\""), "the program itself was changed");

    stage.write("a.json", "{\"kind\": ");
    let notices = watcher.look();
    assert!(notices.len() == 1 && notices[0].contains("a.json: "), "{notices:?}");
    assert!(watcher.look().is_empty(), "told once");
    assert_eq!(stage.run("a", "{}").await, ok("\"two!\""), "what it said before goes on");

    let second = json!({"kind": "Action", "name": "a", "version": 2, "command": ["echo", "3"]});
    stage.write("a.json", &second.to_string());
    assert!(watcher.look().is_empty());
    assert_eq!(stage.run("a", "{}").await, ok("3"));
    assert_eq!(stage.table.offers()[0].version, 2);

    stage.write("b.json", &second.to_string());
    let notices = watcher.look();
    assert!(notices[0].contains("urn:mutirao:Action:a is in ") && notices[0].contains("already"), "{notices:?}");

    std::fs::remove_file(stage.folder.path().join("b.json")).unwrap();
    assert!(watcher.look().is_empty() && stage.table.has(&named("a")), "another's action stays");
    std::fs::remove_file(stage.folder.path().join("a.json")).unwrap();
    assert!(watcher.look().is_empty());
    assert!(why(stage.run("a", "{}").await).contains("this node has no"));
}
