//! What all hosts of a pool share.

use std::path::PathBuf;
use std::sync::Arc;

use mutirao_core::Clock;
use tokio::sync::OnceCell;

use super::needs::{self, Needs};

/// How workers on hosts reach the manager.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Over the connection; this is where it is from here, `host:port`, and its scheme.
    Line { address: String, scheme: String },
    /// By themselves.
    Url(String),
}

/// What all hosts share.
pub struct Means {
    pub provider: String,
    /// The program that is copied.
    pub program: PathBuf,
    /// Where each host has a folder.
    pub dir: PathBuf,
    pub reach: Reach,
    pub pin: PathBuf,
    pub ca: Option<PathBuf>,
    /// Who we are, so that a node of others is left alone.
    pub owner: String,
    pub clock: Arc<dyn Clock>,
    needs: OnceCell<Needs>,
}

impl Means {
    pub fn new(
        provider: impl Into<String>,
        program: PathBuf,
        dir: PathBuf,
        owner: String,
        reach: Reach,
        trust: (PathBuf, Option<PathBuf>),
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (pin, ca) = trust;
        Self { provider: provider.into(), program, dir, reach, pin, ca, owner, clock, needs: OnceCell::new() }
    }

    /// Read once.
    pub(super) async fn needs(&self) -> Result<&Needs, String> {
        let read = || async {
            let program = self.program.clone();
            let read = tokio::task::spawn_blocking(move || needs::read(&program)).await;
            read.map_err(|error| error.to_string())?.map_err(|error| format!("{}: {error}", self.program.display()))
        };
        self.needs.get_or_try_init(read).await
    }
}
