//! `mutirao shard …`

use clap::{Args, Subcommand};

use super::out::Out;
use super::{Globals, reach, show};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct ShardArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show which manager owns which share of the queues, the monitors and the keys
    List,
}

pub async fn run(globals: &Globals, args: ShardArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::List => out.answer(&client.shards().await?, |shards| show::shards(shards)),
    }
}
