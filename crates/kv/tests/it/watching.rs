//! Watches, as HTTP tells them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::StreamExt;
use mutirao_core::{Dice, SystemClock, Timestamp};
use mutirao_kv::store::{Forget, open};
use mutirao_kv::{AtHand, Condition, GROUP, Kv, KvParts, Legacy, Path, SHARDS, Until};
use mutirao_shards::store as leases;
use mutirao_shards::{Fence, MemberId, Terms};
use mutirao_surface::{OpenApiRouter, paging};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::engine::{Engine, on_both};
use crate::running::{ana, text};

on_both!(
    a_watch_of_what_nobody_writes_can_go_on_when_the_rest_is_forgotten,
    all_who_watch_are_told_everything_of_theirs_once_and_in_order,
    a_cursor_of_a_moment_that_has_not_come_is_refused,
);

/// So short that whoever watches is told where it is each second.
const KEEP: Duration = Duration::from_secs(4);
const WATCHERS: usize = 20;
const WRITES: usize = 300;

async fn start(engine: &Engine, keep: Duration) -> Kv {
    let database = engine.database().await;
    Kv::start(KvParts {
        leases: leases::open(&database, None).await.unwrap(),
        store: database,
        path: Path::Commit,
        at_hand: AtHand::Here { bytes_max: 1 << 20 },
        terms: Terms::alone(),
        member: MemberId::mint("test"),
        address: String::new(),
        clock: SystemClock::shared(),
        dice: Arc::new(Dice::from_os()),
        keep,
        keep_bytes: None,
        shutdown: CancellationToken::new(),
    })
    .await
    .unwrap()
}

/// What one who watches hears.
struct Ear {
    body: axum::body::BodyDataStream,
    heard: String,
}

#[derive(Debug)]
struct Said {
    name: String,
    id: String,
    data: String,
}

async fn asks(kv: &Kv, prefix: &str, cursor: Option<&str>) -> Response {
    let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
    let mut request =
        Request::builder().uri(format!("/v1/kv?watch=1&prefix={prefix}{cursor}")).body(Body::empty()).unwrap();
    request.extensions_mut().insert(Arc::new(ana()));
    let (router, _) = OpenApiRouter::from(kv.capability(Legacy::Off).router).split_for_parts();
    router.oneshot(request).await.unwrap()
}

impl Ear {
    async fn of(kv: &Kv, prefix: &str, cursor: Option<&str>) -> (Self, String) {
        let answer = asks(kv, prefix, cursor).await;
        assert_eq!(answer.status(), 200);
        let mut ear = Self { body: answer.into_body().into_data_stream(), heard: String::new() };
        let begin = ear.next().await;
        assert_eq!(begin.name, "begin");
        (ear, begin.id)
    }

    async fn next(&mut self) -> Said {
        loop {
            if let Some((event, rest)) = self.heard.split_once("\n\n") {
                let of = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    line.unwrap_or_default().to_owned()
                };
                let said = Said { name: of("event"), id: of("id"), data: of("data") };
                self.heard = rest.to_owned();
                return said;
            }
            let more = self.body.next().await.expect("it ended").unwrap();
            self.heard.push_str(std::str::from_utf8(&more).unwrap());
        }
    }
}

async fn write(kv: &Kv, key: &str, value: &str) {
    kv.write(&ana(), key.parse().unwrap(), text(value), Condition::None, Until::Applied).await.unwrap();
}

async fn a_cursor_of_a_moment_that_has_not_come_is_refused(engine: &Engine) {
    let kv = start(engine, Duration::from_secs(3_600)).await;
    write(&kv, "a", "1").await;
    let (_, now) = Ear::of(&kv, "", None).await;
    assert_eq!(asks(&kv, "", Some(&now)).await.status(), 200);
    // As another installation gives them, or this one did before a backup was restored.
    let mut moment = vec![0_u64; SHARDS as usize];
    moment[3] = 1_000_000;
    assert_eq!(asks(&kv, "", Some(&paging::encode(&moment))).await.status(), 410);
    assert_eq!(asks(&kv, "a%00b", None).await.status(), 422, "what no key begins with");
    kv.stop().await;
}

async fn a_watch_of_what_nobody_writes_can_go_on_when_the_rest_is_forgotten(engine: &Engine) {
    let kv = start(engine, KEEP).await;
    write(&kv, "noise/0", "x").await;
    let (mut ear, begun) = Ear::of(&kv, "quiet/", None).await;
    write(&kv, "noise/1", "x").await;
    let at = ear.next().await;
    assert_eq!((at.name.as_str(), at.data.as_str()), ("at", "{}"));
    assert_ne!(at.id, begun);
    // All that happened is forgotten.
    let database = engine.database().await;
    let rows = leases::open(&database, None).await.unwrap().leases(GROUP).await.unwrap();
    let everything = Timestamp(i64::MAX);
    for row in rows.iter().filter(|row| row.shard.0 < SHARDS) {
        let fence = Fence { group: GROUP, shard: row.shard, generation: row.mark.generation };
        open(&database)
            .compact(fence, Forget { past: everything, senders: Timestamp(0), bound: None }, 1_000)
            .await
            .unwrap();
    }
    assert_eq!(asks(&kv, "quiet/", Some(&begun)).await.status(), 410);
    let (mut again, _) = Ear::of(&kv, "quiet/", Some(&at.id)).await;
    write(&kv, "quiet/a", "at last").await;
    for ear in [&mut ear, &mut again] {
        let mut said = ear.next().await;
        while said.name == "at" {
            said = ear.next().await;
        }
        assert!(said.name == "put" && said.data.contains("at last"), "{said:?}");
    }
    kv.stop().await;
}

/// Some from the begin, some from a cursor further back than what is kept for those who watch, some in the middle.
async fn all_who_watch_are_told_everything_of_theirs_once_and_in_order(engine: &Engine) {
    let kv = start(engine, Duration::from_secs(3_600)).await;
    let point = kv.list(&ana(), String::new(), None, 1).await.unwrap().point.encode();
    let mut listening = Vec::new();
    let key = |n: usize| format!("w{}/{}", n % WATCHERS, n % 3);
    for n in 0..WRITES {
        if n % (WRITES / WATCHERS) == 0 {
            let watcher = listening.len();
            let (mut ear, _) = Ear::of(&kv, &format!("w{watcher}/"), Some(&point)).await;
            let expected: Vec<usize> = (0..WRITES).filter(|n| n % WATCHERS == watcher).collect();
            listening.push(tokio::spawn(async move {
                let mut told: Vec<(String, usize)> = Vec::new();
                while told.len() < expected.len() {
                    let said = ear.next().await;
                    if said.name != "put" {
                        continue;
                    }
                    let change: serde_json::Value = serde_json::from_str(&said.data).unwrap();
                    let value = change["entry"]["value"].as_str().unwrap().parse().unwrap();
                    told.push((change["key"].as_str().unwrap().into(), value));
                }
                for n in 0..3 {
                    let of_key: Vec<usize> =
                        told.iter().filter(|(key, _)| key.ends_with(&format!("/{n}"))).map(|(_, n)| *n).collect();
                    assert!(of_key.is_sorted(), "{of_key:?}");
                }
                let mut values: Vec<usize> = told.into_iter().map(|(_, value)| value).collect();
                values.sort_unstable();
                assert_eq!(values, expected);
            }));
        }
        write(&kv, &key(n), &n.to_string()).await;
    }
    for one in listening {
        one.await.unwrap();
    }
    kv.stop().await;
}
