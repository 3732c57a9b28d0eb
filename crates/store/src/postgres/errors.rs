//! What PostgreSQL and the way to it say, in the store's words.

use std::error::Error as _;
use std::io;

use deadpool_postgres::PoolError;
use mutirao_tls::Fault;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::StoreError;

/// While it runs: what may pass is told from what is broken.
impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match error.as_db_error() {
            Some(said) if *said.code() == SqlState::DISK_FULL => {
                StoreError::DiskFull { path: "the database server".into() }
            }
            Some(said) if *said.code() == SqlState::LOCK_NOT_AVAILABLE => StoreError::Locked,
            Some(said) if is_denial(said.code()) => denied(said),
            Some(said) if may_pass(said.code()) => StoreError::Unreachable { why: said.message().into() },
            Some(said) => StoreError::Postgres(format!("{} ({})", said.message(), said.code().code())),
            None if is_cut(&error) => StoreError::Unreachable { why: with_cause(&error) },
            None => StoreError::Postgres(with_cause(&error)),
        }
    }
}

/// Shutting down, starting up, out of connections or memory, failed over to a standby, or a victim among others.
fn may_pass(code: &SqlState) -> bool {
    const PASSING: [&str; 4] = ["08", "40", "53", "57"];
    PASSING.contains(&&code.code()[..2]) || *code == SqlState::READ_ONLY_SQL_TRANSACTION
}

/// A right was taken, a password changed, a role or a database dropped: somebody may put that right while we run.
fn is_denial(code: &SqlState) -> bool {
    code.code().starts_with("28") || [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::INVALID_CATALOG_NAME].contains(code)
}

/// It is there, and does not let us in.
pub(super) fn is_refusal(error: &Error) -> bool {
    error.as_db_error().is_some_and(|said| is_denial(said.code()))
}

fn denied(said: &DbError) -> StoreError {
    let remedy = remedy_of(said.code(), said.message()).unwrap_or("check the rights of the user in the address");
    StoreError::Denied { why: said.message().into(), remedy }
}

fn is_cut(error: &Error) -> bool {
    error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>()) || is_timeout(error)
}

/// The client has no other name for it.
fn is_timeout(error: &Error) -> bool {
    error.to_string().starts_with("timeout")
}

pub(super) fn with_cause(error: &Error) -> String {
    match error.source() {
        // The cause says it all: "connection refused (os error 111)".
        Some(cause) if cause.is::<io::Error>() => cause.to_string(),
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

pub(super) fn at_run_time(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => {
            let Some(said) = error.as_db_error() else { return StoreError::Unreachable { why: with_cause(&error) } };
            match is_denial(said.code()) {
                true => denied(said),
                false => StoreError::Unreachable { why: said.message().into() },
            }
        }
        PoolError::Closed => StoreError::Closed,
        PoolError::Timeout(_) => StoreError::Unreachable { why: "no connection within the time limit".into() },
        other => StoreError::Unreachable { why: other.to_string() },
    }
}

/// At the start somebody is looking: one line that says what to do.
pub(super) fn at_opening(error: PoolError, address: &str) -> StoreError {
    let why = match error {
        PoolError::Backend(error) => remedy_for(&error),
        PoolError::Timeout(_) => "does not answer; is it running, and is the way to it open?".into(),
        other => other.to_string(),
    };
    StoreError::Unusable { path: address.into(), why }
}

/// As [`at_opening`], for what comes after the connection.
pub(super) fn while_opening(error: Error, address: &str) -> StoreError {
    StoreError::Unusable { path: address.into(), why: remedy_for(&error) }
}

fn remedy_for(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return remedy_for_refusal(said.code(), said);
    }
    if let Some(fault) = Fault::find(error) {
        return format!("{fault}; name its authority with sslrootcert=FILE in the address, or correct the host's name");
    }
    let line = with_cause(error);
    let remedy = match error {
        _ if is_timeout(error) => return "does not answer; is it running, and is the way to it open?".into(),
        _ if is_cut(error) => "is it running there, and is the address right?",
        _ if line.contains("password missing") => "put user:password@ before the host in the address",
        _ if line.contains("does not support TLS") => "set ssl = on there, or leave sslmode out of the address",
        _ => return line,
    };
    format!("{line}; {remedy}")
}

fn remedy_for_refusal(code: &SqlState, said: &DbError) -> String {
    let line = said.message();
    match remedy_of(code, line) {
        Some(remedy) => format!("{line}; {remedy}"),
        None => format!("{line} ({})", code.code()),
    }
}

/// What helps against a refusal of this code, with this line.
fn remedy_of(code: &SqlState, line: &str) -> Option<&'static str> {
    Some(match code {
        c if *c == SqlState::INVALID_AUTHORIZATION_SPECIFICATION && line.contains("no encryption") => {
            "it wants TLS: add sslmode=require to the address, or let the user in by the server's pg_hba.conf"
        }
        c if *c == SqlState::INVALID_PASSWORD => "check user and password in the address",
        c if *c == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "check the user in the address, and the server's pg_hba.conf"
        }
        c if *c == SqlState::INVALID_CATALOG_NAME => "create the database first (createdb), or correct its name",
        c if *c == SqlState::INSUFFICIENT_PRIVILEGE && line.contains("for database") => {
            "let the user in: GRANT CONNECT ON DATABASE … TO it, or make it the database's owner"
        }
        c if *c == SqlState::INSUFFICIENT_PRIVILEGE && line.contains("must be owner") => {
            "make the user the owner of the tables, or the owner a member of the same role"
        }
        c if *c == SqlState::INSUFFICIENT_PRIVILEGE && OF_TABLES.iter().any(|of| line.contains(of)) => {
            "let the user use the tables: GRANT ALL ON ALL TABLES IN SCHEMA public TO it, the same ON ALL SEQUENCES, or make it \
             their owner"
        }
        c if *c == SqlState::INSUFFICIENT_PRIVILEGE => {
            "let the user create tables there: GRANT CREATE, USAGE ON SCHEMA public TO it, or make it the database's owner"
        }
        c if *c == SqlState::INVALID_SCHEMA_NAME => "create the schema first, or correct search_path in the address",
        c if *c == SqlState::TOO_MANY_CONNECTIONS => "raise the server's max_connections, or stop other programs",
        c if *c == SqlState::CANNOT_CONNECT_NOW => "wait a moment and try again",
        c if *c == SqlState::READ_ONLY_SQL_TRANSACTION => {
            "this is a standby; give the primary's address, or several with target_session_attrs=read-write"
        }
        _ => return None,
    })
}

/// How a server names what a right is missing to.
const OF_TABLES: [&str; 3] = ["for table", "for relation", "for sequence"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_has_the_remedy_for_what_it_is_missing_to() {
        let remedy = |line: &str| remedy_of(&SqlState::INSUFFICIENT_PRIVILEGE, line).unwrap();
        assert!(remedy("permission denied for table jobs").contains("GRANT ALL ON ALL TABLES"));
        assert!(remedy("permission denied for sequence jobs_key_seq").contains("ON ALL SEQUENCES"));
        assert!(remedy("permission denied for schema public").contains("GRANT CREATE, USAGE"));
        assert!(remedy("permission denied for database lab").contains("GRANT CONNECT"));
        assert!(remedy("must be owner of table jobs").contains("owner of the tables"));
        assert_eq!(remedy_of(&SqlState::UNDEFINED_TABLE, "relation does not exist"), None);
    }

    #[test]
    fn what_somebody_can_grant_or_set_is_a_denial_and_what_is_wrong_with_a_statement_is_not() {
        for code in [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::INVALID_PASSWORD, SqlState::INVALID_CATALOG_NAME] {
            assert!(is_denial(&code), "{code:?}");
        }
        assert!(!is_denial(&SqlState::SYNTAX_ERROR) && !is_denial(&SqlState::UNIQUE_VIOLATION));
    }
}
