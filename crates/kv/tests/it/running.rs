//! The capability at work: many writers at once, the shards given back and taken again in the middle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutirao_core::auth::{Principal, Role};
use mutirao_core::{Dice, SystemClock};
use mutirao_kv::service::{AtLeast, WriteState};
use mutirao_kv::write::Named;
use mutirao_kv::{AtHand, Change, Condition, Key, Kv, KvParts, Path, Until, Value};
use mutirao_shards::store as leases;
use mutirao_shards::{MemberId, Terms};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, on_both};

on_both!(
    concurrent_writers_get_one_revision_each_and_the_last_of_them_stays,
    counting_by_condition_loses_no_step,
    what_was_answered_is_there_after_the_manager_is_gone,
    a_page_goes_on_past_what_was_deleted,
    what_is_not_there_cannot_be_removed_on_that_condition,
    a_write_is_told_of_in_its_own_namespace_only,
);

pub async fn start(engine: &Engine) -> Kv {
    let database = engine.database().await;
    let parts = KvParts {
        leases: leases::open(&database, None).await.unwrap(),
        store: database,
        path: Path::Commit,
        at_hand: AtHand::Here { bytes_max: 1 << 20 },
        terms: Terms::alone(),
        member: MemberId::mint("test"),
        address: String::new(),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::from_os()),
        keep: Duration::from_secs(3_600),
        keep_bytes: None,
        shutdown: CancellationToken::new(),
    };
    Kv::start(parts).await.unwrap()
}

pub fn ana() -> Principal {
    Principal { id: "t1".into(), name: "ana".into(), role: Role::Admin, namespace: "default".into() }
}

pub fn text(text: &str) -> Change {
    let value = Value::new(Bytes::copy_from_slice(text.as_bytes()), None).unwrap();
    Change::Put { value, lasts: None }
}

async fn value(kv: &Kv, key: &str) -> String {
    let (value, _) = kv.read(&ana(), key.parse().unwrap(), AtLeast::default(), Duration::from_secs(5)).await.unwrap();
    String::from_utf8(value.bytes.to_vec()).unwrap()
}

async fn concurrent_writers_get_one_revision_each_and_the_last_of_them_stays(engine: &Engine) {
    let kv = start(engine).await;
    let writers = (0..8).map(|writer| {
        let kv = kv.clone();
        tokio::spawn(async move {
            let mut seen = Vec::new();
            for n in 0..25 {
                let key = format!("k{}", n % 3);
                let told = format!("{writer}-{n}");
                let view =
                    kv.write(&ana(), key.parse().unwrap(), text(&told), Condition::None, Until::Durable).await.unwrap();
                assert_eq!(view.state, WriteState::Applied);
                seen.push((key, view.revision.unwrap(), told, view.write));
            }
            seen
        })
    });
    let mut all = Vec::new();
    for writer in writers {
        let seen = writer.await.unwrap();
        // What one writer wrote later has a later revision.
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for (key, revision, ..) in &seen {
            let before = last.insert(key, *revision);
            assert!(before.is_none_or(|before| before < *revision));
        }
        all.extend(seen);
    }
    for key in ["k0", "k1", "k2"] {
        let mut of_key: Vec<_> = all.iter().filter(|(k, ..)| k == key).collect();
        of_key.sort_by_key(|(_, revision, ..)| *revision);
        assert!(of_key.windows(2).all(|two| two[0].1 < two[1].1), "one revision each");
        let (_, revision, told, write) = of_key.last().unwrap();
        assert_eq!(value(&kv, key).await, *told);
        let view = kv.settled(&ana(), write.parse().unwrap(), Duration::ZERO).await.unwrap();
        assert_eq!((view.state, view.revision), (WriteState::Applied, Some(*revision)));
        let earlier = kv.settled(&ana(), of_key[0].3.parse().unwrap(), Duration::ZERO).await.unwrap();
        assert_eq!(earlier.state, WriteState::Superseded);
    }
    kv.stop().await;
}

async fn counting_by_condition_loses_no_step(engine: &Engine) {
    let kv = start(engine).await;
    kv.write(&ana(), "n".parse().unwrap(), text("0"), Condition::Absent, Until::Durable).await.unwrap();
    let counters = (0..4).map(|_| {
        let kv = kv.clone();
        tokio::spawn(async move {
            let mut conflicts = 0;
            for _ in 0..10 {
                loop {
                    let key = || "n".parse().unwrap();
                    let (now, entry) = kv.read(&ana(), key(), AtLeast::default(), Duration::ZERO).await.unwrap();
                    let n: u32 = std::str::from_utf8(&now.bytes).unwrap().parse().unwrap();
                    let step = text(&(n + 1).to_string());
                    match kv.write(&ana(), key(), step, Condition::At(entry.revision), Until::Durable).await {
                        Ok(_) => break,
                        Err(problem) => assert_eq!(problem.status, 412),
                    }
                    conflicts += 1;
                }
            }
            conflicts
        })
    });
    for counter in counters.collect::<Vec<_>>() {
        counter.await.unwrap();
    }
    assert_eq!(value(&kv, "n").await, "40");
    kv.stop().await;
}

async fn what_was_answered_is_there_after_the_manager_is_gone(engine: &Engine) {
    let kv = start(engine).await;
    let mut revisions = Vec::new();
    for n in 0..20 {
        let view = kv
            .write(&ana(), "a".parse().unwrap(), text(&n.to_string()), Condition::None, Until::Durable)
            .await
            .unwrap();
        revisions.push(view.revision.unwrap());
    }
    kv.stop().await;
    drop(kv);
    let kv = start(engine).await;
    assert_eq!(value(&kv, "a").await, "19");
    let view = kv.write(&ana(), "a".parse().unwrap(), text("20"), Condition::None, Until::Durable).await.unwrap();
    assert!(view.revision.unwrap() > *revisions.last().unwrap(), "a key's revision only grows");
    let page = kv.list(&ana(), String::new(), None, 10).await.unwrap();
    assert_eq!((page.entries.len(), page.next.is_none()), (1, true));
    kv.stop().await;
}

async fn a_page_goes_on_past_what_was_deleted(engine: &Engine) {
    let kv = start(engine).await;
    let keys: Vec<Key> = (0..300).map(|n| format!("k{n:03}").parse().unwrap()).collect();
    for change in [text("x"), Change::Delete] {
        let all = keys.iter().map(|key| (key.clone(), change.clone(), Condition::None)).collect();
        let done = kv.batch(&ana(), all, Until::Applied).await;
        assert!(done.iter().all(Result::is_ok));
    }
    kv.write(&ana(), "l".parse().unwrap(), text("there"), Condition::None, Until::Applied).await.unwrap();
    let page = kv.list(&ana(), String::new(), None, 10).await.unwrap();
    assert_eq!(page.entries.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["l"]);
    assert!(page.next.is_none());
    kv.stop().await;
}

async fn what_is_not_there_cannot_be_removed_on_that_condition(engine: &Engine) {
    let kv = start(engine).await;
    let told = kv.write(&ana(), "a".parse().unwrap(), Change::Delete, Condition::Absent, Until::Applied).await;
    assert_eq!(told.unwrap_err().status, 422);
    kv.stop().await;
}

async fn a_write_is_told_of_in_its_own_namespace_only(engine: &Engine) {
    let kv = start(engine).await;
    let (key, change): (Key, _) = ("a".parse().unwrap(), text("1"));
    let made = kv.write(&ana(), key.clone(), change.clone(), Condition::None, Until::Applied).await.unwrap();
    let stranger = Principal { namespace: "other".into(), ..ana() };
    kv.write(&stranger, key.clone(), change, Condition::None, Until::Applied).await.unwrap();
    let write: Named = made.write.parse().unwrap();
    assert_eq!(kv.settled(&ana(), write, Duration::ZERO).await.unwrap(), made);
    for named in [write, write.id.in_doubt()] {
        assert_eq!(kv.settled(&stranger, named, Duration::ZERO).await.unwrap_err().status, 404, "{named}");
        let at_least = AtLeast { revision: None, write: Some(named) };
        assert_eq!(kv.read(&stranger, key.clone(), at_least, Duration::ZERO).await.unwrap_err().status, 404);
        kv.read(&ana(), key.clone(), at_least, Duration::ZERO).await.unwrap();
    }
    kv.stop().await;
}
