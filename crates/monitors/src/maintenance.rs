//! Times at which a service may be away: once, or every week. What is bad then opens no incident and counts in no uptime.
//!
//! ```yaml
//! maintenance:
//!   - { from: "2026-12-01T22:00:00Z", for: 2h }
//!   - { every: sunday, at: "03:30", for: 90m }      # UTC
//! ```

use mutirao_core::quantity::Span;
use mutirao_core::{Problem, Timestamp};
use serde::{Deserialize, Serialize};

pub const WINDOWS_MAX: usize = 50;
const DAY_MS: i64 = 86_400_000;
const WEEK_MS: i64 = 7 * DAY_MS;
/// The first of January 1970 was a Thursday; weeks here begin on Monday.
const FIRST_MONDAY_MS: i64 = 4 * DAY_MS;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Window {
    Once(Once),
    Weekly(Weekly),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Once {
    /// As `2026-12-01T22:00:00Z`.
    #[serde(with = "moment")]
    pub from: Timestamp,
    #[serde(rename = "for")]
    pub length: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weekly {
    pub every: Day,
    /// `HH:MM`, in UTC.
    pub at: TimeOfDay,
    #[serde(rename = "for")]
    pub length: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
    /// All of them.
    Day,
}

/// Minutes after midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay(u16);

impl TryFrom<String> for TimeOfDay {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let read = || {
            let (hours, minutes) = text.split_once(':')?;
            let two = |part: &str| (part.len() == 2).then(|| part.parse::<u16>().ok()).flatten();
            let (hours, minutes) = (two(hours)?, two(minutes)?);
            (hours < 24 && minutes < 60).then_some(Self(hours * 60 + minutes))
        };
        read().ok_or_else(|| {
            format!("\"{}\" is not a time of day: write it like 03:30", text.chars().take(20).collect::<String>())
        })
    }
}

impl From<TimeOfDay> for String {
    fn from(TimeOfDay(minutes): TimeOfDay) -> Self {
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A moment as people write it.
mod moment {
    use mutirao_core::Timestamp;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&at.to_string())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        let since = humantime::parse_rfc3339(&text).ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let ms = since.and_then(|since| i64::try_from(since.as_millis()).ok());
        ms.map(Timestamp).ok_or_else(|| D::Error::custom("a moment is written like 2026-12-01T22:00:00Z, in UTC"))
    }
}

impl Window {
    pub fn covers(&self, at: Timestamp) -> bool {
        match self {
            Window::Once(Once { from, length }) => at >= *from && at.since(*from) < length.0,
            Window::Weekly(Weekly { every, at: time, length }) => {
                let length = length.0.as_millis() as i64;
                let minutes = i64::from(time.0) * 60_000;
                let (begin, round) = match every {
                    Day::Day => (minutes, DAY_MS),
                    day => (FIRST_MONDAY_MS + *day as i64 * DAY_MS + minutes, WEEK_MS),
                };
                (at.0 - begin).rem_euclid(round) < length
            }
        }
    }
}

pub fn covered(windows: &[Window], at: Timestamp) -> bool {
    windows.iter().any(|window| window.covers(at))
}

pub fn check(windows: &[Window]) -> Result<(), Problem> {
    if windows.len() > WINDOWS_MAX {
        let detail = format!("{} are too many, the most is {WINDOWS_MAX}", windows.len());
        return Err(Problem::invalid("maintenance", detail));
    }
    for (n, window) in windows.iter().enumerate() {
        let (length, most) = match window {
            Window::Once(once) => (once.length, 366 * DAY_MS),
            Window::Weekly(Weekly { every: Day::Day, length, .. }) => (*length, DAY_MS - 60_000),
            Window::Weekly(weekly) => (weekly.length, WEEK_MS - 60_000),
        };
        let ms = i64::try_from(length.0.as_millis()).unwrap_or(i64::MAX);
        if !(1_000..=most).contains(&ms) {
            let field = format!("maintenance[{n}].for");
            return Err(Problem::invalid(
                &field,
                format!("{length} is too short, or has no end before it begins again"),
            )
            .remedy("to stop the checks altogether, pause the monitor"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sunday, the 15th of November 2026, midnight.
    const SUNDAY_MS: i64 = 1_794_700_800_000;

    fn read(json: &str) -> Window {
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"))
    }

    fn after(days: i64, hours: i64, minutes: i64) -> Timestamp {
        Timestamp(SUNDAY_MS + days * DAY_MS + (hours * 60 + minutes) * 60_000)
    }

    #[test]
    fn a_weekly_window_comes_every_week_and_may_pass_midnight() {
        let window = read(r#"{"every": "sunday", "at": "23:30", "for": "90m"}"#);
        let covered = |days, hours, minutes| window.covers(after(days, hours, minutes));
        assert!(!covered(0, 23, 29) && covered(0, 23, 30) && covered(1, 0, 59) && !covered(1, 1, 0));
        assert!(covered(7, 23, 30) && covered(-7, 23, 45) && !covered(3, 23, 45));
        let daily = read(r#"{"every": "day", "at": "03:00", "for": "1h"}"#);
        assert!((0..9).all(|day| daily.covers(after(day, 3, 59)) && !daily.covers(after(day, 4, 0))));
    }

    #[test]
    fn a_single_window_is_written_as_people_write_moments() {
        let window = read(r#"{"from": "2026-11-15T10:00:00Z", "for": "2h"}"#);
        assert!(window.covers(after(0, 10, 0)) && window.covers(after(0, 11, 59)) && !window.covers(after(0, 12, 0)));
        assert!(!window.covers(after(7, 11, 0)));
        assert_eq!(read(&serde_json::to_string(&window).unwrap()), window);
        assert!(serde_json::from_str::<Window>(r#"{"from": "tomorrow", "for": "2h"}"#).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in
            [r#"{"every": "sunday", "at": "3:30", "for": "1h"}"#, r#"{"every": "noday", "at": "03:30", "for": "1h"}"#]
        {
            assert!(serde_json::from_str::<Window>(bad).is_err(), "{bad}");
        }
        for bad in
            [r#"{"every": "day", "at": "03:30", "for": "24h"}"#, r#"{"every": "sunday", "at": "03:30", "for": "0s"}"#]
        {
            let line = check(&[read(bad)]).unwrap_err().line();
            assert!(line.starts_with("maintenance[0].for: "), "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_week_has_exactly_the_length_of_its_windows(day in 0..7usize, minute in 0..1_440u16, length in 1..10_000i64, from in any::<i32>()) {
            let days = [Day::Monday, Day::Tuesday, Day::Wednesday, Day::Thursday, Day::Friday, Day::Saturday, Day::Sunday];
            let span = Span(std::time::Duration::from_secs(length as u64 * 60));
            let window = Window::Weekly(Weekly { every: days[day], at: TimeOfDay(minute), length: span });
            let from = i64::from(from) * 60_000;
            let covered = (0..10_080).filter(|n| window.covers(Timestamp(from + n * 60_000))).count();
            prop_assert_eq!(covered as i64, length);
        }
    }
}
