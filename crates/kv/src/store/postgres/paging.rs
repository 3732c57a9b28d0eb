//! Many at once, in PostgreSQL: a page of keys, and what happened. How long values are is known without reading them, so
//! the server sends those that fit, and of the rest the keys.

use mutirao_core::{ShardId, Timestamp};
use mutirao_store::postgres::{Ask, Row};

use super::{Answer, ends, entry, key, place};
use crate::fold::Event;
use crate::point::Point;
use crate::store::{Ends, Extent, Found, Page, Past, Range, at_point, kind_of, value_of};
use crate::write::Key;

/// What was found, in no order, and the first key that was not looked at.
struct Looked {
    found: Vec<Found>,
    next: Option<Key>,
}

pub(super) async fn page(ask: &impl Ask, range: Range, point: Point, extent: Extent) -> Answer<Page> {
    let newest = ask
        .rows(
            "SELECT shard, key, revision, changed_at, CASE WHEN before < $5 THEN value END, content_type, expires_at,
                    before < $5
             FROM (SELECT *, sum(coalesce(octet_length(value), 0)) OVER (ORDER BY key)
                             - coalesce(octet_length(value), 0) AS before
                   FROM (SELECT shard, key, revision, changed_at, value, content_type, expires_at FROM kv_entries
                         WHERE namespace = $1 AND key >= $2 AND ($3::text IS NULL OR key < $3)
                         ORDER BY key LIMIT $4) AS part) AS summed
             ORDER BY key",
            &[&range.namespace, &range.begin(), &range.end(), &(i64::from(extent.rows) + 1), &(extent.bytes as i64)],
        )
        .await?;
    let mut looked = Looked { found: Vec::new(), next: None };
    let (mut later, mut points) = (Vec::new(), Vec::new());
    for (n, row) in newest.iter().enumerate() {
        let shard = ShardId(row.try_get::<_, i64>(0)? as u32);
        let one = Found { key: key(row, 1)?, entry: entry(row, 2)? };
        if n == extent.rows as usize || !row.try_get::<_, bool>(7)? {
            looked.next = Some(one.key);
            break;
        }
        match at_point(one, shard, &point) {
            Ok(one) => looked.found.extend(one),
            Err(one) => {
                points.push(point.at(shard) as i64);
                later.push(one.key.as_str().to_owned());
            }
        }
    }
    if !later.is_empty() {
        earlier(ask, &range, &later, &points, extent, &mut looked).await?;
    }
    // At the end: what was forgotten while it was read was not read. Nothing that was forgotten comes back.
    for row in ask.rows("SELECT shard, compacted FROM kv_shards", &[]).await? {
        if point.at(ShardId(row.try_get::<_, i64>(0)? as u32)) < row.try_get::<_, i64>(1)? as u64 {
            return Ok(Page::Compacted);
        }
    }
    Ok(looked.page(extent))
}

/// What those were that have changed since.
async fn earlier(
    ask: &impl Ask,
    range: &Range,
    later: &[String],
    points: &[i64],
    extent: Extent,
    looked: &mut Looked,
) -> Answer<()> {
    let was = ask
        .rows(
            "SELECT key, revision, at, CASE WHEN before < $4 THEN value END, content_type, expires_at, before < $4
             FROM (SELECT h.*, sum(coalesce(octet_length(h.value), 0)) OVER (ORDER BY h.key)
                               - coalesce(octet_length(h.value), 0) AS before
                   FROM unnest($2::text[], $3::bigint[]) AS asked (key, point), LATERAL (
                       SELECT * FROM kv_history WHERE namespace = $1 AND kv_history.key = asked.key
                       AND revision <= asked.point AND kind <= 2 ORDER BY revision DESC LIMIT 1) AS h) AS summed
             ORDER BY key",
            &[&range.namespace, &later, &points, &(extent.bytes as i64)],
        )
        .await?;
    for row in &was {
        let one = Found { key: key(row, 0)?, entry: entry(row, 1)? };
        if !row.try_get::<_, bool>(6)? {
            let before = looked.next.take();
            looked.next = Some(before.map_or(one.key.clone(), |next| next.min(one.key)));
            break;
        }
        looked.found.extend(Some(one).filter(|one| one.entry.value.is_some()));
    }
    Ok(())
}

impl Looked {
    fn page(self, mut extent: Extent) -> Page {
        let Self { mut found, mut next } = self;
        found.retain(|one| next.as_ref().is_none_or(|next| one.key < *next));
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let fits = found.iter().position(|one| {
            let full = extent.is_used_up();
            extent.use_for(one.entry.value.as_ref());
            full
        });
        if let Some(fits) = fits {
            next = found.drain(fits..).next().map(|one| one.key);
        }
        Page::Of { found, next }
    }
}

pub(super) async fn past(ask: &impl Ask, shard: ShardId, after: u64, extent: Extent) -> Answer<Past> {
    let Ends { revision: until, compacted, .. } = ends(ask, shard).await?;
    if after < compacted {
        return Ok(Past::Compacted);
    }
    let lines = ask
        .rows(
            "SELECT namespace, key, kind, at, revision, value, content_type, expires_at
             FROM (SELECT *, sum(coalesce(octet_length(value), 0)) OVER (ORDER BY revision)
                             - coalesce(octet_length(value), 0) AS before
                   FROM (SELECT namespace, key, kind, at, revision, value, content_type, expires_at FROM kv_history
                         WHERE shard = $1 AND revision > $2 ORDER BY revision LIMIT $3) AS part) AS summed
             WHERE before < $4 ORDER BY revision",
            &[&i64::from(shard.0), &(after as i64), &i64::from(extent.rows), &(extent.bytes as i64)],
        )
        .await?;
    let event = |row: &Row| {
        Ok(Event {
            place: place(row)?,
            kind: kind_of(row.try_get(2)?),
            at: Timestamp(row.try_get(3)?),
            revision: row.try_get::<_, i64>(4)? as u64,
            value: value_of(row.try_get(5)?, row.try_get(6)?),
            expires_at: row.try_get::<_, Option<i64>>(7)?.map(Timestamp),
        })
    };
    let events = lines.iter().map(event).collect::<Answer<Vec<Event>>>()?;
    // Every revision has its line. Where the first is missing it was forgotten since it was asked how far that has gone.
    let is_whole = events.first().map_or(until <= after, |first| first.revision == after + 1);
    if !is_whole {
        return Ok(Past::Compacted);
    }
    let until = events.last().map_or(until.max(after), |event| event.revision);
    Ok(Past::Events { events: events.into_iter().filter(|event| event.kind.changes()).collect(), until })
}
