//! `mutirao apply -f FILE`: what the files say, is made so. Everything is read and checked before anything is done.

mod documents;

use std::path::PathBuf;

use clap::Args;
use mutirao_client::Client;
use mutirao_queues::{QueueSpec, QueueView};
use serde::Serialize;
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
    Queue(QueueSpec, Pause),
}

/// What a file says about a queue being paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Said,
    /// Then whoever paused it by hand is not undone.
    NotSaid,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Became {
    Made,
    Changed,
    Unchanged,
}

#[derive(Debug, Serialize)]
struct Applied {
    became: Became,
    queue: QueueView,
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
    let mut all: Vec<Applied> = Vec::with_capacity(things.len());
    for Thing::Queue(spec, pause) in things {
        all.push(make_so(&client, spec, pause).await?);
    }
    out.answer(&all, |all| {
        let line = |Applied { became, queue }: &Applied| {
            let name = &queue.definition.name;
            match became {
                Became::Made => format!("queue {name} was made"),
                Became::Changed => format!("queue {name} was changed"),
                Became::Unchanged => format!("queue {name} is as declared already"),
            }
        };
        all.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Only over what was looked at: whoever changes the queue in the same moment makes this fail, and neither is undone.
async fn make_so(client: &Client, mut spec: QueueSpec, pause: Pause) -> Result<Applied, Failure> {
    let there = match client.queue(&spec.name).await {
        Ok(there) => there,
        Err(error) if error.status() == Some(404) => {
            return Ok(Applied { became: Became::Made, queue: client.create_queue(&spec).await? });
        }
        Err(error) => return Err(error.into()),
    };
    if pause == Pause::NotSaid {
        spec.paused = there.definition.paused;
    }
    if there.definition == spec {
        return Ok(Applied { became: Became::Unchanged, queue: there });
    }
    Ok(Applied { became: Became::Changed, queue: client.put_queue(&spec, Some(there.revision)).await? })
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
    let pause = if fields.contains_key("paused") { Pause::Said } else { Pause::NotSaid };
    let spec: QueueSpec = serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string() {
        path if path == "." => wrong(error.inner().to_string()),
        path => wrong(format!("{path}: {}", error.inner())),
    })?;
    spec.check().map_err(|problem| wrong(problem.line()))?;
    Ok(Thing::Queue(spec, pause))
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
        assert_eq!(said(r#"{"kind": "Queue", "name": "q"}"#), Ok(Thing::Queue(plain.clone(), Pause::NotSaid)));
        assert_eq!(said(r#"{"kind": "Queue", "name": "q", "paused": false}"#), Ok(Thing::Queue(plain, Pause::Said)));
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
