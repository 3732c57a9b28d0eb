//! How many managers there should be, by the cpu that each uses: SentryWeb's schedulers, which are managers here, at 70 % of
//! 150 millicores for two minutes. It is advice: no provider starts managers, so people do.
//!
//! Pure: whoever has a clock and a broker says who was heard, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::quantity::Span;
use mutirao_core::{Mono, Timestamp};

use crate::decide::{Decision, State, decide};
use crate::measure::{Load, Sample, Stage, Use, Workers};
use crate::policy::{Elastic, Preset};
use crate::view::ManagersStatus;

/// How often each says what it uses.
pub const SAID_EVERY: Duration = Duration::from_secs(5);
/// Who has not been heard for this long is not there.
const SILENT_AFTER: Duration = Duration::from_secs(20);
/// What a manager is reckoned to have, as the document's schedulers have.
const ASKED_MILLI: u64 = 150;
/// Managers that are remembered.
const KNOWN_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug)]
struct Known {
    since: Mono,
    heard: Mono,
    /// None in its first seconds.
    cpu_milli: Option<u32>,
}

#[derive(Debug)]
pub struct Managers {
    elastic: Elastic,
    known: BTreeMap<String, Known>,
    state: State,
    decided: Option<Decision>,
}

impl Default for Managers {
    fn default() -> Self {
        let elastic = Preset::SentrywebSchedulers.elastic();
        Self { elastic, known: BTreeMap::new(), state: State::default(), decided: None }
    }
}

impl Managers {
    pub fn hear(&mut self, member: String, cpu_milli: Option<u32>, now: Mono) {
        let since = self.known.get(&member).map_or(now, |known| known.since);
        if self.known.len() < KNOWN_MAX || self.known.contains_key(&member) {
            self.known.insert(member, Known { since, heard: now, cpu_milli });
        }
    }

    /// To be called as often as they are heard.
    pub fn decide(&mut self, now: Mono) {
        self.known.retain(|_, known| now.since(known.heard) < SILENT_AFTER);
        let sample = |known: &Known| Sample {
            stage: Stage::Running(Span(now.since(known.since))),
            cpu: Use { asked: ASKED_MILLI, used: known.cpu_milli.map(u64::from) },
            memory: Use::default(),
        };
        // Any time that does not jump will do.
        let at = Timestamp(i64::try_from(now.0.as_millis()).unwrap_or(i64::MAX));
        let load = Load {
            at,
            workers: Workers { running: self.known.len() as u32, ..Workers::default() },
            samples: self.known.values().map(sample).collect(),
            ..Load::default()
        };
        let (decision, state) = decide(&self.elastic, std::mem::take(&mut self.state), &load, at);
        (self.decided, self.state) = (Some(decision), state);
    }

    /// None before the first decision.
    pub fn status(&self) -> Option<ManagersStatus> {
        let decided = self.decided.as_ref()?;
        Some(ManagersStatus {
            running: self.known.len() as u32,
            wanted: decided.wanted,
            cpu_milli: self
                .known
                .iter()
                .filter_map(|(member, known)| Some((member.clone(), known.cpu_milli?)))
                .collect(),
            because: decided.because.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two managers that use so much each, from one second to another.
    fn run(managers: &mut Managers, seconds: std::ops::Range<u64>, cpu_milli: u32) -> u32 {
        for second in seconds.step_by(5) {
            let now = Mono(Duration::from_secs(second));
            for member in ["one", "two"] {
                managers.hear(member.into(), Some(cpu_milli), now);
            }
            managers.decide(now);
        }
        managers.status().unwrap().wanted
    }

    #[test]
    fn past_70_percent_of_150_millicores_for_two_minutes_another_is_wanted() {
        let mut managers = Managers::default();
        assert_eq!(managers.status(), None);
        assert_eq!(run(&mut managers, 0..300, 100), 2, "67 %");
        assert_eq!(run(&mut managers, 300..400, 150), 2, "not for long enough");
        assert_eq!(run(&mut managers, 400..430, 150), 3, "100 % of two is 67 % of three");
        let said = managers.status().unwrap();
        assert!(said.running == 2 && said.cpu_milli["one"] == 150 && said.because.contains("cpu"), "{said:?}");
        assert_eq!(run(&mut managers, 430..560, 30), 1, "20 %, for two minutes");
    }

    #[test]
    fn who_is_silent_is_not_there_and_who_has_just_come_says_nothing_yet() {
        let mut managers = Managers::default();
        run(&mut managers, 0..100, 140);
        managers.hear("two".into(), Some(10), Mono(Duration::from_secs(118)));
        managers.hear("three".into(), None, Mono(Duration::from_secs(118)));
        managers.decide(Mono(Duration::from_secs(120)));
        let said = managers.status().unwrap();
        assert_eq!((said.running, said.cpu_milli.len()), (2, 1), "{said:?}");
    }
}
