//! What is forgotten while it is being read, in PostgreSQL, where a list and a look at the past are several statements: whoever reads is
//! told that it is forgotten, and never that there was nothing.

use std::future::Future;
use std::time::Duration;

use mutirao_core::{Clock, ShardId, SystemClock};
use mutirao_kv::store::{Page, Past, open};
use mutirao_kv::{Point, SHARDS};
use mutirao_store::postgres::Ask;
use mutirao_store::{Database, Postgres};

use crate::engine::Engine;
use crate::queued::PATIENCE;
use crate::store::{apply, everything, put, up_to};

/// Forgets a shard's history up to a revision, when the reader has begun and waits for it.
async fn while_forgetting<T>(postgres: &Postgres, shard: ShardId, until: u64, read: impl Future<Output = T>) -> T {
    let mut connection = postgres.connection().await.unwrap();
    let forgetting = connection.begin().await.unwrap();
    forgetting.run("LOCK TABLE kv_history IN ACCESS EXCLUSIVE MODE", &[]).await.unwrap();
    let forget = async {
        let looker = postgres.connection().await.unwrap();
        let deadline = SystemClock.monotonic().plus(PATIENCE);
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'kv_history'::regclass";
        while looker.row(waits, &[]).await.unwrap().unwrap().try_get::<_, i64>(0).unwrap() == 0 {
            assert!(SystemClock.monotonic() < deadline, "nobody reads the history");
            SystemClock.sleep(Duration::from_millis(10)).await;
        }
        let (shard, until) = (i64::from(shard.0), until as i64);
        let gone = "DELETE FROM kv_history WHERE shard = $1 AND revision <= $2";
        forgetting.run(gone, &[&shard, &until]).await.unwrap();
        forgetting.run("UPDATE kv_shards SET compacted = $2 WHERE shard = $1", &[&shard, &until]).await.unwrap();
        forgetting.commit().await.unwrap();
    };
    tokio::join!(forget, read).1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forgotten_while_it_is_read_is_said_to_be_and_not_left_out() {
    let Some(engine) = Engine::postgres().await else { return };
    let (database, fence) = engine.claimed().await;
    let Database::Postgres(postgres) = &database else { panic!("an engine of another kind") };
    let store = open(&database);
    let key = (0..).map(|n| format!("k{n}")).find(|key| crate::store::place(key).shard() == fence.shard).unwrap();
    let (first, _) = apply(&store, &fence, 1, vec![put(&key, "before")], 1).await;
    let then = Point::of((0..SHARDS).map(|shard| (ShardId(shard), first)));
    let (last, _) = apply(&store, &fence, 2, vec![put(&key, "after"), put(&key, "later")], 2).await;

    let shard = fence.shard;
    let list = async || store.page(everything(""), then.clone(), up_to(10)).await.unwrap();
    assert!(matches!(list().await, Page::Of { found, .. } if found.len() == 1));
    let listed = while_forgetting(postgres, shard, last - 1, list()).await;
    assert_eq!(listed, Page::Compacted, "the key was there then");

    let (newest, _) = apply(&store, &fence, 3, vec![put(&key, "newest")], 3).await;
    let look = async || store.past(shard, last - 1, up_to(10)).await.unwrap();
    assert!(matches!(look().await, Past::Events { events, .. } if events.len() == 2));
    let told = while_forgetting(postgres, shard, last, look()).await;
    assert_eq!(told, Past::Compacted, "one of two changes would be missing");
    assert!(matches!(store.past(shard, last, up_to(10)).await.unwrap(), Past::Events { until, .. } if until == newest));
    engine.remove().await;
}
