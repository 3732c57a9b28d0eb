//! What a monitor says about its alerts, and what that comes to. Pure: the same events at the same times raise the same
//! alerts, however often and by whomever they are looked at.
//!
//! ```yaml
//! alerts:
//!   - { to: ops, remind: 1h }
//!   - { to: chat, on: [ incident ] }
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use mutirao_core::quantity::Span;
use mutirao_core::{Problem, Timestamp};
use serde::{Deserialize, Serialize};

use super::{AlertEvent, Raised};
use crate::grid::MonitorKey;
use crate::health::Event;

/// Rules of one monitor.
pub const RULES_MAX: usize = 10;
const REMIND_MIN: Duration = Duration::from_secs(60);
const REMIND_MAX: Duration = Duration::from_secs(366 * 86_400);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The name of a channel.
    pub to: String,
    /// Told again this often while an incident is open that nobody has acknowledged; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind: Option<Span>,
    #[serde(default = "Topic::all", skip_serializing_if = "Topic::are_all")]
    pub on: BTreeSet<Topic>,
}

/// What somebody wants to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    Incident,
    Flapping,
    NoData,
}

impl Topic {
    fn all() -> BTreeSet<Self> {
        [Self::Incident, Self::Flapping, Self::NoData].into()
    }

    fn are_all(topics: &BTreeSet<Self>) -> bool {
        topics.len() == Self::all().len()
    }

    fn of(event: AlertEvent) -> Self {
        match event {
            AlertEvent::Opened | AlertEvent::Closed | AlertEvent::Reminder => Self::Incident,
            AlertEvent::Flapping | AlertEvent::Calm => Self::Flapping,
            AlertEvent::NoData | AlertEvent::Heard => Self::NoData,
        }
    }
}

impl Rule {
    pub fn new(to: impl Into<String>) -> Self {
        Self { to: to.into(), remind: None, on: Topic::all() }
    }
}

/// Whether the rules could work; whether their channels exist is for whoever knows them.
pub fn check(rules: &[Rule]) -> Result<(), Problem> {
    let wrong = |n: usize, field: &str, detail: String| Err(Problem::invalid(&format!("alerts[{n}].{field}"), detail));
    if rules.len() > RULES_MAX {
        return Err(Problem::invalid("alerts", format!("{} are too many, the most is {RULES_MAX}", rules.len())));
    }
    for (n, rule) in rules.iter().enumerate() {
        if let Some(remind) = rule.remind.filter(|remind| !(REMIND_MIN..=REMIND_MAX).contains(&remind.0)) {
            return wrong(n, "remind", format!("{remind} is not between 1m and a year"));
        }
        if rule.on.is_empty() {
            return wrong(n, "on", "it would never be told anything: incident, flapping or no_data".into());
        }
        if rules[..n].iter().any(|other| other.to == rule.to) {
            return wrong(n, "to", format!("{} is told already by another of these", rule.to));
        }
    }
    Ok(())
}

/// What a belief that changed at an instant raises. `opened`: when the incident opened that it closes, if it does.
pub fn raise(
    rules: &[Rule],
    monitor: MonitorKey,
    event: Event,
    at: Timestamp,
    opened: Option<Timestamp>,
    detail: Option<&str>,
) -> Vec<Raised> {
    let (event, about) = match event {
        Event::Opened { .. } => (AlertEvent::Opened, at),
        // One that opened before alerts were kept cannot have been told.
        Event::Closed { .. } => (AlertEvent::Closed, opened.unwrap_or(at)),
        Event::FlappingBegan => (AlertEvent::Flapping, at),
        Event::FlappingEnded => (AlertEvent::Calm, at),
        Event::Silent { since } => (AlertEvent::NoData, since),
        Event::Heard => (AlertEvent::Heard, at),
    };
    let detail = detail.filter(|_| event == AlertEvent::Opened);
    let wanted = rules.iter().filter(|rule| rule.on.contains(&Topic::of(event)));
    let raised = |rule: &Rule| Raised {
        monitor,
        about,
        event,
        turn: 0,
        to: rule.to.clone(),
        at,
        detail: detail.map(str::to_owned),
    };
    wanted.map(raised).collect()
}

/// The reminders of an open incident that have become due since the last look; without one, the last that is due. Those in
/// between, of a time when nobody looked, are left out: nobody wants five at once.
pub fn remind(
    rules: &[Rule],
    monitor: MonitorKey,
    opened: Timestamp,
    looked: Option<Timestamp>,
    now: Timestamp,
) -> Vec<Raised> {
    let due = |rule: &Rule| {
        let every = rule.remind.filter(|_| rule.on.contains(&Topic::Incident))?.0;
        let turn_at = |at: Timestamp| at.since(opened).as_millis() / every.as_millis().max(1);
        let turn = turn_at(now);
        let before = looked.map_or(0, turn_at);
        (turn > before).then(|| {
            let turn = u32::try_from(turn).unwrap_or(u32::MAX);
            Raised {
                monitor,
                about: opened,
                event: AlertEvent::Reminder,
                turn,
                to: rule.to.clone(),
                at: opened.plus(every.saturating_mul(turn)),
                detail: None,
            }
        })
    };
    rules.iter().filter_map(due).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const M: MonitorKey = MonitorKey(1);

    fn rules(json: &str) -> Vec<Rule> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn who_wants_to_hear_is_told_and_nobody_else() {
        let rules = rules(r#"[{"to": "ops"}, {"to": "chat", "on": ["flapping"]}]"#);
        let told = |event| -> Vec<String> {
            raise(&rules, M, event, Timestamp(5), None, Some("why")).into_iter().map(|alert| alert.to).collect()
        };
        assert_eq!(told(Event::Opened { since: Timestamp(1) }), ["ops"]);
        assert_eq!(told(Event::FlappingBegan), ["ops", "chat"]);
        let closed = raise(&rules, M, Event::Closed { since: Timestamp(7) }, Timestamp(9), Some(Timestamp(5)), None);
        assert_eq!((closed[0].about, closed[0].at, closed.len()), (Timestamp(5), Timestamp(9), 1));
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for (json, words) in [
            (r#"[{"to": "a", "remind": "5s"}]"#, "alerts[0].remind: 5s is not between"),
            (r#"[{"to": "a", "on": []}]"#, "alerts[0].on"),
            (r#"[{"to": "a"}, {"to": "a"}]"#, "alerts[1].to: a is told already"),
        ] {
            assert!(check(&rules(json)).unwrap_err().line().starts_with(words), "{json}");
        }
        assert!(serde_json::from_str::<Rule>(r#"{"to": "a", "after": "5m"}"#).is_err());
    }

    proptest! {
        /// Owners come and go and look when they can. With the key of the store, each reminder is raised once, in its turn,
        /// and one is never further away than the interval and the longest time that nobody looked.
        #[test]
        fn reminders_come_once_each_in_their_turn_whoever_looks(
            looks in prop::collection::vec((1..200_000i64, any::<bool>()), 1..60),
            every_s in 60..600u64,
        ) {
            let rules = vec![Rule { remind: Some(Span::secs(every_s)), ..Rule::new("ops") }];
            let (mut now, mut looked) = (0, None);
            let mut raised: BTreeMap<u32, i64> = BTreeMap::new();
            for (step, successor) in looks {
                now += step;
                if successor {
                    looked = None;
                }
                for alert in remind(&rules, M, Timestamp(0), looked, Timestamp(now)) {
                    raised.entry(alert.turn).or_insert(now);
                    prop_assert!(alert.at.0 <= now && now - alert.at.0 < every_s as i64 * 1_000);
                }
                looked = Some(Timestamp(now));
                let turn = (now / (every_s as i64 * 1_000)) as u32;
                prop_assert!(turn == 0 || raised.contains_key(&turn), "turn {} of {:?}", turn, raised);
            }
            let moments: Vec<i64> = raised.values().copied().collect();
            prop_assert!(moments.is_sorted());
        }
    }
}
