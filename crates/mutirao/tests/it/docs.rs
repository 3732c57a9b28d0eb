//! What the documentation shows is taken word for word.

use std::path::{Path, PathBuf};

use mutirao_testkit::{Installation, wait};

use crate::said::{SOON, Said};

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    docs.filter(|path| path.extension().is_some_and(|kind| kind == "md")).chain([root.join("README.md")]).collect()
}

/// The blocks of this language, as they stand.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
}

#[test]
fn every_queue_in_the_docs_can_be_applied_as_it_stands() {
    let node = ["elastic.cpus=8", "elastic.memory=64GiB"];
    let up = node.iter().fold(Installation::setup().workers(0), |setup, pair| setup.arg("--set").arg(pair)).start();
    // From here on a queue that no node could staff is refused.
    wait::until("a node to be offered", SOON, || up.ok(&["node", "list"]).contains("open"));
    let mut applied = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in blocks(&text, "yaml").into_iter().filter(|block| block.starts_with("kind: Queue")) {
            let file = up.data().join("declared.yaml");
            std::fs::write(&file, &block).unwrap();
            let said = Said::from(up.cli(&["apply", "-f", file.to_str().unwrap()]));
            assert_eq!(said.code, Some(0), "{}: {said:?}\n{block}", page.display());
            applied += 1;
        }
    }
    assert!(applied >= 2, "the docs show queues, or this proves nothing");
}
