//! From single outcomes to up and down. An outcome says how one check ended; health says what to believe of the service.
//!
//! - So many bad outcomes in a row make it down, so many good ones up again ([`Thresholds`]).
//! - One that changes again and again is flapping: it is said once, and nothing more is opened or closed until it has calmed
//!   down. The measure is Nagios': the share of changes among the last 21 outcomes, later ones counting more; it begins at
//!   50 % and ends below 25 %.
//! - One that nobody hears of is not up: after [`Thresholds::silence`] intervals without an outcome there is no data.
//!
//! Outcomes come with their instants. One that is not later than the last that was taken in is old news: it belongs into
//! history and changes nothing here. So it may come twice, or late, from anywhere.

use std::collections::VecDeque;
use std::time::Duration;

use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

/// Outcomes that flapping is measured by.
const REMEMBERED: usize = 21;
const FLAPS_FROM_PERCENT: f64 = 50.0;
const CALM_BELOW_PERCENT: f64 = 25.0;
/// The weight of the oldest change; the latest has `2 - OLDEST`.
const OLDEST: f64 = 0.8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Bad outcomes in a row until it is down.
    pub failures: u32,
    /// Good outcomes in a row until it is up again.
    pub successes: u32,
    /// Intervals without any outcome until there is no data.
    pub silence: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { failures: 3, successes: 1, silence: 3 }
    }
}

/// What is believed of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is known yet.
    #[default]
    New,
    Up,
    Down,
    /// It was checked, and then was not.
    NoData,
}

/// How a check ended, as far as health goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Good,
    Bad,
}

/// What somebody should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An incident opens; the first of the bad outcomes that made it was at `since`.
    Opened {
        since: Timestamp,
    },
    /// It closes: good since then.
    Closed {
        since: Timestamp,
    },
    FlappingBegan,
    FlappingEnded,
    /// Nobody has checked it for too long.
    Silent {
        since: Timestamp,
    },
    /// It is checked again.
    Heard,
}

/// All that is kept of a monitor between two outcomes; written with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    pub state: State,
    /// Whether an incident is open.
    pub incident: bool,
    pub flapping: bool,
    /// When the open incident opened.
    #[serde(default)]
    pub opened: Option<Timestamp>,
    /// The instant of the last outcome taken in.
    pub last: Option<Timestamp>,
    /// How many of the last outcomes were alike, and since when.
    row: u32,
    row_since: Option<Timestamp>,
    /// The last outcomes, the oldest first; true is good.
    recent: VecDeque<bool>,
}

impl Health {
    /// Takes in how the check of an instant ended.
    pub fn take(&mut self, at: Timestamp, verdict: Verdict, thresholds: &Thresholds) -> Vec<Event> {
        if self.last.is_some_and(|last| at <= last) {
            return Vec::new();
        }
        let good = verdict == Verdict::Good;
        let mut events = Vec::new();
        if self.state == State::NoData {
            // What was before the gap says nothing about a row that goes on after it.
            (self.row, self.state) = (0, if self.incident { State::Down } else { State::New });
            events.push(Event::Heard);
        }
        if self.recent.back() == Some(&good) && self.row > 0 {
            self.row = self.row.saturating_add(1);
        } else {
            (self.row, self.row_since) = (1, Some(at));
        }
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(good);
        self.last = Some(at);
        let enough = if good { thresholds.successes } else { thresholds.failures };
        if self.row >= enough {
            self.state = if good { State::Up } else { State::Down };
        }
        self.note_flapping(&mut events);
        if !self.flapping {
            self.note_incident(at, &mut events);
        }
        events
    }

    /// Looks whether outcomes have stopped coming.
    pub fn look(&mut self, every: Duration, thresholds: &Thresholds, now: Timestamp) -> Option<Event> {
        let last = self.last?;
        let silent = now.since(last) > every.saturating_mul(thresholds.silence.saturating_add(1));
        if !silent || self.state == State::NoData {
            return None;
        }
        self.state = State::NoData;
        Some(Event::Silent { since: last })
    }

    /// The share of changes among the last outcomes, in percent, later ones counting more.
    pub fn flapping_percent(&self) -> f64 {
        let changes = self.recent.iter().zip(self.recent.iter().skip(1)).map(|(before, after)| before != after);
        let steps = (REMEMBERED - 2) as f64;
        // Few outcomes fill the last places, as if all before had been alike.
        let empty = REMEMBERED - self.recent.len().max(1);
        let weight = |place: usize| OLDEST + (2.0 - 2.0 * OLDEST) * place as f64 / steps;
        let sum: f64 =
            changes.enumerate().filter(|(_, changed)| *changed).map(|(place, _)| weight(place + empty)).sum();
        sum * 100.0 / (REMEMBERED - 1) as f64
    }

    fn note_flapping(&mut self, events: &mut Vec<Event>) {
        let percent = self.flapping_percent();
        if !self.flapping && percent >= FLAPS_FROM_PERCENT {
            self.flapping = true;
            events.push(Event::FlappingBegan);
        } else if self.flapping && percent < CALM_BELOW_PERCENT {
            self.flapping = false;
            events.push(Event::FlappingEnded);
        }
    }

    fn note_incident(&mut self, at: Timestamp, events: &mut Vec<Event>) {
        let since = self.row_since.unwrap_or(at);
        match (self.state, self.incident) {
            (State::Down, false) => {
                (self.incident, self.opened) = (true, Some(at));
                events.push(Event::Opened { since });
            }
            (State::Up, true) => {
                (self.incident, self.opened) = (false, None);
                events.push(Event::Closed { since });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = 60_000;

    /// `.` is good, `x` is bad; one a minute.
    fn run(story: &str, thresholds: &Thresholds) -> (Health, Vec<Event>) {
        let mut health = Health::default();
        let verdict = |sign| if sign == '.' { Verdict::Good } else { Verdict::Bad };
        let events = story.chars().enumerate();
        let events = events.flat_map(|(n, sign)| health.take(Timestamp(n as i64 * MINUTE), verdict(sign), thresholds));
        let events = events.collect();
        (health, events)
    }

    #[test]
    fn an_incident_opens_with_the_third_failure_in_a_row_and_begins_with_the_first() {
        let (health, events) = run("..xx.xxx", &Thresholds::default());
        assert_eq!(events, [Event::Opened { since: Timestamp(5 * MINUTE) }]);
        assert_eq!((health.state, health.incident), (State::Down, true));
        let (health, events) = run("xxxx.", &Thresholds::default());
        let closed = Event::Closed { since: Timestamp(4 * MINUTE) };
        assert_eq!(events, [Event::Opened { since: Timestamp(0) }, closed]);
        assert_eq!((health.state, health.incident), (State::Up, false));
    }

    #[test]
    fn what_changes_all_the_time_is_said_once() {
        let thresholds = Thresholds { failures: 1, ..Thresholds::default() };
        let (health, events) = run(&"x.".repeat(30), &thresholds);
        let began = events.iter().filter(|event| **event == Event::FlappingBegan).count();
        assert!(began == 1 && health.flapping, "{events:?}");
        let after = events.iter().skip_while(|event| **event != Event::FlappingBegan).count();
        assert_eq!(after, 1, "nothing opens or closes while it flaps: {events:?}");
        let (health, events) = run(&format!("{}{}", "x.".repeat(30), ".".repeat(20)), &thresholds);
        assert!(events.contains(&Event::FlappingEnded) && !health.flapping && !health.incident, "{events:?}");
    }

    #[test]
    fn flapping_is_measured_as_nagios_does() {
        let (health, _) = run(&"x.".repeat(11)[..21], &Thresholds::default());
        assert!((health.flapping_percent() - 100.0).abs() < 1e-9);
        let (health, _) = run(&".".repeat(21), &Thresholds::default());
        assert!(health.flapping_percent().abs() < 1e-9);
        // A single change counts by its place: five in a hundred, a fifth more when it is the last one.
        let (health, _) = run(&format!("{}x", ".".repeat(20)), &Thresholds::default());
        assert!((health.flapping_percent() - 6.0).abs() < 1e-9, "{}", health.flapping_percent());
    }

    #[test]
    fn silence_is_noticed_once_and_ends_with_the_next_outcome() {
        let thresholds = Thresholds::default();
        let (mut health, _) = run("..", &thresholds);
        let every = Duration::from_secs(60);
        assert_eq!(health.look(every, &thresholds, Timestamp(5 * MINUTE)), None);
        let silent = Event::Silent { since: Timestamp(MINUTE) };
        assert_eq!(health.look(every, &thresholds, Timestamp(5 * MINUTE + 1)), Some(silent));
        assert_eq!(health.look(every, &thresholds, Timestamp(9 * MINUTE)), None);
        assert_eq!(health.take(Timestamp(10 * MINUTE), Verdict::Good, &thresholds), [Event::Heard]);
        assert_eq!(health.state, State::Up);
    }

    proptest! {
        #[test]
        fn old_news_and_repetitions_change_nothing(story in "[.x]{1,60}", again in prop::collection::vec(0..60usize, 0..20)) {
            let thresholds = Thresholds::default();
            let (mut health, _) = run(&story, &thresholds);
            let before = health.clone();
            for n in again.into_iter().filter(|n| *n < story.len()) {
                let verdict = if n % 2 == 0 { Verdict::Good } else { Verdict::Bad };
                prop_assert!(health.take(Timestamp(n as i64 * MINUTE), verdict, &thresholds).is_empty());
            }
            prop_assert_eq!(health, before);
        }

        #[test]
        fn incidents_open_and_close_in_turn(story in "[.x]{1,120}", failures in 1..4u32, successes in 1..4u32) {
            let thresholds = Thresholds { failures, successes, silence: 3 };
            let (health, events) = run(&story, &thresholds);
            let turns: Vec<bool> = events.iter().filter_map(|event| match event {
                Event::Opened { .. } => Some(true),
                Event::Closed { .. } => Some(false),
                _ => None,
            }).collect();
            prop_assert!(turns.iter().enumerate().all(|(n, opened)| *opened == (n % 2 == 0)), "{:?}", turns);
            prop_assert_eq!(turns.len() % 2 == 1, health.incident);
        }
    }
}
