//! How many records lie before a part, and whether its log can be asked at all. Asking costs the broker something, so it is done
//! more seldom where that takes long, unless somebody wants to know.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::clock::ClockExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::Means;

const EVERY: Duration = Duration::from_secs(1);
/// Of the time, this share is spent asking, at most.
const SHARE: u32 = 50;
/// Whoever takes longer to answer was away.
const SLOW: Duration = Duration::from_secs(1);

pub struct Behind {
    seen: Arc<Mutex<Seen>>,
    wanted: Arc<Notify>,
    task: JoinHandle<()>,
}

struct Seen {
    end: u64,
    /// When that was asked for.
    asked: Option<Mono>,
    /// Since when there has been no answer.
    asking: Option<Mono>,
    failed: bool,
}

impl Behind {
    pub fn look(log: String, means: &Means, end: u64) -> Self {
        let seen = Arc::new(Mutex::new(Seen { end, asked: None, asking: None, failed: false }));
        let wanted = Arc::new(Notify::new());
        let (means, told, want) = (means.clone(), seen.clone(), wanted.clone());
        let task = tokio::spawn(async move {
            loop {
                let begun = means.clock.monotonic();
                told.lock().asking = Some(begun);
                let answer = means.broker.extent(&log).await;
                let took = means.clock.monotonic().since(begun);
                {
                    let mut told = told.lock();
                    told.asking = None;
                    told.failed = answer.is_err() || took > SLOW;
                    if let Ok((_, end)) = answer {
                        (told.end, told.asked) = (end, Some(begun));
                    }
                }
                let _ = means.clock.timeout(EVERY.max(took * SHARE), want.notified()).await;
            }
        });
        Self { seen, wanted, task }
    }

    pub fn records(&self, next: u64) -> u64 {
        self.seen.lock().end.saturating_sub(next)
    }

    /// It does not answer, or did not when it was asked last.
    pub fn is_away(&self, now: Mono) -> bool {
        let seen = self.seen.lock();
        seen.failed || seen.asking.is_some_and(|asking| now.since(asking) > SLOW)
    }

    /// Where the log ended at some moment after this one; it is asked for until that is known.
    pub fn end_after(&self, moment: Mono) -> Option<u64> {
        let seen = self.seen.lock();
        let known = seen.asked.is_some_and(|asked| asked >= moment);
        if !known && seen.asking.is_none_or(|asking| asking < moment) {
            self.wanted.notify_one();
        }
        known.then_some(seen.end)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.task.abort();
    }
}
