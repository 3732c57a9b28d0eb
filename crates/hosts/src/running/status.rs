//! How a part is, as it is told with the next beat.

use std::sync::Arc;
use std::time::Duration;

use mutirao_streams::wire::{Part, Report, Snapshot, State};
use parking_lot::Mutex;

use crate::measure::Meter;

pub struct Status {
    told: Mutex<Told>,
    pub meter: Arc<Meter>,
}

struct Told {
    state: State,
    /// Why it does not get on at the moment.
    trouble: Option<String>,
    next: u64,
    snapshot: Option<Snapshot>,
}

impl Default for Status {
    fn default() -> Self {
        let told = Told { state: State::Starting, trouble: None, next: 0, snapshot: None };
        Self { told: Mutex::new(told), meter: Arc::default() }
    }
}

impl Status {
    pub fn is(&self, state: State) {
        let mut told = self.told.lock();
        if !matches!(told.state, State::Failed(_)) {
            told.state = state;
        }
    }

    /// For good, until it is started anew.
    pub fn failed(&self, why: String) {
        self.told.lock().state = State::Failed(why);
    }

    pub fn trouble_is(&self, trouble: Option<String>) {
        self.told.lock().trouble = trouble;
    }

    pub fn next_is(&self, next: u64) {
        self.told.lock().next = next;
    }

    pub fn snapshot_is(&self, snapshot: Snapshot) {
        self.told.lock().snapshot = Some(snapshot);
    }

    pub fn snapshot(&self) -> Option<Snapshot> {
        self.told.lock().snapshot.clone()
    }

    pub fn report(&self, part: Part, epoch: u64, passed: Duration) -> Report {
        let measures = self.meter.take(passed);
        let told = self.told.lock();
        let state = match (&told.state, &told.trouble) {
            (State::Starting | State::Running | State::CatchingUp, Some(why)) => State::Waiting(why.clone()),
            (state, _) => state.clone(),
        };
        Report { part, epoch, state, next: told.next, snapshot: told.snapshot.clone(), measures }
    }
}
