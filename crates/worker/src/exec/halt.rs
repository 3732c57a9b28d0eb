//! Stopping a running task from another thread: a reason, and a bell that wakes the thread which waits on the process.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use mutirao_core::Verdict;

/// Why a task is stopped before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HaltReason {
    Cancelled,
    /// The worker goes home.
    Returned,
    TimedOut,
}

impl HaltReason {
    pub fn verdict(self) -> Verdict {
        match self {
            HaltReason::Cancelled => Verdict::Cancelled,
            HaltReason::Returned => Verdict::Returned,
            HaltReason::TimedOut => Verdict::TimedOut,
        }
    }
}

/// One for each run. The first reason stands.
#[derive(Debug, Default)]
pub(crate) struct Halt {
    reason: AtomicU8,
    bell: OnceLock<Arc<OwnedFd>>,
}

impl Halt {
    pub fn halt(&self, reason: HaltReason) {
        let _ = self.reason.compare_exchange(0, reason as u8 + 1, Ordering::SeqCst, Ordering::SeqCst);
        if let Some(bell) = self.bell.get() {
            // Its counter cannot be full: that takes 2^64 rings.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    pub fn reason(&self) -> Option<HaltReason> {
        match self.reason.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(HaltReason::Cancelled),
            2 => Some(HaltReason::Returned),
            _ => Some(HaltReason::TimedOut),
        }
    }

    /// From here on a halt rings `bell`. One that came before is seen by asking for the reason afterwards.
    pub fn ring(&self, bell: Arc<OwnedFd>) {
        let _ = self.bell.set(bell);
    }
}
