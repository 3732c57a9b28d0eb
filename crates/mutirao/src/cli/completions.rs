//! `mutirao completions SHELL`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::out::{Out, Shape};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    shell: Shell,
}

pub fn run(args: CompletionsArgs) -> Result<(), Failure> {
    // Written to memory first: the generator panics when its reader goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "mutirao", &mut script);
    Out::new(Shape::People).bytes(&script)
}
