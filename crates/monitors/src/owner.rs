//! Whoever owns a shard of the monitors: fires them, and makes beliefs of how they ended. A machine without I/O: moments and
//! outcomes go in, checks and settlements come out. [`round`](crate::round) drives it.

mod calls;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_probes::Check;

use crate::agenda::{Agenda, LATE_MAX, makes_sense_for};
use crate::alerts::rule::{self, Rule};
use crate::envelope::{Ask, CHECKS_MAX, Told};
use crate::grid::{Grid, MonitorKey};
use crate::health::{Event, Health, Thresholds, Verdict};
use crate::maintenance::{self, Window};
use crate::placement::Place;
use crate::spec::{Subject, route_of};
use crate::store::{Incident, MonitorRow, Outcome, Recalled, Settlement};

/// Of a reason, this much is kept.
const DETAIL_CHARS_MAX: usize = 300;
/// Clocks of managers differ: what the last owner asked for may be ahead by this much.
const AHEAD_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Known {
    way: Way,
    every: Duration,
    thresholds: Thresholds,
    maintenance: Vec<Window>,
    revision: u64,
    /// When it became what it is.
    since: Timestamp,
    /// Not fired; what is under way still counts.
    paused: bool,
    alerts: Vec<Rule>,
}

/// How something is heard of it.
#[derive(Debug)]
enum Way {
    Ask(Asking),
    /// It calls.
    Call {
        grace: Duration,
    },
}

#[derive(Debug)]
struct Asking {
    check: Arc<Check>,
    when: Arc<Vec<String>>,
    timeout: Duration,
    retries: u32,
    /// The queue of its checks.
    route: Arc<str>,
    place: Option<Place>,
}

impl Known {
    fn asking(&self) -> Option<&Asking> {
        match &self.way {
            Way::Ask(asking) => Some(asking),
            Way::Call { .. } => None,
        }
    }
}

#[derive(Debug)]
pub struct Owner {
    /// Those that are asked.
    agenda: Agenda,
    /// Those that call.
    calls: Agenda,
    known: HashMap<MonitorKey, Known>,
    health: HashMap<MonitorKey, Health>,
    /// Each queue's name once, and how many monitors have it.
    routes: HashMap<Arc<str>, usize>,
    /// Everything up to here has been fired.
    done: Timestamp,
    /// When it began to hear. Nobody was silent before that: there was nobody who listened.
    began: Timestamp,
    /// Everything of those that call has been judged up to here.
    judged: Timestamp,
    /// Since when calls reach the store.
    heard_since: Timestamp,
    /// When it was last looked for silence and for reminders.
    looked: Option<Timestamp>,
    /// Up to when something was due that was fired last.
    last_firing: Option<Timestamp>,
}

impl Owner {
    /// Goes on where the last owner stopped, as far as that is worth anything. Without one, begins now.
    pub fn new(recalled: Recalled, now: Timestamp) -> Self {
        let done = recalled.fired_until.map_or(now, |until| until.min(now));
        // What was written by a clock that was ahead, ours before or another manager's, must not keep anybody from being checked.
        let not_ahead = |(monitor, mut health): (_, Health)| {
            health.last = health.last.map(|last| last.min(now));
            (monitor, health)
        };
        let health = recalled.health.into_iter().map(not_ahead).collect();
        let mut owner = Self {
            agenda: Agenda::default(),
            calls: Agenda::default(),
            judged: calls::judged_so_far(now),
            heard_since: now,
            known: HashMap::new(),
            health,
            routes: HashMap::new(),
            done,
            last_firing: None,
            looked: None,
            began: now,
        };
        for row in recalled.monitors {
            let since = row.changed_at.min(now);
            owner.define(row, since);
        }
        owner
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn fired_until(&self) -> Timestamp {
        self.done
    }

    /// When something was fired last, if anything was.
    pub fn last_firing(&self) -> Option<Timestamp> {
        self.last_firing
    }

    /// Takes a change in: a new monitor, another definition, a removal. `since`: what is fired after it is fired by it.
    pub fn define(&mut self, row: MonitorRow, since: Timestamp) {
        if self.known.get(&row.key).is_some_and(|known| known.revision >= row.revision) {
            return;
        }
        let (key, spec) = (row.key, row.spec);
        if let Some(Way::Ask(before)) = self.known.remove(&key).map(|known| known.way) {
            self.leave(&before.route);
        }
        self.agenda.remove(key);
        self.calls.remove(key);
        if row.removed_at.is_some() {
            self.health.remove(&key);
            return;
        }
        let (way, agenda) = match spec.subject {
            Subject::Check(check) => {
                let asking = Asking {
                    route: self.enter(&route_of(&check, spec.on.as_ref())),
                    check: Arc::new(check),
                    when: Arc::new(spec.when),
                    timeout: spec.timeout.0,
                    retries: spec.retries,
                    place: spec.on,
                };
                (Way::Ask(asking), &mut self.agenda)
            }
            Subject::Push(push) => (Way::Call { grace: push.grace(spec.every.0) }, &mut self.calls),
        };
        // Of one that is paused nothing is heard, so its silence says nothing.
        if !spec.paused {
            agenda.put(key, Grid::new(&row.uuid, spec.every.0), spec.missed, since);
        }
        let known = Known {
            way,
            every: spec.every.0,
            thresholds: spec.thresholds,
            maintenance: spec.maintenance,
            revision: row.revision,
            since,
            paused: spec.paused,
            alerts: spec.alerts,
        };
        self.known.insert(key, known);
    }

    fn enter(&mut self, route: &str) -> Arc<str> {
        let name = self.routes.get_key_value(route).map_or_else(|| route.into(), |(name, _)| name.clone());
        *self.routes.entry(name.clone()).or_default() += 1;
        name
    }

    fn leave(&mut self, route: &Arc<str>) {
        if let Some(many) = self.routes.get_mut(route) {
            *many -= 1;
            if *many == 0 {
                self.routes.remove(route);
            }
        }
    }

    /// Where checks are wanted, each place once.
    pub fn places(&self) -> BTreeSet<Place> {
        // Most have none at all: then nobody is looked at.
        if self.routes.keys().all(|route| route.matches('.').count() < 2) {
            return BTreeSet::new();
        }
        let awake = self.known.values().filter(|known| !known.paused);
        awake.filter_map(|known| known.asking()?.place.clone()).collect()
    }

    /// When something is to be fired next.
    pub fn next(&self) -> Option<Timestamp> {
        self.agenda.next(self.done)
    }

    /// What is due, in parcels by the queue of checks. To be published, then [`fired`](Self::fired). `wall`: the machine's clock,
    /// by which whoever takes a check up sees whether it is too late.
    pub fn due(&self, now: Timestamp, wall: Timestamp) -> BTreeMap<Arc<str>, Vec<Vec<Ask>>> {
        let mut parcels: BTreeMap<Arc<str>, Vec<Vec<Ask>>> = BTreeMap::new();
        for firing in self.agenda.due(self.done, now) {
            let Some(known) = self.known.get(&firing.monitor) else { continue };
            // Whoever went before fired it and did not come to write so.
            if self.health.get(&firing.monitor).is_some_and(|health| health.last >= Some(firing.at)) {
                continue;
            }
            let Some(asking) = known.asking() else { continue };
            let ask = Ask {
                monitor: firing.monitor,
                at: firing.at,
                until: wall.plus(begin_within(known.every, now.since(firing.at))),
                timeout_ms: asking.timeout.as_millis() as u64,
                retries: asking.retries,
                check: asking.check.clone(),
                when: asking.when.clone(),
            };
            let waiting = parcels.entry(asking.route.clone()).or_default();
            match waiting.last_mut().filter(|parcel| parcel.len() < CHECKS_MAX) {
                Some(parcel) => parcel.push(ask),
                None => waiting.push(vec![ask]),
            }
        }
        parcels
    }

    /// What was due up to then is on its way. A clock that was set back fires nothing twice.
    pub fn fired(&mut self, until: Timestamp) {
        if self.agenda.next(self.done).is_some_and(|next| next <= until) {
            self.last_firing = Some(until);
        }
        self.done = self.done.max(until);
    }

    /// Makes beliefs of outcomes. What is told of monitors that are gone is dropped.
    pub fn take(&mut self, told: Vec<Told>) -> Settlement {
        let mut settlement = Settlement::default();
        let mut told: Vec<Told> = told.into_iter().filter(|told| self.known.contains_key(&told.monitor)).collect();
        told.sort_by_key(|told| told.at);
        for one in told {
            let Some(known) = self.known.get(&one.monitor) else { continue };
            let excused = one.verdict == Verdict::Bad && maintenance::covered(&known.maintenance, one.at);
            let detail = one.detail.map(|detail| detail.chars().take(DETAIL_CHARS_MAX).collect::<String>());
            if !excused {
                let health = self.health.entry(one.monitor).or_default();
                let opened = health.opened;
                let events = health.take(one.at, one.verdict, &known.thresholds);
                for event in events {
                    let alerts = rule::raise(&known.alerts, one.monitor, event, one.at, opened, detail.as_deref());
                    settlement.alerts.extend(alerts);
                    note(&mut settlement, one.monitor, event, one.at, detail.as_deref());
                }
                settlement.health.push((one.monitor, health.clone()));
            }
            settlement.outcomes.push(Outcome {
                monitor: one.monitor,
                at: one.at,
                verdict: one.verdict,
                took_us: one.took_us,
                detail: if excused { Some("during maintenance".into()) } else { detail },
                excused,
            });
        }
        // The last belief of each is the one to keep.
        let last: BTreeMap<MonitorKey, Health> = settlement.health.drain(..).collect();
        settlement.health = last.into_iter().collect();
        settlement
    }

    /// A round: what is told, and then who is silent. One belief of each monitor, the last: outcomes that come late may be
    /// told of one that is silent since. What is told of an instant that has not come is dropped: nobody asked for it, and it
    /// would keep the monitor from being checked until then.
    pub fn settle(&mut self, mut told: Vec<Told>, now: Timestamp) -> Settlement {
        told.retain(|told| told.at <= now.plus(AHEAD_MAX));
        let mut settlement = self.take(told);
        let silent = self.look(now);
        let beliefs = settlement.health.drain(..).chain(silent.health);
        settlement.health = beliefs.collect::<BTreeMap<MonitorKey, Health>>().into_iter().collect();
        settlement.alerts.extend(silent.alerts);
        settlement
    }

    /// Looks for monitors whose outcomes have stopped coming, and for incidents to be reminded of.
    pub fn look(&mut self, now: Timestamp) -> Settlement {
        let mut settlement = Settlement::default();
        for (key, health) in &mut self.health {
            let Some(known) = self.known.get(key).filter(|known| !known.paused) else { continue };
            let patience = known.every.saturating_mul(known.thresholds.silence.saturating_add(1));
            // Whoever does not call is late, and judged so.
            if known.asking().is_some()
                && now.since(self.began) > patience
                && let Some(event) = health.look(known.every, &known.thresholds, now)
            {
                settlement.alerts.extend(rule::raise(&known.alerts, *key, event, now, None, None));
                settlement.health.push((*key, health.clone()));
            }
            if let Some(opened) = health.opened.filter(|_| !known.alerts.is_empty()) {
                settlement.alerts.extend(rule::remind(&known.alerts, *key, opened, self.looked, now));
            }
        }
        self.looked = Some(now);
        settlement
    }
}

/// However late a check is fired, it may wait for so long: a successor's would otherwise be missed that comes just before the
/// next.
const BEGIN_MIN: Duration = Duration::from_secs(1);

/// How much later than now a check may begin that is fired so late. Until the next instant, which has a check of its own, but for
/// [`BEGIN_MIN`].
fn begin_within(every: Duration, late: Duration) -> Duration {
    let whole = makes_sense_for(every);
    let within = match whole.checked_sub(late) {
        Some(left) => left.max(LATE_MAX.min(whole)),
        // It is wanted in spite of that.
        None => whole,
    };
    let (every_ms, late_ms) = (every.as_millis().max(1), late.as_millis());
    let until_next_ms = every_ms - late_ms % every_ms;
    within.min(Duration::from_millis(u64::try_from(until_next_ms).unwrap_or(u64::MAX)).max(BEGIN_MIN))
}

fn note(settlement: &mut Settlement, monitor: MonitorKey, event: Event, at: Timestamp, detail: Option<&str>) {
    match event {
        Event::Opened { since } => {
            let evidence = detail.unwrap_or("it did not answer as it should").to_owned();
            settlement.opened.push(Incident { monitor, opened_at: at, since, closed_at: None, evidence });
        }
        Event::Closed { .. } => settlement.closed.push((monitor, at)),
        Event::FlappingBegan | Event::FlappingEnded | Event::Silent { .. } | Event::Heard => {}
    }
}

#[cfg(test)]
mod tests;
