//! What a command said, as texts.

use std::process::{Command, Output};
use std::time::Duration;

/// A command that must end by itself ends well within this.
pub const SOON: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// The binary without an installation behind it.
pub fn mutirao(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mutirao"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MUTIRAO_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(std::process::Stdio::null());
    command
}

pub fn run(mut command: Command) -> Said {
    command.output().expect("the binary starts").into()
}
