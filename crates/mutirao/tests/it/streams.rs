//! Definitions of streams: what is wrong is said with file, line and a suggestion, all of it at once. And streams as they run
//! ([`running`]), whatever fails ([`faults`]); on hosts of their own ([`apart`]), to receivers that fail ([`ends`]), and as the
//! examples use them ([`applications`]).

mod apart;
mod applications;
mod ends;
mod faults;
mod moving;
mod running;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::said::{Said, mutirao, run};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/streams");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "yaml"));
    files.sort();
    files
}

fn stream(verb: &[&str], file: &Path) -> Said {
    run(mutirao(&[&["stream"], verb, &[file.to_str().unwrap()]].concat()))
}

#[test]
fn the_examples_are_sound_and_can_be_shown() {
    assert_eq!(examples().len(), 2);
    for file in examples() {
        let said = stream(&["check"], &file);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
        assert!(said.out.trim_end().ends_with("is sound"), "{said:?}");
        let text = stream(&["graph"], &file);
        assert!(text.code == Some(0) && text.out.contains("stage 1, reads "), "{text:?}");
        let dot = stream(&["graph", "--dot"], &file);
        assert!(dot.out.starts_with("digraph ") && dot.out.trim_end().ends_with('}'), "{dot:?}");
        let json: serde_json::Value = serde_json::from_str(&stream(&["graph", "--json"], &file).out).unwrap();
        assert!(json[0]["operators"].as_array().unwrap().len() > 5);
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("grid.yaml");
    let text = std::fs::read_to_string(&examples()[0]).unwrap();
    let spoilt = text
        .replace("volts > 0 and", "volt > 0 and")
        .replace("slide: 1m", "slide: 0s")
        .replace("from: anomalies", "from: anomales")
        .replace("flow: { name", "flow: { nam");
    std::fs::write(&file, spoilt).unwrap();
    let said = stream(&["check"], &file);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{said:?}");
    let line = |piece: &str| 1 + text.lines().position(|line| line.contains(piece)).unwrap();
    for (place, words) in [
        (line("volts > 0 and"), "there is no field \"volt\"; did you mean \"volts\"?"),
        (line("slide: 1m"), "a window of no time; write a time like 1m"),
        (line("from: anomalies"), "there is no \"anomales\" to read; did you mean \"anomalies\"?"),
        (line("flow: {"), "flow has no field \"nam\"; did you mean \"name\"?"),
    ] {
        let start = format!("{}:{place}:", file.display());
        let told = said.err.lines().any(|line| line.contains(&start) && line.ends_with(words));
        assert!(told, "no \"{words}\" at {start} in {}", said.err);
    }
    let json = stream(&["check", "--json"], &file);
    let told: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, told[0]["faults"][0]["line"].as_u64()), (Some(2), Some(line("volts > 0 and") as u64)));
    assert_eq!(stream(&["graph"], &file).code, Some(2));
}

#[test]
fn what_is_no_definition_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let missing = stream(&["check"], &dir.path().join("nowhere.yaml"));
    crate::said::refused(&missing, 2, &["nowhere.yaml", "No such file"]);
    for (name, text, words) in [
        ("a.toml", "kind = 'Stream'", "streams are written in YAML"),
        ("b.yaml", "kind: Queue", "1:1: it defines no stream"),
        ("c.yaml", "kind: [", "it is not YAML"),
        ("d.yaml", "", "it defines no stream"),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        crate::said::refused(&stream(&["check"], &file), 2, &[name, words]);
    }
    let long = dir.path().join("long.yaml");
    std::fs::write(&long, "#".repeat(2 << 20)).unwrap();
    crate::said::refused(&stream(&["check"], &long), 2, &["longer than"]);
}

#[test]
fn a_definition_may_come_from_the_standard_input() {
    let mut command = mutirao(&["stream", "check", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = std::fs::read(&examples()[1]).unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.out.trim_end()), (Some(0), "-: stream trades is sound"));
}

/// Each stream that a page shows whole can be checked as it stands.
#[test]
fn every_stream_in_the_docs_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/streams.md");
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    let mut sound = 0;
    for block in blocks.filter(|block| block.starts_with("kind: Stream")) {
        let file = dir.path().join("shown.yaml");
        std::fs::write(&file, block).unwrap();
        let said = stream(&["check"], &file);
        assert_eq!(said.code, Some(0), "{said:?}");
        sound += 1;
    }
    assert!(sound >= 1, "the page shows streams, or this proves nothing");
}
