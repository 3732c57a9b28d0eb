//! The `exec` action: a command run as a child process. This is its input and the rules its parts must keep; running it
//! is the worker's business.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{COMMAND_BYTES_MAX, COMMANDS_MAX, ENV_BYTES_MAX, ENV_VARS_MAX, STDIN_BYTES_MAX};
use crate::problem::Problem;

/// A command with its surroundings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// The program and its arguments. No shell is involved: write `["sh", "-c", "…"]` for one.
    pub command: Vec<String>,
    /// Commands that follow it, in order, each once all before it have ended with exit code 0. The first that fails ends
    /// the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Vec<String>>,
    /// Added to a small clean environment (`PATH`, `HOME`, `LANG`, `TZ`, and the `MUTIRAO_…` variables).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where to run; without it, a folder of the task's own that is removed afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// What the first command reads on its standard input; without it, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

impl Exec {
    pub fn check(&self) -> Result<(), Problem> {
        check_commands(&self.command, &self.then)?;
        check_env(&self.env)?;
        if let Some(dir) = &self.dir {
            no_nul("dir", dir)?;
            if !dir.starts_with('/') {
                return Err(Problem::invalid("dir", format!("\"{dir}\" is not absolute")).remedy("start it with /"));
            }
        }
        match &self.stdin {
            Some(stdin) if stdin.len() > STDIN_BYTES_MAX => {
                Err(Problem::invalid("stdin", format!("is {} bytes long, the most is {STDIN_BYTES_MAX}", stdin.len())))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn check_commands(command: &[String], then: &[Vec<String>]) -> Result<(), Problem> {
    if then.len() >= COMMANDS_MAX {
        let why = format!("a task of {} commands is too long, the most is {COMMANDS_MAX}", then.len() + 1);
        return Err(Problem::invalid("then", why).remedy("put them into a script"));
    }
    let bytes: usize = std::iter::once(command).chain(then.iter().map(Vec::as_slice)).flatten().map(String::len).sum();
    if bytes > COMMAND_BYTES_MAX {
        return Err(Problem::invalid("command", format!("is {bytes} bytes long, the most is {COMMAND_BYTES_MAX}")));
    }
    check_command(|| "command".into(), command)?;
    then.iter().enumerate().try_for_each(|(i, command)| check_command(|| format!("then[{i}]"), command))
}

fn check_command(field: impl Fn() -> String, command: &[String]) -> Result<(), Problem> {
    let Some(program) = command.first() else {
        return Err(Problem::invalid(&field(), "is empty").remedy("give the program and its arguments"));
    };
    if program.is_empty() {
        return Err(Problem::invalid(&format!("{}[0]", field()), "the program's name is empty"));
    }
    match command.iter().position(|part| part.contains('\0')) {
        Some(i) => Err(Problem::invalid(&format!("{}[{i}]", field()), "contains a NUL byte")),
        None => Ok(()),
    }
}

pub(crate) fn check_env(env: &BTreeMap<String, String>) -> Result<(), Problem> {
    if env.len() > ENV_VARS_MAX {
        return Err(Problem::invalid("env", format!("has {} variables, the most is {ENV_VARS_MAX}", env.len())));
    }
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ENV_BYTES_MAX {
        return Err(Problem::invalid("env", format!("is {bytes} bytes long, the most is {ENV_BYTES_MAX}"))
            .remedy("put large inputs in files"));
    }
    for (name, value) in env {
        if name.is_empty() || name.contains('=') {
            return Err(Problem::invalid("env", format!("\"{name}\" is not a variable name")));
        }
        if name.starts_with("MUTIRAO_") {
            return Err(Problem::invalid("env", format!("\"{name}\" is set by Mutirão itself; choose another name")));
        }
        no_nul(&format!("env.{name}"), name)?;
        no_nul(&format!("env.{name}"), value)?;
    }
    Ok(())
}

fn no_nul(field: &str, text: &str) -> Result<(), Problem> {
    if text.contains('\0') { Err(Problem::invalid(field, "contains a NUL byte")) } else { Ok(()) }
}
