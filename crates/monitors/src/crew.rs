//! The checkers that can be heard, and what they have to do together: what a policy decides by how many there should be.
//!
//! Pure but for [`listen`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard, Shared as Broker};
use mutirao_core::envelope::{Footprint, open};
use mutirao_core::quantity::Span;
use mutirao_core::{Clock, Mono, Timestamp, WorkerId};
use mutirao_elastic::fleet::Activity;
use mutirao_elastic::measure::Tasks;
use parking_lot::Mutex;

use crate::envelope::{CREW, Crewed, Pulse};

/// Who has not been heard for this long is not there. Five times the pace at which they speak.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// When nothing at all has come for this long, it is the way that is broken: whoever passes pulses on does so every
/// five seconds, also when there are none.
const WAY_SILENT_AFTER: Duration = Duration::from_secs(8);
/// Checkers that are remembered.
const CREW_MAX: usize = 10_000;
const PAUSE: Duration = Duration::from_millis(500);

/// What can be said of all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sight {
    pub tasks: Tasks,
    /// None until they have been listened to for long enough.
    pub sessions: Option<BTreeMap<WorkerId, Activity>>,
    pub footprints: BTreeMap<WorkerId, Footprint>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    at: Mono,
    pulse: Pulse,
    /// Since when it has had nothing to do.
    idle_since: Option<Mono>,
}

#[derive(Debug, Default)]
pub struct Crew {
    known: BTreeMap<WorkerId, Known>,
    /// Since when they can be heard, without a break.
    since: Option<Mono>,
    /// When anything was passed on last.
    heard: Option<Mono>,
}

impl Crew {
    /// Whatever was said before was not heard.
    pub fn listening(&mut self, now: Mono) {
        (self.since, self.heard) = (Some(now), Some(now));
    }

    /// Something was passed on.
    pub fn passed_on(&mut self, pulses: Vec<(WorkerId, Pulse)>, now: Mono) {
        if !self.is_heard(now) {
            self.listening(now);
        }
        self.heard = Some(now);
        pulses.into_iter().for_each(|(worker, pulse)| self.hear(worker, pulse, now));
    }

    fn is_heard(&self, now: Mono) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) < WAY_SILENT_AFTER)
    }

    fn hear(&mut self, worker: WorkerId, pulse: Pulse, now: Mono) {
        let before = self.known.get(&worker).and_then(|known| known.idle_since);
        let idle = pulse.under_way == 0 && pulse.waiting == 0;
        let idle_since = idle.then(|| before.unwrap_or(now));
        if self.known.len() >= CREW_MAX && !self.known.contains_key(&worker) {
            self.known.retain(|_, known| now.since(known.at) < SILENT_AFTER);
        }
        if self.known.len() < CREW_MAX || self.known.contains_key(&worker) {
            self.known.insert(worker, Known { at: now, pulse, idle_since });
        }
    }

    /// Nothing while nobody passes on what they say: whoever does owns the first shard, and while that changes hands, or
    /// is stuck, all of them are silent and none of them is gone. `parcels`: those that wait in the broker, which does not
    /// know how many checks they hold. As many as others did. `wall`: now, by the machine's clock.
    pub fn look(&self, parcels: u64, now: Mono, wall: Timestamp) -> Option<Sight> {
        if !self.is_heard(now) {
            return None;
        }
        let alive = || self.known.iter().filter(|(_, known)| now.since(known.at) < SILENT_AFTER);
        let sum = |figure: fn(&Pulse) -> u64| alive().map(|(_, known)| figure(&known.pulse)).sum::<u64>();
        let each = (sum(|pulse| pulse.checks) as f64 / sum(|pulse| pulse.parcels).max(1) as f64).max(1.0);
        let under_way = sum(|pulse| u64::from(pulse.under_way));
        let late_ms = alive().map(|(_, known)| known.pulse.late_ms).max().unwrap_or(0);
        let activity = |known: &Known| match known.idle_since {
            Some(since) => Activity::Idle { since: Timestamp(wall.0 - now.since(since).as_millis() as i64) },
            None => {
                let tasks = known.pulse.under_way.saturating_add(known.pulse.waiting);
                Activity::Busy { tasks, since: None }
            }
        };
        let heard_all = self.since.is_some_and(|since| now.since(since) >= SILENT_AFTER);
        Some(Sight {
            tasks: Tasks {
                ready: sum(|pulse| u64::from(pulse.waiting)).saturating_add((parcels as f64 * each).ceil() as u64),
                running: under_way,
                unacknowledged: under_way,
                oldest_wait: Span(Duration::from_millis(late_ms)),
                ended: None,
            },
            sessions: heard_all.then(|| alive().map(|(worker, known)| (worker.clone(), activity(known))).collect()),
            footprints: alive().map(|(worker, known)| (worker.clone(), known.pulse.footprint)).collect(),
        })
    }
}

/// For as long as it is not dropped.
pub async fn listen(crew: Arc<Mutex<Crew>>, broker: Broker, clock: Arc<dyn Clock>) {
    loop {
        match hear(&crew, &broker, &*clock).await {
            Err(BrokerError::Closed) => return,
            Err(error) => tracing::debug!(%error, "checkers are not heard; trying again"),
            Ok(()) => {}
        }
        clock.sleep(PAUSE).await;
    }
}

async fn hear(crew: &Mutex<Crew>, broker: &Broker, clock: &dyn Clock) -> Result<(), BrokerError> {
    let mut ear = broker.subscribe(CREW).await?;
    crew.lock().listening(clock.monotonic());
    loop {
        if let Heard::Message(body) = ear.next().await?
            && let Ok(Crewed { pulses, .. }) = open(&body)
        {
            crew.lock().passed_on(pulses, clock.monotonic());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    fn pulse(under_way: u32, waiting: u32, late_ms: u64) -> Pulse {
        Pulse { under_way, waiting, late_ms, parcels: 10, checks: 500, ..Pulse::default() }
    }

    fn worker(name: &str) -> WorkerId {
        WorkerId(name.into())
    }

    fn hear(crew: &mut Crew, name: &str, pulse: Pulse, seconds: u64) {
        crew.passed_on(vec![(worker(name), pulse)], at(seconds));
    }

    fn look(crew: &Crew, parcels: u64, seconds: u64) -> Sight {
        crew.look(parcels, at(seconds), Timestamp(1_000_000)).expect("somebody passes on what they say")
    }

    #[test]
    fn what_they_have_to_do_together_is_what_each_says_and_what_waits_in_the_broker() {
        let mut crew = Crew::default();
        crew.listening(at(0));
        hear(&mut crew, "a", pulse(40, 10, 700), 1);
        hear(&mut crew, "b", pulse(0, 0, 0), 1);
        hear(&mut crew, "b", pulse(0, 0, 0), 3);
        let sight = look(&crew, 3, 5);
        assert_eq!((sight.tasks.ready, sight.tasks.unacknowledged), (10 + 3 * 50, 40));
        assert_eq!(sight.tasks.oldest_wait, Span(Duration::from_millis(700)));
        assert_eq!(sight.sessions, None, "not everybody may have been heard yet");
        let sessions = look(&crew, 0, 10).sessions.unwrap();
        assert_eq!(sessions[&worker("a")], Activity::Busy { tasks: 50, since: None });
        assert_eq!(sessions[&worker("b")], Activity::Idle { since: Timestamp(991_000) }, "for nine seconds");
    }

    #[test]
    fn who_is_silent_is_not_there_and_after_a_gap_nothing_is_concluded() {
        let mut crew = Crew::default();
        assert_eq!(crew.look(0, at(100), Timestamp(0)), None);
        crew.listening(at(0));
        hear(&mut crew, "a", pulse(1, 0, 0), 1);
        crew.passed_on(Vec::new(), at(6));
        assert_eq!(look(&crew, 0, 10).sessions.unwrap().len(), 1);
        crew.passed_on(Vec::new(), at(11));
        let sight = look(&crew, 0, 11);
        assert_eq!((sight.sessions.unwrap().len(), sight.tasks.running), (0, 0));
        crew.listening(at(12));
        assert_eq!(look(&crew, 0, 13).sessions, None);
    }

    #[test]
    fn while_nobody_passes_on_what_they_say_nobody_is_gone() {
        let mut crew = Crew::default();
        crew.listening(at(0));
        for second in [1, 3, 5, 7, 9, 11] {
            hear(&mut crew, "a", pulse(1, 0, 0), second);
        }
        assert_eq!(look(&crew, 0, 12).sessions.unwrap().len(), 1);
        // The owner of the first shard dies; its successor comes a lease later.
        assert_eq!(crew.look(0, at(19), Timestamp(0)), None);
        crew.passed_on(Vec::new(), at(24));
        assert_eq!(look(&crew, 0, 25).sessions, None, "they have had no time to say anything");
        hear(&mut crew, "a", pulse(1, 0, 0), 26);
        for second in [28, 33] {
            crew.passed_on(Vec::new(), at(second));
        }
        assert_eq!(look(&crew, 0, 34).sessions.unwrap().len(), 1);
    }
}
