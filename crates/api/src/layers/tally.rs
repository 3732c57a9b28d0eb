//! Counts answers. Labels are made once for each combination that comes up, not once for each request.

use std::collections::HashMap;
use std::time::Duration;

use metrics::{Counter, Histogram};
use parking_lot::RwLock;

use crate::recorder::{REQUEST, REQUESTS};

/// Those of one route, by method and status: few enough to look through.
type OfRoute = Vec<(&'static str, u16, Counter)>;

/// Bounded, since routes, methods and statuses are.
pub struct Tally {
    requests: RwLock<HashMap<Box<str>, OfRoute>>,
    request: Histogram,
}

impl Tally {
    /// To be called when metrics are gathered: what was made before counts nowhere.
    pub fn begin() -> Self {
        Self { requests: RwLock::default(), request: metrics::histogram!(REQUEST) }
    }

    pub fn answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        self.request.record(took.as_secs_f64());
        if let Some(counter) = find(&self.requests.read(), method, route, status) {
            return counter.increment(1);
        }
        let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        // Two who make it at once are given the same one by the recorder.
        let counter = metrics::counter!(REQUESTS, &labels);
        counter.increment(1);
        let mut requests = self.requests.write();
        if find(&requests, method, route, status).is_none() {
            requests.entry(route.into()).or_default().push((method, status, counter));
        }
    }
}

fn find<'a>(requests: &'a HashMap<Box<str>, OfRoute>, method: &str, route: &str, status: u16) -> Option<&'a Counter> {
    let of_route = requests.get(route)?;
    of_route.iter().find(|(of, with, _)| *of == method && *with == status).map(|(.., counter)| counter)
}
