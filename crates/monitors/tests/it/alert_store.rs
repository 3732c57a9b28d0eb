use mutirao_core::{ShardId, Timestamp};
use mutirao_monitors::MonitorKey;
use mutirao_monitors::alerts::fate::Told;
use mutirao_monitors::alerts::{AlertEvent, Attention, Raised, Silence};
use mutirao_monitors::store::alerts::{Came, Delivery, Recorded, Waiting, open as open_alerts};
use mutirao_monitors::store::{Expected, Settlement, Settling, open};
use mutirao_shards::Fence;

use crate::engine::{Engine, on_both};
use crate::store::{by, made, newcomer};

on_both!(
    an_alert_is_raised_once_and_told_in_order,
    a_channel_knows_how_many_monitors_tell_it,
    whoever_lost_the_shard_says_nothing_about_alerts,
    what_was_told_long_ago_goes_and_what_waits_stays,
);

fn raised(monitor: MonitorKey, event: AlertEvent, about: i64, at: i64) -> Raised {
    let detail = Some("why\0not".into());
    Raised { monitor, about: Timestamp(about), event, turn: 0, to: "ops".into(), at: Timestamp(at), detail }
}

fn with(alerts: Vec<Raised>) -> Settlement {
    Settlement { alerts, ..Settlement::default() }
}

fn ended(one: &Waiting, delivery: Delivery, at: i64) -> Recorded {
    let came = Came::Ended(delivery, Timestamp(at));
    Recorded { key: one.key, tries: 1, first_at: Some(Timestamp(at)), came, note: Some("no\0te".into()) }
}

async fn an_alert_is_raised_once_and_told_in_order(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let (store, alerts) = (open(&database), open_alerts(&database));
    let key = made(&store, "a").await;
    let channel = serde_json::from_str(r#"{"name": "ops", "slack": {"url": "http://x/geheim"}}"#).unwrap();
    alerts.put_channel(channel, by(1)).await.unwrap();
    let opened = raised(key, AlertEvent::Opened, 100, 100);
    let closed = raised(key, AlertEvent::Closed, 100, 200);
    for settlement in [with(vec![opened.clone(), closed.clone()]), with(vec![Raised { at: Timestamp(150), ..opened }])]
    {
        store.settle(fence.clone(), settlement).await.unwrap();
    }
    assert_eq!(alerts.alerts(key, 10).await.unwrap().len(), 2);
    assert!(alerts.due(ShardId(0), Timestamp(99), 10).await.unwrap().is_empty());
    assert!(alerts.due(ShardId(1), Timestamp(999), 10).await.unwrap().is_empty());
    let due = alerts.due(ShardId(0), Timestamp(999), 10).await.unwrap();
    assert_eq!(due.len(), 1, "the second waits for the first: {due:?}");
    assert_eq!((due[0].raised.event, due[0].raised.at, due[0].told), (AlertEvent::Opened, Timestamp(100), Told::No));
    assert!(due[0].channel.is_some() && due[0].spec.name == "a" && due[0].namespace == "default");
    let later = Recorded { came: Came::Later(Timestamp(5_000)), ..ended(&due[0], Delivery::Sent, 999) };
    alerts.record(fence.clone(), vec![later]).await.unwrap();
    assert!(alerts.due(ShardId(0), Timestamp(4_999), 10).await.unwrap().is_empty(), "nor does it overtake");
    let silence = Silence { from: Timestamp(1), until: Timestamp(2), by: "ana".into(), why: None };
    let attention = Attention { silence: Some(silence), acknowledged: None };
    alerts.attend(key, attention.clone(), by(1_500)).await.unwrap();
    let due = alerts.due(ShardId(0), Timestamp(1_500), 10).await.unwrap();
    assert_eq!((due.len(), due[0].tries, &due[0].attention), (1, 1, &attention), "what people say counts at once");
    assert_eq!(alerts.attention(vec![key, MonitorKey(77)]).await.unwrap(), [(key, attention)]);
    alerts.record(fence.clone(), vec![ended(&due[0], Delivery::Sent, 1_600)]).await.unwrap();
    alerts.remove_channel("ops".into(), by(1_700)).await.unwrap();
    let due = alerts.due(ShardId(0), Timestamp(1_700), 10).await.unwrap();
    assert_eq!((due.len(), due[0].raised.event, due[0].told), (1, AlertEvent::Closed, Told::Yes));
    assert!(due[0].channel.is_none());
    let seen = alerts.alerts(key, 10).await.unwrap();
    assert_eq!(seen[1].ended, Some((Delivery::Sent, Timestamp(1_600))));
}

async fn a_channel_knows_how_many_monitors_tell_it(engine: &Engine) {
    let (store, alerts) = {
        let database = engine.database().await;
        (open(&database), open_alerts(&database))
    };
    for (name, to) in [("a", "ops"), ("b", "ops"), ("c", "ops2"), ("d", "other")] {
        let mut newcomer = newcomer(name, "10s");
        newcomer.spec.alerts = serde_json::from_value(serde_json::json!([{ "to": to }])).unwrap();
        store.put(newcomer, Expected::Absent, by(1)).await.unwrap();
    }
    store.remove("b".into(), by(2)).await.unwrap();
    for (to, many) in [("ops", 1), ("ops2", 1), ("other", 1), ("nobody", 0)] {
        assert_eq!(alerts.told_by("default".into(), to.into()).await.unwrap(), many, "{to}");
    }
    assert_eq!(alerts.told_by("elsewhere".into(), "ops".into()).await.unwrap(), 0);
}

async fn whoever_lost_the_shard_says_nothing_about_alerts(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let (store, alerts) = (open(&database), open_alerts(&database));
    let key = made(&store, "a").await;
    let former = Fence { generation: 0, ..fence.clone() };
    let settlement = with(vec![raised(key, AlertEvent::NoData, 1, 1)]);
    assert_eq!(store.settle(former.clone(), settlement.clone()).await.unwrap(), Settling::Fenced);
    assert!(alerts.alerts(key, 10).await.unwrap().is_empty());
    store.settle(fence, settlement).await.unwrap();
    let due = alerts.due(ShardId(0), Timestamp(9), 10).await.unwrap();
    let record = vec![ended(&due[0], Delivery::Dropped, 9)];
    assert_eq!(alerts.record(former, record).await.unwrap(), Settling::Fenced);
    assert_eq!(alerts.alerts(key, 10).await.unwrap()[0].ended, None);
}

async fn what_was_told_long_ago_goes_and_what_waits_stays(engine: &Engine) {
    let (database, fence) = engine.claimed().await;
    let (store, alerts) = (open(&database), open_alerts(&database));
    let key = made(&store, "a").await;
    let all = (1..=3).map(|n| Raised { to: format!("c{n}"), ..raised(key, AlertEvent::Flapping, n, n) }).collect();
    store.settle(fence.clone(), with(all)).await.unwrap();
    let due = alerts.due(ShardId(0), Timestamp(9), 10).await.unwrap();
    let records = due[..2].iter().map(|one| ended(one, Delivery::GivenUp, 10)).collect();
    alerts.record(fence, records).await.unwrap();
    assert_eq!(alerts.sweep_alerts(Timestamp(10), 10).await.unwrap(), 0);
    assert_eq!(alerts.sweep_alerts(Timestamp(11), 1).await.unwrap(), 1);
    assert_eq!(alerts.sweep_alerts(Timestamp(11), 10).await.unwrap(), 1);
    assert_eq!(alerts.alerts(key, 10).await.unwrap().len(), 1);
    store.remove("a".into(), by(20)).await.unwrap();
    store.sweep(Timestamp(21), 10).await.unwrap();
    assert!(alerts.alerts(key, 10).await.unwrap().is_empty());
}
