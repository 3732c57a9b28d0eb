//! Why a request brought nothing back: one line each, with what to do about it.

use std::time::Duration;

use mutirao_core::Problem;
use mutirao_tls::{Fault, TlsError};

/// The kind of problem of a read of something that is not applied yet.
const NOT_YET: &str = "not-yet";

#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The server understood, and said no.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No connection came about, so nothing was asked.
    #[error("nothing answers at {url} ({why}); start it with `mutirao up` or set MUTIRAO_URL")]
    Unreachable { url: String, why: String },
    /// Something answers, and nothing was asked of it: it could be anybody.
    #[error("{url} cannot be spoken with: {fault}")]
    Unsafe { url: String, fault: Fault },
    #[error("tls.ca: {0}")]
    BadCa(#[from] TlsError),
    /// The connection was there and went away, so what was asked may or may not have been done.
    #[error("the connection to {url} broke before the answer was complete ({why}); try again")]
    Broken { url: String, why: String },
    #[error("{url} took longer than {limit_s} s to answer; is it overloaded? `mutirao doctor` looks")]
    TimedOut { url: String, limit_s: u64 },
    /// Something answered, and it does not speak our language.
    #[error("{url} gave an answer that is not Mutirão's ({what}); check MUTIRAO_URL and both versions")]
    Unexpected { url: String, what: String },
    #[error("\"{url}\" is not the address of a server ({why}); write it like http://127.0.0.1:7070")]
    BadUrl { url: String, why: String },
    #[error("the token holds characters that cannot be sent; copy it again, without line breaks")]
    BadToken,
    #[error("the request cannot be written as JSON: {0}")]
    Unwritable(String),
}

impl ClientError {
    /// The HTTP status, when a server of ours said no.
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Problem(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// Whether the other side was asked too often, and said when to come back.
    pub fn is_busy(&self) -> bool {
        self.status() == Some(429)
    }

    /// How long the other side wants to be left alone; zero when it did not say.
    pub fn retry_after(&self) -> Duration {
        match self {
            ClientError::Problem(problem) => Duration::from_secs(problem.retry_after_s.unwrap_or(0)),
            _ => Duration::ZERO,
        }
    }

    /// Whether the other side is away, rather than unwilling: asking again later may work.
    pub fn is_away(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::Broken { .. } | ClientError::TimedOut { .. } => true,
            // That something has not happened in the time that was asked for is an answer.
            ClientError::Problem(problem) if problem.kind == NOT_YET => false,
            ClientError::Problem(problem) => matches!(problem.status, 429 | 502 | 503 | 504),
            _ => false,
        }
    }
}

impl From<Problem> for ClientError {
    fn from(problem: Problem) -> Self {
        ClientError::Problem(Box::new(problem))
    }
}

/// The innermost cause is the one that says something: "connection refused", not "error sending request".
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = cause.to_string();
    // `Connection refused (os error 111)`: the number helps nobody.
    let plain = text.split(" (os error").next().unwrap_or(&text);
    plain.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_that_it_is_too_early_is_not_away() {
        let error = |status, kind| ClientError::from(Problem::new(status, kind, "x"));
        assert!(error(504, "timed-out").is_away() && error(503, "unavailable").is_away());
        assert!(!error(504, NOT_YET).is_away(), "it would wait as long again, and again");
    }
}
