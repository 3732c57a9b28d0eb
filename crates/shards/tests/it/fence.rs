//! The fence, inside the transactions of a capability.

use std::time::Duration;

use mutirao_core::SystemClock;
use mutirao_core::clock::ClockExt;
use mutirao_shards::store::{Mark, PostgresShards, SqliteShards};
use mutirao_shards::{Fence, MemberId, ShardId, ShardStore};

use crate::{postgres, sqlite_in};

const LEASE: Duration = Duration::from_secs(10);
const SHARD: ShardId = ShardId(3);
/// Long enough to see that somebody waits.
const MOMENT: Duration = Duration::from_millis(300);

fn fence(generation: u64) -> Fence {
    Fence { group: "g", shard: SHARD, generation }
}

fn seen(generation: u64, beats: u64) -> Mark {
    Mark { generation, beats }
}

#[tokio::test]
async fn in_sqlite_only_the_current_generation_passes() {
    let folder = tempfile::tempdir().unwrap();
    let db = sqlite_in(folder.path());
    let shards = SqliteShards::shared(db.clone());
    let passes = async |generation| db.write(move |sql| fence(generation).holds_in_sqlite(sql)).await.unwrap();
    let (a, b) = (MemberId::mint("a"), MemberId::mint("b"));
    assert!(!passes(0).await && !passes(1).await);
    shards.claim("g", SHARD, Mark::default(), &a, LEASE).await.unwrap();
    assert!(passes(1).await && !passes(0).await && !passes(2).await);
    shards.release("g", &a, SHARD, 1).await.unwrap();
    assert!(passes(1).await, "nobody has claimed it since");
    shards.claim("g", SHARD, seen(1, 0), &b, LEASE).await.unwrap();
    assert!(!passes(1).await && passes(2).await);
}

#[tokio::test]
async fn in_postgres_a_fenced_transaction_keeps_claims_waiting_and_lets_renewals_pass() {
    let Some((schema, db)) = postgres().await else { return };
    let shards = PostgresShards(db.clone());
    let (a, b) = (MemberId::mint("a"), MemberId::mint("b"));
    shards.claim("g", SHARD, Mark::default(), &a, LEASE).await.unwrap();

    let mut connection = db.connection().await.unwrap();
    let tx = connection.begin().await.unwrap();
    assert!(!fence(0).holds_in_postgres(&tx).await.unwrap());
    assert!(fence(1).holds_in_postgres(&tx).await.unwrap());
    let renewed = SystemClock.timeout(Duration::from_secs(20), shards.renew("g", &a, &[(SHARD, 1)])).await;
    assert_eq!(renewed.expect("a renewal waited for the fence").unwrap(), [SHARD]);
    let mut claim = Box::pin(shards.claim("g", SHARD, seen(1, 1), &b, LEASE));
    assert!(SystemClock.timeout(MOMENT, &mut claim).await.is_err(), "a claim went through the fence");
    tx.commit().await.unwrap();
    assert_eq!(claim.await.unwrap(), Some(2));

    let tx = connection.begin().await.unwrap();
    assert!(!fence(1).holds_in_postgres(&tx).await.unwrap());
    assert!(fence(2).holds_in_postgres(&tx).await.unwrap());
    drop(tx);
    drop(connection);
    schema.remove().await;
}
