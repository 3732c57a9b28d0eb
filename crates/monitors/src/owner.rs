//! Whoever owns a shard of the monitors: fires them, and makes beliefs of how they ended. A machine without I/O: moments and
//! outcomes go in, checks and settlements come out. [`round`](crate::round) drives it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_probes::Check;

use crate::agenda::Agenda;
use crate::alerts::rule::{self, Rule};
use crate::envelope::{Ask, CHECKS_MAX, Told};
use crate::grid::{Grid, MonitorKey};
use crate::health::{Event, Health, Thresholds, Verdict};
use crate::maintenance::{self, Window};
use crate::placement::Place;
use crate::store::{Incident, MonitorRow, Outcome, Recalled, Settlement};

/// A check may begin this long after it was fired, or until the next one is, if that comes first.
const BEGIN_WITHIN: Duration = Duration::from_secs(30);
/// Of a reason, this much is kept.
const DETAIL_CHARS_MAX: usize = 300;

#[derive(Debug)]
struct Known {
    check: Arc<Check>,
    when: Arc<Vec<String>>,
    every: Duration,
    timeout: Duration,
    retries: u32,
    thresholds: Thresholds,
    maintenance: Vec<Window>,
    /// The queue of its checks.
    route: Arc<str>,
    place: Option<Place>,
    revision: u64,
    /// Not fired; what is under way still counts.
    paused: bool,
    alerts: Vec<Rule>,
}

#[derive(Debug)]
pub struct Owner {
    agenda: Agenda,
    known: HashMap<MonitorKey, Known>,
    health: HashMap<MonitorKey, Health>,
    /// Each queue's name once, and how many monitors have it.
    routes: HashMap<Arc<str>, usize>,
    /// Everything up to here has been fired.
    done: Timestamp,
    /// When it began to hear. Nobody was silent before that: there was nobody who listened.
    began: Timestamp,
    /// When it was last looked for silence and for reminders.
    looked: Option<Timestamp>,
    /// Up to when something was due that was fired last.
    last_firing: Option<Timestamp>,
}

impl Owner {
    /// Goes on where the last owner stopped, as far as that is worth anything. Without one, begins now.
    pub fn new(recalled: Recalled, now: Timestamp) -> Self {
        let done = recalled.fired_until.map_or(now, |until| until.min(now));
        let health = recalled.health.into_iter().collect();
        let mut owner = Self {
            agenda: Agenda::default(),
            known: HashMap::new(),
            health,
            routes: HashMap::new(),
            done,
            last_firing: None,
            looked: None,
            began: now,
        };
        for row in recalled.monitors {
            let since = row.changed_at;
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
        if let Some(before) = self.known.remove(&key) {
            self.leave(&before.route);
        }
        if row.removed_at.is_some() {
            self.agenda.remove(key);
            self.health.remove(&key);
            return;
        }
        let route = self.enter(&spec.route());
        if spec.paused {
            self.agenda.remove(key);
            // Nobody looks at it, so its silence says nothing.
        } else {
            self.agenda.put(key, Grid::new(&row.uuid, spec.every.0), spec.missed, since);
        }
        let known = Known {
            check: Arc::new(spec.ask),
            when: Arc::new(spec.when),
            every: spec.every.0,
            timeout: spec.timeout.0,
            retries: spec.retries,
            thresholds: spec.thresholds,
            maintenance: spec.maintenance,
            route,
            place: spec.on,
            revision: row.revision,
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
        self.known.values().filter(|known| !known.paused).filter_map(|known| known.place.clone()).collect()
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
            let ask = Ask {
                monitor: firing.monitor,
                at: firing.at,
                until: wall.plus(known.every.min(BEGIN_WITHIN)),
                timeout_ms: known.timeout.as_millis() as u64,
                retries: known.retries,
                check: known.check.clone(),
                when: known.when.clone(),
            };
            let waiting = parcels.entry(known.route.clone()).or_default();
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

    /// Looks for monitors whose outcomes have stopped coming, and for incidents to be reminded of.
    pub fn look(&mut self, now: Timestamp) -> Settlement {
        let mut settlement = Settlement::default();
        for (key, health) in &mut self.health {
            let Some(known) = self.known.get(key).filter(|known| !known.paused) else { continue };
            let patience = known.every.saturating_mul(known.thresholds.silence.saturating_add(1));
            if now.since(self.began) > patience
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
mod tests {
    use mutirao_core::ShardId;

    use super::*;
    use crate::spec::MonitorSpec;

    const T: i64 = 1_800_000_000_000;

    fn row(key: u64, revision: u64, rest: &str) -> MonitorRow {
        let json = format!(r#"{{"name": "m{key}", "every": "10s", "tcp": {{"address": "x:1"}}{rest}}}"#);
        let spec: MonitorSpec = serde_json::from_str(&json).unwrap();
        MonitorRow {
            key: MonitorKey(key),
            uuid: format!("uuid-{key}"),
            shard: ShardId(0),
            spec,
            revision,
            namespace: "default".into(),
            owner: "ana".into(),
            created_at: Timestamp(T),
            changed_at: Timestamp(T),
            changed_by: "ana".into(),
            removed_at: None,
        }
    }

    fn owner(rows: Vec<MonitorRow>, fired_until: Option<i64>) -> Owner {
        let fired_until = fired_until.map(Timestamp);
        Owner::new(Recalled { monitors: rows, health: vec![], fired_until }, Timestamp(T))
    }

    fn fire(owner: &mut Owner, now: i64) -> usize {
        let due = owner.due(Timestamp(now), Timestamp(now)).into_values().flatten().flatten().count();
        owner.fired(Timestamp(now));
        due
    }

    fn told(monitor: u64, at: i64, verdict: Verdict) -> Told {
        let detail = Some("refused".into());
        Told { monitor: MonitorKey(monitor), at: Timestamp(at), verdict, took_us: None, detail, certificate_days: None }
    }

    #[test]
    fn every_interval_fires_each_once_and_a_clock_set_back_fires_nothing_again() {
        let mut owner = owner((1..=100).map(|key| row(key, key, "")).collect(), None);
        let fired: usize = (1..=10).map(|second| fire(&mut owner, T + second * 1_000)).sum();
        assert_eq!(fired, 100);
        assert_eq!(fire(&mut owner, T + 2_000), 0);
        assert_eq!(fire(&mut owner, T + 10_000), 0);
        assert_eq!(fire(&mut owner, T + 12_000) + fire(&mut owner, T + 16_000) + fire(&mut owner, T + 20_000), 100);
    }

    #[test]
    fn parcels_are_bounded_and_of_one_kind() {
        let mut rows: Vec<MonitorRow> = (1..=450).map(|key| row(key, key, "")).collect();
        for each in rows.iter_mut().skip(400) {
            each.spec.ask = serde_json::from_str(r#"{"icmp": {"host": "x"}}"#).unwrap();
        }
        let owner = owner(rows, None);
        let due: BTreeMap<Arc<str>, Vec<usize>> = owner
            .due(Timestamp(T + 4_999), Timestamp(T))
            .into_iter()
            .map(|(queue, parcels)| (queue, parcels.iter().map(Vec::len).collect()))
            .collect();
        let all: usize = due.values().flatten().sum();
        assert!(all > 150 && due.values().flatten().all(|len| *len <= CHECKS_MAX), "{due:?}");
        assert_eq!(due.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["checks.icmp", "checks.tcp"]);
    }

    #[test]
    fn checks_wait_where_they_are_to_be_made_and_places_are_said_once() {
        let placed = r#", "on": {"labels": {"zone": "a"}}"#;
        let mut owner = owner(vec![row(1, 1, ""), row(2, 2, placed), row(3, 3, placed)], None);
        let place = owner.places().into_iter().next().unwrap();
        assert_eq!((owner.places().len(), place.to_string().as_str()), (1, "zone=a"));
        let mut queues = BTreeSet::new();
        for now in [T + 5_000, T + 10_000].map(Timestamp) {
            queues.extend(owner.due(now, now).into_keys().map(|queue| queue.to_string()));
            owner.fired(now);
        }
        assert_eq!(queues, BTreeSet::from(["checks.tcp".to_owned(), format!("checks.tcp.{}", place.mark())]));
        owner.define(row(2, 4, ""), Timestamp(T));
        assert_eq!(owner.places().len(), 1);
        owner.define(MonitorRow { removed_at: Some(Timestamp(T)), ..row(3, 5, placed) }, Timestamp(T));
        assert!(owner.places().is_empty());
    }

    #[test]
    fn changes_count_in_the_order_of_their_revisions() {
        let mut owner = owner(vec![row(1, 5, "")], None);
        owner.define(row(1, 4, r#", "paused": true"#), Timestamp(T));
        assert_eq!(fire(&mut owner, T + 10_000), 1, "an older change than what is known");
        owner.define(row(1, 6, r#", "paused": true"#), Timestamp(T + 10_000));
        assert_eq!(fire(&mut owner, T + 20_000), 0);
        owner.define(row(1, 7, ""), Timestamp(T + 20_000));
        assert_eq!(fire(&mut owner, T + 30_000), 1);
        owner.define(MonitorRow { removed_at: Some(Timestamp(T)), ..row(1, 8, "") }, Timestamp(T + 30_000));
        assert!(fire(&mut owner, T + 40_000) == 0 && owner.is_empty());
        assert!(owner.take(vec![told(1, T, Verdict::Bad)]).outcomes.is_empty(), "what is gone is not spoken of");
    }

    #[test]
    fn a_successor_fires_nothing_that_was_fired_and_nothing_stale() {
        let mut fresh = owner(vec![row(1, 1, "")], Some(T - 3_000));
        // Those of the last seconds that nobody fired are not lost; `since` is when it was defined, which was later.
        assert_eq!(fire(&mut fresh, T), 0);
        let mut stale = owner((1..=50).map(|key| row(key, key, "")).collect(), Some(T - 3_600_000));
        assert_eq!(fire(&mut stale, T), 0, "an hour is skipped");
    }

    #[test]
    fn whoever_takes_over_listens_for_a_while_before_it_calls_anybody_silent() {
        let mut health = Health::default();
        health.take(Timestamp(T - 600_000), Verdict::Good, &Thresholds::default());
        let monitors = vec![row(1, 1, "")];
        let recalled = Recalled { monitors, health: vec![(MonitorKey(1), health)], fired_until: None };
        let mut owner = Owner::new(recalled, Timestamp(T));
        assert!(owner.look(Timestamp(T + 40_000)).health.is_empty());
        assert_eq!(owner.look(Timestamp(T + 40_001)).health.len(), 1);
    }

    #[test]
    fn outcomes_become_beliefs_and_incidents_and_maintenance_excuses() {
        let mut owner = owner(
            vec![row(1, 1, ""), row(2, 2, r#", "maintenance": [{"every": "day", "at": "00:00", "for": "23h 59m"}]"#)],
            None,
        );
        let bad = |monitor| (0..3).map(move |n| told(monitor, T + n * 10_000, Verdict::Bad));
        let settlement = owner.take(bad(1).chain(bad(2)).collect());
        assert_eq!(settlement.outcomes.len(), 6);
        assert_eq!(settlement.opened.len(), 1);
        assert_eq!((settlement.opened[0].monitor, settlement.opened[0].since), (MonitorKey(1), Timestamp(T)));
        assert_eq!((settlement.opened[0].evidence.as_str(), settlement.health.len()), ("refused", 1));
        let settlement = owner.take(vec![told(1, T + 30_000, Verdict::Good)]);
        assert_eq!(settlement.closed, [(MonitorKey(1), Timestamp(T + 30_000))]);
        assert_eq!(owner.look(Timestamp(T + 70_000)).health.len(), 0);
        assert_eq!(owner.look(Timestamp(T + 70_001)).health.len(), 1, "silence");
    }
}
