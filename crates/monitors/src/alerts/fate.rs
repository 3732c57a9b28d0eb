//! What becomes of an alert that waits: told now, later or never, as a function of what is known and of time.
//!
//! - In a silence nobody is told anything. What opens meanwhile waits for its end, and is told then if it is still open.
//! - Of what was never told, no end is told either.
//! - A reminder is for those who do not know: not once it is acknowledged or over, nor in maintenance.

use std::time::Duration;

use mutirao_core::Timestamp;

use super::{AlertEvent, Silence};

/// How long a channel that does not take an alert is tried, from the first time on.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3_600);
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// What is known of an alert when its turn comes.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    pub event: AlertEvent,
    pub raised_at: Timestamp,
    /// Of the incident that it is about.
    pub closed_at: Option<Timestamp>,
    pub told: Told,
    pub monitor: Standing,
    pub silence: Option<&'a Silence>,
    pub incident: Known,
}

/// Whether this channel was told that the incident opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Yes,
    No,
}

/// How the monitor stood when the alert was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Watched,
    InMaintenance,
    /// By now.
    Removed,
}

/// Whether somebody has acknowledged the incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    ToNobody,
    Acknowledged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Send,
    Hold(Timestamp),
    Drop(Reason),
}

/// Why nobody was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Removed,
    NeverTold,
    Acknowledged,
    Over,
    Maintenance,
    Silenced,
}

impl Reason {
    pub fn line(self) -> &'static str {
        match self {
            Self::Removed => "the monitor was removed",
            Self::NeverTold => "its opening was not told either",
            Self::Acknowledged => "it was acknowledged",
            Self::Over => "it was over",
            Self::Maintenance => "during maintenance",
            Self::Silenced => "it was silenced",
        }
    }
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> Fate {
    use AlertEvent::{Closed, Opened, Reminder};
    if case.monitor == Standing::Removed {
        return Fate::Drop(Reason::Removed);
    }
    if case.event == Closed && case.told == Told::No {
        return Fate::Drop(Reason::NeverTold);
    }
    if case.event == Reminder && case.incident == Known::Acknowledged {
        return Fate::Drop(Reason::Acknowledged);
    }
    if case.event == Reminder && case.closed_at.is_some() {
        return Fate::Drop(Reason::Over);
    }
    let lasting = matches!(case.event, Opened | Closed);
    if case.monitor == Standing::InMaintenance && !lasting {
        return Fate::Drop(Reason::Maintenance);
    }
    let Some(silence) = case.silence else { return Fate::Send };
    let over_by_its_end = case.closed_at.is_some_and(|closed| closed <= silence.until);
    if case.event == Opened && silence.covers(case.raised_at) && over_by_its_end {
        return Fate::Drop(Reason::Silenced);
    }
    match (silence.covers(now), lasting) {
        (false, _) => Fate::Send,
        (true, true) => Fate::Hold(silence.until),
        (true, false) => Fate::Drop(Reason::Silenced),
    }
}

/// When a channel that has just failed for the `tries`th time is tried again; never once it had its time. `chance` is from 0
/// to 1, so that a thousand alerts do not come back in one moment.
pub fn next_try(tries: u32, first_at: Timestamp, now: Timestamp, chance: f64) -> Option<Timestamp> {
    if now.since(first_at) >= GIVE_UP_AFTER {
        return None;
    }
    let pause = FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(PAUSE_MAX);
    Some(now.plus(pause.mul_f64(0.75 + 0.5 * chance.clamp(0.0, 1.0))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn case(event: AlertEvent) -> Case<'static> {
        Case {
            event,
            raised_at: Timestamp(1_000),
            closed_at: None,
            told: Told::Yes,
            monitor: Standing::Watched,
            silence: None,
            incident: Known::ToNobody,
        }
    }

    fn silence(from: i64, until: i64) -> Silence {
        Silence { from: Timestamp(from), until: Timestamp(until), by: "ana".into(), why: None }
    }

    #[test]
    fn what_opens_in_a_silence_is_told_at_its_end_if_it_is_still_open() {
        let quiet = silence(0, 5_000);
        let opened = Case { silence: Some(&quiet), ..case(AlertEvent::Opened) };
        assert_eq!(decide(&opened, Timestamp(2_000)), Fate::Hold(Timestamp(5_000)));
        assert_eq!(decide(&opened, Timestamp(5_000)), Fate::Send);
        let over = Case { closed_at: Some(Timestamp(4_000)), ..opened.clone() };
        assert_eq!(decide(&over, Timestamp(5_000)), Fate::Drop(Reason::Silenced));
        let closed = Case { event: AlertEvent::Closed, told: Told::No, ..over };
        assert_eq!(decide(&closed, Timestamp(5_000)), Fate::Drop(Reason::NeverTold));
        let later = Case { closed_at: Some(Timestamp(5_001)), ..opened };
        assert_eq!(decide(&later, Timestamp(6_000)), Fate::Send, "it outlived the silence");
    }

    #[test]
    fn nobody_is_reminded_of_what_is_known_or_over_or_meant() {
        let reminder = case(AlertEvent::Reminder);
        let fate = |case: Case<'_>| decide(&case, Timestamp(9_000));
        assert_eq!(fate(reminder.clone()), Fate::Send);
        let known = Case { incident: Known::Acknowledged, ..reminder.clone() };
        assert_eq!(fate(known), Fate::Drop(Reason::Acknowledged));
        assert_eq!(fate(Case { closed_at: Some(Timestamp(2)), ..reminder.clone() }), Fate::Drop(Reason::Over));
        let meant = Case { monitor: Standing::InMaintenance, ..reminder };
        assert_eq!(fate(meant), Fate::Drop(Reason::Maintenance));
    }

    #[test]
    fn pauses_grow_and_end_after_a_day() {
        let pause = |tries| next_try(tries, Timestamp(0), Timestamp(0), 0.5).unwrap().0;
        assert_eq!([1, 2, 3, 20, u32::MAX].map(pause), [5_000, 10_000, 20_000, 600_000, 600_000]);
        let day = GIVE_UP_AFTER.as_millis() as i64;
        assert!(next_try(9, Timestamp(0), Timestamp(day - 1), 0.0).is_some());
        assert_eq!(next_try(9, Timestamp(0), Timestamp(day), 0.0), None);
    }

    proptest! {
        /// Whatever is known, an alert is decided for good at the end of a silence at the latest, none is sent within one,
        /// and no end is told of what was not told.
        #[test]
        fn silences_are_kept_and_nothing_waits_for_ever(
            event in prop::sample::select(AlertEvent::ALL.to_vec()),
            raised in 0..10_000i64,
            closed in prop::option::of(0..20_000i64),
            (from, length) in (0..10_000i64, 1..10_000i64),
            now in 0..30_000i64,
            told in any::<bool>(),
            known in any::<bool>(),
        ) {
            let quiet = silence(from, from + length);
            let case = Case {
                event,
                raised_at: Timestamp(raised),
                closed_at: closed.map(Timestamp),
                told: if told { Told::Yes } else { Told::No },
                monitor: Standing::Watched,
                silence: Some(&quiet),
                incident: if known { Known::Acknowledged } else { Known::ToNobody },
            };
            match decide(&case, Timestamp(now)) {
                Fate::Send => {
                    prop_assert!(!quiet.covers(Timestamp(now)));
                    prop_assert!(event != AlertEvent::Closed || told);
                    prop_assert!(event != AlertEvent::Reminder || (!known && closed.is_none()));
                }
                Fate::Hold(until) => {
                    prop_assert!(until.0 > now);
                    prop_assert!(!matches!(decide(&case, until), Fate::Hold(_)));
                }
                Fate::Drop(_) => {}
            }
        }
    }
}
