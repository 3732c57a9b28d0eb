//! `mutirao stream …`: definitions are checked and shown here; deployed, looked at and changed by the manager.

mod deploying;
mod migrating;
mod pushing;

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use futures_util::StreamExt;
use mutirao_client::Client;
use mutirao_conductor::view::{Explained, HostLine, Migrate, StreamLine, StreamView, Tapped};
use mutirao_core::quantity::Span;
use mutirao_core::{Clock, SystemClock};
use mutirao_streams::Graph;
use mutirao_streams::definition::{self, BYTES_MAX, Fault};
use mutirao_streams::graph::view::GraphView;
use serde::Serialize;
use serde_json::json;

use super::out::{Out, Shape};
use super::{Globals, reach, show};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct StreamArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say everything that is wrong with the streams of files, with line, column and a suggestion
    Check {
        /// YAML; - reads it from the standard input
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Show what the streams of a file become: stages, operators, and the fields of what flows between them
    Graph {
        /// YAML; - reads it from the standard input
        file: PathBuf,
        /// As a picture, for Graphviz: `mutirao stream graph --dot grid.yaml | dot -Tsvg`
        #[arg(long)]
        dot: bool,
    },
    /// Run the streams of files; the same again changes nothing
    Deploy {
        /// YAML; - reads it from the standard input
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Put them in the place of those of the same names that say something else. They begin anew, and forget what was kept
        #[arg(long)]
        replace: bool,
    },
    /// Show the streams
    List,
    /// Show a stream: its parts, where they are, and how they do
    Show {
        name: String,
        /// Only its definition, as it was deployed
        #[arg(long)]
        definition: bool,
    },
    /// Show what comes out of an operator or source as it comes: `mutirao stream tap grid means`; Ctrl-C ends it
    Tap {
        name: String,
        /// A source, an operator, a sink, NAME.late or NAME.unfit
        port: String,
        /// From this record of its log on, or from the first that it has; from now on when left out
        #[arg(long, value_name = "OFFSET")]
        from: Option<u64>,
        /// End after so many events
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Let the sources of a stream take nothing more; what is under way goes on to its end
    Pause { name: String },
    /// Let a stream go on that was paused
    Resume { name: String },
    /// Delete a stream, with all that it keeps
    Delete { name: String },
    /// Say where each part is and why, what is in the way, and what happened last
    Explain { name: String },
    /// Move a replica of a stage to another host while it runs: `mutirao stream migrate grid means --to north-2`
    Migrate {
        name: String,
        /// By its name, or that of an operator in it
        stage: String,
        /// Which of its replicas
        #[arg(long, default_value_t = 0)]
        replica: u32,
        /// The name or id of a host; `mutirao stream hosts` shows them
        #[arg(long, value_name = "HOST")]
        to: String,
        /// Wait until it is there, at most so long: 2m
        #[arg(long, value_name = "TIME")]
        wait: Option<Span>,
    },
    /// Push events to a source of kind http: `mutirao stream push grid meters events.jsonl`
    Push {
        name: String,
        source: String,
        /// JSON: one event, an array, or one a line; - reads it from the standard input
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Show the hosts that run parts of streams
    Hosts,
}

/// What became of one file, for programs.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    streams: Vec<String>,
    faults: Vec<Fault>,
}

/// Ends with 2 when something is wrong with a definition.
pub async fn run(globals: &Globals, args: StreamArgs) -> Result<u8, Failure> {
    let out = Out::new(globals.shape());
    match args.verb {
        Verb::Check { files } => return check(globals, &out, &files),
        Verb::Graph { file, dot } => return graph(&out, &file, dot),
        Verb::Deploy { files, replace } => {
            // Before anybody is asked: what is wrong with a file needs no manager to be told.
            let streams = deploying::read(&files)?;
            let deployed = deploying::run(&client(globals)?, streams, replace).await?;
            out.answer(&deployed, |all| show::streams_deployed(all))?;
        }
        Verb::List => {
            let all: Vec<StreamLine> = all(&client(globals)?).await?;
            out.answer(&all, |all| show::streams(all, SystemClock.now()))?;
        }
        Verb::Show { name, definition } => {
            let view: StreamView = client(globals)?.stream(&name).await?;
            if definition {
                out.line(view.definition.trim_end())?;
                return Ok(0);
            }
            out.answer(&view, |view| show::stream(view, SystemClock.now()))?;
        }
        Verb::Tap { name, port, from, count } => tap(&client(globals)?, &out, (&name, &port), from, count).await?,
        Verb::Pause { name } => {
            client(globals)?.pause_stream(&name).await?;
            out.answer(&json!({ "paused": name }), |_| format!("stream {name} is paused"))?;
        }
        Verb::Resume { name } => {
            client(globals)?.resume_stream(&name).await?;
            out.answer(&json!({ "resumed": name }), |_| format!("stream {name} goes on"))?;
        }
        Verb::Delete { name } => {
            client(globals)?.delete_stream(&name).await?;
            out.answer(&json!({ "deleted": name }), |_| format!("stream {name} is being taken down"))?;
        }
        Verb::Explain { name } => {
            let explained: Explained = client(globals)?.explain_stream(&name).await?;
            out.answer(&explained, |explained| show::stream_explained(explained, SystemClock.now()))?;
        }
        Verb::Migrate { name, stage, replica, to, wait } => {
            let ask = Migrate { stage, replica, to };
            let moved = migrating::run(&client(globals)?, &name, &ask, wait.map(|wait| wait.0)).await?;
            out.answer(&moved, |moved| show::migrating(moved, &name, wait.is_some()))?;
        }
        Verb::Push { name, source, file } => {
            let pushed = pushing::run(&client(globals)?, &name, &source, &file).await?;
            out.answer(&pushed, |pushed| show::pushed(pushed, &name, &source))?;
        }
        Verb::Hosts => {
            let hosts: Vec<HostLine> = client(globals)?.stream_hosts().await?;
            out.answer(&hosts, |hosts| show::stream_hosts(hosts, SystemClock.now()))?;
        }
    }
    Ok(0)
}

fn client(globals: &Globals) -> Result<Client, Failure> {
    reach::client(&globals.config(vec![])?)
}

/// Page after page.
async fn all(client: &Client) -> Result<Vec<StreamLine>, Failure> {
    let mut all: Vec<StreamLine> = Vec::new();
    loop {
        let after = all.last().map(|line| line.name.clone());
        let page: Vec<StreamLine> = client.streams(after.as_deref()).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// A line for each event, for people and programs alike.
async fn tap(
    client: &Client,
    out: &Out,
    (name, port): (&str, &str),
    from: Option<u64>,
    count: Option<u64>,
) -> Result<(), Failure> {
    let mut left = count;
    let mut tapped = client.tap::<Tapped>(name, port, from).await?;
    while left != Some(0) {
        let Some(some) = tapped.next().await else { break };
        for event in some?.events {
            out.line(event)?;
            left = left.map(|left| left.saturating_sub(1));
            if left == Some(0) {
                break;
            }
        }
    }
    Ok(())
}

fn check(globals: &Globals, out: &Out, files: &[PathBuf]) -> Result<u8, Failure> {
    let all: Vec<Checked> = files.iter().map(|file| checked(file)).collect::<Result<_, _>>()?;
    let wrong: Vec<String> = all.iter().flat_map(lines).collect();
    if globals.shape() == Shape::People && !wrong.is_empty() {
        return Err(Failure::usage(wrong.join("\n")));
    }
    out.answer(&all, |all| all.iter().map(praise).collect::<Vec<_>>().join("\n"))?;
    Ok(if wrong.is_empty() { 0 } else { 2 })
}

fn graph(out: &Out, file: &Path, dot: bool) -> Result<u8, Failure> {
    let graphs = definition::check(&text_of(file)?).map_err(|faults| {
        let checked = Checked { file: shown(file), streams: Vec::new(), faults };
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
