//! Whoever owns monitors, and the cpu that each uses: managers, and schedulers, which do nothing else. SentryWeb's preset says
//! how many there should be: 70 % of 150 millicores for two minutes.
//!
//! Schedulers come and go by a resource manager, as the workers of a queue do, and are [seen](Managers::schedulers) for it
//! here. Of managers it is advice: no provider starts them, so people do.
//!
//! Pure: whoever has a clock and a broker says who was heard, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::envelope::Footprint;
use mutirao_core::quantity::{Cpus, Span};
use mutirao_core::{Mono, Timestamp, WorkerId};

use crate::decide::{Decision, State, decide};
use crate::fleet::Activity;
use crate::measure::{Load, Sample, Stage, Use, Workers};
use crate::policy::{Elastic, Preset};
use crate::view::ManagersStatus;

/// How often each says what it uses.
pub const SAID_EVERY: Duration = Duration::from_secs(5);
/// Who has not been heard for this long is not there.
const SILENT_AFTER: Duration = Duration::from_secs(20);
/// What each is reckoned to have, as the document's schedulers have.
pub const ASKED: Cpus = Cpus { milli: 150 };
/// Those that are remembered.
const KNOWN_MAX: usize = 1_000;

/// What one of them says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Voice {
    /// Of the process alone, without the workers that it may have started. None in its first seconds.
    pub cpu_milli: Option<u32>,
    /// Of a scheduler that a resource manager started: who it is there, and how much it owns.
    pub scheduler: Option<(WorkerId, u32)>,
}

/// The schedulers that resource managers started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedulers {
    /// None until they have been listened to for long enough.
    pub sessions: Option<BTreeMap<WorkerId, Activity>>,
    pub footprints: BTreeMap<WorkerId, Footprint>,
}

#[derive(Clone, Debug)]
struct Known {
    since: Mono,
    heard: Mono,
    voice: Voice,
}

#[derive(Debug)]
pub struct Managers {
    elastic: Elastic,
    known: BTreeMap<String, Known>,
    state: State,
    decided: Option<Decision>,
    /// Since when they can be heard, without a break.
    listening: Option<Mono>,
    /// When anybody was heard last.
    heard: Option<Mono>,
}

impl Default for Managers {
    fn default() -> Self {
        let elastic = Preset::SentrywebSchedulers.elastic();
        Self { elastic, known: BTreeMap::new(), state: State::default(), decided: None, listening: None, heard: None }
    }
}

impl Managers {
    /// Whatever was said before was not heard.
    pub fn listening(&mut self, now: Mono) {
        (self.listening, self.heard) = (Some(now), Some(now));
    }

    pub fn hear(&mut self, member: String, voice: Voice, now: Mono) {
        if !self.is_heard(now) {
            self.listening(now);
        }
        self.heard = Some(now);
        let since = self.known.get(&member).map_or(now, |known| known.since);
        if self.known.len() < KNOWN_MAX || self.known.contains_key(&member) {
            self.known.insert(member, Known { since, heard: now, voice });
        }
    }

    /// Whoever listens says something itself, on the same way: when nobody is heard, the way is broken and nobody is gone.
    fn is_heard(&self, now: Mono) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) < SAID_EVERY * 2)
    }

    /// None while they cannot be heard.
    pub fn schedulers(&self, now: Mono) -> Option<Schedulers> {
        if !self.is_heard(now) {
            return None;
        }
        let alive = self.known.values().filter(|known| now.since(known.heard) < SILENT_AFTER);
        let pooled: Vec<(&WorkerId, u32, Option<u32>)> = alive
            .filter_map(|known| known.voice.scheduler.as_ref().map(|(id, owned)| (id, *owned, known.voice.cpu_milli)))
            .collect();
        let heard_all = self.listening.is_some_and(|since| now.since(since) >= SAID_EVERY * 2);
        // One that owns nothing yet is there for it: none of them is ever idle.
        let session = |(id, owned, _): &(&WorkerId, u32, _)| {
            ((*id).clone(), Activity::Busy { tasks: (*owned).max(1), since: None })
        };
        let footprint = |(id, _, cpu_milli): &(&WorkerId, u32, Option<u32>)| {
            ((*id).clone(), Footprint { cpu_milli: *cpu_milli, ..Footprint::default() })
        };
        Some(Schedulers {
            sessions: heard_all.then(|| pooled.iter().map(session).collect()),
            footprints: pooled.iter().map(footprint).collect(),
        })
    }

    /// To be called as often as they are heard.
    pub fn decide(&mut self, now: Mono) {
        self.known.retain(|_, known| now.since(known.heard) < SILENT_AFTER);
        let sample = |known: &Known| Sample {
            stage: Stage::Running(Span(now.since(known.since))),
            cpu: Use { asked: u64::from(ASKED.milli), used: known.voice.cpu_milli.map(u64::from) },
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
                .filter_map(|(member, known)| Some((member.clone(), known.voice.cpu_milli?)))
                .collect(),
            because: decided.because.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(cpu_milli: u32) -> Voice {
        Voice { cpu_milli: Some(cpu_milli), scheduler: None }
    }

    /// Two managers that use so much each, from one second to another.
    fn run(managers: &mut Managers, seconds: std::ops::Range<u64>, cpu_milli: u32) -> u32 {
        for second in seconds.step_by(5) {
            let now = Mono(Duration::from_secs(second));
            for member in ["one", "two"] {
                managers.hear(member.into(), uses(cpu_milli), now);
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
        managers.hear("two".into(), uses(10), Mono(Duration::from_secs(118)));
        managers.hear("three".into(), Voice::default(), Mono(Duration::from_secs(118)));
        managers.decide(Mono(Duration::from_secs(120)));
        let said = managers.status().unwrap();
        assert_eq!((said.running, said.cpu_milli.len()), (2, 1), "{said:?}");
    }

    #[test]
    fn schedulers_are_seen_for_whoever_starts_them_and_none_is_gone_while_nobody_is_heard() {
        let at = |seconds| Mono(Duration::from_secs(seconds));
        let worker = WorkerId("wx1".into());
        let mut managers = Managers::default();
        assert_eq!(managers.schedulers(at(0)), None);
        managers.listening(at(0));
        let voice = Voice { cpu_milli: Some(120), scheduler: Some((worker.clone(), 8)) };
        managers.hear("s1".into(), voice, at(3));
        assert_eq!(managers.schedulers(at(4)).unwrap().sessions, None, "not everybody may have been heard yet");
        let seen = managers.schedulers(at(11)).unwrap();
        assert_eq!(seen.sessions.unwrap()[&worker], Activity::Busy { tasks: 8, since: None });
        assert_eq!(seen.footprints[&worker].cpu_milli, Some(120));
        assert_eq!(managers.schedulers(at(14)), None, "the way is broken");
        // The manager itself is heard again, the scheduler is not.
        for second in [20, 25, 30] {
            managers.hear("one".into(), uses(5), at(second));
        }
        assert_eq!(managers.schedulers(at(21)).unwrap().sessions, None);
        assert_eq!(managers.schedulers(at(31)).unwrap().sessions, Some(BTreeMap::new()));
    }
}
