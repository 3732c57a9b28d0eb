//! What whoever asked hears of a store that refuses: one line, and what helps. What is for whoever runs the server goes to
//! its log, and where the store says it already, once for everybody, not there either.

use mutirao_core::Problem;

use crate::StoreError;

/// The store's refusal, as the caller should hear it.
pub fn refused(error: StoreError) -> Problem {
    error.problem()
}

impl StoreError {
    /// Pushes back where waiting or making room helps; the rest is logged here, once, and not told.
    pub fn problem(&self) -> Problem {
        match self {
            // The path in the error is for whoever runs the server.
            Self::DiskFull { .. } => Problem::busy("the server's disk is full, nothing was written", 10)
                .remedy("free some space there and try again"),
            Self::Busy { waiting } => Problem::busy(format!("{waiting} writes wait for the store"), 1),
            Self::Locked => Problem::unavailable(
                "somebody else has locked what this needs in the server's database; nothing was written",
            )
            .remedy("try again; pg_stat_activity in that database shows who has it"),
            Self::Denied { why, remedy } => {
                Problem::unavailable(format!("the server's database refuses this, and nothing was written: {why}"))
                    .remedy(*remedy)
            }
            Self::Unreachable { why } => {
                tracing::debug!(why, "the database cannot be reached");
                Problem::unavailable("the server's database cannot be reached; whether this was written is not known")
                    .remedy("try again, with the same Idempotency-Key if there was one")
            }
            Self::Closed => Problem::unavailable("the server is stopping"),
            other => {
                tracing::error!(error = other as &dyn std::error::Error, "the store failed");
                Problem::internal()
            }
        }
    }
}
