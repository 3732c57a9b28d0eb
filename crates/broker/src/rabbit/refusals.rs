//! What the server refuses us at present: for whoever asks why nothing moves, and for the log, which hears of it once, and then
//! ever more rarely for as long as it lasts. Those who ask for the same again and again need not say it themselves.
//!
//! Not here: a server that is away ([`super::line`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mutirao_core::{Clock, Mono};
use parking_lot::Mutex;

use crate::BrokerError;

/// Until the log hears of it again; doubles each time.
const AGAIN_FIRST: Duration = Duration::from_secs(60);
const AGAIN_LONGEST: Duration = Duration::from_secs(3_600);
/// What was not refused again for so long is not asked for any more.
const STALE: Duration = Duration::from_secs(60);
/// Refusals that are remembered; of more there is no need to know.
const KEPT_MAX: usize = 256;

/// What was to be done with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    Send,
    Take,
}

struct Refusal {
    error: BrokerError,
    at: Mono,
}

/// When the log heard of it, and how long it is then spared.
struct Told {
    at: Mono,
    pause: Duration,
}

#[derive(Default)]
struct State {
    refused: BTreeMap<(Deed, String), Refusal>,
    told: Option<Told>,
}

/// What the log should hear.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Nothing,
    Refused,
    Over,
}

impl State {
    fn note(&mut self, deed: Deed, queue: &str, error: &BrokerError, now: Mono) -> Word {
        self.forget_stale(now);
        let key = (deed, queue.to_owned());
        if self.refused.len() < KEPT_MAX || self.refused.contains_key(&key) {
            self.refused.insert(key, Refusal { error: error.clone(), at: now });
        }
        let pause = match &self.told {
            Some(told) if now.since(told.at) < told.pause => return Word::Nothing,
            Some(told) => (told.pause * 2).min(AGAIN_LONGEST),
            None => AGAIN_FIRST,
        };
        self.told = Some(Told { at: now, pause });
        Word::Refused
    }

    fn done(&mut self, deed: Deed, queue: &str, now: Mono) -> Word {
        let ended = self.refused.remove(&(deed, queue.to_owned())).is_some();
        self.forget_stale(now);
        if !ended || !self.refused.is_empty() {
            return Word::Nothing;
        }
        self.told = None;
        Word::Over
    }

    fn forget_stale(&mut self, now: Mono) {
        self.refused.retain(|_, refusal| now.since(refusal.at) < STALE);
    }

    fn of(&self, queue: &str, now: Mono) -> Option<BrokerError> {
        let refusal = [Deed::Send, Deed::Take].into_iter().find_map(|deed| self.refused.get(&(deed, queue.to_owned())));
        refusal.filter(|refusal| now.since(refusal.at) < STALE).map(|refusal| refusal.error.clone())
    }
}

pub(super) struct Refusals {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Whether there are any: what succeeds, which is nearly everything, need not look further.
    any: AtomicBool,
}

impl Refusals {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default(), any: AtomicBool::new(false) }
    }

    /// Remembers a refusal; what is no refusal passes by.
    pub fn note(&self, deed: Deed, queue: &str, error: &BrokerError) {
        if !matches!(error, BrokerError::Refused { .. }) {
            return;
        }
        let word = self.state.lock().note(deed, queue, error, self.clock.monotonic());
        self.any.store(true, Ordering::Relaxed);
        if word == Word::Refused {
            tracing::error!("{error}; until then this is tried again, and nothing more is said for a while");
        }
    }

    /// It could be done.
    pub fn done(&self, deed: Deed, queue: &str) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let word = {
            let mut state = self.state.lock();
            let word = state.done(deed, queue, self.clock.monotonic());
            self.any.store(!state.refused.is_empty(), Ordering::Relaxed);
            word
        };
        if word == Word::Over {
            tracing::info!("the broker refuses nothing any more");
        }
    }

    pub fn of(&self, queue: &str) -> Option<BrokerError> {
        self.state.lock().of(queue, self.clock.monotonic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> BrokerError {
        BrokerError::Refused { what: "q".into(), why: "no; grant it".into() }
    }

    fn at(s: u64) -> Mono {
        Mono::default().plus(Duration::from_secs(s))
    }

    #[test]
    fn the_log_hears_of_many_refusals_once_and_then_ever_more_rarely() {
        let mut state = State::default();
        let mut said = Vec::new();
        for s in 0..1_000 {
            for queue in ["results.jobs.1", "results.jobs.2", "tasks.a"] {
                if state.note(Deed::Take, queue, &refused(), at(s)) == Word::Refused {
                    said.push(s);
                }
            }
        }
        assert_eq!(said, [0, 60, 180, 420, 900]);
    }

    #[test]
    fn it_is_over_when_the_last_of_them_could_be_done_and_the_next_is_news_again() {
        let mut state = State::default();
        state.note(Deed::Take, "a", &refused(), at(0));
        state.note(Deed::Send, "b", &refused(), at(0));
        assert_eq!(state.of("b", at(1)), Some(refused()));
        assert_eq!(state.of("c", at(1)), None);
        assert_eq!(state.done(Deed::Send, "b", at(1)), Word::Nothing);
        assert_eq!(state.done(Deed::Send, "a", at(1)), Word::Nothing, "it was taking that was refused");
        assert_eq!(state.done(Deed::Take, "a", at(2)), Word::Over);
        assert_eq!(state.done(Deed::Take, "a", at(2)), Word::Nothing);
        assert_eq!(state.note(Deed::Take, "a", &refused(), at(3)), Word::Refused);
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_forgotten() {
        let mut state = State::default();
        state.note(Deed::Send, "a", &refused(), at(0));
        assert!(state.of("a", at(59)).is_some() && state.of("a", at(60)).is_none());
        for n in 0..2 * KEPT_MAX {
            state.note(Deed::Send, &format!("q{n}"), &refused(), at(100));
        }
        assert_eq!(state.refused.len(), KEPT_MAX);
    }
}
