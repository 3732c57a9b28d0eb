//! Many at once, in SQLite: a page of keys, and what happened.

use mutirao_core::{ShardId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::{ends, entry, place, value};
use crate::fold::Event;
use crate::point::Point;
use crate::store::{Ends, Extent, Found, Page, Past, Range, at_point, kind_of};
use crate::write::Key;

pub(super) fn page(db: &Connection, range: &Range, point: &Point, mut extent: Extent) -> Result<Page> {
    let compacted = db
        .prepare_cached("SELECT shard, compacted FROM kv_shards")?
        .query_map([], |row| Ok((ShardId(row.get(0)?), row.get::<_, i64>(1)? as u64)))?
        .collect::<Result<Vec<_>>>()?;
    if compacted.into_iter().any(|(shard, compacted)| point.at(shard) < compacted) {
        return Ok(Page::Compacted);
    }
    let mut newest = db.prepare_cached(
        "SELECT shard, key, revision, changed_at, value, content_type, expires_at FROM kv_entries
         WHERE namespace = ?1 AND key >= ?2 AND (?3 IS NULL OR key < ?3) ORDER BY key LIMIT ?4",
    )?;
    let mut earlier = db.prepare_cached(
        "SELECT revision, at, value, content_type, expires_at FROM kv_history
         WHERE namespace = ?1 AND key = ?2 AND revision <= ?3 AND kind <= 2 ORDER BY revision DESC LIMIT 1",
    )?;
    let limit = i64::from(extent.rows) + 1;
    let mut rows = newest.query(params![range.namespace, range.begin(), range.end(), limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = Key::kept(row.get(1)?);
        if extent.is_used_up() {
            return Ok(Page::Of { found, next: Some(key) });
        }
        let shard = ShardId(row.get(0)?);
        let one = match at_point(Found { key, entry: entry(row, 2)? }, shard, point) {
            Ok(one) => one,
            Err(later) => {
                let at = point.at(shard) as i64;
                let was = earlier
                    .query_row(params![range.namespace, later.key.as_str(), at], |row| entry(row, 0))
                    .optional()?;
                was.filter(|entry| entry.value.is_some()).map(|entry| Found { key: later.key, entry })
            }
        };
        extent.use_for(one.as_ref().and_then(|one| one.entry.value.as_ref()));
        found.extend(one);
    }
    Ok(Page::Of { found, next: None })
}

pub(super) fn past(db: &Connection, shard: ShardId, after: u64, mut extent: Extent) -> Result<Past> {
    let Ends { revision: until, compacted, .. } = ends(db, shard)?;
    if after < compacted {
        return Ok(Past::Compacted);
    }
    let mut lines = db.prepare_cached(
        "SELECT namespace, key, kind, at, revision, value, content_type, expires_at FROM kv_history
         WHERE shard = ?1 AND revision > ?2 ORDER BY revision LIMIT ?3",
    )?;
    let mut rows = lines.query(params![shard.0, after as i64, extent.rows])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        if extent.is_used_up() {
            break;
        }
        let value = value(row, 5)?;
        extent.use_for(value.as_ref());
        events.push(Event {
            place: place(row)?,
            kind: kind_of(row.get(2)?),
            at: Timestamp(row.get(3)?),
            revision: row.get::<_, i64>(4)? as u64,
            value,
            expires_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
        });
    }
    let until = events.last().map_or(until.max(after), |event| event.revision);
    Ok(Past::Events { events: events.into_iter().filter(|event| event.kind.changes()).collect(), until })
}
