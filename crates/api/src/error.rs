//! What can go wrong with the API as a whole, and how the store's troubles are told to callers.

use std::io;
use std::path::PathBuf;

use mutirao_core::Problem;
use mutirao_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("the admin token cannot be kept in {path}")]
    AdminToken { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Refused(Problem),
    #[error("metrics cannot be gathered: {0}")]
    Metrics(String),
    #[error("two capabilities answer for the blobs under {prefix}")]
    BlobsTwice { prefix: &'static str },
    #[error("the API's socket failed")]
    Socket(#[from] io::Error),
}

/// Pushes back where waiting or making room helps; the rest is logged here, once, and not told.
pub(crate) fn store_problem(error: StoreError) -> Problem {
    match error {
        StoreError::Busy { .. } => Problem::busy(error.to_string(), 1),
        // The path in the error is for whoever runs the server.
        StoreError::DiskFull { .. } => {
            tracing::error!(%error, "the store refuses writes");
            Problem::busy("the server's disk is full; nothing was written", 30)
        }
        StoreError::Locked => Problem::unavailable(
            "somebody else has locked what this needs in the server's database; nothing was written",
        )
        .remedy("try again; pg_stat_activity in that database shows who has it"),
        StoreError::Denied { why, remedy } => {
            // The store says it, once for everybody.
            Problem::unavailable(format!("the server's database refuses this, and nothing was written: {why}"))
                .remedy(remedy)
        }
        StoreError::Unreachable { why } => {
            // The store says it, once for everybody.
            tracing::debug!(why, "the database cannot be reached");
            Problem::unavailable("the server's database cannot be reached; try again")
        }
        StoreError::Closed => Problem::unavailable("the server is going down"),
        error => {
            tracing::error!(error = &error as &dyn std::error::Error, "the store failed");
            Problem::internal()
        }
    }
}
