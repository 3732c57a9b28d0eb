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

#[tokio::test]
async fn what_stood_in_the_way_of_a_definition_may_go_and_then_it_is_taken() {
    let stage = Stage::new();
    let mut watcher = stage.watcher();
    let says = |name: &str, what: &str| json!({"kind": "Action", "name": name, "command": ["echo", what]}).to_string();
    stage.write("a.json", &says("a", "1"));
    stage.write("b.json", &says("a", "2"));
    let notices = watcher.look();
    assert!(notices.len() == 1 && notices[0].contains("b.json: ") && notices[0].contains("already"), "{notices:?}");
    assert!(watcher.look().is_empty(), "told once");
    assert_eq!(stage.run("a", "{}").await, ok("1"));
    std::fs::remove_file(stage.folder.path().join("a.json")).unwrap();
    assert!(watcher.look().is_empty());
    assert_eq!(stage.run("a", "{}").await, ok("2"), "nobody need touch it");

    stage.write("a.json", &says("a", "3"));
    assert_eq!(watcher.look().len(), 1, "now the other is in the way");
    stage.write("b.json", &says("b", "4"));
    watcher.look();
    watcher.look();
    assert_eq!((stage.run("a", "{}").await, stage.run("b", "{}").await), (ok("3"), ok("4")));
}

#[tokio::test]
async fn where_there_is_no_room_for_all_of_a_file_none_of_it_is_taken_until_there_is() {
    let stage = Stage::new();
    let mut watcher = stage.watcher();
    let one = |n: usize| json!({"kind": "Action", "name": format!("a{n}"), "command": ["true"]}).to_string();
    let last = mutirao_nodes::wire::ACTIONS_MAX;
    (1..=last).for_each(|n| stage.define(serde_json::from_str(&one(n)).unwrap()));
    stage.write("one.json", &one(0));
    let notices = watcher.look();
    assert!(notices.len() == 1 && notices[0].contains("a node has at most"), "{notices:?}");
    assert!(watcher.look().is_empty() && !stage.table.has(&named("a0")));
    stage.table.remove(&named("a1"));
    assert!(watcher.look().is_empty() && stage.table.has(&named("a0")));
}
