//! What can go wrong with the API as a whole.

use std::io;
use std::path::PathBuf;

use mutirao_core::Problem;

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
