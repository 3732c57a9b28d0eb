//! How many tasks of a queue may be out at once. Few enough that priorities, pauses and cancels act at once and that no
//! worker sits on what another could do; enough that no worker waits for the post.
//!
//! The window is what the workers can run at once, plus what they finish while a parcel travels: the measured rate of
//! completions times a horizon, and one in hand for each session as far as those end within a moment. It grows with speed
//! and shrinks with it; long tasks are handed out one by one, each when there is somebody free to run it.
//!
//! What a session has beyond its share of that fills nobody's place but its own. Else one that took much while all was quick
//! and then died would fill the window of a queue that became slow by its death, and keep the others idle for a lease.

use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::limits::PARCEL_TASKS_MAX;
use mutirao_core::outcome::Verdict;

/// What the workers of a queue can do together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seats {
    pub sessions: usize,
    /// Tasks that can run at once, were each to need one cpu.
    pub slots: usize,
    /// A session that was alive before a restart has not spoken yet.
    pub awaited: bool,
}

const HORIZON_S: f64 = 0.15;
/// What is in hand for a session lies no longer than about this before somebody begins it. Meanwhile it may go to and fro
/// between the broker and workers without room, which RabbitMQ lets happen only so often.
const IN_HAND_S: f64 = 0.3;
const SAMPLE: Duration = Duration::from_millis(20);
const OUT_MAX: usize = 20_000;

#[derive(Debug, Default)]
pub struct Window {
    since: Mono,
    completions: u64,
    rate_per_s: f64,
}

impl Window {
    pub fn completed(&mut self, verdict: Verdict, now: Mono) {
        if !matches!(verdict, Verdict::Lost | Verdict::Returned | Verdict::Unfit) {
            self.completions += 1;
        }
        self.sample(now);
    }

    fn sample(&mut self, now: Mono) {
        let elapsed = now.since(self.since);
        if elapsed < SAMPLE {
            return;
        }
        let seen = self.completions as f64 / elapsed.as_secs_f64();
        // A long silence says more than a short one: weigh the sample by its length.
        let weight = (elapsed.as_secs_f64() / 0.2).min(1.0);
        self.rate_per_s += (seen - self.rate_per_s) * weight;
        self.completions = 0;
        self.since = now;
    }

    /// How many more may go out. `out` are out, of which `hoarded` lie with sessions that have more than their share.
    pub fn room(&mut self, seats: Seats, out: usize, hoarded: usize, now: Mono) -> usize {
        let (in_hand, ahead) = self.beyond_the_slots(seats, now);
        let target = (seats.slots + in_hand + ahead).min(OUT_MAX);
        let room = target.saturating_sub(out.saturating_sub(hoarded)).min(OUT_MAX.saturating_sub(out));
        // Refill in lumps when there is much out: a parcel costs the same whether it holds one task or fifty.
        if room * 4 < ahead { 0 } else { room }
    }

    /// What each session may have beyond what it can run at once.
    pub fn share(&mut self, seats: Seats, now: Mono) -> usize {
        let (in_hand, ahead) = self.beyond_the_slots(seats, now);
        (in_hand + ahead).div_ceil(seats.sessions.max(1))
    }

    fn beyond_the_slots(&mut self, seats: Seats, now: Mono) -> (usize, usize) {
        self.sample(now);
        // One in hand for each session keeps it busy over the trip of the next. Where that would lie for long it gains
        // nothing, and cannot be put behind what is more urgent.
        let in_hand = seats.sessions.min((self.rate_per_s * IN_HAND_S) as usize);
        (in_hand, (self.rate_per_s * HORIZON_S) as usize)
    }
}

/// Tasks in one parcel: what is out is spread over at least two parcels for each session.
pub fn parcel_size(out: usize, sessions: usize) -> usize {
    (out / (sessions.max(1) * 4)).clamp(1, PARCEL_TASKS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Seats = Seats { sessions: 2, slots: 2, awaited: false };

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    #[test]
    fn slow_tasks_go_out_one_by_one_as_somebody_is_free_to_run_them() {
        let mut window = Window::default();
        assert_eq!(window.room(TWO, 0, 0, at(0)), 2);
        assert_eq!(window.room(TWO, 2, 0, at(10_000)), 0);
        // Each of two workers ends one every 20 s.
        for s in [20, 30, 40, 50] {
            window.completed(Verdict::Ok, at(s * 1_000));
            assert_eq!(window.room(TWO, 1, 0, at(s * 1_000)), 1, "after {s} s");
            assert_eq!(window.room(TWO, 2, 0, at(s * 1_000 + 1_000)), 0, "after {s} s");
        }
    }

    #[test]
    fn where_tasks_end_quickly_each_session_has_one_in_hand() {
        let mut window = Window::default();
        for ms in (100..=10_000).step_by(100) {
            window.completed(Verdict::Ok, at(ms));
        }
        assert_eq!(window.room(TWO, 2, 0, at(10_000)), 3, "and one more ends while a parcel travels");
    }

    #[test]
    fn the_window_follows_the_rate_up_and_down() {
        let mut window = Window::default();
        for ms in 1..=1_000 {
            for _ in 0..50 {
                window.completed(Verdict::Ok, at(ms));
            }
        }
        let fast = window.room(TWO, 0, 0, at(1_000));
        assert!((7_000..8_000).contains(&fast), "{fast}");
        assert!(window.room(TWO, 0, 0, at(3_000)) < 100);
    }

    #[test]
    fn what_one_session_hoards_fills_the_place_of_no_other() {
        let mut window = Window::default();
        // Both of two had much in hand; then one died, with twenty.
        assert_eq!(window.room(TWO, 21, 0, at(10_000)), 0, "were it all on its way");
        let hoarded = 20 - (1 + window.share(TWO, at(10_000)));
        assert_eq!(window.room(TWO, 21, hoarded, at(10_000)), 0, "the other has one");
        assert_eq!(window.room(TWO, 20, hoarded, at(10_000)), 1, "the other has none");
        assert_eq!(window.room(TWO, OUT_MAX, OUT_MAX, at(10_000)), 0, "there is an end to it");
    }

    #[test]
    fn what_ends_quickly_is_followed_in_lumps_and_most_of_the_window_stays_out() {
        let mut window = Window::default();
        for ms in 1..=1_000 {
            window.completed(Verdict::Ok, at(ms));
        }
        let whole = window.room(TWO, 0, 0, at(1_000));
        let refilled = (1..whole).rev().find(|out| window.room(TWO, *out, 0, at(1_000)) > 0).unwrap();
        assert!((whole * 2 / 3..whole * 4 / 5).contains(&refilled), "at {refilled} of {whole}");
        assert_eq!(window.room(TWO, refilled, 0, at(1_000)), whole - refilled);
    }

    #[test]
    fn parcels_are_bounded_and_shared() {
        assert_eq!(parcel_size(4, 2), 1);
        assert_eq!(parcel_size(800, 2), 100);
        assert_eq!(parcel_size(1_000_000, 2), PARCEL_TASKS_MAX);
    }
}
