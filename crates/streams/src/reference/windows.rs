//! Windows that remember every event and look through all of them each time.

use std::collections::{BTreeMap, BTreeSet};

use super::plain::aggregate;
use super::{Step, Word};
use crate::aggregate::item::Item;
use crate::batch::Value;
use crate::operator::Port;
use crate::schema::Schema;
use crate::window::{Grouping, Window};

pub struct Windows {
    grouping: Grouping,
    input: Schema,
    now: i64,
    closed: i64,
    events: Vec<Vec<Value>>,
}

impl Windows {
    pub fn of_step(step: &Step<'_>) -> Option<Self> {
        let Step::Window { grouping, input, .. } = step else { return None };
        let (grouping, input) = (grouping.clone(), input.clone());
        Some(Self { grouping, input, now: i64::MIN, closed: i64::MIN, events: Vec::new() })
    }

    pub fn hear(&mut self, word: &Word) -> Vec<(Port, Word)> {
        match (word, self.grouping.window.clone()) {
            (Word::Event(event), Window::Count { size, every }) => self.count(event, size as usize, every as usize),
            (Word::Event(event), Window::Time { field, every_us, .. }) => {
                if ends_of(time_of(event, field), every_us, every_us).iter().any(|end| *end <= self.closed) {
                    return vec![(Port::Late, word.clone())];
                }
                self.events.push(event.clone());
                vec![]
            }
            (Word::Time(time), _) if *time <= self.now => vec![],
            (Word::Time(time), Window::Count { .. }) => {
                self.now = *time;
                vec![(Port::Main, word.clone())]
            }
            (Word::Time(time), Window::Time { field, size_us, every_us, lateness_us }) => {
                self.now = *time;
                let closed = time.saturating_sub(lateness_us).max(self.closed);
                let mut said = self.close(closed, field, size_us, every_us);
                self.closed = closed;
                // Who will say no more says so as it is.
                let all = *time == i64::MAX;
                let until = if all { i64::MAX } else { closed.saturating_sub(size_us).saturating_add(1) };
                said.push((Port::Main, Word::Time(until)));
                said
            }
        }
    }

    fn key(&self, event: &[Value]) -> Vec<Item> {
        self.grouping.keys.iter().map(|key| Item::of_value(&event[*key])).collect()
    }

    fn count(&mut self, event: &[Value], size: usize, every: usize) -> Vec<(Port, Word)> {
        self.events.push(event.to_vec());
        let key = self.key(event);
        let same: Vec<&[Value]> =
            self.events.iter().map(Vec::as_slice).filter(|earlier| self.key(earlier) == key).collect();
        if !same.len().is_multiple_of(every) {
            return vec![];
        }
        let window = &same[same.len().saturating_sub(size)..];
        vec![(Port::Main, self.said(window, None))]
    }

    /// Every window that ends after the last time and by this one, and holds anything, by end and then by key.
    fn close(&self, closed: i64, field: usize, size: i64, every: i64) -> Vec<(Port, Word)> {
        let times = self.events.iter().map(|event| time_of(event, field));
        let ends: BTreeSet<i64> = times.flat_map(|time| ends_of(time, size, every)).collect();
        let mut said = Vec::new();
        for end in ends.into_iter().filter(|end| *end > self.closed && *end <= closed) {
            let mut keys: BTreeMap<Vec<Item>, Vec<&[Value]>> = BTreeMap::new();
            for event in &self.events {
                if (end - size..end).contains(&time_of(event, field)) {
                    keys.entry(self.key(event)).or_default().push(event);
                }
            }
            said.extend(keys.values().map(|window| (Port::Main, self.said(window, Some((field, end - size, end))))));
        }
        said
    }

    /// What a window says of its events, which are in the order in which they came.
    fn said(&self, window: &[&[Value]], span: Option<(usize, i64, i64)>) -> Word {
        let mut row: Vec<Value> = self.grouping.keys.iter().map(|key| window[0][*key].clone()).collect();
        let mut by_time = window.to_vec();
        if let Some((field, start, end)) = span {
            row.extend([Value::Time(start), Value::Time(end)]);
            by_time.sort_by_key(|event| time_of(event, field));
        }
        let jumps = self.grouping.window.jumps();
        for one in &self.grouping.aggregates {
            let kind = one.field.map(|field| self.input.fields[field].kind);
            let values = |events: &[&[Value]]| -> Vec<Value> {
                events.iter().map(|event| one.field.map_or(Value::Int(0), |field| event[field].clone())).collect()
            };
            row.push(aggregate(&one.function, kind, &values(window), &values(&by_time), jumps));
        }
        Word::Event(row)
    }
}

fn time_of(event: &[Value], field: usize) -> i64 {
    match event[field] {
        Value::Time(time) => time,
        ref other => unreachable!("{other} is no time"),
    }
}

/// The ends of all windows of this size that hold a time.
fn ends_of(time: i64, size: i64, every: i64) -> Vec<i64> {
    let first = time.div_euclid(every) * every;
    (0..=size / every + 1).map(|n| first + n * every).filter(|end| (end - size..*end).contains(&time)).collect()
}
