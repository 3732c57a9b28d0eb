//! Entries in SQLite.

mod compacting;
mod paging;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Migration, Sqlite, StoreError};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::{
    Applying, Ends, Extent, Forget, Forgot, Known, KvStore, OfSender, Page, Past, Range, decisive, kind_of, number_of,
    taken_of, value_of, weighed, without_parcel,
};
use crate::fold::{Before, Entry, Event, Folded, Kind, Taken, expire, fold};
use crate::point::Point;
use crate::write::{Key, Parcel, Place, Producer, Value, WriteId};

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "kv", version: 1, sql: include_str!("001_kv.sql") },
    Migration { component: "kv", version: 2, sql: include_str!("002_tidying.sql") },
    Migration { component: "kv", version: 3, sql: include_str!("003_sizes.sql") },
];

pub struct SqliteKv(pub Sqlite);

type Answer<T> = std::result::Result<T, StoreError>;

#[async_trait]
impl KvStore for SqliteKv {
    async fn apply(&self, fence: Fence, parcels: Vec<Parcel>, now: Timestamp) -> Answer<Applying> {
        let work = move |db: &Connection| {
            if !fence.holds_in_sqlite(db)? {
                return Ok(Applying::Fenced);
            }
            let (mut before, written) = before(db, fence.shard, &decisive(&parcels))?;
            before.heard = heard(db, fence.shard, &parcels)?;
            write(db, fence.shard, written, fold(before, parcels, now), now)
        };
        self.0.write(work).await
    }

    async fn over(&self, shard: ShardId, now: Timestamp, rows: u32) -> Answer<Vec<Place>> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT namespace, key FROM kv_entries WHERE shard = ?1 AND expires_at <= ?2 ORDER BY expires_at LIMIT ?3",
                )?
                .query_map(params![shard.0, now.0, rows], place)?
                .collect()
            })
            .await
    }

    async fn expire(&self, fence: Fence, over: Vec<Place>, now: Timestamp) -> Answer<Applying> {
        let work = move |db: &Connection| {
            if !fence.holds_in_sqlite(db)? {
                return Ok(Applying::Fenced);
            }
            let (before, written) = before(db, fence.shard, &over.iter().cloned().collect())?;
            write(db, fence.shard, written, expire(before, over, now), now)
        };
        self.0.write(work).await
    }

    async fn soonest(&self, shard: ShardId) -> Answer<Option<Timestamp>> {
        self.0
            .read(move |db| {
                db.prepare_cached("SELECT min(expires_at) FROM kv_entries WHERE shard = ?1 AND expires_at IS NOT NULL")?
                    .query_row([shard.0], |row| Ok(row.get::<_, Option<i64>>(0)?.map(Timestamp)))
            })
            .await
    }

    async fn entry(&self, place: Place) -> Answer<Option<Entry>> {
        self.0.read(move |db| find(db, &place)).await
    }

    async fn page(&self, range: Range, point: Point, extent: Extent) -> Answer<Page> {
        self.0.read(move |db| paging::page(db, &range, &point, extent)).await
    }

    async fn point(&self) -> Answer<Point> {
        self.0
            .read(|db| {
                db.prepare_cached("SELECT shard, revision FROM kv_shards")?
                    .query_map([], |row| Ok((ShardId(row.get(0)?), row.get::<_, i64>(1)? as u64)))?
                    .collect::<Result<Vec<_>>>()
                    .map(Point::of)
            })
            .await
    }

    async fn past(&self, shard: ShardId, after: u64, extent: Extent) -> Answer<Past> {
        self.0.read(move |db| paging::past(db, shard, after, extent)).await
    }

    async fn known(&self, write: WriteId, namespace: Option<Arc<str>>) -> Answer<Known> {
        self.0.read(move |db| known(db, &write, namespace.as_deref())).await
    }

    async fn introduce(&self, producer: Producer, begun: Timestamp, now: Timestamp) -> Answer<()> {
        let work = move |db: &Connection| {
            let mut row = db.prepare_cached(
                "INSERT INTO kv_parcels (shard, producer, number, first, writes, at)
                 VALUES (?1, ?2, 0, ?3, CASE WHEN ?3 = ?4
                         THEN coalesce((SELECT revision FROM kv_shards WHERE shard = ?1), 0) ELSE 0 END, ?4)
                 ON CONFLICT (shard, producer, number) DO UPDATE SET at = ?4",
            )?;
            let mut each = |shard| row.execute(params![shard, producer.0 as i64, begun.0, now.0]).map(drop);
            (0..crate::SHARDS).try_for_each(&mut each)
        };
        self.0.write(work).await
    }

    async fn heard(&self, asked: Vec<(ShardId, Producer)>) -> Answer<Vec<Option<u64>>> {
        self.0.read(move |db| asked.into_iter().map(|(shard, producer)| last(db, shard, producer)).collect()).await
    }

    async fn taken(&self, shard: ShardId, producer: Producer, number: u64) -> Answer<Option<Taken>> {
        self.0.read(move |db| taken(db, shard, producer, number)).await
    }

    async fn compact(&self, fence: Fence, forget: Forget, rows: u32) -> Answer<Forgot> {
        self.0.write(move |db| compacting::compact(db, &fence, forget, rows)).await
    }
}

/// What a batch is folded into, and how much history was ever written.
fn before(db: &Connection, shard: ShardId, places: &BTreeSet<Place>) -> Result<(Before, u64)> {
    let Ends { revision, written, .. } = ends(db, shard)?;
    let mut entries = HashMap::new();
    for place in places {
        if let Some(entry) = find(db, place)? {
            entries.insert(place.clone(), entry);
        }
    }
    Ok((Before { revision, entries, heard: HashMap::new() }, written))
}

fn ends(db: &Connection, shard: ShardId) -> Result<Ends> {
    let found = db
        .prepare_cached("SELECT revision, compacted, written FROM kv_shards WHERE shard = ?1")?
        .query_row([shard.0], |row| {
            let number = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)? as u64);
            Ok(Ends { revision: number(0)?, compacted: number(1)?, written: number(2)? })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

fn heard(db: &Connection, shard: ShardId, parcels: &[Parcel]) -> Result<HashMap<Producer, u64>> {
    let mut last = db.prepare_cached("SELECT max(number) FROM kv_parcels WHERE shard = ?1 AND producer = ?2")?;
    let producers: BTreeSet<Producer> = parcels.iter().map(|parcel| parcel.producer).collect();
    let mut heard = HashMap::new();
    for producer in producers {
        let number: Option<i64> = last.query_row(params![shard.0, producer.0 as i64], |row| row.get(0))?;
        heard.insert(producer, number.unwrap_or(0) as u64);
    }
    Ok(heard)
}

fn write(db: &Connection, shard: ShardId, written: u64, folded: Folded, now: Timestamp) -> Result<Applying> {
    let (older, written) = weighed(written, &folded);
    let mut entry = db.prepare_cached(
        "INSERT INTO kv_entries (namespace, key, shard, revision, changed_at, value, content_type, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (namespace, key) DO UPDATE SET revision = ?4, changed_at = ?5, value = ?6, content_type = ?7, expires_at = ?8",
    )?;
    for (place, Entry { revision, changed_at, value, expires_at }) in &folded.entries {
        let (bytes, kind) = value.as_ref().map(|value| (value.bytes.as_ref(), &*value.content_type)).unzip();
        entry.execute(params![
            place.namespace,
            place.key.as_str(),
            shard.0,
            *revision as i64,
            changed_at.0,
            bytes,
            kind,
            expires_at.map(|at| at.0)
        ])?;
    }
    let mut line = db.prepare_cached(
        "INSERT INTO kv_history (shard, revision, namespace, key, kind, at, value, content_type, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for Event { revision, place, kind, at, value, expires_at } in &folded.history {
        let (bytes, content) = value.as_ref().map(|value| (value.bytes.as_ref(), &*value.content_type)).unzip();
        line.execute(params![
            shard.0,
            *revision as i64,
            place.namespace,
            place.key.as_str(),
            number_of(*kind),
            at.0,
            bytes,
            content,
            expires_at.map(|at| at.0)
        ])?;
    }
    let mut parcel = db.prepare_cached(
        "INSERT INTO kv_parcels (shard, producer, number, first, writes, at, older) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for (taken, older) in folded.taken.iter().zip(older) {
        let (producer, number, first) = (taken.producer.0 as i64, taken.number as i64, taken.first as i64);
        parcel.execute(params![shard.0, producer, number, first, taken.fates.len() as i64, now.0, older])?;
    }
    if !folded.history.is_empty() {
        db.prepare_cached(
            "INSERT INTO kv_shards (shard, revision, written) VALUES (?1, ?2, ?3)
             ON CONFLICT (shard) DO UPDATE SET revision = ?2, written = ?3",
        )?
        .execute(params![shard.0, folded.revision as i64, written])?;
    }
    Ok(Applying::Done { revision: folded.revision, taken: folded.taken, entries: folded.entries })
}

fn find(db: &Connection, place: &Place) -> Result<Option<Entry>> {
    db.prepare_cached(
        "SELECT revision, changed_at, value, content_type, expires_at FROM kv_entries WHERE namespace = ?1 AND key = ?2",
    )?
    .query_row([&*place.namespace, place.key.as_str()], |row| entry(row, 0))
    .optional()
}

fn known(db: &Connection, write: &WriteId, namespace: Option<&str>) -> Result<Known> {
    let WriteId { shard, producer, number, index } = write;
    // One statement, so that all of it is of one moment.
    let (parcel, of_sender) = db
        .prepare_cached(
            "SELECT p.first, p.writes,
                    (SELECT min(number) FROM kv_parcels WHERE shard = ?1 AND producer = ?2 AND number > 0),
                    (SELECT max(number) FROM kv_parcels WHERE shard = ?1 AND producer = ?2),
                    EXISTS (SELECT 1 FROM kv_parcels WHERE shard = ?1 AND producer = ?2 AND number = 0),
                    coalesce((SELECT compacted FROM kv_shards WHERE shard = ?1), 0) <=
                    coalesce((SELECT writes FROM kv_parcels WHERE shard = ?1 AND producer = ?2 AND number = 0), 0)
             FROM (SELECT 1) LEFT JOIN kv_parcels p ON p.shard = ?1 AND p.producer = ?2 AND p.number = ?3",
        )?
        .query_row(params![shard.0, producer.0 as i64, *number as i64], |row| {
            let parcel = row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<u32>>(1)?);
            let number = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(|n| n as u64));
            Ok((parcel, OfSender { oldest: number(2)?, last: number(3)?, introduced: row.get(4)?, whole: row.get(5)? }))
        })?;
    let Some((first, writes)) = parcel.filter(|_| *number > 0) else {
        return Ok(without_parcel(*number, of_sender));
    };
    let first = first as u64;
    if *index >= writes {
        return Ok(if writes == 0 { Known::Aside } else { Known::No });
    }
    let revision = first + u64::from(*index);
    let line = db
        .prepare_cached(
            "SELECT h.kind, e.revision, ?3 IS NULL OR h.namespace = ?3 FROM kv_history h
             LEFT JOIN kv_entries e ON e.namespace = h.namespace AND e.key = h.key
             WHERE h.shard = ?1 AND h.revision = ?2",
        )?
        .query_row(params![shard.0, revision as i64, namespace], |row| {
            Ok((kind_of(row.get(0)?), row.get::<_, Option<i64>>(1)?.unwrap_or(0) as u64, row.get::<_, bool>(2)?))
        })
        .optional()?;
    Ok(match line {
        None => Known::LongAgo,
        Some((.., false)) => Known::No,
        Some((Kind::Conflict, ..)) => Known::Conflict,
        Some((_, latest, _)) => Known::Applied { revision, latest },
    })
}

/// The first revision of a parcel, and how many writes it has.
fn parcel(db: &Connection, shard: ShardId, producer: Producer, number: u64) -> Result<Option<(u64, u32)>> {
    db.prepare_cached("SELECT first, writes FROM kv_parcels WHERE shard = ?1 AND producer = ?2 AND number = ?3")?
        .query_row(params![shard.0, producer.0 as i64, number as i64], |row| {
            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, u32>(1)?))
        })
        .optional()
}

/// The last number of a sender.
fn last(db: &Connection, shard: ShardId, producer: Producer) -> Result<Option<u64>> {
    let last = db
        .prepare_cached("SELECT max(number) FROM kv_parcels WHERE shard = ?1 AND producer = ?2")?
        .query_row(params![shard.0, producer.0 as i64], |row| row.get::<_, Option<i64>>(0))?;
    Ok(last.map(|last| last as u64))
}

fn taken(db: &Connection, shard: ShardId, producer: Producer, number: u64) -> Result<Option<Taken>> {
    let Some((first, writes)) = parcel(db, shard, producer, number)? else { return Ok(None) };
    let conflicts = db
        .prepare_cached(
            "SELECT revision FROM kv_history WHERE shard = ?1 AND revision BETWEEN ?2 AND ?3 AND kind = ?4",
        )?
        .query_map(
            params![shard.0, first as i64, (first + u64::from(writes)) as i64 - 1, number_of(Kind::Conflict)],
            |row| Ok(row.get::<_, i64>(0)? as u64),
        )?
        .collect::<Result<_>>()?;
    Ok(Some(taken_of(producer, number, first, writes, &conflicts)))
}

fn place(row: &Row<'_>) -> Result<Place> {
    Ok(Place { namespace: row.get(0)?, key: Key::kept(row.get(1)?) })
}

fn entry(row: &Row<'_>, from: usize) -> Result<Entry> {
    Ok(Entry {
        revision: row.get::<_, i64>(from)? as u64,
        changed_at: Timestamp(row.get(from + 1)?),
        value: value(row, from + 2)?,
        expires_at: row.get::<_, Option<i64>>(from + 4)?.map(Timestamp),
    })
}

fn value(row: &Row<'_>, from: usize) -> Result<Option<Value>> {
    Ok(value_of(row.get(from)?, row.get_ref(from + 1)?.as_str_or_null()?))
}
