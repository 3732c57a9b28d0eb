//! From a command line to something that can be started, and from a refusal to start to words for a person.
//!
//! The program is looked up in the task's own `PATH` here and not by the standard library, which gives up the fast way
//! of starting a process (`posix_spawn`) as soon as it would have to search a changed `PATH`.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mutirao_core::Verdict;
use rustix::fs::{Access, access};

use super::environment::Variables;

/// What a shell answers for the same reasons.
const EXIT_NOT_FOUND: i32 = 127;
const EXIT_CANNOT_RUN: i32 = 126;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotStart {
    #[error("the command is empty")]
    NoCommand,
    #[error("the command cannot be given to the system: {0}")]
    BadCommand(String),
    #[error("no such program: {program}")]
    NoProgram { program: String },
    #[error("{program} cannot be run: {why}")]
    NotRunnable { program: String, why: String },
    #[error("no such folder: {dir}")]
    NoDir { dir: String },
    #[error("cannot make the folder {dir}: {error}")]
    NoHome { dir: String, error: io::Error },
    #[error("cannot start {program}: {error}")]
    System { program: String, error: io::Error },
}

impl CannotStart {
    pub fn verdict(&self) -> Verdict {
        match self {
            CannotStart::NoCommand | CannotStart::BadCommand(_) => Verdict::Refused,
            _ => Verdict::Failed,
        }
    }

    pub fn exit(&self) -> Option<i32> {
        match self {
            CannotStart::NoProgram { .. } => Some(EXIT_NOT_FOUND),
            CannotStart::NotRunnable { .. } | CannotStart::NoDir { .. } => Some(EXIT_CANNOT_RUN),
            _ => None,
        }
    }
}

/// The command, ready to be started in a process group of its own with its output piped.
pub(crate) fn command(line: &[String], variables: &Variables, dir: &Path) -> Result<Command, CannotStart> {
    let Some((program, arguments)) = line.split_first().filter(|(program, _)| !program.is_empty()) else {
        return Err(CannotStart::NoCommand);
    };
    if line.iter().any(|part| part.contains('\0')) {
        return Err(CannotStart::BadCommand("it contains a NUL byte".into()));
    }
    let path = find(program, variables.get("PATH").map_or(OsStr::new(""), |path| path))?;
    let mut command = Command::new(path);
    command
        .arg0(program)
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    Ok(command)
}

fn find(program: &str, path: &OsStr) -> Result<PathBuf, CannotStart> {
    if program.contains('/') {
        return Ok(program.into());
    }
    let mut not_runnable = false;
    for dir in std::env::split_paths(path) {
        let candidate = dir.join(program);
        if access(&candidate, Access::EXEC_OK).is_ok() && candidate.is_file() {
            return Ok(candidate);
        }
        not_runnable |= candidate.is_file();
    }
    let program = program.to_owned();
    Err(match not_runnable {
        true => CannotStart::NotRunnable { program, why: "it is not executable".into() },
        false => CannotStart::NoProgram { program },
    })
}

/// Why starting failed. The system's answer does not say whether the folder or the program was missing.
pub(crate) fn explain(error: io::Error, program: &str, dir: &Path) -> CannotStart {
    let program = program.to_owned();
    if !dir.is_dir() {
        return CannotStart::NoDir { dir: dir.display().to_string() };
    }
    match error.kind() {
        ErrorKind::InvalidInput => CannotStart::BadCommand(error.to_string()),
        ErrorKind::NotFound if dir.join(&program).exists() => {
            CannotStart::NotRunnable { program, why: "its interpreter is missing".into() }
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => CannotStart::NoProgram { program },
        ErrorKind::PermissionDenied => CannotStart::NotRunnable { program, why: "it is not executable".into() },
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            CannotStart::NotRunnable { program, why: "it is neither a program nor a script with an interpreter".into() }
        }
        _ => CannotStart::System { program, error },
    }
}
