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

/// One line with the remedy, a code that means something, and nobody's password.
#[track_caller]
pub fn refused(said: &Said, code: i32, parts: &[&str]) {
    assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (Some(code), 1, ""), "{said:?}");
    assert!(!said.err.contains("s3cret"), "{said:?}");
    for part in parts {
        assert!(said.err.contains(part), "no \"{part}\" in {said:?}");
    }
}
