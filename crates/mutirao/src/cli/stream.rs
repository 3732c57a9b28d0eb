//! `mutirao stream …`: definitions are checked and shown. Nothing is run yet.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use mutirao_streams::Graph;
use mutirao_streams::definition::{self, BYTES_MAX, Fault};
use mutirao_streams::graph::view::GraphView;
use serde::Serialize;

use super::Globals;
use super::out::Out;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct StreamArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say everything that is wrong with the streams of files, with line, column and a suggestion
    ///
    /// Streams are checked and shown, and not run yet.
    Check {
        /// YAML; - reads it from the standard input
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Show what the streams of a file become: stages, operators, and the fields of what flows between them
    ///
    /// Streams are checked and shown, and not run yet.
    Graph {
        /// YAML; - reads it from the standard input
        file: PathBuf,
        /// As a picture, for Graphviz: `mutirao stream graph --dot grid.yaml | dot -Tsvg`
        #[arg(long)]
        dot: bool,
    },
}

/// What became of one file, for programs.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    streams: Vec<String>,
    faults: Vec<Fault>,
}

/// Ends with 2 when something is wrong with a definition.
pub fn run(globals: &Globals, args: StreamArgs) -> Result<u8, Failure> {
    let out = Out::new(globals.shape());
    match args.verb {
        Verb::Check { files } => {
            let all: Vec<Checked> = files.iter().map(|file| checked(file)).collect::<Result<_, _>>()?;
            let wrong: Vec<String> = all.iter().flat_map(lines).collect();
            if !globals.json && !wrong.is_empty() {
                return Err(Failure::usage(wrong.join("\n")));
            }
            out.answer(&all, |all| all.iter().map(praise).collect::<Vec<_>>().join("\n"))?;
            Ok(if wrong.is_empty() { 0 } else { 2 })
        }
        Verb::Graph { file, dot } => {
            let graphs = definition::check(&text_of(&file)?).map_err(|faults| {
                let checked = Checked { file: shown(&file), streams: Vec::new(), faults };
                Failure::usage(lines(&checked).join("\n"))
            })?;
            if dot {
                out.line(graphs.iter().map(Graph::dot).collect::<Vec<_>>().join("\n"))?;
                return Ok(0);
            }
            let views: Vec<GraphView> = graphs.iter().map(Graph::view).collect();
            out.answer(&views, |_| graphs.iter().map(Graph::text).collect::<Vec<_>>().join("\n\n"))?;
            Ok(0)
        }
    }
}

fn checked(file: &Path) -> Result<Checked, Failure> {
    let text = text_of(file)?;
    let file = shown(file);
    Ok(match definition::check(&text) {
        Ok(graphs) => {
            Checked { file, streams: graphs.into_iter().map(|graph| graph.name).collect(), faults: Vec::new() }
        }
        Err(faults) => Checked { file, streams: Vec::new(), faults },
    })
}

fn lines(checked: &Checked) -> Vec<String> {
    checked.faults.iter().map(|fault| format!("{}:{fault}", checked.file)).collect()
}

fn praise(checked: &Checked) -> String {
    let named = |name: &String| format!("{}: stream {name} is sound", checked.file);
    checked.streams.iter().map(named).collect::<Vec<_>>().join("\n")
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

fn text_of(file: &Path) -> Result<String, Failure> {
    let wrong = |what: String| Failure::usage(format!("{}: {what}", shown(file)));
    if file.extension().is_some_and(|kind| kind == "toml") {
        return Err(wrong("streams are written in YAML".into()));
    }
    let mut text = String::new();
    let mut reader: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(std::fs::File::open(file).map_err(|error| wrong(error.to_string()))?),
    };
    let read = reader.by_ref().take(BYTES_MAX as u64 + 1).read_to_string(&mut text);
    match read.map_err(|error| wrong(error.to_string()))? {
        bytes if bytes > BYTES_MAX => Err(wrong(format!("it is longer than {BYTES_MAX} bytes"))),
        _ => Ok(text),
    }
}
