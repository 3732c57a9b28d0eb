use mutirao_core::{ShardId, Timestamp};
use mutirao_monitors::health::{Thresholds, Verdict};
use mutirao_monitors::store::{By, Expected, Incident, Newcomer, Outcome, Put, Settlement, Settling, Shared, open};
use mutirao_monitors::{Health, MonitorKey, MonitorSpec};
use mutirao_shards::Fence;

use crate::engine::{Engine, on_both};

on_both!(
    definitions_are_made_changed_and_removed_in_the_order_of_their_revisions,
    a_name_is_free_again_once_its_monitor_is_gone,
    many_are_written_at_once_or_none_is,
    an_instant_has_one_outcome_however_often_it_is_told,
    whoever_lost_the_shard_writes_nothing,
    an_incident_is_closed_once,
    what_is_old_goes_a_little_at_a_time,
);

pub fn newcomer(name: &str, every: &str) -> Newcomer {
    let json = format!(r#"{{"name": "{name}", "every": "{every}", "tcp": {{"address": "x:1"}}}}"#);
    let spec: MonitorSpec = serde_json::from_str(&json).unwrap();
    Newcomer { uuid: format!("{name}-{every}-{}", mutirao_core::Dice::from_os().u64()), shard: ShardId(0), spec }
}

pub fn by(at: i64) -> By {
    By { namespace: "default".into(), who: "ana".into(), at: Timestamp(at) }
}

pub async fn made(store: &Shared, name: &str) -> MonitorKey {
    let Put::Created(row) = store.put(newcomer(name, "10s"), Expected::Absent, by(1)).await.unwrap() else { panic!() };
    row.key
}

pub fn outcome(monitor: MonitorKey, at: i64, verdict: Verdict) -> Outcome {
    Outcome { monitor, at: Timestamp(at), verdict, took_us: Some(7), detail: Some("why\0not".into()), excused: false }
}

async fn definitions_are_made_changed_and_removed_in_the_order_of_their_revisions(engine: &Engine) {
    let store = open(&engine.database().await);
    let Put::Created(first) = store.put(newcomer("a", "10s"), Expected::Absent, by(1)).await.unwrap() else { panic!() };
    made(&store, "b").await;
    assert!(matches!(
        store.put(newcomer("a", "20s"), Expected::Absent, by(2)).await.unwrap(),
        Put::Unexpected(Some(_))
    ));
    let stale = Expected::Revision(first.revision + 7);
    assert!(matches!(store.put(newcomer("a", "20s"), stale, by(2)).await.unwrap(), Put::Unexpected(Some(_))));
    assert!(matches!(store.put(newcomer("c", "20s"), stale, by(2)).await.unwrap(), Put::Unexpected(None)));
    let based = Expected::Revision(first.revision);
    let Put::Changed(second) = store.put(newcomer("a", "20s"), based, by(2)).await.unwrap() else { panic!() };
    assert_eq!(
        (second.key, &second.uuid, second.created_at),
        (first.key, &first.uuid, Timestamp(1)),
        "it stays itself"
    );
    assert!(second.revision > first.revision && second.changed_at == Timestamp(2));
    let names = |rows: Vec<mutirao_monitors::store::MonitorRow>| {
        rows.into_iter().map(|row| (row.spec.name, row.removed_at.is_some())).collect::<Vec<_>>()
    };
    assert!(store.remove("b".into(), by(3)).await.unwrap() && !store.remove("b".into(), by(3)).await.unwrap());
    let changed = names(store.changed(first.revision, 10).await.unwrap());
    assert_eq!(changed, [("a".into(), false), ("b".into(), true)]);
    assert_eq!(names(store.changed(0, 1).await.unwrap()), [("a".into(), false)]);
    assert_eq!(names(store.page("default".into(), String::new(), 10).await.unwrap()), [("a".into(), false)]);
    assert!(store.page("other".into(), String::new(), 10).await.unwrap().is_empty());
    assert_eq!(store.recall(ShardId(0)).await.unwrap().monitors, [second]);
    assert!(store.recall(ShardId(1)).await.unwrap().monitors.is_empty());
}

async fn many_are_written_at_once_or_none_is(engine: &Engine) {
    let store = open(&engine.database().await);
    made(&store, "a").await;
    let there = store.monitor("default".into(), "a".into()).await.unwrap().unwrap();
    let all = |based: Expected| vec![(newcomer("b", "20s"), Expected::Absent), (newcomer("a", "20s"), based)];
    let names = async || -> Vec<(String, u64)> {
        let rows = store.named("default".into(), vec!["a".into(), "b".into(), "c".into()]).await.unwrap();
        let mut names: Vec<_> = rows.into_iter().map(|row| (row.spec.name, row.spec.every.0.as_secs())).collect();
        names.sort();
        names
    };
    let stale = store.put_all(all(Expected::Revision(there.revision + 1)), by(2)).await.unwrap();
    assert!(matches!(&stale[..], [Put::Unexpected(Some(row))] if row.spec.name == "a"), "{stale:?}");
    assert_eq!(names().await, [("a".into(), 10)], "nothing was written");
    let written = store.put_all(all(Expected::Revision(there.revision)), by(2)).await.unwrap();
    assert!(matches!(&written[..], [Put::Created(_), Put::Changed(_)]), "{written:?}");
    assert_eq!(names().await, [("a".into(), 20), ("b".into(), 20)]);
    assert!(store.put_all(Vec::new(), by(3)).await.unwrap().is_empty());
}

async fn a_name_is_free_again_once_its_monitor_is_gone(engine: &Engine) {
    let store = open(&engine.database().await);
    let before = made(&store, "a").await;
    store.remove("a".into(), by(2)).await.unwrap();
    assert_eq!(store.monitor("default".into(), "a".into()).await.unwrap(), None);
    assert_ne!(made(&store, "a").await, before, "another one of the same name");
}

async fn an_instant_has_one_outcome_however_often_it_is_told(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let key = made(&store, "a").await;
    let mut health = Health::default();
    health.take(Timestamp(1_000), Verdict::Bad, &Thresholds::default());
    let settlement = Settlement {
        fired_until: Some(Timestamp(2_500)),
        outcomes: vec![outcome(key, 1_000, Verdict::Bad), outcome(key, 2_000, Verdict::Good)],
        health: vec![(key, health.clone())],
        ..Settlement::default()
    };
    let settled = store.settle(fence.clone(), settlement.clone()).await.unwrap();
    assert_eq!(settled, Settling::Written { new: 2 });
    let mut again = settlement;
    again.outcomes.push(outcome(key, 3_000, Verdict::Good));
    again.outcomes[0].verdict = Verdict::Good;
    assert_eq!(store.settle(fence, again).await.unwrap(), Settling::Written { new: 1 });
    let seen = store.outcomes(key, Timestamp(3_000), 10).await.unwrap();
    let seen: Vec<_> = seen.iter().map(|outcome| (outcome.at.0, outcome.verdict, outcome.took_us)).collect();
    assert_eq!(seen, [(2_000, Verdict::Good, Some(7)), (1_000, Verdict::Bad, Some(7))], "what was first stays");
    assert_eq!(store.counts(key, Timestamp(1_500)).await.unwrap(), (2, 0));
    assert_eq!(store.counts(key, Timestamp(0)).await.unwrap(), (2, 1));
    let recalled = store.recall(ShardId(0)).await.unwrap();
    assert_eq!((recalled.fired_until, recalled.health), (Some(Timestamp(2_500)), vec![(key, health)]));
}

async fn whoever_lost_the_shard_writes_nothing(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let key = made(&store, "a").await;
    let settlement = Settlement { outcomes: vec![outcome(key, 1_000, Verdict::Good)], ..Settlement::default() };
    for former in [Fence { generation: 0, ..fence.clone() }, Fence { generation: 2, ..fence }] {
        assert_eq!(store.settle(former, settlement.clone()).await.unwrap(), Settling::Fenced);
    }
    assert!(store.outcomes(key, Timestamp(i64::MAX), 10).await.unwrap().is_empty());
}

async fn an_incident_is_closed_once(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let key = made(&store, "a").await;
    let incident = |at: i64| Incident {
        monitor: key,
        opened_at: Timestamp(at),
        since: Timestamp(at - 10),
        closed_at: None,
        evidence: "refused".into(),
    };
    let open_at = |at| Settlement { opened: vec![incident(at)], ..Settlement::default() };
    let close_at = |at| Settlement { closed: vec![(key, Timestamp(at))], ..Settlement::default() };
    for settlement in [open_at(100), open_at(100), close_at(200), close_at(300), open_at(400)] {
        store.settle(fence.clone(), settlement).await.unwrap();
    }
    let found = store.incidents(key, 10).await.unwrap();
    let first = Incident { closed_at: Some(Timestamp(200)), ..incident(100) };
    assert_eq!(found, [incident(400), first]);
}

async fn what_is_old_goes_a_little_at_a_time(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let store = open(&database);
    let (key, gone) = (made(&store, "a").await, made(&store, "b").await);
    let outcomes = (1..=10).map(|n| outcome(key, n * 100, Verdict::Good)).collect();
    let health = vec![(gone, Health::default())];
    store.settle(fence, Settlement { outcomes, health, ..Settlement::default() }).await.unwrap();
    store.remove("b".into(), by(50)).await.unwrap();
    assert_eq!(store.sweep(Timestamp(601), 4).await.unwrap(), 4);
    assert_eq!(store.sweep(Timestamp(601), 4).await.unwrap(), 2);
    assert_eq!(store.counts(key, Timestamp(0)).await.unwrap(), (4, 0));
    assert!(store.health(vec![gone]).await.unwrap().is_empty());
    assert_eq!(store.changed(0, 10).await.unwrap().len(), 1, "only the living are left");
}
