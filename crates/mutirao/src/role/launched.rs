//! What a worker under `up` knows of its parent: a line on stdin that brings the one-time token, and whose end means
//! that the parent is gone. Then the worker finishes what it holds, reports it if a manager comes back, and goes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mutirao_core::{Clock, Mono};
use mutirao_worker::Stopper;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// How long an orphan waits for a manager to come back.
pub const ORPHAN_WAIT: Duration = Duration::from_secs(600);
/// After that, how long its last tasks get to end.
const LAST_WAIT: Duration = Duration::from_secs(30);
/// How often an orphan looks whether a manager is back.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of the first line. A scheduler's brings three addresses.
const LINE_BYTES_MAX: u64 = 64 * 1_024;

/// The parent's end of stdin.
pub struct Parent<R> {
    line: BufReader<R>,
}

impl<R: AsyncRead + Unpin + Send> Parent<R> {
    /// Reads the first line: the one-time token, or nothing for a worker that has an identity.
    pub async fn meet(stdin: R) -> std::io::Result<(Self, Option<String>)> {
        let mut line = BufReader::new(stdin);
        let mut first = String::new();
        (&mut line).take(LINE_BYTES_MAX).read_line(&mut first).await?;
        let token = Some(first.trim().to_owned()).filter(|token| !token.is_empty());
        Ok((Self { line }, token))
    }

    /// Waits until the parent is gone. Cancel-safe.
    pub async fn gone(&mut self) {
        let mut rest = [0u8; 256];
        // Nothing more is ever sent; an error is as good as the end.
        while self.line.read(&mut rest).await.is_ok_and(|n| n > 0) {}
    }

    /// Sends the worker home once the parent is gone, and hurries it when no manager comes back. Returns when the worker
    /// should have ended long ago.
    pub async fn watch(
        mut self,
        stopper: Stopper,
        orphaned: &AtomicBool,
        is_up: impl Fn() -> bool + Send,
        clock: &dyn Clock,
    ) {
        self.gone().await;
        orphaned.store(true, Ordering::Relaxed);
        tracing::info!("the parent is gone: finishing what is held, then going");
        stopper.drain();
        let since = clock.monotonic();
        wait_for_absence(is_up, clock, since).await;
        tracing::warn!("no manager came back: going now");
        stopper.now();
        clock.sleep(LAST_WAIT).await;
    }
}

/// Returns once nobody was there for [`ORPHAN_WAIT`], counted from `since` or from when somebody last was.
async fn wait_for_absence(is_up: impl Fn() -> bool + Send, clock: &dyn Clock, since: Mono) {
    let mut last_up = since;
    loop {
        let now = clock.monotonic();
        if is_up() {
            last_up = now;
        }
        if now.since(last_up) >= ORPHAN_WAIT {
            return;
        }
        clock.sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mutirao_core::Timestamp;
    use mutirao_core::clock::ManualClock;

    use super::*;

    #[tokio::test]
    async fn the_first_line_is_the_token_and_may_be_empty() {
        let (_, token) = Parent::meet(&b"mut_enrol_x\n"[..]).await.unwrap();
        assert_eq!(token.as_deref(), Some("mut_enrol_x"));
        let (_, token) = Parent::meet(&b"\n"[..]).await.unwrap();
        assert_eq!(token, None);
    }

    #[tokio::test]
    async fn an_orphan_waits_ten_minutes_from_when_a_manager_was_last_there() {
        let clock = ManualClock::starting_at(Timestamp(0));
        let up = Arc::new(AtomicBool::new(false));
        let watched = tokio::spawn({
            let (clock, up) = (clock.clone(), up.clone());
            async move { wait_for_absence(|| up.load(Ordering::SeqCst), &*clock, clock.monotonic()).await }
        });
        let settle = || async {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        };
        settle().await;
        clock.advance(Duration::from_secs(599));
        settle().await;
        assert!(!watched.is_finished(), "gave up early");
        up.store(true, Ordering::SeqCst);
        settle().await;
        clock.advance(Duration::from_secs(3_600));
        settle().await;
        assert!(!watched.is_finished(), "gave up although the manager is back");
        up.store(false, Ordering::SeqCst);
        settle().await;
        clock.advance(Duration::from_secs(601));
        watched.await.unwrap();
    }
}
