//! Forgetting, in PostgreSQL.

use mutirao_store::postgres::{Ask, Transaction};

use super::{Answer, ends};
use crate::store::{Bound, Ends, Forget, Forgot, GHOST_MS};
use mutirao_core::ShardId;

pub(super) async fn compact(tx: &Transaction<'_>, shard: ShardId, forget: Forget, rows: u32) -> Answer<Forgot> {
    let mut gone = history(tx, shard, forget, rows).await?;
    let Ends { compacted, written, .. } = ends(tx, shard).await?;
    gone += parcels(tx, shard, compacted as i64, rows).await?;
    // They can wait until there is nothing else.
    if gone < u64::from(rows) {
        senders(tx, shard, compacted as i64, forget).await?;
    }
    Ok(Forgot { rows: gone, bytes_left: left(tx, shard, compacted as i64, written).await? })
}

/// How many bytes of history are left.
async fn left(tx: &Transaction<'_>, shard: ShardId, compacted: i64, written: u64) -> Answer<u64> {
    let sql = "SELECT older FROM kv_parcels WHERE shard = $1 AND number > 0 AND first > $2 ORDER BY first LIMIT 1";
    let Some(row) = tx.row(sql, &[&i64::from(shard.0), &compacted]).await? else { return Ok(0) };
    let older: Option<i64> = row.try_get(0)?;
    Ok(written.saturating_sub(older.unwrap_or(0) as u64))
}

/// Up to which revision the history is more than may stay: of some of the oldest parcels the last that has as much behind it.
async fn too_much(tx: &Transaction<'_>, shard: ShardId, bound: Bound, rows: u32) -> Answer<i64> {
    let Ends { compacted, written, .. } = ends(tx, shard).await?;
    let Some(over) = written.checked_sub(bound.bytes_max) else { return Ok(0) };
    let found = tx
        .row(
            "SELECT coalesce(max(first + writes - 1), 0) FROM
             (SELECT first, writes, older FROM kv_parcels WHERE shard = $1 AND number > 0 AND first > $2
              ORDER BY first LIMIT $3) AS oldest WHERE older < $4",
            &[&i64::from(shard.0), &(compacted as i64), &i64::from(rows), &(over as i64)],
        )
        .await?;
    Ok(found.map(|row| row.try_get(0)).transpose()?.unwrap_or(0))
}

async fn history(tx: &Transaction<'_>, shard: ShardId, forget: Forget, rows: u32) -> Answer<u64> {
    let (over, past) = match forget.bound {
        Some(bound) => (too_much(tx, shard, bound, rows).await?, bound.past.0),
        None => (0, 0),
    };
    let shard = i64::from(shard.0);
    let until = tx
        .row(
            "SELECT max(revision) FROM
             (SELECT revision, at FROM kv_history WHERE shard = $1 ORDER BY revision LIMIT $2) AS oldest
             WHERE at < $3 OR (revision <= $4 AND at < $5)",
            &[&shard, &i64::from(rows), &forget.past.0, &over, &past],
        )
        .await?;
    let until: Option<i64> = until.map(|row| row.try_get(0)).transpose()?.flatten();
    let Some(until) = until else { return Ok(0) };
    let gone = tx.run("DELETE FROM kv_history WHERE shard = $1 AND revision <= $2", &[&shard, &until]).await?;
    let deleted = "DELETE FROM kv_entries WHERE shard = $1 AND value IS NULL AND revision <= $2";
    tx.run(deleted, &[&shard, &until]).await?;
    tx.run("UPDATE kv_shards SET compacted = $2 WHERE shard = $1", &[&shard, &until]).await?;
    Ok(gone)
}

/// With their history, the oldest first, so that what is missing between two of a sender was never there. The last of each
/// sender stays.
async fn parcels(tx: &Transaction<'_>, shard: ShardId, compacted: i64, rows: u32) -> Answer<u64> {
    tx.run(
        "DELETE FROM kv_parcels WHERE (shard, producer, number) IN
         (SELECT shard, producer, number FROM kv_parcels p
          WHERE shard = $1 AND number > 0 AND first <= $2 AND first + writes - 1 <= $2
          AND EXISTS (SELECT 1 FROM kv_parcels n
                      WHERE n.shard = $1 AND n.producer = p.producer AND n.number > p.number)
          ORDER BY first LIMIT $3)",
        &[&i64::from(shard.0), &compacted, &i64::from(rows)],
    )
    .await
}

/// Those of whom nothing can come any more, as [`Forget`] says.
async fn senders(tx: &Transaction<'_>, shard: ShardId, compacted: i64, forget: Forget) -> Answer<()> {
    let shard = i64::from(shard.0);
    tx.run(
        "DELETE FROM kv_parcels WHERE shard = $1 AND producer IN
         (SELECT producer FROM kv_parcels i WHERE shard = $1 AND number = 0 AND at < $3
          AND NOT EXISTS (SELECT 1 FROM kv_parcels n WHERE n.shard = $1 AND n.producer = i.producer
                          AND n.number > 0 AND n.first + n.writes - 1 > $2)
          AND at + $4 < (SELECT max(h.first) FROM kv_parcels h WHERE h.shard = $1 AND h.number = 0
                         AND EXISTS (SELECT 1 FROM kv_parcels n
                                     WHERE n.shard = $1 AND n.producer = h.producer AND n.number > 0)))",
        &[&shard, &compacted, &forget.senders.0, &GHOST_MS],
    )
    .await?;
    tx.run(
        "DELETE FROM kv_parcels p WHERE shard = $1 AND number > 0 AND first <= $2 AND first + writes - 1 <= $2
         AND NOT EXISTS (SELECT 1 FROM kv_parcels n WHERE n.shard = $1 AND n.producer = p.producer
                         AND (n.number = 0 OR n.number > p.number))
         AND EXISTS (SELECT 1 FROM kv_parcels n WHERE n.shard = $1 AND n.number > 0 AND n.first > p.first)",
        &[&shard, &compacted],
    )
    .await
    .map(drop)
}
