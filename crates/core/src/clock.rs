//! Time, injected. Everything that waits, times or stamps takes an [`Arc<dyn Clock>`]; only this file reads the
//! machine's clocks (the others are stopped by `clippy.toml`).
//!
//! Two kinds of time, never mixed: [`Timestamp`] is wall time, may be stepped, and is for people and records;
//! [`Mono`] is `CLOCK_BOOTTIME`, only grows, counts suspended time, and is for leases, timeouts and rates.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by.as_millis().min(i64::MAX as u128) as i64))
    }

    /// Zero when `earlier` is in fact later: wall clocks step.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

/// RFC 3339 in UTC, to the millisecond.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = std::time::UNIX_EPOCH + Duration::from_millis(self.0.max(0) as u64);
        write!(f, "{}", humantime::format_rfc3339_millis(at))
    }
}

/// A point on the machine's monotonic clock, suspended time included. Comparable only within one boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub Duration);

impl Mono {
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    pub fn since(self, earlier: Mono) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
    fn monotonic(&self) -> Mono;
    fn sleep(&self, for_: Duration) -> Sleep<'_>;
}

/// The deadline passed before the future was ready.
#[derive(Debug, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

/// What can be said in terms of the three primitives.
pub trait ClockExt: Clock {
    fn sleep_until(&self, at: Mono) -> Sleep<'_> {
        self.sleep(at.since(self.monotonic()))
    }

    fn timeout<F: Future + Send>(
        &self,
        limit: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + Send
    where
        F::Output: Send,
    {
        async move {
            let mut future = std::pin::pin!(future);
            // Much is ready at once, and what is needs no timer.
            let mut sleep = None;
            std::future::poll_fn(|context| match future.as_mut().poll(context) {
                Poll::Ready(value) => Poll::Ready(Ok(value)),
                Poll::Pending => {
                    let sleep = sleep.get_or_insert_with(|| self.sleep(limit));
                    sleep.as_mut().poll(context).map(|()| Err(Elapsed))
                }
            })
            .await
        }
    }
}

impl<C: Clock + ?Sized> ClockExt for C {}

/// The machine's clocks and tokio's timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// By how much the wall is shown wrong, for tests of whole processes whose clock jumps. Only debug builds can be told to.
#[cfg(debug_assertions)]
static WALL_OFF_MS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);

#[cfg(debug_assertions)]
pub fn set_wall_off_ms(by_ms: i64) {
    WALL_OFF_MS.store(by_ms, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(debug_assertions)]
fn wall_off_ms() -> i64 {
    WALL_OFF_MS.load(std::sync::atomic::Ordering::Relaxed)
}

#[cfg(not(debug_assertions))]
fn wall_off_ms() -> i64 {
    0
}

impl SystemClock {
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clocks")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(since_epoch.as_millis() as i64 + wall_off_ms())
    }

    fn monotonic(&self) -> Mono {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Mono(Duration::new(at.tv_sec as u64, at.tv_nsec as u32))
    }

    fn sleep(&self, for_: Duration) -> Sleep<'_> {
        Box::pin(tokio::time::sleep(for_))
    }
}

/// A clock that moves when told to, for tests and simulations. Sleepers wake in the order of their deadlines.
#[derive(Debug)]
pub struct ManualClock {
    at: tokio::sync::watch::Sender<(Timestamp, Mono)>,
}

impl ManualClock {
    pub fn starting_at(now: Timestamp) -> Arc<Self> {
        Arc::new(Self { at: tokio::sync::watch::Sender::new((now, Mono::default())) })
    }

    /// Both clocks move on.
    pub fn advance(&self, by: Duration) {
        self.at.send_modify(|(wall, mono)| (*wall, *mono) = (wall.plus(by), mono.plus(by)));
    }

    /// Only the wall clock jumps, as when NTP or a person sets it.
    pub fn step_wall_ms(&self, by_ms: i64) {
        self.at.send_modify(|(wall, _)| wall.0 += by_ms);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.at.borrow().0
    }

    fn monotonic(&self) -> Mono {
        self.at.borrow().1
    }

    fn sleep(&self, for_: Duration) -> Sleep<'_> {
        let mut changes = self.at.subscribe();
        let until = self.monotonic().plus(for_);
        Box::pin(async move {
            // The sender lives in `self`, which outlives this future, so the wait cannot fail.
            let _ = changes.wait_for(|(_, mono)| *mono >= until).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Counts the timers.
    struct Counting(Arc<ManualClock>, AtomicU32);

    impl Clock for Counting {
        fn now(&self) -> Timestamp {
            self.0.now()
        }

        fn monotonic(&self) -> Mono {
            self.0.monotonic()
        }

        fn sleep(&self, for_: Duration) -> Sleep<'_> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.sleep(for_)
        }
    }

    #[tokio::test]
    async fn what_is_ready_needs_no_timer_and_what_is_not_is_given_up_in_time() {
        let clock = Counting(ManualClock::starting_at(Timestamp(0)), AtomicU32::new(0));
        let limit = Duration::from_secs(5);
        assert_eq!(clock.timeout(limit, async { 7 }).await.ok(), Some(7));
        assert_eq!(clock.1.load(Ordering::Relaxed), 0);

        let advance = async {
            clock.0.advance(limit - Duration::from_millis(1));
            tokio::task::yield_now().await;
            clock.0.advance(Duration::from_millis(1));
            clock.monotonic()
        };
        let given_up = async {
            let ended = clock.timeout(limit, std::future::pending::<()>()).await;
            (ended.is_err(), clock.monotonic())
        };
        let ((is_given_up, at), _) = tokio::join!(given_up, advance);
        assert!(is_given_up && at.0 == limit, "{at:?}");
        assert_eq!(clock.1.load(Ordering::Relaxed), 1);
    }
}
