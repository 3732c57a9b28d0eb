//! The `mutirao` binary: the command line and the roles, nothing else. What they do is in the other crates.
//!
//! - `cli`: one file per noun. `up`, `role`, `manager`: the long-running parts. `doctor`: what is wrong with the set-up.
//! - `config`: settings. `database`: the store that they name. `failure`: exit codes. `tls`: certificates. `logs`,
//!   `signals`, `telemetry`, `machine`: this process and the machine it is on.

mod broker;
mod checks;
mod cli;
mod config;
mod database;
mod doctor;
mod door;
mod failure;
mod fleet;
mod flows;
mod installation;
mod leavers;
mod logs;
mod machine;
mod manager;
mod managers;
mod membership;
mod nodes;
mod role;
mod signals;
mod streams;
mod telemetry;
mod tls;
mod up;
#[cfg(debug_assertions)]
mod wall;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::{Cli, Noun, Shape};
use failure::Failure;

fn main() -> ExitCode {
    #[cfg(debug_assertions)]
    wall::follow();
    mutirao_tls::install();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(answer(&error)),
    };
    let shape = cli.globals.shape();
    if matches!(cli.noun, Noun::Up(_) | Noun::Role(_)) {
        machine::hide_memory();
    }
    let ended = runtime(&cli.noun).map_err(Failure::from).and_then(|runtime| runtime.block_on(cli::run(cli)));
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            tell(&failure, shape);
            ExitCode::from(failure.code())
        }
    }
}

/// Help was asked for, or the arguments are wrong.
fn answer(error: &clap::Error) -> u8 {
    let (failure, shape) = cli::misuse(error, std::env::args_os());
    // A person who names no command is shown them all.
    let wants_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && shape == Shape::People;
    if error.use_stderr() && !wants_help {
        tell(&failure, shape);
        return failure.code();
    }
    // Help and version are no errors and come with code 0. A reader that has gone is no matter.
    let _ = error.print();
    error.exit_code() as u8
}

/// Commands start fast on one thread; what serves uses every cpu, but for a node on a small machine.
fn runtime(noun: &Noun) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match noun {
        Noun::Role(role) if role.is_small() => {
            let mut one = tokio::runtime::Builder::new_current_thread();
            one.max_blocking_threads(4);
            one
        }
        Noun::Up(_) | Noun::Role(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    builder.enable_all().build()
}

fn tell(failure: &Failure, shape: Shape) {
    let Failure::Said { code, line } = failure else { return };
    let line = match shape {
        Shape::People => format!("mutirao: {line}"),
        Shape::Json => serde_json::json!({"error": line, "exit": code}).to_string(),
    };
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
