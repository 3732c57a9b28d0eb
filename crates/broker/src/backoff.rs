//! How long to wait before asking a server that did not answer, or hung up, once more.

use std::time::Duration;

/// The wait after the first failure; it doubles up to the longest.
pub(crate) const WAIT_FIRST: Duration = Duration::from_millis(100);
pub(crate) const WAIT_LONGEST: Duration = Duration::from_secs(5);

/// The wait after so many failures in a row. To be spread by dice: those who failed together should not return together.
pub(crate) fn backoff(failures: u32) -> Duration {
    WAIT_FIRST.saturating_mul(1 << failures.min(16)).min(WAIT_LONGEST)
}
