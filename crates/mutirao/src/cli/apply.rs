//! `mutirao apply -f FILE`: what the files say, is made so. Everything is [read](declared) and [checked](checking), here and by
//! the manager, before anything is [made](making).

mod checking;
pub mod declared;
pub mod documents;
mod making;

use std::path::PathBuf;

use clap::Args;
use mutirao_client::Client;
use mutirao_core::declared::Became;
use mutirao_monitors::service::MonitorView;
use mutirao_monitors::service::alerts::ChannelView;
use mutirao_queues::QueueView;
use serde::Serialize;

use super::monitor::call_line;
use super::out::Out;
use super::{Globals, reach};
use crate::failure::Failure;
use checking::Planned;
use declared::Files;

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// What is to be there: .yaml, .toml or .json; - is YAML from stdin
    #[arg(short, long, value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Applied {
    became: Became,
    #[serde(flatten)]
    thing: Made,
}

/// What is there now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Made {
    Queue(Box<QueueView>),
    Monitor(Box<MonitorView>),
    Channel(Box<ChannelView>),
    Flow {
        name: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    Stream {
        name: String,
    },
}

impl Made {
    fn name(&self) -> String {
        match self {
            Made::Queue(queue) => format!("queue {}", queue.definition.name),
            Made::Monitor(monitor) => format!("monitor {}", monitor.definition.name),
            Made::Channel(channel) => format!("channel {}", channel.definition.name),
            Made::Flow { name, .. } => format!("flow {name}"),
            Made::Stream { name } => format!("stream {name}"),
        }
    }
}

pub async fn run(globals: &Globals, args: ApplyArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let mut files = Files::read(&args.file);
    let (client, planned) = match looked_at(globals, &mut files).await {
        Ok(planned) => planned,
        Err(failure) if files.wrong.is_empty() => return Err(failure),
        Err(failure) => return Err(files.refusal(Some(failure))),
    };
    // All that is wrong at once: nobody mends a long file line by line.
    if !files.wrong.is_empty() {
        return Err(files.refusal(None));
    }
    let all = making::everything(&client, planned).await?;
    out.answer(&all, |all| all.iter().map(|applied| line(&client, applied)).collect::<Vec<_>>().join("\n"))
}

async fn looked_at(globals: &Globals, files: &mut Files) -> Result<(Client, Planned), Failure> {
    let client = reach::client(&globals.config(vec![])?)?;
    // What a file declares that cannot be read nobody knows, and the rest may lean on it.
    let planned = if files.unreadable { Planned::default() } else { checking::everything(&client, files).await? };
    Ok((client, planned))
}

fn line(client: &Client, Applied { became, thing }: &Applied) -> String {
    let said = match became {
        Became::Made => format!("{} was made", thing.name()),
        Became::Changed => format!("{} was changed", thing.name()),
        Became::Unchanged => format!("{} is as declared already", thing.name()),
    };
    match thing {
        Made::Monitor(view) => {
            [Some(said), call_line(client, view)].into_iter().flatten().collect::<Vec<_>>().join(": ")
        }
        Made::Flow { warnings, .. } => {
            let warned = warnings.iter().map(|warning| format!("  warning: {warning}"));
            std::iter::once(said).chain(warned).collect::<Vec<_>>().join("\n")
        }
        _ => said,
    }
}
