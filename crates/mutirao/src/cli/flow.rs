//! `mutirao flow …`

mod watching;

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use mutirao_client::Client;
use mutirao_core::{Clock, Dice, Problem, SystemClock};
use mutirao_flows::start::RunRequest;
use mutirao_flows::view::{FlowView, RunExplained, RunLine, RunView};
use serde_json::{Value, json};

use super::out::Out;
use super::{Globals, apply, reach, show};
use crate::failure::Failure;

/// More than any input may have, so that the server says what is wrong.
const INPUT_BYTES_MAX: u64 = 1 << 20;
/// What a page of runs holds at most.
const PAGE_MAX: i64 = 1_000;

#[derive(Debug, Args)]
pub struct FlowArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make flows as files declare them: `mutirao flow apply -f power.yaml`
    Apply(apply::ApplyArgs),
    /// Show the flows
    List,
    /// Remove a flow; its runs go on
    Rm { name: String },
    /// Run a flow: `mutirao flow run power --input '{"url": "…"}' --watch`
    Run {
        name: String,
        /// What its steps see as `input`, in JSON; `-` reads it from the standard input
        #[arg(long, value_name = "JSON")]
        input: Option<String>,
        /// Read the input from a file
        #[arg(long, value_name = "FILE", conflicts_with = "input")]
        input_file: Option<PathBuf>,
        /// Whoever asks again with this key gets the same run
        #[arg(long)]
        key: Option<String>,
        /// Show how its steps end, and wait for what it gives
        #[arg(long)]
        watch: bool,
    },
    /// Show runs, newest first
    Runs {
        /// Of this flow only
        name: Option<String>,
        /// How many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=PAGE_MAX))]
        limit: u32,
        /// Those before this one, of which a former page ended
        #[arg(long, value_name = "RUN", value_parser = number)]
        before: Option<u64>,
    },
    /// Show a flow, by its name, or a run, by its number
    Show {
        #[arg(value_name = "NAME|RUN")]
        what: String,
    },
    /// End a run early; what its steps have done stays done
    Cancel {
        #[arg(value_parser = number)]
        run: u64,
    },
    /// Say where a run waits, and why each of its nodes was chosen
    Explain {
        #[arg(value_parser = number)]
        run: u64,
    },
}

/// Ends with 1 when a run that was waited for did not end well.
pub async fn run(globals: &Globals, args: FlowArgs) -> Result<u8, Failure> {
    let out = Out::new(globals.shape());
    if let Verb::Apply(args) = args.verb {
        return apply::run(globals, args).await.map(|()| 0);
    }
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::Apply(_) => {}
        Verb::List => out.answer(&all(&client).await?, |views| show::flows(views, SystemClock.now()))?,
        Verb::Rm { name } => {
            client.remove_flow(&name).await?;
            out.answer(&json!({ "removed": name }), |_| format!("flow {name} is gone; its runs go on"))?;
        }
        Verb::Run { name, input, input_file, key, watch } => {
            let (input, dice) = (read(input, input_file)?, Dice::from_os());
            // So that a question whose answer was lost may be asked again.
            let key = key.unwrap_or_else(|| format!("cli-{:016x}{:016x}", dice.u64(), dice.u64()));
            let request = RunRequest { flow: name, input, idempotency_key: Some(key.clone()) };
            request.check().map_err(in_own_flags)?;
            let line: RunLine = client.run_flow(&request.flow, &json!({ "input": request.input }), Some(&key)).await?;
            if !watch {
                out.answer(&line, |line| {
                    format!("run {} of {} has begun; `mutirao flow show {}` shows it", line.run, line.flow, line.run)
                })?;
                return Ok(0);
            }
            return watching::to_the_end(&client, &line, &out).await;
        }
        Verb::Runs { name, limit, before } => {
            let lines: Vec<RunLine> = client.runs(name.as_deref(), before, limit).await?;
            out.answer(&lines, |lines| show::runs(lines, SystemClock.now()))?;
            if let Some(last) = lines.last().filter(|_| lines.len() as u32 >= limit) {
                out.note(format!("there may be more: add --before {}", last.run));
            }
        }
        Verb::Show { what } => match what.parse::<u64>() {
            Ok(run) => {
                let view: RunView = client.run(run, None).await?;
                out.answer(&view, |view| show::run(view, SystemClock.now()))?;
            }
            Err(_) => {
                let view: FlowView = client.flow(&what).await?;
                out.answer(&view, |view| show::flow(view, SystemClock.now()))?;
            }
        },
        Verb::Cancel { run } => {
            let line: RunLine = client.cancel_run(run).await?;
            out.answer(&line, |line| format!("run {} of {} is being cancelled", line.run, line.flow))?;
        }
        Verb::Explain { run } => {
            let explained: RunExplained = client.explain_run(run).await?;
            out.answer(&explained, |explained| show::run_explained(explained, SystemClock.now()))?;
        }
    }
    Ok(0)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("\"{text}\" is no run: runs have numbers, and `mutirao flow runs` shows them"))
}

/// What is wrong with a request, as it was typed.
fn in_own_flags(problem: Problem) -> Failure {
    let flag = match problem.field.as_deref() {
        Some("idempotency_key") => Some("--key".to_owned()),
        Some("input") => Some("--input".to_owned()),
        _ => problem.field.clone(),
    };
    Failure::usage(Problem { field: flag, ..problem }.line())
}

fn read(input: Option<String>, file: Option<PathBuf>) -> Result<Value, Failure> {
    let (text, from) = match (input, file) {
        (_, Some(file)) => {
            let shown = file.display().to_string();
            let text = std::fs::read_to_string(&file).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
            (text, shown)
        }
        (Some(dash), None) if dash == "-" => {
            let mut text = String::new();
            let read = std::io::stdin().take(INPUT_BYTES_MAX + 1).read_to_string(&mut text)?;
            if read as u64 > INPUT_BYTES_MAX {
                return Err(Failure::usage(format!("the standard input has more than {INPUT_BYTES_MAX} bytes")));
            }
            (text, "the standard input".into())
        }
        (Some(text), None) => (text, "--input".into()),
        (None, None) => return Ok(Value::Null),
    };
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("{from} is not JSON: {error}; a text is written with quotes: --input '\"hello\"'"))
    })
}

/// Page after page.
async fn all(client: &Client) -> Result<Vec<FlowView>, Failure> {
    let mut all: Vec<FlowView> = Vec::new();
    loop {
        let after = all.last().map(|view| view.definition.name.clone());
        let page: Vec<FlowView> = client.flows(after.as_deref()).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}
