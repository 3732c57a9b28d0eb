//! Forgetting, in SQLite.

use mutirao_core::ShardId;
use mutirao_shards::Fence;
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::ends;
use crate::store::{Bound, Ends, Forget, Forgot, GHOST_MS};

pub(super) fn compact(db: &Connection, fence: &Fence, forget: Forget, rows: u32) -> Result<Forgot> {
    if !fence.holds_in_sqlite(db)? {
        return Ok(Forgot::default());
    }
    let shard = fence.shard;
    let mut gone = history(db, shard, forget, rows)?;
    let Ends { compacted, written, .. } = ends(db, shard)?;
    gone += parcels(db, shard, compacted as i64, rows)?;
    // They can wait until there is nothing else.
    if gone < u64::from(rows) {
        senders(db, shard, compacted as i64, forget)?;
    }
    Ok(Forgot { rows: gone, bytes_left: left(db, shard, compacted as i64, written)? })
}

/// How many bytes of history are left.
fn left(db: &Connection, shard: ShardId, compacted: i64, written: u64) -> Result<u64> {
    let oldest = db
        .prepare_cached(
            "SELECT older FROM kv_parcels WHERE shard = ?1 AND number > 0 AND first > ?2 ORDER BY first LIMIT 1",
        )?
        .query_row(params![shard.0, compacted], |row| row.get::<_, Option<i64>>(0))
        .optional()?;
    Ok(oldest.map_or(0, |older| written.saturating_sub(older.unwrap_or(0) as u64)))
}

/// Up to which revision the history is more than may stay: of some of the oldest parcels the last that has as much behind it.
fn too_much(db: &Connection, shard: ShardId, bound: Bound, rows: u32) -> Result<i64> {
    let Ends { compacted, written, .. } = ends(db, shard)?;
    let Some(over) = written.checked_sub(bound.bytes_max) else { return Ok(0) };
    db.prepare_cached(
        "SELECT coalesce(max(first + writes - 1), 0) FROM
         (SELECT first, writes, older FROM kv_parcels WHERE shard = ?1 AND number > 0 AND first > ?2
          ORDER BY first LIMIT ?3) WHERE older < ?4",
    )?
    .query_row(params![shard.0, compacted as i64, rows, over as i64], |row| row.get(0))
}

fn history(db: &Connection, shard: ShardId, forget: Forget, rows: u32) -> Result<u64> {
    let (over, past) = match forget.bound {
        Some(bound) => (too_much(db, shard, bound, rows)?, bound.past.0),
        None => (0, 0),
    };
    let until: Option<i64> = db
        .prepare_cached(
            "SELECT max(revision) FROM
             (SELECT revision, at FROM kv_history WHERE shard = ?1 ORDER BY revision LIMIT ?2)
             WHERE at < ?3 OR (revision <= ?4 AND at < ?5)",
        )?
        .query_row(params![shard.0, rows, forget.past.0, over, past], |row| row.get(0))?;
    let Some(until) = until else { return Ok(0) };
    let gone = db
        .prepare_cached("DELETE FROM kv_history WHERE shard = ?1 AND revision <= ?2")?
        .execute(params![shard.0, until])?;
    db.prepare_cached("DELETE FROM kv_entries WHERE shard = ?1 AND value IS NULL AND revision <= ?2")?
        .execute(params![shard.0, until])?;
    db.prepare_cached("UPDATE kv_shards SET compacted = ?2 WHERE shard = ?1")?.execute(params![shard.0, until])?;
    Ok(gone as u64)
}

/// With their history, the oldest first, so that what is missing between two of a sender was never there. The last of each
/// sender stays.
fn parcels(db: &Connection, shard: ShardId, compacted: i64, rows: u32) -> Result<u64> {
    let gone = db
        .prepare_cached(
            "DELETE FROM kv_parcels WHERE (shard, producer, number) IN
             (SELECT shard, producer, number FROM kv_parcels p
              WHERE shard = ?1 AND number > 0 AND first <= ?2 AND first + writes - 1 <= ?2
              AND EXISTS (SELECT 1 FROM kv_parcels n
                          WHERE n.shard = ?1 AND n.producer = p.producer AND n.number > p.number)
              ORDER BY first LIMIT ?3)",
        )?
        .execute(params![shard.0, compacted, rows])?;
    Ok(gone as u64)
}

/// Those of whom nothing can come any more, as [`Forget`] says.
fn senders(db: &Connection, shard: ShardId, compacted: i64, forget: Forget) -> Result<()> {
    db.prepare_cached(
        "DELETE FROM kv_parcels WHERE shard = ?1 AND producer IN
         (SELECT producer FROM kv_parcels i WHERE shard = ?1 AND number = 0 AND at < ?3
          AND NOT EXISTS (SELECT 1 FROM kv_parcels n WHERE n.shard = ?1 AND n.producer = i.producer
                          AND n.number > 0 AND n.first + n.writes - 1 > ?2)
          AND at + ?4 < (SELECT max(h.first) FROM kv_parcels h WHERE h.shard = ?1 AND h.number = 0
                         AND EXISTS (SELECT 1 FROM kv_parcels n
                                     WHERE n.shard = ?1 AND n.producer = h.producer AND n.number > 0)))",
    )?
    .execute(params![shard.0, compacted, forget.senders.0, GHOST_MS])?;
    db.prepare_cached(
        "DELETE FROM kv_parcels WHERE shard = ?1 AND number > 0 AND first <= ?2 AND first + writes - 1 <= ?2
         AND NOT EXISTS (SELECT 1 FROM kv_parcels n WHERE n.shard = ?1 AND n.producer = kv_parcels.producer
                         AND (n.number = 0 OR n.number > kv_parcels.number))
         AND EXISTS (SELECT 1 FROM kv_parcels n
                     WHERE n.shard = ?1 AND n.number > 0 AND n.first > kv_parcels.first)",
    )?
    .execute(params![shard.0, compacted])
    .map(drop)
}
