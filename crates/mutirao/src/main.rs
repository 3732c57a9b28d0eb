//! The `mutirao` binary: the command line and the roles, nothing else. What they do is in the other crates.
//!
//! - `cli`: one file per noun. `up`, `role`, `manager`: the long-running parts. `doctor`: what is wrong with the set-up.
//! - `config`: settings. `failure`: exit codes. `tls`: certificates. `logs`, `signals`, `machine`: this process and the machine it is on.

mod cli;
mod config;
mod doctor;
mod failure;
mod logs;
mod machine;
mod manager;
mod role;
mod signals;
mod tls;
mod up;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Noun, Shape};
use failure::Failure;

fn main() -> ExitCode {
    mutirao_tls::install();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors and come with code 0. A reader that has gone is no matter.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let shape = cli.globals.shape();
    let ended = runtime(&cli.noun).map_err(Failure::from).and_then(|runtime| runtime.block_on(cli::run(cli)));
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            tell(&failure, shape);
            ExitCode::from(failure.code())
        }
    }
}

/// Commands start fast on one thread; what serves uses every cpu.
fn runtime(noun: &Noun) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match noun {
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
