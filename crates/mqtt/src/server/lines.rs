//! How many lines are written about those who are refused or cut off. Whoever is outside must not be able to fill the log:
//! past so many in a minute the rest are counted, and the next line says how many there were.

use std::time::Duration;

use mutirao_core::clock::Mono;
use parking_lot::Mutex;

const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Lines(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    since: Mono,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// May one more be written? Then how many were left out before it.
    pub fn one_more(&self, now: Mono) -> Option<u64> {
        self.0.lock().one_more(now)
    }
}

impl Window {
    fn one_more(&mut self, now: Mono) -> Option<u64> {
        if now.since(self.since) >= WINDOW {
            (self.since, self.written) = (now, 0);
        }
        if self.written >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_a_bound_lines_are_counted_and_the_next_minute_tells_how_many() {
        let lines = Lines::default();
        let at = |seconds| Mono(Duration::from_secs(seconds));
        for _ in 0..LINES_MAX {
            assert_eq!(lines.one_more(at(100)), Some(0));
        }
        assert_eq!((lines.one_more(at(100)), lines.one_more(at(159))), (None, None));
        assert_eq!((lines.one_more(at(160)), lines.one_more(at(160))), (Some(2), Some(0)));
    }
}
