//! Streams in SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Migration, Sqlite, StoreError};
use mutirao_streams::mark::Place;
use mutirao_streams::wire::{Snapshot, StreamId};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use serde::de::DeserializeOwned;

use super::{
    Batch, By, Deployed, Event, Fate, Held, HostRow, Kept, NewStream, Over, PartRow, STREAMS_MAX, Seated, StreamRow,
    StreamState, StreamStore, begun, columns, part, seat,
};
use crate::moving::{Begun, Move};
use crate::placing::Seat;

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "streams", version: 1, sql: include_str!("001_streams.sql") },
    Migration { component: "streams", version: 2, sql: include_str!("002_moves.sql") },
];

const STREAM: &str =
    "id, namespace, name, owner, shard, definition, state, follows, deployed_at, changed_at, changed_by";
/// Without the definition.
const BARE: &str = "id, namespace, name, owner, shard, '', state, follows, deployed_at, changed_at, changed_by";
const PART: &str = "stream, kind, n, replica, host, boot, epoch, why, since";
const MOVE: &str = "stream, kind, n, replica, host, boot, epoch, who, why, since";
const SNAPSHOT: &str = "stream, kind, n, replica, epoch, at_offset, key, bytes, taken_at, retired_at";

pub struct SqliteStreams(pub Sqlite);

type Answer<T> = std::result::Result<T, StoreError>;

#[async_trait]
impl StreamStore for SqliteStreams {
    async fn deploy(&self, new: NewStream) -> Answer<Deployed> {
        self.0.write(move |db| deploy(db, &new)).await
    }

    async fn stream(&self, namespace: String, name: String) -> Answer<Option<StreamRow>> {
        self.0.read(move |db| by_name(db, &namespace, &name)).await
    }

    async fn by_id(&self, ids: Vec<StreamId>) -> Answer<Vec<StreamRow>> {
        self.0
            .read(move |db| {
                let sql = format!("SELECT {STREAM} FROM streams WHERE id IN (SELECT value FROM json_each(?1))");
                db.prepare_cached(&sql)?.query_map([text(&ids)?], stream)?.collect()
            })
            .await
    }

    async fn streams(&self, namespace: String, after: String, rows: u32) -> Answer<Vec<StreamRow>> {
        self.0
            .read(move |db| {
                let sql = format!(
                    "SELECT {STREAM} FROM streams WHERE namespace = ?1 AND name > ?2 AND state <> 'deleted' ORDER BY name LIMIT ?3"
                );
                db.prepare_cached(&sql)?.query_map(params![namespace, after, rows], stream)?.collect()
            })
            .await
    }

    async fn set_state(&self, by: By, name: String, to: StreamState) -> Answer<Option<StreamRow>> {
        self.0
            .write(move |db| {
                let Some(was) = by_name(db, &by.namespace, &name)? else { return Ok(None) };
                if was.state != to {
                    let sql = "UPDATE streams SET state = ?2, changed_at = ?3, changed_by = ?4 WHERE id = ?1";
                    db.prepare_cached(sql)?.execute(params![was.id.0, to.as_str(), by.at.0, by.who])?;
                    tell(db, &was.namespace, &name, &was.id, &by.event(to.done(), ""))?;
                }
                Ok(Some(was))
            })
            .await
    }

    async fn history(&self, namespace: String, name: String, rows: u32) -> Answer<Vec<Event>> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT at, who, what, detail FROM stream_history WHERE namespace = ?1 AND name = ?2
                     ORDER BY n DESC LIMIT ?3",
                )?
                .query_map(params![namespace, name, rows], |row| {
                    let (who, what, detail) = (row.get(1)?, row.get(2)?, row.get(3)?);
                    Ok(Event { at: Timestamp(row.get(0)?), who, what, detail })
                })?
                .collect()
            })
            .await
    }

    async fn beat(&self, row: HostRow) -> Answer<u64> {
        self.0
            .write(move |db| {
                db.prepare_cached(
                    "INSERT INTO stream_hosts (id, boot, beats, heard_at, host, node, reports) VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6)
                     ON CONFLICT (id) DO UPDATE SET boot = ?2, beats = beats + 1, heard_at = ?3, host = ?4, node = ?5, reports = ?6
                     RETURNING beats",
                )?
                .query_row(
                    params![
                        row.host.id,
                        row.boot as i64,
                        row.heard_at.0,
                        text(&row.host)?,
                        text(&row.node)?,
                        text(&row.reports)?
                    ],
                    |row| Ok(row.get::<_, i64>(0)? as u64),
                )
            })
            .await
    }

    async fn hosts(&self) -> Answer<Vec<HostRow>> {
        self.0
            .read(move |db| {
                db.prepare_cached("SELECT boot, beats, heard_at, host, node, reports FROM stream_hosts ORDER BY id")?
                    .query_map([], |row| {
                        Ok(HostRow {
                            boot: row.get::<_, i64>(0)? as u64,
                            beats: row.get::<_, i64>(1)? as u64,
                            heard_at: Timestamp(row.get(2)?),
                            host: json(row, 3)?,
                            node: json(row, 4)?,
                            reports: json(row, 5)?,
                        })
                    })?
                    .collect()
            })
            .await
    }

    async fn seated(&self, seat: Seat) -> Answer<Vec<Seated>> {
        self.0
            .read(move |db| {
                db.prepare_cached(
                    "SELECT p.stream, p.kind, p.n, p.replica, p.epoch, s.state FROM (
                       SELECT stream, kind, n, replica, epoch FROM stream_parts WHERE host = ?1 AND boot = ?2 UNION ALL
                       SELECT stream, kind, n, replica, epoch FROM stream_moves WHERE host = ?1 AND boot = ?2 AND epoch > 0
                     ) p JOIN streams s ON s.id = p.stream WHERE s.state <> 'deleted'
                     ORDER BY p.stream, p.kind, p.n, p.replica",
                )?
                .query_map(params![seat.host, seat.boot as i64], |row| {
                    let state = StreamState::of(row.get_ref(5)?.as_str()?).map_err(|why| unread(5, why))?;
                    Ok(Seated { part: named(row)?, epoch: row.get::<_, i64>(4)? as u64, state })
                })?
                .collect()
            })
            .await
    }

    async fn ask_move(&self, by: By, asked: Move) -> Answer<bool> {
        self.0
            .write(move |db| {
                let sql = "SELECT namespace, name FROM streams WHERE id = ?1 AND state <> 'deleted'";
                let named =
                    db.prepare_cached(sql)?.query_row([&asked.part.stream.0], |row| Ok((row.get(0)?, row.get(1)?)));
                let Some((namespace, name)) = named.optional()? else { return Ok(false) };
                let (namespace, name): (String, String) = (namespace, name);
                let made = keep_move(db, &asked, "NOTHING")?;
                if made {
                    tell(db, &namespace, &name, &asked.part.stream, &by.event("migrate", &asked.why))?;
                }
                Ok(made)
            })
            .await
    }

    async fn moves(&self, streams: Vec<StreamId>) -> Answer<Vec<Move>> {
        self.0
            .read(move |db| {
                let sql = format!(
                    "SELECT {MOVE} FROM stream_moves WHERE stream IN (SELECT value FROM json_each(?1)) {ORDER}"
                );
                db.prepare_cached(&sql)?.query_map([text(&streams)?], moves)?.collect()
            })
            .await
    }

    async fn parts(&self, streams: Vec<StreamId>) -> Answer<Vec<PartRow>> {
        self.0
            .read(move |db| {
                let sql = format!(
                    "SELECT {PART} FROM stream_parts WHERE stream IN (SELECT value FROM json_each(?1)) {ORDER}"
                );
                db.prepare_cached(&sql)?.query_map([text(&streams)?], placed)?.collect()
            })
            .await
    }

    async fn snapshots(&self, streams: Vec<StreamId>) -> Answer<Vec<Kept>> {
        self.0
            .read(move |db| {
                let sql = format!(
                    "SELECT {SNAPSHOT} FROM stream_snapshots
                     WHERE stream IN (SELECT value FROM json_each(?1)) AND retired_at IS NULL"
                );
                db.prepare_cached(&sql)?.query_map([text(&streams)?], kept)?.collect()
            })
            .await
    }

    async fn held(&self, shards: Vec<ShardId>) -> Answer<Held> {
        self.0
            .read(move |db| {
                let shards = text(&shards.iter().map(|shard| shard.0).collect::<Vec<_>>())?;
                let of = "SELECT id FROM streams WHERE shard IN (SELECT value FROM json_each(?1))";
                let streams = db
                    .prepare_cached(&format!("SELECT {BARE} FROM streams WHERE id IN ({of}) ORDER BY id"))?
                    .query_map([&shards], stream)?
                    .collect::<Result<_>>()?;
                let parts = db
                    .prepare_cached(&format!("SELECT {PART} FROM stream_parts WHERE stream IN ({of}) {ORDER}"))?
                    .query_map([&shards], placed)?
                    .collect::<Result<_>>()?;
                let snapshots = db
                    .prepare_cached(&format!("SELECT {SNAPSHOT} FROM stream_snapshots WHERE stream IN ({of})"))?
                    .query_map([&shards], kept)?
                    .collect::<Result<_>>()?;
                let moves = db
                    .prepare_cached(&format!("SELECT {MOVE} FROM stream_moves WHERE stream IN ({of}) {ORDER}"))?
                    .query_map([&shards], moves)?
                    .collect::<Result<_>>()?;
                Ok(Held { streams, parts, snapshots, moves })
            })
            .await
    }

    async fn write(&self, fence: Fence, batch: Arc<Batch>) -> Answer<Fate> {
        self.0.write(move |db| write(db, &fence, &batch)).await
    }

    async fn handed_over(&self, stream: StreamId, sink: u32) -> Answer<Option<Place>> {
        self.0
            .read(move |db| {
                let sql = "SELECT at_offset, at_row FROM stream_handed_over WHERE stream = ?1 AND n = ?2";
                let place = |row: &Row<'_>| Ok(Place { offset: row.get::<_, i64>(0)? as u64, row: row.get(1)? });
                db.prepare_cached(sql)?.query_row(params![stream.0, sink], place).optional()
            })
            .await
    }

    async fn hand_over(&self, stream: StreamId, sink: u32, last: Place) -> Answer<()> {
        self.0
            .write(move |db| {
                db.prepare_cached(
                    "INSERT INTO stream_handed_over (stream, n, at_offset, at_row)
                     SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM streams WHERE id = ?1)
                     ON CONFLICT (stream, n) DO UPDATE SET at_offset = ?3, at_row = ?4
                     WHERE at_offset < ?3 OR (at_offset = ?3 AND at_row < ?4)",
                )?
                .execute(params![stream.0, sink, last.offset as i64, last.row])?;
                Ok(())
            })
            .await
    }

    async fn sweep(&self, before: Timestamp, rows: u32) -> Answer<u64> {
        self.0
            .write(move |db| {
                let old = "DELETE FROM stream_history WHERE n IN (SELECT n FROM stream_history WHERE at < ?1 ORDER BY at LIMIT ?2)";
                let forgotten = db.prepare_cached(old)?.execute(params![before.0, rows])?;
                let hosts = "DELETE FROM stream_hosts WHERE heard_at < ?1
                             AND NOT EXISTS (SELECT 1 FROM stream_parts WHERE host = stream_hosts.id)";
                db.prepare_cached(hosts)?.execute([before.0])?;
                Ok(forgotten as u64)
            })
            .await
    }
}

const ORDER: &str = "ORDER BY stream, kind, n, replica";

fn by_name(db: &Connection, namespace: &str, name: &str) -> Result<Option<StreamRow>> {
    let sql = format!("SELECT {STREAM} FROM streams WHERE namespace = ?1 AND name = ?2 AND state <> 'deleted'");
    db.prepare_cached(&sql)?.query_row([namespace, name], stream).optional()
}

fn deploy(db: &Connection, new: &NewStream) -> Result<Deployed> {
    let By { namespace, who, at } = &new.by;
    let there: Option<(String, Vec<u8>)> = db
        .prepare_cached("SELECT id, sameness FROM streams WHERE namespace = ?1 AND name = ?2 AND state <> 'deleted'")?
        .query_row([namespace, &new.name], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let was = match there {
        Some((id, sameness)) if sameness == new.sameness => return Ok(Deployed::Unchanged(StreamId(id))),
        Some((id, _)) if new.over == Over::Refuse => return Ok(Deployed::Differs(StreamId(id))),
        Some((id, _)) => Some(StreamId(id)),
        None => None,
    };
    match &was {
        Some(was) => {
            let sql = "UPDATE streams SET state = 'deleted', changed_at = ?2, changed_by = ?3 WHERE id = ?1";
            db.prepare_cached(sql)?.execute(params![was.0, at.0, who])?;
        }
        None => {
            let many: i64 = db.query_row("SELECT count(*) FROM streams", [], |row| row.get(0))?;
            if many >= i64::from(STREAMS_MAX) {
                return Ok(Deployed::Full);
            }
        }
    }
    db.prepare_cached(
        "INSERT INTO streams (id, namespace, name, owner, shard, definition, sameness, state, follows, deployed_at, changed_at, changed_by)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'running', ?8, ?9, ?9, ?4)",
    )?
    .execute(params![
        new.id.0,
        namespace,
        new.name,
        who,
        new.shard.0,
        new.definition,
        new.sameness,
        was.as_ref().map(|was| &was.0),
        at.0
    ])?;
    let (what, detail) = match &was {
        Some(was) => ("replace", format!("in place of {was}")),
        None => ("deploy", String::new()),
    };
    tell(db, namespace, &new.name, &new.id, &new.by.event(what, &detail))?;
    Ok(match was {
        Some(was) => Deployed::Replaced { was, is: new.id.clone() },
        None => Deployed::Made(new.id.clone()),
    })
}

fn tell(db: &Connection, namespace: &str, name: &str, id: &StreamId, event: &Event) -> Result<()> {
    let Event { at, who, what, detail } = event;
    db.prepare_cached(
        "INSERT INTO stream_history (at, namespace, name, stream, who, what, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![at.0, namespace, name, id.0, who, what, detail])?;
    Ok(())
}

fn write(db: &Connection, fence: &Fence, batch: &Batch) -> Result<Fate> {
    if !fence.holds_in_sqlite(db)? {
        return Ok(Fate::Fenced);
    }
    let mut upsert = db.prepare_cached(
        "INSERT INTO stream_parts (stream, kind, n, replica, host, boot, epoch, why, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (stream, kind, n, replica) DO UPDATE SET host = ?5, boot = ?6, epoch = ?7, why = ?8, since = ?9",
    )?;
    for PartRow { part, seat, epoch, why, since } in &batch.parts {
        let (kind, n) = columns(part.what);
        let (host, boot) = seat.as_ref().map_or((None, 0), |seat| (Some(&seat.host), seat.boot as i64));
        upsert.execute(params![part.stream.0, kind, n, part.replica, host, boot, *epoch as i64, why, since.0])?;
    }
    for one in &batch.moves {
        keep_move(db, one, "UPDATE SET host = ?5, boot = ?6, epoch = ?7, who = ?8, why = ?9, since = ?10")?;
    }
    let mut moved =
        db.prepare_cached("DELETE FROM stream_moves WHERE stream = ?1 AND kind = ?2 AND n = ?3 AND replica = ?4")?;
    for part in &batch.moved {
        let (kind, n) = columns(part.what);
        moved.execute(params![part.stream.0, kind, n, part.replica])?;
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO stream_snapshots (key, stream, kind, n, replica, epoch, at_offset, bytes, taken_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
    )?;
    for Kept { part, epoch, snapshot, .. } in &batch.snapshots {
        let (kind, n) = columns(part.what);
        let Snapshot { offset, key, bytes, taken_at } = snapshot;
        let (offset, bytes, epoch) = (*offset as i64, *bytes as i64, *epoch as i64);
        insert.execute(params![key, part.stream.0, kind, n, part.replica, epoch, offset, bytes, taken_at.0])?;
    }
    let mut retire =
        db.prepare_cached("UPDATE stream_snapshots SET retired_at = ?2 WHERE key = ?1 AND retired_at IS NULL")?;
    for (key, at) in &batch.retired {
        retire.execute(params![key, at.0])?;
    }
    let mut remove = db.prepare_cached("DELETE FROM stream_snapshots WHERE key = ?1")?;
    for key in &batch.removed {
        remove.execute([key])?;
    }
    for (id, event) in &batch.events {
        let sql = "SELECT namespace, name FROM streams WHERE id = ?1";
        let named = db.prepare_cached(sql)?.query_row([&id.0], |row| Ok((row.get(0)?, row.get(1)?)));
        if let Some((namespace, name)) = named.optional()? {
            let (namespace, name): (String, String) = (namespace, name);
            tell(db, &namespace, &name, id, event)?;
        }
    }
    for id in &batch.gone {
        for sql in [
            "DELETE FROM stream_parts WHERE stream = ?1",
            "DELETE FROM stream_moves WHERE stream = ?1",
            "DELETE FROM stream_snapshots WHERE stream = ?1",
            "DELETE FROM stream_handed_over WHERE stream = ?1",
            "DELETE FROM streams WHERE id = ?1 AND state = 'deleted'",
        ] {
            db.prepare_cached(sql)?.execute([&id.0])?;
        }
    }
    Ok(Fate::Durable)
}

fn stream(row: &Row<'_>) -> Result<StreamRow> {
    Ok(StreamRow {
        id: StreamId(row.get(0)?),
        namespace: row.get(1)?,
        name: row.get(2)?,
        owner: row.get(3)?,
        shard: ShardId(row.get(4)?),
        definition: row.get(5)?,
        state: StreamState::of(row.get_ref(6)?.as_str()?).map_err(|why| unread(6, why))?,
        follows: row.get::<_, Option<String>>(7)?.map(StreamId),
        deployed_at: Timestamp(row.get(8)?),
        changed_at: Timestamp(row.get(9)?),
        changed_by: row.get(10)?,
    })
}

/// The first four columns.
fn named(row: &Row<'_>) -> Result<mutirao_streams::wire::Part> {
    part(row.get(0)?, row.get_ref(1)?.as_str()?, row.get(2)?, row.get(3)?).map_err(|why| unread(1, why))
}

fn placed(row: &Row<'_>) -> Result<PartRow> {
    Ok(PartRow {
        part: named(row)?,
        seat: seat(row.get(4)?, row.get(5)?),
        epoch: row.get::<_, i64>(6)? as u64,
        why: row.get(7)?,
        since: Timestamp(row.get(8)?),
    })
}

/// Whether it was written; `otherwise` is done where there is one of that part.
fn keep_move(db: &Connection, one: &Move, otherwise: &str) -> Result<bool> {
    let Move { part, to, begun, who, why, since } = one;
    let (kind, n) = columns(part.what);
    let (boot, epoch) = begun.map_or((0, 0), |Begun { boot, epoch }| (boot as i64, epoch as i64));
    let sql = format!(
        "INSERT INTO stream_moves ({MOVE}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (stream, kind, n, replica) DO {otherwise}"
    );
    let args = params![part.stream.0, kind, n, part.replica, to, boot, epoch, who, why, since.0];
    Ok(db.prepare_cached(&sql)?.execute(args)? > 0)
}

fn moves(row: &Row<'_>) -> Result<Move> {
    Ok(Move {
        part: named(row)?,
        to: row.get(4)?,
        begun: begun(row.get(5)?, row.get(6)?),
        who: row.get(7)?,
        why: row.get(8)?,
        since: Timestamp(row.get(9)?),
    })
}

fn kept(row: &Row<'_>) -> Result<Kept> {
    let snapshot = Snapshot {
        offset: row.get::<_, i64>(5)? as u64,
        key: row.get(6)?,
        bytes: row.get::<_, i64>(7)? as u64,
        taken_at: Timestamp(row.get(8)?),
    };
    let retired_at = row.get::<_, Option<i64>>(9)?.map(Timestamp);
    Ok(Kept { part: named(row)?, epoch: row.get::<_, i64>(4)? as u64, snapshot, retired_at })
}

fn unread(at: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(at, Type::Text, why.into())
}

fn json<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<T> {
    serde_json::from_str(row.get_ref(at)?.as_str()?).map_err(|error| unread(at, error.to_string()))
}

fn text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
