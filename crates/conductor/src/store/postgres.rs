//! Streams in PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Row, Transaction, text as clean};
use mutirao_store::{Migration, Postgres, StoreError};
use mutirao_streams::mark::Place;
use mutirao_streams::wire::{Part, Snapshot, StreamId};
use serde::de::DeserializeOwned;

use super::{
    Batch, By, Deployed, Event, Fate, Held, HostRow, Kept, NewStream, Over, PartRow, STREAMS_MAX, Seated, StreamRow,
    StreamState, StreamStore, begun, columns, part, seat,
};
use crate::moving::{Begun, Move};
use crate::placing::Seat;

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "streams", version: 1, sql: include_str!("001_streams.postgres.sql") },
    Migration { component: "streams", version: 2, sql: include_str!("002_moves.postgres.sql") },
];

const STREAM: &str =
    "id, namespace, name, owner, shard, definition, state, follows, deployed_at, changed_at, changed_by";
/// Without the definition.
const BARE: &str = "id, namespace, name, owner, shard, '', state, follows, deployed_at, changed_at, changed_by";
const PART: &str = "stream, kind, n, replica, host, boot, epoch, why, since";
const MOVE: &str = "stream, kind, n, replica, host, boot, epoch, who, why, since";
const SNAPSHOT: &str = "stream, kind, n, replica, epoch, at_offset, key, bytes, taken_at, retired_at";
const ORDER: &str = "ORDER BY stream, kind, n, replica";

pub struct PostgresStreams(pub Postgres);

type Answer<T> = Result<T, StoreError>;

#[async_trait]
impl StreamStore for PostgresStreams {
    async fn deploy(&self, new: NewStream) -> Answer<Deployed> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let deployed = deploy(&tx, &new).await?;
        tx.commit().await?;
        Ok(deployed)
    }

    async fn stream(&self, namespace: String, name: String) -> Answer<Option<StreamRow>> {
        let sql = format!("SELECT {STREAM} FROM streams WHERE namespace = $1 AND name = $2 AND state <> 'deleted'");
        let found = self.0.connection().await?.row(&sql, &[&namespace, &clean(&name)]).await?;
        found.map(|row| stream(&row)).transpose()
    }

    async fn by_id(&self, ids: Vec<StreamId>) -> Answer<Vec<StreamRow>> {
        let sql = format!("SELECT {STREAM} FROM streams WHERE id = ANY($1)");
        self.0.connection().await?.rows(&sql, &[&plain(&ids)]).await?.iter().map(stream).collect()
    }

    async fn streams(&self, namespace: String, after: String, rows: u32) -> Answer<Vec<StreamRow>> {
        let sql = format!(
            "SELECT {STREAM} FROM streams WHERE namespace = $1 AND name > $2 AND state <> 'deleted' ORDER BY name LIMIT $3"
        );
        let found = self.0.connection().await?.rows(&sql, &[&namespace, &clean(&after), &i64::from(rows)]).await?;
        found.iter().map(stream).collect()
    }

    async fn set_state(&self, by: By, name: String, to: StreamState) -> Answer<Option<StreamRow>> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let sql = format!(
            "SELECT {STREAM} FROM streams WHERE namespace = $1 AND name = $2 AND state <> 'deleted' FOR UPDATE"
        );
        let Some(found) = tx.row(&sql, &[&by.namespace, &clean(&name)]).await? else { return Ok(None) };
        let was = stream(&found)?;
        if was.state != to {
            let sql = "UPDATE streams SET state = $2, changed_at = $3, changed_by = $4 WHERE id = $1";
            tx.run(sql, &[&was.id.0, &to.as_str(), &by.at.0, &by.who]).await?;
            tell(&tx, &was.namespace, &was.name, &was.id, &by.event(to.done(), "")).await?;
        }
        tx.commit().await?;
        Ok(Some(was))
    }

    async fn history(&self, namespace: String, name: String, rows: u32) -> Answer<Vec<Event>> {
        let sql = "SELECT at, who, what, detail FROM stream_history WHERE namespace = $1 AND name = $2
                   ORDER BY n DESC LIMIT $3";
        let found = self.0.connection().await?.rows(sql, &[&namespace, &clean(&name), &i64::from(rows)]).await?;
        let event = |row: &Row| {
            let (who, what, detail) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            Ok(Event { at: Timestamp(row.try_get(0)?), who, what, detail })
        };
        found.iter().map(event).collect()
    }

    async fn beat(&self, row: HostRow) -> Answer<u64> {
        let sql = "INSERT INTO stream_hosts AS h (id, boot, beats, heard_at, host, node, reports) VALUES ($1, $2, 1, $3, $4, $5, $6)
                   ON CONFLICT (id) DO UPDATE SET boot = $2, beats = h.beats + 1, heard_at = $3, host = $4, node = $5, reports = $6
                   RETURNING beats";
        let (host, node, reports) = (text(&row.host)?, text(&row.node)?, text(&row.reports)?);
        let args: [&(dyn mutirao_store::postgres::ToSql + Sync); 6] =
            [&row.host.id, &(row.boot as i64), &row.heard_at.0, &host, &node, &reports];
        let beaten = self.0.connection().await?.row(sql, &args).await?;
        let beats = beaten.map(|row| row.try_get::<_, i64>(0)).transpose()?;
        beats.map(|beats| beats as u64).ok_or_else(|| unreadable("a beat came to nothing"))
    }

    async fn hosts(&self) -> Answer<Vec<HostRow>> {
        let sql = "SELECT boot, beats, heard_at, host, node, reports FROM stream_hosts ORDER BY id";
        let found = self.0.connection().await?.rows(sql, &[]).await?;
        let host = |row: &Row| {
            Ok(HostRow {
                boot: row.try_get::<_, i64>(0)? as u64,
                beats: row.try_get::<_, i64>(1)? as u64,
                heard_at: Timestamp(row.try_get(2)?),
                host: json(row, 3)?,
                node: json(row, 4)?,
                reports: json(row, 5)?,
            })
        };
        found.iter().map(host).collect()
    }

    async fn seated(&self, seat: Seat) -> Answer<Vec<Seated>> {
        let sql = "SELECT p.stream, p.kind, p.n, p.replica, p.epoch, s.state FROM (
                     SELECT stream, kind, n, replica, epoch FROM stream_parts WHERE host = $1 AND boot = $2 UNION ALL
                     SELECT stream, kind, n, replica, epoch FROM stream_moves WHERE host = $1 AND boot = $2 AND epoch > 0
                   ) p JOIN streams s ON s.id = p.stream WHERE s.state <> 'deleted'
                   ORDER BY p.stream, p.kind, p.n, p.replica";
        let found = self.0.connection().await?.rows(sql, &[&seat.host, &(seat.boot as i64)]).await?;
        let seated = |row: &Row| {
            let state = StreamState::of(row.try_get(5)?).map_err(unreadable)?;
            Ok(Seated { part: named(row)?, epoch: row.try_get::<_, i64>(4)? as u64, state })
        };
        found.iter().map(seated).collect()
    }

    async fn ask_move(&self, by: By, asked: Move) -> Answer<bool> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let sql = "SELECT namespace, name FROM streams WHERE id = $1 AND state <> 'deleted' FOR SHARE";
        let Some(row) = tx.row(sql, &[&asked.part.stream.0]).await? else { return Ok(false) };
        let made = keep_move(&tx, &asked, "NOTHING").await?;
        if made {
            let event = by.event("migrate", &asked.why);
            tell(&tx, row.try_get(0)?, row.try_get(1)?, &asked.part.stream, &event).await?;
        }
        tx.commit().await?;
        Ok(made)
    }

    async fn moves(&self, streams: Vec<StreamId>) -> Answer<Vec<Move>> {
        let sql = format!("SELECT {MOVE} FROM stream_moves WHERE stream = ANY($1) {ORDER}");
        self.0.connection().await?.rows(&sql, &[&plain(&streams)]).await?.iter().map(moves).collect()
    }

    async fn parts(&self, streams: Vec<StreamId>) -> Answer<Vec<PartRow>> {
        let sql = format!("SELECT {PART} FROM stream_parts WHERE stream = ANY($1) {ORDER}");
        self.0.connection().await?.rows(&sql, &[&plain(&streams)]).await?.iter().map(placed).collect()
    }

    async fn snapshots(&self, streams: Vec<StreamId>) -> Answer<Vec<Kept>> {
        let sql = format!("SELECT {SNAPSHOT} FROM stream_snapshots WHERE stream = ANY($1) AND retired_at IS NULL");
        self.0.connection().await?.rows(&sql, &[&plain(&streams)]).await?.iter().map(kept).collect()
    }

    async fn held(&self, shards: Vec<ShardId>) -> Answer<Held> {
        let shards: Vec<i64> = shards.iter().map(|shard| i64::from(shard.0)).collect();
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let of = "SELECT id FROM streams WHERE shard = ANY($1)";
        let streams =
            tx.rows(&format!("SELECT {BARE} FROM streams WHERE id IN ({of}) ORDER BY id"), &[&shards]).await?;
        let parts =
            tx.rows(&format!("SELECT {PART} FROM stream_parts WHERE stream IN ({of}) {ORDER}"), &[&shards]).await?;
        let snapshots =
            tx.rows(&format!("SELECT {SNAPSHOT} FROM stream_snapshots WHERE stream IN ({of})"), &[&shards]).await?;
        let on_their_way =
            tx.rows(&format!("SELECT {MOVE} FROM stream_moves WHERE stream IN ({of}) {ORDER}"), &[&shards]).await?;
        tx.commit().await?;
        Ok(Held {
            moves: on_their_way.iter().map(moves).collect::<Answer<_>>()?,
            streams: streams.iter().map(stream).collect::<Answer<_>>()?,
            parts: parts.iter().map(placed).collect::<Answer<_>>()?,
            snapshots: snapshots.iter().map(kept).collect::<Answer<_>>()?,
        })
    }

    async fn write(&self, fence: Fence, batch: Arc<Batch>) -> Answer<Fate> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Fate::Fenced);
        }
        parts(&tx, &batch.parts).await?;
        for one in &batch.moves {
            let update = "UPDATE SET host = $5, boot = $6, epoch = $7, who = $8, why = $9, since = $10";
            keep_move(&tx, one, update).await?;
        }
        for part in &batch.moved {
            let (kind, n) = columns(part.what);
            let sql = "DELETE FROM stream_moves WHERE stream = $1 AND kind = $2 AND n = $3 AND replica = $4";
            tx.run(sql, &[&part.stream.0, &kind, &n, &i64::from(part.replica)]).await?;
        }
        snapshots(&tx, &batch).await?;
        for (id, event) in &batch.events {
            let sql = "SELECT namespace, name FROM streams WHERE id = $1";
            if let Some(row) = tx.row(sql, &[&id.0]).await? {
                tell(&tx, row.try_get(0)?, row.try_get(1)?, id, event).await?;
            }
        }
        if !batch.gone.is_empty() {
            let gone = plain(&batch.gone);
            for sql in [
                "DELETE FROM stream_parts WHERE stream = ANY($1)",
                "DELETE FROM stream_moves WHERE stream = ANY($1)",
                "DELETE FROM stream_snapshots WHERE stream = ANY($1)",
                "DELETE FROM stream_handed_over WHERE stream = ANY($1)",
                "DELETE FROM streams WHERE id = ANY($1) AND state = 'deleted'",
            ] {
                tx.run(sql, &[&gone]).await?;
            }
        }
        tx.commit().await?;
        Ok(Fate::Durable)
    }

    async fn handed_over(&self, stream: StreamId, sink: u32) -> Answer<Option<Place>> {
        let sql = "SELECT at_offset, at_row FROM stream_handed_over WHERE stream = $1 AND n = $2";
        let found = self.0.connection().await?.row(sql, &[&stream.0, &i64::from(sink)]).await?;
        let place =
            |row: Row| Ok(Place { offset: row.try_get::<_, i64>(0)? as u64, row: row.try_get::<_, i64>(1)? as u32 });
        found.map(place).transpose()
    }

    async fn hand_over(&self, stream: StreamId, sink: u32, last: Place) -> Answer<()> {
        let sql = "INSERT INTO stream_handed_over AS h (stream, n, at_offset, at_row)
                   SELECT $1, $2, $3, $4 WHERE EXISTS (SELECT 1 FROM streams WHERE id = $1)
                   ON CONFLICT (stream, n) DO UPDATE SET at_offset = EXCLUDED.at_offset, at_row = EXCLUDED.at_row
                   WHERE (h.at_offset, h.at_row) < (EXCLUDED.at_offset, EXCLUDED.at_row)";
        let args: [&(dyn mutirao_store::postgres::ToSql + Sync); 4] =
            [&stream.0, &i64::from(sink), &(last.offset as i64), &i64::from(last.row)];
        self.0.connection().await?.run(sql, &args).await.map(drop)
    }

    async fn sweep(&self, before: Timestamp, rows: u32) -> Answer<u64> {
        let connection = self.0.connection().await?;
        let hosts = "DELETE FROM stream_hosts WHERE heard_at < $1
                     AND NOT EXISTS (SELECT 1 FROM stream_parts WHERE host = stream_hosts.id)";
        connection.run(hosts, &[&before.0]).await?;
        let old =
            "DELETE FROM stream_history WHERE n IN (SELECT n FROM stream_history WHERE at < $1 ORDER BY at LIMIT $2)";
        connection.run(old, &[&before.0, &i64::from(rows)]).await
    }
}

async fn deploy(tx: &Transaction<'_>, new: &NewStream) -> Answer<Deployed> {
    let By { namespace, who, at } = &new.by;
    // Two who deploy one name at once come one after the other, also when there is no row of it yet.
    let lock = "SELECT pg_advisory_xact_lock(hashtext('streams:' || $1 || '/' || $2)::bigint)";
    tx.row(lock, &[namespace, &new.name]).await?;
    let sql = "SELECT id, sameness FROM streams WHERE namespace = $1 AND name = $2 AND state <> 'deleted' FOR UPDATE";
    let was = match tx.row(sql, &[namespace, &new.name]).await? {
        None => None,
        Some(there) => {
            let id = StreamId(there.try_get(0)?);
            if there.try_get::<_, &[u8]>(1)? == new.sameness {
                return Ok(Deployed::Unchanged(id));
            }
            if new.over == Over::Refuse {
                return Ok(Deployed::Differs(id));
            }
            Some(id)
        }
    };
    match &was {
        Some(was) => {
            let sql = "UPDATE streams SET state = 'deleted', changed_at = $2, changed_by = $3 WHERE id = $1";
            tx.run(sql, &[&was.0, &at.0, who]).await?;
        }
        None => {
            let many = tx.row("SELECT count(*) FROM streams", &[]).await?;
            if many.map(|row| row.try_get::<_, i64>(0)).transpose()? >= Some(i64::from(STREAMS_MAX)) {
                return Ok(Deployed::Full);
            }
        }
    }
    let follows = was.as_ref().map(|was| was.0.as_str());
    tx.run(
        "INSERT INTO streams (id, namespace, name, owner, shard, definition, sameness, state, follows, deployed_at, changed_at, changed_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'running', $8, $9, $9, $4)",
        &[
            &new.id.0,
            namespace,
            &new.name,
            who,
            &i64::from(new.shard.0),
            &new.definition,
            &new.sameness.to_vec(),
            &follows,
            &at.0,
        ],
    )
    .await?;
    let (what, detail) = match &was {
        Some(was) => ("replace", format!("in place of {was}")),
        None => ("deploy", String::new()),
    };
    tell(tx, namespace, &new.name, &new.id, &new.by.event(what, &detail)).await?;
    Ok(match was {
        Some(was) => Deployed::Replaced { was, is: new.id.clone() },
        None => Deployed::Made(new.id.clone()),
    })
}

async fn tell(tx: &Transaction<'_>, namespace: &str, name: &str, id: &StreamId, event: &Event) -> Answer<()> {
    let Event { at, who, what, detail } = event;
    tx.run(
        "INSERT INTO stream_history (at, namespace, name, stream, who, what, detail) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[&at.0, &namespace, &name, &id.0, &who.as_str(), &what.as_str(), &clean(detail)],
    )
    .await
    .map(drop)
}

async fn parts(tx: &Transaction<'_>, rows: &[PartRow]) -> Answer<()> {
    for PartRow { part, seat, epoch, why, since } in rows {
        let (kind, n) = columns(part.what);
        let (host, boot) = seat.as_ref().map_or((None, 0), |seat| (Some(seat.host.as_str()), seat.boot as i64));
        tx.run(
            "INSERT INTO stream_parts (stream, kind, n, replica, host, boot, epoch, why, since) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             ON CONFLICT (stream, kind, n, replica) DO UPDATE SET host = $5, boot = $6, epoch = $7, why = $8, since = $9",
            &[&part.stream.0, &kind, &n, &i64::from(part.replica), &host, &boot, &(*epoch as i64), &clean(why), &since.0],
        )
        .await?;
    }
    Ok(())
}

/// Whether it was written; `otherwise` is done where there is one of that part.
async fn keep_move(tx: &Transaction<'_>, one: &Move, otherwise: &str) -> Answer<bool> {
    let Move { part, to, begun, who, why, since } = one;
    let (kind, n) = columns(part.what);
    let (boot, epoch) = begun.map_or((0, 0), |Begun { boot, epoch }| (boot as i64, epoch as i64));
    let sql = format!(
        "INSERT INTO stream_moves ({MOVE}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (stream, kind, n, replica) DO {otherwise}"
    );
    let replica = i64::from(part.replica);
    let rows = tx
        .run(&sql, &[&part.stream.0, &kind, &n, &replica, to, &boot, &epoch, &clean(who), &clean(why), &since.0])
        .await?;
    Ok(rows > 0)
}

async fn snapshots(tx: &Transaction<'_>, batch: &Batch) -> Answer<()> {
    let all = &batch.snapshots;
    if !all.is_empty() {
        let texts = |of: fn(&Kept) -> &str| all.iter().map(|one| of(one).to_owned()).collect::<Vec<String>>();
        let number = |of: fn(&Kept) -> i64| all.iter().map(of).collect::<Vec<i64>>();
        tx.run(
            "INSERT INTO stream_snapshots (key, stream, kind, n, replica, epoch, at_offset, bytes, taken_at)
             SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                                  $8::bigint[], $9::bigint[]) ON CONFLICT DO NOTHING",
            &[
                &texts(|one| &one.snapshot.key),
                &texts(|one| &one.part.stream.0),
                &texts(|one| columns(one.part.what).0),
                &number(|one| columns(one.part.what).1),
                &number(|one| one.part.replica.into()),
                &number(|one| one.epoch as i64),
                &number(|one| one.snapshot.offset as i64),
                &number(|one| one.snapshot.bytes as i64),
                &number(|one| one.snapshot.taken_at.0),
            ],
        )
        .await?;
    }
    if !batch.retired.is_empty() {
        let keys: Vec<&str> = batch.retired.iter().map(|(key, _)| key.as_str()).collect();
        let moments: Vec<i64> = batch.retired.iter().map(|(_, at)| at.0).collect();
        tx.run(
            "UPDATE stream_snapshots SET retired_at = said.at FROM unnest($1::text[], $2::bigint[]) AS said (key, at)
             WHERE stream_snapshots.key = said.key AND retired_at IS NULL",
            &[&keys, &moments],
        )
        .await?;
    }
    if !batch.removed.is_empty() {
        tx.run("DELETE FROM stream_snapshots WHERE key = ANY($1)", &[&batch.removed]).await?;
    }
    Ok(())
}

fn plain(ids: &[StreamId]) -> Vec<String> {
    ids.iter().map(|id| id.0.clone()).collect()
}

fn stream(row: &Row) -> Answer<StreamRow> {
    Ok(StreamRow {
        id: StreamId(row.try_get(0)?),
        namespace: row.try_get(1)?,
        name: row.try_get(2)?,
        owner: row.try_get(3)?,
        shard: ShardId(row.try_get::<_, i64>(4)? as u32),
        definition: row.try_get(5)?,
        state: StreamState::of(row.try_get(6)?).map_err(unreadable)?,
        follows: row.try_get::<_, Option<String>>(7)?.map(StreamId),
        deployed_at: Timestamp(row.try_get(8)?),
        changed_at: Timestamp(row.try_get(9)?),
        changed_by: row.try_get(10)?,
    })
}

/// The first four columns.
fn named(row: &Row) -> Answer<Part> {
    part(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?).map_err(unreadable)
}

fn placed(row: &Row) -> Answer<PartRow> {
    Ok(PartRow {
        part: named(row)?,
        seat: seat(row.try_get(4)?, row.try_get(5)?),
        epoch: row.try_get::<_, i64>(6)? as u64,
        why: row.try_get(7)?,
        since: Timestamp(row.try_get(8)?),
    })
}

fn moves(row: &Row) -> Answer<Move> {
    Ok(Move {
        part: named(row)?,
        to: row.try_get(4)?,
        begun: begun(row.try_get(5)?, row.try_get(6)?),
        who: row.try_get(7)?,
        why: row.try_get(8)?,
        since: Timestamp(row.try_get(9)?),
    })
}

fn kept(row: &Row) -> Answer<Kept> {
    let snapshot = Snapshot {
        offset: row.try_get::<_, i64>(5)? as u64,
        key: row.try_get(6)?,
        bytes: row.try_get::<_, i64>(7)? as u64,
        taken_at: Timestamp(row.try_get(8)?),
    };
    let retired_at = row.try_get::<_, Option<i64>>(9)?.map(Timestamp);
    Ok(Kept { part: named(row)?, epoch: row.try_get::<_, i64>(4)? as u64, snapshot, retired_at })
}

fn json<T: DeserializeOwned>(row: &Row, at: usize) -> Answer<T> {
    serde_json::from_str(row.try_get(at)?).map_err(|error| unreadable(error.to_string()))
}

/// PostgreSQL takes no NUL in a text, and whatever a host says of a failure may have one.
fn text(value: &impl serde::Serialize) -> Answer<String> {
    serde_json::to_string(value).map_err(|error| unreadable(error.to_string()))
}

fn unreadable(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unusable { path: "the streams in PostgreSQL".into(), why: why.to_string() }
}
