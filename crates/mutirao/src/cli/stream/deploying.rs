//! Files of definitions, stream by stream: all are checked, here and by the manager, before any is deployed.

use std::path::PathBuf;

use mutirao_client::{Client, Over};
use mutirao_conductor::view::StreamDeployed;
use mutirao_streams::definition::BYTES_MAX;

use crate::cli::apply::declared::sound;
use crate::cli::apply::documents;
use crate::failure::{Exit, Failure};

/// Definitions that are sent to be checked together.
const CHECKED_AT_ONCE: usize = 100;

/// A definition, and the file that it is in.
pub struct Written {
    file: String,
    text: String,
}

/// Documents of another kind are passed over: one file may declare many things.
pub fn read(files: &[PathBuf]) -> Result<Vec<Written>, Failure> {
    let (mut streams, mut wrong) = (Vec::new(), Vec::new());
    for path in files {
        let file = path.display().to_string();
        let before = (streams.len(), wrong.len());
        match documents::read(path, BYTES_MAX) {
            Err(what) => wrong.push(format!("{file}: {what}")),
            Ok(documents) => {
                for document in documents {
                    if document.value.get("kind").and_then(|kind| kind.as_str()).is_some_and(|kind| kind != "Stream") {
                        continue;
                    }
                    match sound(document.text) {
                        Ok(text) => streams.push(Written { file: file.clone(), text }),
                        Err(faults) => wrong.extend(faults.lines().map(|fault| format!("{file}:{fault}"))),
                    }
                }
            }
        }
        if before == (streams.len(), wrong.len()) {
            wrong.push(format!("{file}: it defines no stream; a stream begins with kind: Stream"));
        }
    }
    if wrong.is_empty() { Ok(streams) } else { Err(Failure::usage(wrong.join("\n"))) }
}

pub async fn run(client: &Client, streams: Vec<Written>, replace: bool) -> Result<Vec<StreamDeployed>, Failure> {
    let over = if replace { Over::Replace } else { Over::Refuse };
    let mut wrong = Vec::new();
    for some in streams.chunks(CHECKED_AT_ONCE) {
        let texts: Vec<&str> = some.iter().map(|written| written.text.as_str()).collect();
        let told = client.check_streams(&texts, over).await?;
        wrong.extend(
            told.into_iter().filter_map(|one| Some(format!("{}: {}", some.get(one.at)?.file, one.problem.line()))),
        );
    }
    if !wrong.is_empty() {
        return Err(Failure::new(Exit::Usage, wrong.join("\n")));
    }
    let mut deployed = Vec::new();
    for written in streams {
        deployed.push(client.deploy_stream(&written.text, over).await?);
    }
    Ok(deployed)
}
