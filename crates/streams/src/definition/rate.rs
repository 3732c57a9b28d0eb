//! How many events a generator makes: a table of periods, each with a rate and a ramp up or down to it.

use std::time::Duration;

use serde::Serialize;

use super::Fault;
use super::fields::{Fields, short};
use super::yaml::{Content, Node};

pub const PERIODS_MAX: usize = 1_000;
/// Events a second.
pub const RATE_MAX: f64 = 10_000_000.0;
/// Of one period, and of a whole table.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 86_400);

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Period {
    pub lasts: Duration,
    /// Events a second, once the ramp is over.
    pub rate: f64,
    /// How long it takes, from the rate before to this one.
    pub ramp: Duration,
}

/// Periods one after the other. The rate before the first is that of the last, where the table repeats, else none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    pub periods: Vec<Period>,
    /// Begins again after the last period; else there is nothing after it.
    pub repeat: bool,
}

impl Period {
    /// How many events are due after so many seconds of it.
    fn due(&self, before: f64, seconds: f64) -> f64 {
        let ramp = self.ramp.as_secs_f64();
        if seconds < ramp {
            return before * seconds + (self.rate - before) * seconds * seconds / (2.0 * ramp);
        }
        (before + self.rate) / 2.0 * ramp + self.rate * (seconds - ramp)
    }
}

impl Rate {
    pub fn steady(rate: f64) -> Self {
        let period = Period { lasts: Duration::from_secs(3_600), rate, ramp: Duration::ZERO };
        Self { periods: vec![period], repeat: true }
    }

    /// How long the table is.
    pub fn length(&self) -> Duration {
        self.periods.iter().map(|period| period.lasts).sum()
    }

    fn first(&self) -> f64 {
        match (self.repeat, self.periods.last()) {
            (true, Some(last)) => last.rate,
            _ => 0.0,
        }
    }

    /// How many events are due in all, so long after the start. Never fewer than before.
    pub fn due(&self, since: Duration) -> u64 {
        let length = self.length();
        if length.is_zero() {
            return 0;
        }
        let rounds = if self.repeat { since.as_nanos() / length.as_nanos() } else { 0 };
        let within =
            Duration::from_nanos(u64::try_from(since.as_nanos() - rounds * length.as_nanos()).unwrap_or(u64::MAX));
        let whole = if rounds == 0 { 0.0 } else { self.within(length) * rounds as f64 };
        (whole + self.within(within)) as u64
    }

    fn within(&self, since: Duration) -> f64 {
        let (mut due, mut left, mut before) = (0.0, since, self.first());
        for period in &self.periods {
            due += period.due(before, left.min(period.lasts).as_secs_f64());
            if left <= period.lasts {
                break;
            }
            left -= period.lasts;
            before = period.rate;
        }
        due
    }
}

impl Period {
    /// After how many seconds of it so many events are due. Nothing, if they never are.
    fn due_at(&self, before: f64, events: f64) -> Option<f64> {
        let ramp = self.ramp.as_secs_f64();
        let ramped = (before + self.rate) / 2.0 * ramp;
        let seconds = if events < ramped {
            // Where rate · t + slope · t² / 2 comes to so many; written so that a slope of nothing divides by nothing.
            let slope = (self.rate - before) / ramp;
            let root = (before * before + 2.0 * slope * events).max(0.0).sqrt();
            2.0 * events / (before + root)
        } else if self.rate > 0.0 {
            ramp + (events - ramped) / self.rate
        } else {
            return None;
        };
        (seconds <= self.lasts.as_secs_f64()).then_some(seconds)
    }
}

impl Rate {
    /// How long after the start the event of this number is due, to the microsecond; the first has number nought. Nothing, if
    /// it never is.
    pub fn due_at(&self, n: u64) -> Option<Duration> {
        let length = self.length();
        let whole = self.within(length);
        let events = n as f64 + 1.0;
        let rounds = match self.repeat {
            // The last of a round is due at its end, and not after it.
            true if whole > 0.0 => ((events / whole).ceil() - 1.0).max(0.0),
            true => return None,
            false => 0.0,
        };
        let mut left = (events - rounds * whole).max(0.0);
        let (mut since, mut before) = (length.as_secs_f64() * rounds, self.first());
        for period in &self.periods {
            if let Some(seconds) = period.due_at(before, left) {
                return Duration::try_from_secs_f64(since + seconds).ok().map(|since| {
                    let micros = u64::try_from(since.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
                    Duration::from_micros(micros)
                });
            }
            left = (left - period.due(before, period.lasts.as_secs_f64())).max(0.0);
            since += period.lasts.as_secs_f64();
            before = period.rate;
        }
        None
    }
}

/// `rate: 100`, or `rate: [ { for: 60s, rate: 600, ramp: 5s } ]`.
pub fn read(fields: &Fields<'_>, faults: &mut Vec<Fault>) -> Option<Rate> {
    let repeat = match fields.word("repeat", faults).map(|word| (word, word.text.as_str())) {
        None => None,
        Some((_, "true")) => Some(true),
        Some((_, "false")) => Some(false),
        Some((word, text)) => {
            faults.push(Fault::new(word.place, format!("repeat is true or false, and not \"{}\"", short(text))));
            None
        }
    };
    let Some(node) = fields.get("rate") else {
        let fault = Fault::new(fields.place, "a generator needs rate");
        faults.push(fault.hint("write rate: 100, for a hundred events a second"));
        return None;
    };
    let Content::List(periods) = &node.what else {
        if repeat.is_some() {
            faults.push(Fault::new(node.place, "one rate has nothing to repeat").hint("leave repeat out"));
        }
        return fields.figure("rate", 0.001, RATE_MAX, faults).map(Rate::steady);
    };
    if periods.is_empty() || periods.len() > PERIODS_MAX {
        let what = format!("a table has between 1 and {PERIODS_MAX} periods, and this has {}", periods.len());
        faults.push(Fault::new(node.place, what));
        return None;
    }
    let periods = periods.iter().map(|node| period(node, faults)).collect::<Vec<_>>();
    Some(Rate { periods: periods.into_iter().collect::<Option<_>>()?, repeat: repeat.unwrap_or(false) })
}

fn period(node: &Node, faults: &mut Vec<Fault>) -> Option<Period> {
    let fields = Fields::of(node, "a period", &["for", "rate", "ramp"], faults)?;
    for name in ["for", "rate"] {
        if fields.get(name).is_none() {
            let fault = Fault::new(node.place, format!("a period needs {name}"));
            faults.push(fault.hint("write { for: 60s, rate: 100 }"));
        }
    }
    let lasts = fields.span("for", faults);
    let rate = fields.figure("rate", 0.0, RATE_MAX, faults);
    let ramp = fields.span("ramp", faults).unwrap_or_default();
    let (lasts, rate) = (lasts?, rate?);
    let at = |name: &str| fields.get(name).map_or(node.place, |node| node.place);
    if lasts.is_zero() || lasts > PERIOD_MAX {
        faults.push(Fault::new(at("for"), "a period lasts longer than nothing, and at most a year"));
        return None;
    }
    if ramp > lasts {
        faults.push(Fault::new(at("ramp"), "the ramp is longer than its period"));
        return None;
    }
    Some(Period { lasts, rate, ramp })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn period(lasts: u64, rate: f64, ramp: u64) -> Period {
        Period { lasts: Duration::from_secs(lasts), rate, ramp: Duration::from_secs(ramp) }
    }

    fn due(rate: &Rate, seconds: f64) -> u64 {
        rate.due(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn a_table_makes_what_it_says() {
        let table = Rate { periods: vec![period(60, 100.0, 0), period(60, 600.0, 10)], repeat: false };
        assert_eq!(due(&table, 0.0), 0);
        assert_eq!(due(&table, 1.0), 100);
        assert_eq!(due(&table, 60.0), 6_000);
        assert_eq!(due(&table, 70.0), 9_500, "ten seconds of 350 on average");
        assert_eq!(due(&table, 120.0), 39_500);
        assert_eq!(due(&table, 9_999.0), 39_500, "nothing after the last");
    }

    #[test]
    fn a_table_that_repeats_goes_on_from_its_last_rate() {
        let table = Rate { periods: vec![period(10, 0.0, 10), period(10, 100.0, 0)], repeat: true };
        assert_eq!([10.0, 20.0, 30.0, 40.0].map(|at| due(&table, at)), [500, 1_500, 2_000, 3_000]);
        assert_eq!(due(&Rate::steady(50.0), 7_200.0), 360_000);
    }

    proptest! {
        /// One can wait for an event, and it is due then, and was not due much before.
        #[test]
        fn an_event_is_due_when_it_is_said_to_be(
            periods in proptest::collection::vec((1u64..100, 0.0f64..1000.0, 0u64..100), 1..6), repeat in any::<bool>(), n in 0u64..100_000,
        ) {
            let periods = periods.into_iter().map(|(lasts, rate, ramp)| period(lasts, rate, ramp.min(lasts))).collect();
            let table = Rate { periods, repeat };
            match table.due_at(n) {
                Some(at) => {
                    prop_assert!(table.due(at + Duration::from_micros(10)) > n, "{} at {at:?}", table.due(at));
                    prop_assert!(table.due(at.saturating_sub(Duration::from_micros(10))) <= n, "{} at {at:?}", table.due(at));
                }
                None => prop_assert!(!repeat && table.due(Duration::from_secs(10_000)) <= n + 1),
            }
        }

        #[test]
        fn what_was_due_stays_due(
            periods in proptest::collection::vec((1u64..100, 0.0f64..1000.0, 0u64..100), 1..6),
            repeat in any::<bool>(),
            mut times in proptest::collection::vec(0.0f64..2000.0, 2..20),
        ) {
            let periods = periods.into_iter().map(|(lasts, rate, ramp)| period(lasts, rate, ramp.min(lasts))).collect();
            let table = Rate { periods, repeat };
            times.sort_by(f64::total_cmp);
            let all: Vec<u64> = times.iter().map(|at| due(&table, *at)).collect();
            prop_assert!(all.is_sorted(), "{:?}", all);
        }
    }
}
