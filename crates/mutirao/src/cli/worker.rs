//! `mutirao worker …`

use clap::{Args, Subcommand};
use mutirao_core::QueueName;
use mutirao_core::auth::EnrolmentSpec;

use super::out::Out;
use super::{Globals, reach, show};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the workers that are there
    List,
    /// Make a one-time token with which one worker may join
    Invite {
        /// The queue it will take tasks of
        #[arg(long, default_value_t)]
        queue: QueueName,
    },
}

pub async fn run(globals: &Globals, args: WorkerArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::List => out.answer(&client.workers().await?, |workers| show::workers(workers)),
        Verb::Invite { queue } => {
            let enrolment = client.create_enrolment(&EnrolmentSpec { queue }).await?;
            out.answer(&enrolment, |enrolment| enrolment.token.clone())?;
            let (url, queue) = (client.url(), &enrolment.queue);
            out.note(format!("good once, until {}. On the worker's machine:", enrolment.expires_at));
            out.note(format!(
                "  MUTIRAO_ENROL_TOKEN=… mutirao role worker --url {url} --queue {queue} --dir ./mutirao-worker"
            ));
            Ok(())
        }
    }
}
