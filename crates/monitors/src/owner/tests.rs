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
        each.spec.subject = Subject::Check(serde_json::from_str(r#"{"icmp": {"host": "x"}}"#).unwrap());
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
fn a_successor_fires_what_is_seldom_and_not_long_past_and_nothing_whose_outcome_it_knows() {
    let rows: Vec<MonitorRow> = (1..=600).map(|key| row(key, key, "")).collect();
    let seldom = |key: u64| MonitorRow {
        spec: MonitorSpec { every: mutirao_core::quantity::Span::secs(60), ..row(key, key, "").spec },
        changed_at: Timestamp(T - 3_600_000),
        ..row(key, key, "")
    };
    let monitors: Vec<MonitorRow> = rows.iter().map(|row| seldom(row.key.0)).collect();
    let recalled = |health| Recalled { monitors: monitors.clone(), health, fired_until: Some(Timestamp(T - 12_000)) };
    let due = |owner: &Owner| -> Vec<Ask> {
        owner.due(Timestamp(T), Timestamp(T)).into_values().flatten().flatten().collect()
    };
    let all = due(&Owner::new(recalled(Vec::new()), Timestamp(T)));
    assert!((80..160).contains(&all.len()), "a fifth of them: {}", all.len());
    for ask in &all {
        let begin_by = ask.until.since(ask.at);
        assert!(begin_by <= Duration::from_secs(30) && ask.until > Timestamp(T), "{begin_by:?} after its instant");
    }
    // The outcomes of those that were fired before it died lay in the broker.
    let mut owner = Owner::new(recalled(Vec::new()), Timestamp(T));
    let answered: Vec<MonitorKey> = all.iter().take(30).map(|ask| ask.monitor).collect();
    owner.take(all.iter().take(30).map(|ask| told(ask.monitor.0, ask.at.0, Verdict::Good)).collect());
    let again = due(&owner);
    assert_eq!(again.len(), all.len() - 30);
    assert!(again.iter().all(|ask| !answered.contains(&ask.monitor)));
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

#[test]
fn a_clock_that_was_ahead_and_an_outcome_of_the_future_keep_nobody_from_being_checked() {
    let mut health = Health::default();
    health.take(Timestamp(T + 600_000), Verdict::Good, &Thresholds::default());
    let mut monitor = row(1, 1, "");
    monitor.changed_at = Timestamp(T + 600_000);
    let recalled = Recalled { monitors: vec![monitor], health: vec![(MonitorKey(1), health)], fired_until: None };
    let mut owner = Owner::new(recalled, Timestamp(T));
    let due =
        |owner: &Owner, now: i64| owner.due(Timestamp(now), Timestamp(now)).into_values().flatten().flatten().count();
    assert_eq!(due(&owner, T + 10_000), 1);
    let future = vec![told(1, i64::MAX, Verdict::Good), told(1, T + 10_000 + 60_001, Verdict::Good)];
    assert!(owner.settle(future, Timestamp(T + 10_000)).outcomes.is_empty());
    assert_eq!(due(&owner, T + 10_000), 1);
}

/// PostgreSQL refuses to write a row twice in one statement, and a refused settlement is tried for ever.
#[test]
fn what_is_told_late_of_one_that_is_silent_since_is_one_belief() {
    let mut owner = owner(vec![row(1, 1, "")], None);
    let late = vec![told(1, T + 1_000, Verdict::Good), told(1, T + 11_000, Verdict::Good)];
    let settlement = owner.settle(late, Timestamp(T + 90_000));
    assert_eq!((settlement.outcomes.len(), settlement.health.len()), (2, 1));
    assert_eq!(settlement.health[0].1.state, crate::health::State::NoData);
}

#[test]
fn a_check_never_begins_more_than_a_second_past_the_next_instant_and_one_on_time_has_its_whole_time() {
    let (s, ms) = (Duration::from_secs, Duration::from_millis);
    assert_eq!(super::begin_within(s(60), s(0)), s(30));
    assert_eq!(super::begin_within(s(60), s(28)), s(5), "it was late, and has a while");
    assert_eq!(super::begin_within(s(30), s(28)), s(2), "then the next is due");
    assert_eq!(super::begin_within(s(1), ms(3_200)), s(1), "fired by a successor");
    assert_eq!(super::begin_within(s(86_400), s(7_200)), s(30), "wanted in spite of that");
    for (every, late) in [(1, 0), (5, 4_999), (10, 6_000), (30, 29_999), (31, 30_500), (60, 59_999)] {
        let (every, late) = (s(every), ms(late));
        let within = super::begin_within(every, late);
        assert!(within >= s(1) && late + within <= every + s(1), "{every:?}, {late:?} late: {within:?}");
    }
}
