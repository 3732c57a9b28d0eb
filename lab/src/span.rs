//! Time as experiments take it, by the one clock that this project reads.

use std::time::Duration;

use mutirao_core::{Clock, Mono, SystemClock};

/// Since when.
#[derive(Clone, Copy)]
pub struct Since(Mono);

impl Since {
    pub fn now() -> Self {
        Self(SystemClock.monotonic())
    }

    pub fn elapsed(self) -> Duration {
        SystemClock.monotonic().since(self.0)
    }
}

/// Lets other programs do their work.
pub fn pause(span: Duration) {
    #[allow(clippy::disallowed_methods, reason = "waits for other programs")]
    std::thread::sleep(span);
}
