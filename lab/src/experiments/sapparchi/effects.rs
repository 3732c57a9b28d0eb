//! What devices did, by their own account: who was given what, how often, and after what. A step that counted twice shows here,
//! whatever the program under measurement says: what comes after it would have been given two different things.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::{Clock, Mono, SystemClock};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a step of a run is given: which it is, and the mark of the doing of the step before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Given {
    pub run: u64,
    pub step: u64,
    #[serde(default)]
    pub after: Option<u64>,
}

/// Of one step of one run.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// A mark for each time that it was done.
    pub marks: Vec<u64>,
    /// What it was told was done before it.
    pub after: BTreeSet<u64>,
}

#[derive(Default)]
pub struct Effects {
    marks: AtomicU64,
    done: Mutex<BTreeMap<(u64, u64), Done>>,
}

impl Effects {
    /// Does it, and says so with a mark that no other doing has.
    pub fn of(&self, data: &str) -> String {
        let mark = self.marks.fetch_add(1, Ordering::Relaxed) + 1;
        if let Ok(Given { run, step, after }) = serde_json::from_str(data) {
            let mut all = self.done.lock();
            let done = all.entry((run, step)).or_default();
            done.marks.push(mark);
            done.after.extend(after);
        }
        json!({ "mark": mark }).to_string()
    }

    pub fn account(&self) -> BTreeMap<(u64, u64), Done> {
        self.done.lock().clone()
    }
}

/// What the devices' account comes to for runs of so many steps, whose last step gave these marks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Steps of runs that were never done, or not before what was done after them.
    pub missing: usize,
    /// Two doings of one step were both believed.
    pub counted_twice: usize,
    /// Doings beyond the first of each step.
    pub done_again: usize,
}

pub fn found(account: &BTreeMap<(u64, u64), Done>, steps: u64, last_marks: &HashMap<u64, Value>) -> Found {
    let mut found = Found::default();
    for (run, last) in last_marks {
        for step in 0..steps {
            let Some(done) = account.get(&(*run, step)) else {
                found.missing += 1;
                continue;
            };
            found.done_again += done.marks.len() - 1;
            // What was believed of it: what those after it were told, or, of the last, what the run gave.
            let mut believed = account.get(&(*run, step + 1)).map(|next| next.after.clone()).unwrap_or_default();
            believed.extend(last.as_u64().filter(|_| step + 1 == steps));
            found.counted_twice += believed.len().saturating_sub(1);
            found.missing += usize::from(believed.is_empty() || believed.iter().any(|mark| !done.marks.contains(mark)));
        }
    }
    found
}

/// Requests that a device had lately.
#[derive(Default)]
pub struct Lately {
    requests: HashMap<String, (Bytes, Mono)>,
    order: VecDeque<String>,
}

pub enum Before {
    No,
    Doing,
    Done(Bytes),
}

impl Lately {
    const MAX: usize = 512;

    pub fn of(&self, request: &str) -> Before {
        match self.requests.get(request) {
            None => Before::No,
            Some((_, until)) if SystemClock.monotonic() < *until => Before::Doing,
            Some((answer, _)) => Before::Done(answer.clone()),
        }
    }

    pub fn doing(&mut self, request: String, answer: Bytes, takes: Duration) {
        self.order.push_back(request.clone());
        self.requests.insert(request, (answer, SystemClock.monotonic().plus(takes)));
        if self.order.len() > Self::MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.requests.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(effects: &Effects, run: u64, step: u64, after: Option<u64>) -> u64 {
        let said = effects.of(&serde_json::to_string(&Given { run, step, after }).unwrap());
        serde_json::from_str::<Value>(&said).unwrap()["mark"].as_u64().unwrap()
    }

    #[test]
    fn what_counted_twice_is_told_from_what_was_done_again() {
        let effects = Effects::default();
        let first = after(&effects, 1, 0, None);
        let again = after(&effects, 1, 0, None);
        let last = after(&effects, 1, 1, Some(first));
        let ends = HashMap::from([(1, json!(last))]);
        let was = found(&effects.account(), 2, &ends);
        assert_eq!(was, Found { missing: 0, counted_twice: 0, done_again: 1 });
        after(&effects, 1, 1, Some(again));
        assert_eq!(found(&effects.account(), 2, &ends).counted_twice, 1, "both doings of the first were believed");
        let never = found(&effects.account(), 3, &ends);
        assert!(never.missing > 0, "{never:?}");
        let invented = HashMap::from([(1, json!(77))]);
        assert!(found(&effects.account(), 2, &invented).missing > 0, "nobody did that");
    }
}
