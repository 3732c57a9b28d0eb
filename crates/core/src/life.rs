//! The life of a task, as a function of events and nothing else.
//!
//! ```text
//! accepted → ready → dispatched → running → ok · failed · timed out · cancelled · lost · dead
//!              ↑___________________|  (retry, loss, returned)
//! ```
//!
//! The rules that make "at least once" delivery have its effect once:
//! - **Final states absorb.** Nothing changes a task that has ended.
//! - **The first `ok` of any attempt wins**, be it stale: the work was done.
//! - **A stale failure is ignored**: a newer attempt is under way and will speak for itself.
//! - Losing the worker is not failing: it is counted apart and bounded apart (`crashes`), so that a task which kills
//!   its workers is given up as `dead` instead of eating the pool.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::dice::Dice;
use crate::id::Attempt;
use crate::outcome::Verdict;
use crate::task::Retry;

/// Before a task that was too big for its worker is offered again: a larger worker must get the chance to take it.
const UNFIT_WAIT: Duration = Duration::from_millis(500);

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Final {
    Ok,
    Failed,
    TimedOut,
    Cancelled,
    /// Its worker vanished and it may not be run again.
    Lost,
    /// Given up: it outlived too many workers, or no worker can run it.
    Dead,
}

impl Final {
    pub const ALL: [Final; 6] = [Final::Ok, Final::Failed, Final::TimedOut, Final::Cancelled, Final::Lost, Final::Dead];

    /// The number it has in the store. Never reused.
    pub fn code(self) -> u8 {
        match self {
            Final::Ok => 1,
            Final::Failed => 2,
            Final::TimedOut => 3,
            Final::Cancelled => 4,
            Final::Lost => 5,
            Final::Dead => 6,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.code() == code)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Final::Ok => "ok",
            Final::Failed => "failed",
            Final::TimedOut => "timed_out",
            Final::Cancelled => "cancelled",
            Final::Lost => "lost",
            Final::Dead => "dead",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In the store, not yet looked at.
    Accepted,
    /// May be handed out from `not_before` on.
    Ready {
        not_before: Timestamp,
    },
    /// In a parcel; no worker has said so far that it began.
    Dispatched(Attempt),
    Running(Attempt),
    Ended(Final),
}

/// Where a task stands, and what it has been through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub phase: Phase,
    /// Attempts so far; the next one's number is one more.
    pub tries: u32,
    pub failures: u32,
    pub losses: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The owner looked at it: nothing holds it back.
    Released,
    /// It was put in a parcel.
    HandedOut(Attempt),
    /// A worker began it. Also how a restarted owner learns of an attempt that its predecessor handed out.
    Started(Attempt),
    /// The attempt is over.
    Ended(Attempt, Verdict),
    Cancelled,
}

/// What an event changed, and so what must be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: stale, doubled or late.
    None,
    /// Only what is known while the owner lives; nothing to write.
    Moved,
    /// Ready again. To be written when `durable`: a count or a date changed that must survive the owner.
    Again { not_before: Timestamp, durable: bool },
    /// Ended. To be written, once.
    Ended(Final),
}

impl Default for Life {
    fn default() -> Self {
        Self { phase: Phase::Accepted, tries: 0, failures: 0, losses: 0 }
    }
}

impl Life {
    /// A task that nothing holds back and nobody has tried.
    pub fn fresh() -> Self {
        Self { phase: Phase::Ready { not_before: Timestamp(0) }, ..Self::default() }
    }

    pub fn is_final(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// The attempt under way, if one is.
    pub fn attempt(&self) -> Option<Attempt> {
        match self.phase {
            Phase::Dispatched(attempt) | Phase::Running(attempt) => Some(attempt),
            _ => None,
        }
    }

    pub fn next_attempt(&self, generation: u64) -> Attempt {
        Attempt { generation, n: self.tries.saturating_add(1) }
    }

    /// Takes one event. Total: every event is defined in every state.
    pub fn apply(&mut self, event: Event, retry: &Retry, now: Timestamp, dice: &Dice) -> Change {
        if self.is_final() {
            return Change::None;
        }
        match event {
            Event::Cancelled => self.end(Final::Cancelled),
            Event::Released if self.phase == Phase::Accepted => {
                self.phase = Phase::Ready { not_before: Timestamp(0) };
                Change::Moved
            }
            Event::Released => Change::None,
            Event::HandedOut(attempt) => match self.phase {
                Phase::Ready { .. } => self.go(Phase::Dispatched(attempt), attempt),
                _ => Change::None,
            },
            Event::Started(attempt) => match self.phase {
                Phase::Dispatched(current) if current == attempt => self.go(Phase::Running(attempt), attempt),
                // Only a try that has not been judged yet: an old message must not bring one back to be judged again.
                Phase::Ready { .. } | Phase::Accepted if attempt.n > self.tries => {
                    self.go(Phase::Running(attempt), attempt)
                }
                _ => Change::None,
            },
            Event::Ended(_, Verdict::Ok) => self.end(Final::Ok),
            Event::Ended(attempt, verdict) if self.attempt() == Some(attempt) => {
                self.ended_badly(verdict, retry, now, dice)
            }
            Event::Ended(..) => Change::None,
        }
    }

    fn ended_badly(&mut self, verdict: Verdict, retry: &Retry, now: Timestamp, dice: &Dice) -> Change {
        match verdict {
            Verdict::Ok => self.end(Final::Ok),
            Verdict::Cancelled => self.end(Final::Cancelled),
            Verdict::Refused => self.end(Final::Dead),
            Verdict::Returned => self.again(Timestamp(0), false),
            Verdict::Unfit => self.again(now.plus(UNFIT_WAIT), false),
            Verdict::Lost => {
                self.losses += 1;
                match (retry.crashes, self.losses) {
                    (0, _) => self.end(Final::Lost),
                    (limit, losses) if losses >= limit => self.end(Final::Dead),
                    _ => self.again(Timestamp(0), true),
                }
            }
            Verdict::Failed | Verdict::TimedOut => {
                self.failures += 1;
                if self.failures <= retry.retries {
                    self.again(now.plus(dice.jitter(retry.wait(self.failures))), true)
                } else if verdict == Verdict::Failed {
                    self.end(Final::Failed)
                } else {
                    self.end(Final::TimedOut)
                }
            }
        }
    }

    fn go(&mut self, phase: Phase, attempt: Attempt) -> Change {
        self.phase = phase;
        self.tries = self.tries.max(attempt.n);
        Change::Moved
    }

    fn again(&mut self, not_before: Timestamp, durable: bool) -> Change {
        self.phase = Phase::Ready { not_before };
        Change::Again { not_before, durable }
    }

    fn end(&mut self, how: Final) -> Change {
        self.phase = Phase::Ended(how);
        Change::Ended(how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VERDICTS: [Verdict; 8] = [
        Verdict::Ok,
        Verdict::Failed,
        Verdict::TimedOut,
        Verdict::Cancelled,
        Verdict::Lost,
        Verdict::Returned,
        Verdict::Refused,
        Verdict::Unfit,
    ];

    fn any_event() -> impl Strategy<Value = Event> {
        let attempt = (0u64..3, 1u32..6).prop_map(|(generation, n)| Attempt { generation, n });
        prop_oneof![
            1 => Just(Event::Released),
            4 => attempt.clone().prop_map(Event::HandedOut),
            4 => attempt.clone().prop_map(Event::Started),
            6 => (attempt, 0usize..8).prop_map(|(a, v)| Event::Ended(a, VERDICTS[v])),
            1 => Just(Event::Cancelled),
        ]
    }

    fn retry(retries: u32, crashes: u32) -> Retry {
        Retry { retries, crashes, ..Retry::default() }
    }

    proptest! {
        /// Whatever arrives, in whatever order and however often, a task ends at most once and then stays ended.
        #[test]
        fn ends_at_most_once(events in prop::collection::vec(any_event(), 0..80), retries in 0u32..4, crashes in 0u32..4) {
            let (dice, policy) = (Dice::seeded(1), retry(retries, crashes));
            let mut life = Life::fresh();
            let mut ends = 0;
            for event in events {
                let before = life;
                let change = life.apply(event, &policy, Timestamp(0), &dice);
                if before.is_final() {
                    prop_assert_eq!((change, life), (Change::None, before));
                }
                ends += u32::from(matches!(change, Change::Ended(_)));
                prop_assert_eq!(matches!(change, Change::Ended(_)), life.is_final() && !before.is_final());
                prop_assert!(life.failures <= retries + 1 && life.losses <= crashes.max(1));
            }
            prop_assert!(ends <= 1);
        }

        /// An `ok` is never ignored while the task lives, whichever attempt it comes from.
        #[test]
        fn ok_always_counts(events in prop::collection::vec(any_event(), 0..40), generation in 0u64..9, n in 0u32..9) {
            let (dice, policy) = (Dice::seeded(1), retry(2, 3));
            let mut life = Life::fresh();
            for event in events {
                life.apply(event, &policy, Timestamp(0), &dice);
            }
            let lived = !life.is_final();
            let change = life.apply(Event::Ended(Attempt { generation, n }, Verdict::Ok), &policy, Timestamp(0), &dice);
            prop_assert_eq!(change == Change::Ended(Final::Ok), lived);
        }

        /// No limbo: from any reachable state, an owner that hands out, and sessions that are lost, end every task.
        #[test]
        fn never_in_limbo(events in prop::collection::vec(any_event(), 0..60), retries in 0u32..4, crashes in 0u32..4, verdict in 0usize..5) {
            let (dice, policy) = (Dice::seeded(7), retry(retries, crashes));
            let mut life = Life::default();
            for event in events {
                life.apply(event, &policy, Timestamp(0), &dice);
            }
            for _ in 0..(retries + crashes + 3) {
                life.apply(Event::Released, &policy, Timestamp(0), &dice);
                let attempt = life.attempt().unwrap_or_else(|| life.next_attempt(9));
                life.apply(Event::HandedOut(attempt), &policy, Timestamp(0), &dice);
                life.apply(Event::Ended(attempt, VERDICTS[verdict]), &policy, Timestamp(0), &dice);
            }
            prop_assert!(life.is_final(), "{:?}", life);
        }

        /// A doubled event changes nothing the second time.
        #[test]
        fn doubles_are_harmless(events in prop::collection::vec(any_event(), 0..60)) {
            let policy = retry(2, 3);
            let (one, two) = (Dice::seeded(3), Dice::seeded(3));
            let (mut once, mut twice) = (Life::fresh(), Life::fresh());
            for event in events {
                once.apply(event, &policy, Timestamp(0), &one);
                twice.apply(event, &policy, Timestamp(0), &two);
                let again = twice.apply(event, &policy, Timestamp(0), &two);
                prop_assert_eq!(again, Change::None);
                prop_assert_eq!(once, twice);
            }
        }
    }

    #[test]
    fn a_stale_failure_is_ignored_and_a_stale_ok_is_not() {
        let (dice, policy) = (Dice::seeded(1), retry(5, 5));
        let (old, new) = (Attempt { generation: 1, n: 1 }, Attempt { generation: 1, n: 2 });
        let mut life = Life::fresh();
        life.apply(Event::HandedOut(old), &policy, Timestamp(0), &dice);
        life.apply(Event::Ended(old, Verdict::Lost), &policy, Timestamp(0), &dice);
        life.apply(Event::HandedOut(new), &policy, Timestamp(0), &dice);
        assert_eq!(life.apply(Event::Ended(old, Verdict::Failed), &policy, Timestamp(0), &dice), Change::None);
        assert_eq!(life.phase, Phase::Dispatched(new));
        assert_eq!(life.apply(Event::Ended(old, Verdict::Ok), &policy, Timestamp(0), &dice), Change::Ended(Final::Ok));
    }

    #[test]
    fn a_try_that_was_judged_is_not_judged_again_when_its_messages_come_twice() {
        let (dice, policy) = (Dice::seeded(1), retry(5, 5));
        let first = Attempt { generation: 1, n: 1 };
        let mut life = Life::fresh();
        life.apply(Event::HandedOut(first), &policy, Timestamp(0), &dice);
        for _ in 0..3 {
            life.apply(Event::Started(first), &policy, Timestamp(0), &dice);
            life.apply(Event::Ended(first, Verdict::Failed), &policy, Timestamp(0), &dice);
        }
        assert_eq!(life.failures, 1);
    }

    #[test]
    fn backoff_doubles_up_to_its_bound() {
        let policy = Retry { backoff: crate::quantity::Span::secs(1), ..Retry::default() };
        let waits: Vec<u64> = (1..12).map(|n| policy.wait(n).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }
}
