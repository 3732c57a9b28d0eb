//! How a command ends when it does not end well: one line on stderr, and an exit code that means something.

use std::io;

use mutirao_client::ClientError;

use crate::cli::in_flags;
use crate::config::ConfigError;

/// What exit codes mean. `submit --wait` and `job wait` end with the task's own code instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    NotAllowed = 4,
    Unreachable = 5,
}

/// Shown under every help text.
pub const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 unreachable.
`submit --wait` and `job wait` end as the job did: 0 when every task was ok, else the exit code of the first task \
that was not (128 + n when signal n ended it, 124 timed out, 130 cancelled, 1 lost or dead). \
Ctrl-C leaves the job running and ends with 130.";

#[derive(Debug)]
pub enum Failure {
    Said {
        code: u8,
        line: String,
    },
    /// Everything was said already; only the code is left.
    Silent {
        code: u8,
    },
    /// Whoever read our output went away (`| head`): not worth a word.
    BrokenPipe,
}

impl Failure {
    pub fn new(exit: Exit, line: impl Into<String>) -> Self {
        Self::Said { code: exit as u8, line: line.into() }
    }

    pub fn usage(line: impl Into<String>) -> Self {
        Self::new(Exit::Usage, line)
    }

    pub fn failed(line: impl Into<String>) -> Self {
        Self::new(Exit::Failed, line)
    }

    /// The same, in other words.
    pub fn saying(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Failure::Said { code, line } => Self::Said { code, line: words(line) },
            other => other,
        }
    }

    pub fn code(&self) -> u8 {
        match self {
            Failure::Said { code, .. } | Failure::Silent { code } => *code,
            Failure::BrokenPipe => 0,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let error = match error {
            ClientError::Problem(problem) => in_flags(*problem).into(),
            error => error,
        };
        let exit = match &error {
            ClientError::Unreachable { .. }
            | ClientError::Unsafe { .. }
            | ClientError::Broken { .. }
            | ClientError::TimedOut { .. } => Exit::Unreachable,
            ClientError::BadUrl { .. } | ClientError::BadToken | ClientError::BadCa(_) => Exit::Usage,
            ClientError::Unexpected { .. } | ClientError::Unwritable(_) => Exit::Failed,
            ClientError::Problem(problem) => match problem.status {
                401 | 403 => Exit::NotAllowed,
                404 => Exit::NotFound,
                400 | 413 | 415 | 422 => Exit::Usage,
                // A script must not take an outage for a job that failed.
                503 => Exit::Unreachable,
                _ => Exit::Failed,
            },
        };
        Self::new(exit, error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::Problem;

    use super::*;

    #[test]
    fn each_kind_of_no_has_its_code() {
        let code = |problem: Problem| Failure::from(ClientError::from(problem)).code();
        assert_eq!(code(Problem::not_found("x")), 3);
        assert_eq!((code(Problem::forbidden("x")), code(Problem::unauthenticated("x"))), (4, 4));
        assert_eq!(code(Problem::invalid("task.timeout", "is zero")), 2);
        assert_eq!(code(Problem::internal()), 1);
        let away = ClientError::Unreachable { url: "http://h".into(), why: "connection refused".into() };
        assert_eq!(Failure::from(away).code(), 5);
    }
}
