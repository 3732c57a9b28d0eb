//! What work costs: cpu time of this thread, which is no time of day. Around work that does not wait, so that it is the
//! work's own.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub struct Stopwatch(Duration);

impl Stopwatch {
    pub fn start() -> Self {
        Self(thread())
    }

    pub fn took(&self) -> Duration {
        thread().saturating_sub(self.0)
    }
}

fn thread() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
}
