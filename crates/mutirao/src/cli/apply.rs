//! `mutirao apply -f FILE`: what the files say, is made so. Everything is read and checked before anything is done.

mod documents;

use std::path::PathBuf;

use clap::Args;
use mutirao_queues::{QueueSpec, QueueView};
use serde_json::Value;

use super::out::Out;
use super::{Globals, reach};
use crate::failure::Failure;
use documents::Document;

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// What is to be there: .yaml, .toml or .json; - is YAML from stdin
    #[arg(short, long, value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
}

/// Something that a file declares.
#[derive(Debug, PartialEq)]
enum Thing {
    Queue(QueueSpec),
}

pub async fn run(globals: &Globals, args: ApplyArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let mut things = Vec::new();
    for file in &args.file {
        for document in documents::read(file)? {
            things.push(understood(document)?);
        }
    }
    let client = reach::client(&globals.config(vec![])?)?;
    let mut queues: Vec<QueueView> = Vec::with_capacity(things.len());
    for Thing::Queue(spec) in things {
        queues.push(client.put_queue(&spec, None).await?);
    }
    out.answer(&queues, |queues| {
        let line = |queue: &QueueView| format!("queue {} is as declared", queue.definition.name);
        queues.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

fn understood(document: Document) -> Result<Thing, Failure> {
    let Document { place, mut value } = document;
    let wrong = |what: String| Failure::usage(format!("{place}: {what}"));
    let fields =
        value.as_object_mut().ok_or_else(|| wrong("it is not a list of fields; begin with kind: Queue".into()))?;
    match fields.remove("kind") {
        Some(Value::String(kind)) if kind == "Queue" => {}
        Some(kind) => return Err(wrong(format!("there is no kind {kind}; write kind: Queue"))),
        None => return Err(wrong("kind is missing; write kind: Queue".into())),
    }
    let spec: QueueSpec = serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string() {
        path if path == "." => wrong(error.inner().to_string()),
        path => wrong(format!("{path}: {}", error.inner())),
    })?;
    spec.check().map_err(|problem| wrong(problem.line()))?;
    Ok(Thing::Queue(spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(json: &str) -> Result<Thing, String> {
        let document = Document { place: "q.yaml, document 2".into(), value: serde_json::from_str(json).unwrap() };
        understood(document).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let plain = QueueSpec::new("q".parse().unwrap());
        assert_eq!(said(r#"{"kind": "Queue", "name": "q"}"#), Ok(Thing::Queue(plain)));
        for (json, words) in [
            (r#"{"name": "q"}"#, "kind is missing"),
            (r#"{"kind": "Kettle"}"#, "there is no kind \\\"Kettle\\\""),
            (r#"[1]"#, "not a list of fields"),
            (r#"{"kind": "Queue", "name": "q", "limits": {"runing": 1}}"#, "limits.runing: unknown field"),
            (r#"{"kind": "Queue", "name": "q", "limits": {"running": 0}}"#, "limits.running: nothing could ever run"),
        ] {
            let error = said(json).unwrap_err();
            assert!(error.contains("q.yaml, document 2: ") && error.contains(words), "{json} gave {error}");
        }
    }
}
