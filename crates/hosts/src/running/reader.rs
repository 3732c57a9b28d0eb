//! Reads a log ahead of whoever works on it: the next records are there when the last are done, and no more than a bound.

use std::time::Duration;

use mutirao_broker::{BrokerError, Record};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::Means;

/// Of one read; how many bytes, the broker bounds.
const READ_RECORDS_MAX: u32 = 512;
/// Reads that wait beside the one that is worked on.
const AHEAD: usize = 2;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Looks at a log that ends before what is wanted.
const PATIENCE: u32 = 40;

/// The log does not hold what should be read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    pub wanted: u64,
    pub first: u64,
    pub next: u64,
}

pub struct Reader {
    records: mpsc::Receiver<Result<Vec<Record>, Gone>>,
    trouble: watch::Receiver<Option<String>>,
    _stop: tokio_util::sync::DropGuard,
}

impl Reader {
    /// From this offset on, until it is dropped.
    pub fn start(log: String, from: u64, means: &Means) -> Self {
        let (tell, records) = mpsc::channel(AHEAD);
        let (troubled, trouble) = watch::channel(None);
        let stop = CancellationToken::new();
        let (means, stopped) = (means.clone(), stop.clone());
        tokio::spawn(async move { stopped.run_until_cancelled(read(log, from, means, tell, troubled)).await });
        Self { records, trouble, _stop: stop.drop_guard() }
    }

    /// Cancel-safe. Nothing once the log does not go on, which was told before.
    pub async fn next(&mut self) -> Option<Result<Vec<Record>, Gone>> {
        self.records.recv().await
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }
}

async fn read(
    log: String,
    mut next: u64,
    means: Means,
    tell: mpsc::Sender<Result<Vec<Record>, Gone>>,
    trouble: watch::Sender<Option<String>>,
) {
    let (mut pause, mut patience) = (PAUSE_MIN, PATIENCE);
    loop {
        match means.broker.read(&log, next, READ_RECORDS_MAX).await {
            Ok(records) => {
                patience = PATIENCE;
                (pause, next) = (PAUSE_MIN, records.last().map_or(next, |last| last.offset + 1));
                if trouble.borrow().is_some() {
                    trouble.send_replace(None);
                }
                if tell.send(Ok(records)).await.is_err() {
                    return;
                }
                continue;
            }
            // What was read may be ahead of where the log says that it ends, for a moment.
            Err(BrokerError::NoSuchOffset { next: end, .. }) if next > end && patience > 0 => {
                patience -= 1;
                means.clock.sleep(PAUSE_MIN).await;
                continue;
            }
            Err(BrokerError::NoSuchOffset { first, next: end, .. }) => {
                let _ = tell.send(Err(Gone { wanted: next, first, next: end })).await;
                return;
            }
            Err(error) => {
                trouble.send_replace(Some(error.to_string()));
            }
        }
        means.clock.sleep(means.dice.jitter(pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
