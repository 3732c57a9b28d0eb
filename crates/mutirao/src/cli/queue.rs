//! `mutirao queue …`

mod changes;

use clap::{Args, Subcommand};
use mutirao_client::Unfinished;
use mutirao_core::{Clock, QueueName, SystemClock};
use mutirao_queues::QueueSpec;
use mutirao_queues::explain::unreadable;

use super::out::Out;
use super::{Globals, reach, show};
use crate::failure::{Exit, Failure};
use changes::Changes;

#[derive(Debug, Args)]
pub struct QueueArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a queue
    Create {
        name: QueueName,
        #[command(flatten)]
        changes: Box<Changes>,
    },
    /// Show the queues that are there
    List,
    /// Show one queue
    Show { name: QueueName },
    /// Change a queue; it acts at once on all that waits
    Edit {
        name: QueueName,
        #[command(flatten)]
        changes: Box<Changes>,
    },
    /// Hand out nothing more; what runs goes on
    Pause { name: QueueName },
    /// Hand out again
    Resume { name: QueueName },
    /// Delete a queue
    Delete {
        name: QueueName,
        /// Cancel its unfinished jobs
        #[arg(long)]
        cancel: bool,
    },
    /// Say why its tasks do not run, and what would let them
    Explain { name: QueueName },
}

pub async fn run(globals: &Globals, args: QueueArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::Create { name, changes } => {
            let spec = changes.made_to(QueueSpec::new(name))?;
            let queue = client.create_queue(&spec).await?;
            out.answer(&queue, |queue| format!("queue {} is there", queue.definition.name))
        }
        Verb::List => out.answer(&client.queues().await?, |queues| show::queues(queues)),
        Verb::Show { name } => {
            let queue = client.queue(&name).await?;
            out.answer(&queue, |queue| show::queue(queue, SystemClock.now()))
        }
        Verb::Edit { name, changes } => {
            let before = client.queue(&name).await?;
            if let Some(why) = &before.unreadable {
                let line = format!("{}; {}", unreadable::sentence(&name, why), unreadable::remedy(&name));
                return Err(Failure::Said { code: Exit::Failed as u8, line });
            }
            let spec = changes.made_to(before.definition.clone())?;
            if spec == before.definition {
                return Err(Failure::usage("nothing is to be changed; see `mutirao queue edit --help`"));
            }
            let queue = client.put_queue(&spec, Some(before.revision)).await?;
            out.answer(&queue, |queue| format!("queue {} is changed", queue.definition.name))
        }
        Verb::Pause { name } => {
            let queue = client.pause_queue(&name).await?;
            out.answer(&queue, |queue| format!("queue {} is paused", queue.definition.name))
        }
        Verb::Resume { name } => {
            let queue = client.resume_queue(&name).await?;
            out.answer(&queue, |queue| format!("queue {} goes on", queue.definition.name))
        }
        Verb::Delete { name, cancel } => {
            let unfinished = if cancel { Unfinished::Cancel } else { Unfinished::Refuse };
            let cancelled = client.delete_queue(&name, unfinished).await?;
            out.answer(&serde_json::json!({ "deleted": name, "cancelled": cancelled }), |_| match cancelled {
                0 => format!("queue {name} is gone"),
                1 => format!("queue {name} is gone; 1 job was cancelled"),
                n => format!("queue {name} is gone; {n} jobs were cancelled"),
            })
        }
        Verb::Explain { name } => out.answer(&client.explain_queue(&name).await?, show::explanation),
    }
}
