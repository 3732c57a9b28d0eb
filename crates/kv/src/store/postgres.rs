//! Entries in PostgreSQL: a batch is a handful of statements by arrays, however many writes it has. A shard has one writer,
//! which the fence sees to, so nothing here waits for a lock of another batch.

mod compacting;
mod paging;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Row, ToSql, Transaction};
use mutirao_store::{Migration, Postgres, StoreError};

use super::{
    Applying, Ends, Extent, Forget, Forgot, Known, KvStore, OfSender, Page, Past, Range, decisive, kind_of, number_of,
    taken_of, value_of, weighed, without_parcel,
};
use crate::fold::{Before, Entry, Event, Folded, Kind, Taken, expire, fold};
use crate::point::Point;
use crate::write::{Key, Parcel, Place, Producer, Value, WriteId};

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "kv", version: 1, sql: include_str!("001_kv.postgres.sql") },
    Migration { component: "kv", version: 2, sql: include_str!("002_tidying.postgres.sql") },
    Migration { component: "kv", version: 3, sql: include_str!("003_sizes.postgres.sql") },
];

pub struct PostgresKv(pub Postgres);

type Answer<T> = Result<T, StoreError>;

#[async_trait]
impl KvStore for PostgresKv {
    async fn apply(&self, fence: Fence, parcels: Vec<Parcel>, now: Timestamp) -> Answer<Applying> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        // All of it travels together. In whichever order it is answered: while the fence holds nobody else writes.
        let decisive = decisive(&parcels);
        let (holds, (mut before, written), heard) = tokio::try_join!(
            fence.holds_in_postgres(&tx),
            before(&tx, fence.shard, &decisive),
            heard(&tx, fence.shard, &parcels)
        )?;
        if !holds {
            return Ok(Applying::Fenced);
        }
        before.heard = heard;
        let folded = fold(before, parcels, now);
        write(&tx, fence.shard, written, &folded, now).await?;
        tx.commit().await?;
        Ok(Applying::Done { revision: folded.revision, taken: folded.taken, entries: folded.entries })
    }

    async fn over(&self, shard: ShardId, now: Timestamp, rows: u32) -> Answer<Vec<Place>> {
        let sql =
            "SELECT namespace, key FROM kv_entries WHERE shard = $1 AND expires_at <= $2 ORDER BY expires_at LIMIT $3";
        let found = self.0.connection().await?.rows(sql, &[&i64::from(shard.0), &now.0, &i64::from(rows)]).await?;
        found.iter().map(place).collect()
    }

    async fn expire(&self, fence: Fence, over: Vec<Place>, now: Timestamp) -> Answer<Applying> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Applying::Fenced);
        }
        let (before, written) = before(&tx, fence.shard, &over.iter().cloned().collect()).await?;
        let folded = expire(before, over, now);
        write(&tx, fence.shard, written, &folded, now).await?;
        tx.commit().await?;
        Ok(Applying::Done { revision: folded.revision, taken: folded.taken, entries: folded.entries })
    }

    async fn soonest(&self, shard: ShardId) -> Answer<Option<Timestamp>> {
        let sql = "SELECT min(expires_at) FROM kv_entries WHERE shard = $1 AND expires_at IS NOT NULL";
        let found = self.0.connection().await?.row(sql, &[&i64::from(shard.0)]).await?;
        Ok(found.map(|row| row.try_get::<_, Option<i64>>(0)).transpose()?.flatten().map(Timestamp))
    }

    async fn entry(&self, place: Place) -> Answer<Option<Entry>> {
        let sql = "SELECT revision, changed_at, value, content_type, expires_at FROM kv_entries
                   WHERE namespace = $1 AND key = $2";
        let found = self.0.connection().await?.row(sql, &[&&*place.namespace, &place.key.as_str()]).await?;
        found.map(|row| entry(&row, 0)).transpose()
    }

    async fn page(&self, range: Range, point: Point, extent: Extent) -> Answer<Page> {
        paging::page(&self.0.connection().await?, range, point, extent).await
    }

    async fn point(&self) -> Answer<Point> {
        let rows = self.0.connection().await?.rows("SELECT shard, revision FROM kv_shards", &[]).await?;
        let one = |row: &Row| Ok((ShardId(row.try_get::<_, i64>(0)? as u32), row.try_get::<_, i64>(1)? as u64));
        rows.iter().map(one).collect::<Answer<Vec<_>>>().map(Point::of)
    }

    async fn past(&self, shard: ShardId, after: u64, extent: Extent) -> Answer<Past> {
        paging::past(&self.0.connection().await?, shard, after, extent).await
    }

    async fn known(&self, write: WriteId, namespace: Option<Arc<str>>) -> Answer<Known> {
        let WriteId { shard, producer, number, index } = write;
        let connection = self.0.connection().await?;
        // One statement, so that all of it is of one moment.
        let found = connection
            .row(
                "SELECT p.first, p.writes,
                        (SELECT min(number) FROM kv_parcels WHERE shard = $1 AND producer = $2 AND number > 0),
                        (SELECT max(number) FROM kv_parcels WHERE shard = $1 AND producer = $2),
                        EXISTS (SELECT 1 FROM kv_parcels WHERE shard = $1 AND producer = $2 AND number = 0),
                        coalesce((SELECT compacted FROM kv_shards WHERE shard = $1), 0) <=
                        coalesce((SELECT writes FROM kv_parcels WHERE shard = $1 AND producer = $2 AND number = 0), 0)
                 FROM (SELECT 1) AS once LEFT JOIN kv_parcels p ON p.shard = $1 AND p.producer = $2 AND p.number = $3",
                &[&i64::from(shard.0), &(producer.0 as i64), &(number as i64)],
            )
            .await?;
        let Some(row) = found else { return Ok(Known::No) };
        let part = |at: usize| Ok::<_, StoreError>(row.try_get::<_, Option<i64>>(at)?.map(|part| part as u64));
        let of_sender =
            OfSender { oldest: part(2)?, last: part(3)?, introduced: row.try_get(4)?, whole: row.try_get(5)? };
        let Some((first, writes)) = part(0)?.zip(part(1)?).filter(|_| number > 0) else {
            return Ok(without_parcel(number, of_sender));
        };
        if u64::from(index) >= writes {
            return Ok(if writes == 0 { Known::Aside } else { Known::No });
        }
        let revision = first + u64::from(index);
        let line = connection
            .row(
                "SELECT h.kind, e.revision, $3::text IS NULL OR h.namespace = $3 FROM kv_history h
                 LEFT JOIN kv_entries e ON e.namespace = h.namespace AND e.key = h.key
                 WHERE h.shard = $1 AND h.revision = $2",
                &[&i64::from(shard.0), &(revision as i64), &namespace.as_deref()],
            )
            .await?;
        let Some(line) = line else { return Ok(Known::LongAgo) };
        if !line.try_get::<_, bool>(2)? {
            return Ok(Known::No);
        }
        let latest = line.try_get::<_, Option<i64>>(1)?.unwrap_or(0) as u64;
        Ok(match kind_of(line.try_get(0)?) {
            Kind::Conflict => Known::Conflict,
            _ => Known::Applied { revision, latest },
        })
    }

    async fn introduce(&self, producer: Producer, begun: Timestamp, now: Timestamp) -> Answer<()> {
        let sql = "INSERT INTO kv_parcels (shard, producer, number, first, writes, at)
                   SELECT shard, $2::bigint, 0, $3::bigint,
                          CASE WHEN $3::bigint = $4::bigint
                               THEN coalesce((SELECT revision FROM kv_shards WHERE kv_shards.shard = made.shard), 0)
                               ELSE 0 END, $4::bigint
                   FROM generate_series(0, $1::bigint) AS made (shard)
                   ON CONFLICT (shard, producer, number) DO UPDATE SET at = EXCLUDED.at";
        let last = i64::from(crate::SHARDS) - 1;
        self.0.connection().await?.run(sql, &[&last, &(producer.0 as i64), &begun.0, &now.0]).await?;
        Ok(())
    }

    async fn heard(&self, asked: Vec<(ShardId, Producer)>) -> Answer<Vec<Option<u64>>> {
        let (shards, producers): (Vec<i64>, Vec<i64>) =
            asked.into_iter().map(|(shard, producer)| (i64::from(shard.0), producer.0 as i64)).unzip();
        let sql = "SELECT (SELECT max(number) FROM kv_parcels WHERE shard = asked.shard AND producer = asked.producer)
                   FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (shard, producer, n) ORDER BY n";
        let found = self.0.connection().await?.rows(sql, &[&shards, &producers]).await?;
        found.iter().map(|row| Ok(row.try_get::<_, Option<i64>>(0)?.map(|last| last as u64))).collect()
    }

    async fn taken(&self, shard: ShardId, producer: Producer, number: u64) -> Answer<Option<Taken>> {
        let connection = self.0.connection().await?;
        let Some((first, writes)) = parcel(&connection, shard, producer, number).await? else { return Ok(None) };
        let rows = connection
            .rows(
                "SELECT revision FROM kv_history WHERE shard = $1 AND revision BETWEEN $2 AND $3 AND kind = $4",
                &[
                    &i64::from(shard.0),
                    &(first as i64),
                    &((first + u64::from(writes)) as i64 - 1),
                    &number_of(Kind::Conflict),
                ],
            )
            .await?;
        let conflicts = rows.iter().map(|row| Ok(row.try_get::<_, i64>(0)? as u64)).collect::<Answer<_>>()?;
        Ok(Some(taken_of(producer, number, first, writes, &conflicts)))
    }

    async fn compact(&self, fence: Fence, forget: Forget, rows: u32) -> Answer<Forgot> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Forgot::default());
        }
        let forgot = compacting::compact(&tx, fence.shard, forget, rows).await?;
        tx.commit().await?;
        Ok(forgot)
    }
}

/// What a batch is folded into, and how much history was ever written.
async fn before(tx: &Transaction<'_>, shard: ShardId, places: &BTreeSet<Place>) -> Answer<(Before, u64)> {
    let (Ends { revision, written, .. }, entries) = tokio::try_join!(ends(tx, shard), entries(tx, places))?;
    Ok((Before { revision, entries, heard: HashMap::new() }, written))
}

async fn entries(tx: &Transaction<'_>, places: &BTreeSet<Place>) -> Answer<HashMap<Place, Entry>> {
    if places.is_empty() {
        return Ok(HashMap::new());
    }
    let (namespaces, keys): (Vec<&str>, Vec<&str>) =
        places.iter().map(|place| (&*place.namespace, place.key.as_str())).unzip();
    let found = tx
        .rows(
            // Each by itself: left to join them, the server may read the whole table for a few.
            "SELECT e.namespace, e.key, e.revision, e.changed_at, e.value, e.content_type, e.expires_at
             FROM unnest($1::text[], $2::text[]) AS asked (namespace, key), LATERAL (
                 SELECT * FROM kv_entries WHERE namespace = asked.namespace AND kv_entries.key = asked.key LIMIT 1) AS e",
            &[&namespaces, &keys],
        )
        .await?;
    found.iter().map(|row| Ok((place(row)?, entry(row, 2)?))).collect()
}

async fn ends(ask: &impl Ask, shard: ShardId) -> Answer<Ends> {
    let sql = "SELECT revision, compacted, written FROM kv_shards WHERE shard = $1";
    let Some(row) = ask.row(sql, &[&i64::from(shard.0)]).await? else { return Ok(Ends::default()) };
    let number = |at: usize| Ok::<_, StoreError>(row.try_get::<_, i64>(at)? as u64);
    Ok(Ends { revision: number(0)?, compacted: number(1)?, written: number(2)? })
}

/// The first revision of a parcel, and how many writes it has.
async fn parcel(ask: &impl Ask, shard: ShardId, producer: Producer, number: u64) -> Answer<Option<(u64, u32)>> {
    let sql = "SELECT first, writes FROM kv_parcels WHERE shard = $1 AND producer = $2 AND number = $3";
    let found = ask.row(sql, &[&i64::from(shard.0), &(producer.0 as i64), &(number as i64)]).await?;
    let Some(row) = found else { return Ok(None) };
    Ok(Some((row.try_get::<_, i64>(0)? as u64, row.try_get::<_, i64>(1)? as u32)))
}

async fn heard(tx: &Transaction<'_>, shard: ShardId, parcels: &[Parcel]) -> Answer<HashMap<Producer, u64>> {
    let producers: BTreeSet<i64> = parcels.iter().map(|parcel| parcel.producer.0 as i64).collect();
    let producers: Vec<i64> = producers.into_iter().collect();
    let found = tx
        .rows(
            "SELECT asked.producer, (SELECT max(number) FROM kv_parcels WHERE shard = $1 AND producer = asked.producer)
             FROM unnest($2::bigint[]) AS asked (producer)",
            &[&i64::from(shard.0), &producers],
        )
        .await?;
    let one = |row: &Row| {
        let last = row.try_get::<_, Option<i64>>(1)?.unwrap_or(0) as u64;
        Ok((Producer(row.try_get::<_, i64>(0)? as u64), last))
    };
    found.iter().map(one).collect()
}

/// Four statements that travel together.
async fn write(tx: &Transaction<'_>, shard: ShardId, written: u64, folded: &Folded, now: Timestamp) -> Answer<()> {
    if folded.history.is_empty() && folded.taken.is_empty() {
        return Ok(());
    }
    let (older, written) = weighed(written, folded);
    let (shard, revision) = (i64::from(shard.0), folded.revision as i64);
    let mut columns = Columns::default();
    for (place, Entry { revision, changed_at, value, expires_at }) in &folded.entries {
        columns.push(place, *revision, *changed_at, value.as_ref(), *expires_at);
    }
    let mut lines = Columns::default();
    for Event { revision, place, at, value, expires_at, .. } in &folded.history {
        lines.push(place, *revision, *at, value.as_ref(), *expires_at);
    }
    let kinds: Vec<i64> = folded.history.iter().map(|event| number_of(event.kind)).collect();
    let of_taken = |what: fn(&Taken) -> i64| folded.taken.iter().map(what).collect::<Vec<i64>>();
    let producers = of_taken(|taken| taken.producer.0 as i64);
    let numbers = of_taken(|taken| taken.number as i64);
    let firsts = of_taken(|taken| taken.first as i64);
    let writes = of_taken(|taken| taken.fates.len() as i64);
    let Columns { namespaces, keys, revisions, moments, values, contents, ends } = &columns;
    let entries: [&(dyn ToSql + Sync); 8] = [&shard, namespaces, keys, revisions, moments, values, contents, ends];
    let Columns { namespaces, keys, revisions, moments, values, contents, ends } = &lines;
    let history: [&(dyn ToSql + Sync); 9] =
        [&shard, namespaces, keys, revisions, moments, values, contents, ends, &kinds];
    let end: [&(dyn ToSql + Sync); 3] = [&shard, &revision, &written];
    let parcels: [&(dyn ToSql + Sync); 7] = [&shard, &producers, &numbers, &firsts, &writes, &older, &now.0];
    tokio::try_join!(
        tx.run(
            "INSERT INTO kv_entries (shard, namespace, key, revision, changed_at, value, content_type, expires_at)
             SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[], $8::bigint[])
             ON CONFLICT (namespace, key) DO UPDATE SET revision = EXCLUDED.revision, changed_at = EXCLUDED.changed_at,
                 value = EXCLUDED.value, content_type = EXCLUDED.content_type, expires_at = EXCLUDED.expires_at",
            &entries,
        ),
        tx.run(
            "INSERT INTO kv_history (shard, namespace, key, revision, at, value, content_type, expires_at, kind)
             SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[],
                                      $8::bigint[], $9::bigint[])",
            &history,
        ),
        tx.run(
            "INSERT INTO kv_parcels (shard, producer, number, first, writes, older, at)
             SELECT $1, *, $7 FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])",
            &parcels,
        ),
        tx.run(
            "INSERT INTO kv_shards (shard, revision, written) VALUES ($1, $2, $3)
             ON CONFLICT (shard) DO UPDATE SET revision = $2, written = $3",
            &end,
        ),
    )
    .map(drop)
}

/// Rows of entries, or of the history, as the arrays that carry them.
#[derive(Default)]
struct Columns<'a> {
    namespaces: Vec<&'a str>,
    keys: Vec<&'a str>,
    revisions: Vec<i64>,
    moments: Vec<i64>,
    values: Vec<Option<&'a [u8]>>,
    contents: Vec<Option<&'a str>>,
    ends: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn push(
        &mut self,
        place: &'a Place,
        revision: u64,
        at: Timestamp,
        value: Option<&'a Value>,
        expires_at: Option<Timestamp>,
    ) {
        self.namespaces.push(&place.namespace);
        self.keys.push(place.key.as_str());
        self.revisions.push(revision as i64);
        self.moments.push(at.0);
        self.values.push(value.map(|value| value.bytes.as_ref()));
        self.contents.push(value.map(|value| &*value.content_type));
        self.ends.push(expires_at.map(|at| at.0));
    }
}

fn place(row: &Row) -> Answer<Place> {
    Ok(Place { namespace: row.try_get::<_, &str>(0)?.into(), key: key(row, 1)? })
}

fn key(row: &Row, at: usize) -> Answer<Key> {
    Ok(Key::kept(row.try_get::<_, &str>(at)?.into()))
}

fn entry(row: &Row, from: usize) -> Answer<Entry> {
    Ok(Entry {
        revision: row.try_get::<_, i64>(from)? as u64,
        changed_at: Timestamp(row.try_get(from + 1)?),
        value: value_of(row.try_get(from + 2)?, row.try_get(from + 3)?),
        expires_at: row.try_get::<_, Option<i64>>(from + 4)?.map(Timestamp),
    })
}
