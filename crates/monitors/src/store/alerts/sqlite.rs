//! Alerts in SQLite.

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::{Migration, StoreError};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::{
    ATTENDED, AlertRow, AlertStore, CHANNEL_CHANGED, CHANNEL_REMOVED, Came, ChannelRow, Delivery, NO_MONITOR, Recorded,
    Waiting, naming,
};
use crate::alerts::channel::ChannelSpec;
use crate::alerts::fate::Told;
use crate::alerts::{AlertEvent, Attention, Raised};
use crate::grid::MonitorKey;
use crate::store::sqlite::{SqliteMonitors, json, next_revision, note, text};
use crate::store::{By, Settling};

pub const MIGRATION: Migration = Migration { component: "alerts", version: 1, sql: include_str!("001_alerts.sql") };

type Answer<T> = std::result::Result<T, StoreError>;

const CHANNEL_COLUMNS: &str = "definition, changed_at, changed_by";
const RAISED_COLUMNS: &str = "a.monitor, a.about, a.event, a.turn, a.channel, a.raised_at, a.detail";

#[async_trait]
impl AlertStore for SqliteMonitors {
    async fn put_channel(&self, channel: ChannelSpec, by: By) -> Answer<()> {
        self.0
            .write(move |db| {
                db.prepare_cached(
                    "INSERT INTO monitor_channels (namespace, name, definition, changed_at, changed_by)
                     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET definition = ?3, changed_at = ?4, changed_by = ?5",
                )?
                .execute(params![by.namespace, channel.name, text(&channel)?, by.at.0, by.who])?;
                note(db, next_revision(db)?, &by, CHANNEL_CHANGED, NO_MONITOR, Some(&text(&channel.shown())?))
            })
            .await
    }

    async fn remove_channel(&self, name: String, by: By) -> Answer<bool> {
        self.0
            .write(move |db| {
                let gone = db
                    .prepare_cached("DELETE FROM monitor_channels WHERE namespace = ?1 AND name = ?2")?
                    .execute(params![by.namespace, name])?;
                if gone > 0 {
                    note(db, next_revision(db)?, &by, CHANNEL_REMOVED, NO_MONITOR, Some(&text(&name)?))?;
                }
                Ok(gone > 0)
            })
            .await
    }

    async fn told_by(&self, namespace: String, channel: String) -> Answer<u64> {
        let sql =
            "SELECT count(*) FROM monitors WHERE namespace = ?1 AND removed_at IS NULL AND instr(definition, ?2) > 0";
        let naming = naming(&channel);
        let count = move |db: &Connection| db.prepare_cached(sql)?.query_row([namespace, naming], |row| row.get(0));
        self.0.read(count).await.map(|many: i64| many as u64)
    }

    async fn channels(&self, namespace: String) -> Answer<Vec<ChannelRow>> {
        let sql = format!("SELECT {CHANNEL_COLUMNS} FROM monitor_channels WHERE namespace = ?1 ORDER BY name");
        self.0.read(move |db| db.prepare_cached(&sql)?.query_map([namespace], channel)?.collect()).await
    }

    async fn channel(&self, namespace: String, name: String) -> Answer<Option<ChannelRow>> {
        let sql = format!("SELECT {CHANNEL_COLUMNS} FROM monitor_channels WHERE namespace = ?1 AND name = ?2");
        self.0.read(move |db| db.prepare_cached(&sql)?.query_row([namespace, name], channel).optional()).await
    }

    async fn attend(&self, monitor: MonitorKey, attention: Attention, by: By) -> Answer<()> {
        self.0
            .write(move |db| {
                let attention = text(&attention)?;
                db.prepare_cached(
                    "INSERT INTO monitor_attention (monitor, attention) VALUES (?1, ?2)
                     ON CONFLICT DO UPDATE SET attention = ?2",
                )?
                .execute(params![monitor.0 as i64, attention])?;
                db.prepare_cached(
                    "UPDATE monitor_alerts SET next_at = ?2 WHERE monitor = ?1 AND ended IS NULL AND next_at > ?2",
                )?
                .execute(params![monitor.0 as i64, by.at.0])?;
                note(db, next_revision(db)?, &by, ATTENDED, monitor, Some(&attention))
            })
            .await
    }

    async fn attention(&self, monitors: Vec<MonitorKey>) -> Answer<Vec<(MonitorKey, Attention)>> {
        self.0
            .read(move |db| {
                let mut select = db.prepare_cached("SELECT attention FROM monitor_attention WHERE monitor = ?1")?;
                let one = |key: MonitorKey| {
                    let found = select.query_row([key.0 as i64], |row| json(row, 0)).optional();
                    found.map(|found| found.map(|attention| (key, attention))).transpose()
                };
                monitors.into_iter().filter_map(one).collect()
            })
            .await
    }

    async fn due(&self, shard: ShardId, now: Timestamp, rows: u32) -> Answer<Vec<Waiting>> {
        let sql = format!(
            "SELECT {RAISED_COLUMNS}, a.key, a.tries, a.first_at, m.uuid, m.namespace, m.definition, m.removed_at IS NOT NULL,
                    c.definition, i.since, i.closed_at, i.evidence, t.attention,
                    EXISTS (SELECT 1 FROM monitor_alerts o WHERE o.monitor = a.monitor AND o.about = a.about
                            AND o.event = 'opened' AND o.turn = 0 AND o.channel = a.channel AND o.ended = 'sent')
             FROM monitor_alerts a
             JOIN monitors m ON m.key = a.monitor
             LEFT JOIN monitor_channels c ON c.namespace = m.namespace AND c.name = a.channel
             LEFT JOIN monitor_incidents i ON i.monitor = a.monitor AND i.opened_at = a.about
             LEFT JOIN monitor_attention t ON t.monitor = a.monitor
             WHERE a.shard = ?1 AND a.ended IS NULL AND a.next_at <= ?2
               AND NOT EXISTS (SELECT 1 FROM monitor_alerts b WHERE b.monitor = a.monitor AND b.channel = a.channel
                               AND b.ended IS NULL AND b.key < a.key)
             ORDER BY a.next_at, a.key LIMIT ?3"
        );
        self.0
            .read(move |db| db.prepare_cached(&sql)?.query_map(params![shard.0, now.0, rows], waiting)?.collect())
            .await
    }

    async fn record(&self, fence: Fence, records: Vec<Recorded>) -> Answer<Settling> {
        self.0
            .write(move |db| {
                if !fence.holds_in_sqlite(db)? {
                    return Ok(Settling::Fenced);
                }
                let mut update = db.prepare_cached(
                    "UPDATE monitor_alerts SET tries = ?2, first_at = ?3, next_at = ?4, ended = ?5, ended_at = ?6, note = ?7
                     WHERE key = ?1 AND ended IS NULL",
                )?;
                for Recorded { key, tries, first_at, came, note } in &records {
                    let (next, ended, ended_at) = match came {
                        Came::Later(at) => (at.0, None, None),
                        Came::Ended(delivery, at) => (at.0, Some(delivery.word()), Some(at.0)),
                    };
                    let first = first_at.map(|at| at.0);
                    update.execute(params![*key as i64, tries, first, next, ended, ended_at, note])?;
                }
                Ok(Settling::Written { new: records.len() as u64 })
            })
            .await
    }

    async fn alerts(&self, monitor: MonitorKey, rows: u32) -> Answer<Vec<AlertRow>> {
        let sql = format!(
            "SELECT {RAISED_COLUMNS}, a.tries, a.next_at, a.ended, a.ended_at, a.note FROM monitor_alerts a
             WHERE a.monitor = ?1 ORDER BY a.key DESC LIMIT ?2"
        );
        let alert = |row: &Row<'_>| {
            let ended: Option<String> = row.get(9)?;
            let delivery = ended.map(|word| Delivery::of_word(&word).ok_or_else(|| unknown(9, &word))).transpose()?;
            Ok(AlertRow {
                raised: raised(row)?,
                tries: row.get(7)?,
                next_at: Timestamp(row.get(8)?),
                ended: delivery.zip(row.get::<_, Option<i64>>(10)?.map(Timestamp)),
                note: row.get(11)?,
            })
        };
        self.0
            .read(move |db| db.prepare_cached(&sql)?.query_map(params![monitor.0 as i64, rows], alert)?.collect())
            .await
    }

    async fn sweep_alerts(&self, before: Timestamp, rows: u32) -> Answer<u64> {
        self.0
            .write(move |db| {
                let gone = db
                    .prepare_cached(
                        "DELETE FROM monitor_alerts WHERE key IN
                         (SELECT key FROM monitor_alerts WHERE ended IS NOT NULL AND ended_at < ?1 LIMIT ?2)",
                    )?
                    .execute(params![before.0, rows])?;
                Ok(gone as u64)
            })
            .await
    }
}

/// Within the settlement that they follow from.
pub fn raise(db: &Connection, shard: ShardId, alerts: &[Raised]) -> Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO monitor_alerts (shard, monitor, about, event, turn, channel, raised_at, detail, next_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?7) ON CONFLICT DO NOTHING",
    )?;
    for Raised { monitor, about, event, turn, to, at, detail } in alerts {
        insert.execute(params![shard.0, monitor.0 as i64, about.0, event.word(), turn, to, at.0, detail])?;
    }
    Ok(())
}

fn channel(row: &Row<'_>) -> Result<ChannelRow> {
    Ok(ChannelRow { spec: json(row, 0)?, changed_at: Timestamp(row.get(1)?), changed_by: row.get(2)? })
}

fn raised(row: &Row<'_>) -> Result<Raised> {
    let word: String = row.get(2)?;
    Ok(Raised {
        monitor: MonitorKey(row.get::<_, i64>(0)? as u64),
        about: Timestamp(row.get(1)?),
        event: AlertEvent::of_word(&word).ok_or_else(|| unknown(2, &word))?,
        turn: row.get(3)?,
        to: row.get(4)?,
        at: Timestamp(row.get(5)?),
        detail: row.get(6)?,
    })
}

fn waiting(row: &Row<'_>) -> Result<Waiting> {
    let channel: Option<String> = row.get(14)?;
    let attention: Option<String> = row.get(18)?;
    Ok(Waiting {
        raised: raised(row)?,
        key: row.get::<_, i64>(7)? as u64,
        tries: row.get(8)?,
        first_at: row.get::<_, Option<i64>>(9)?.map(Timestamp),
        uuid: row.get(10)?,
        namespace: row.get(11)?,
        spec: json(row, 12)?,
        removed: row.get(13)?,
        channel: channel.map(|_| json(row, 14)).transpose()?,
        since: row.get::<_, Option<i64>>(15)?.map(Timestamp),
        closed_at: row.get::<_, Option<i64>>(16)?.map(Timestamp),
        evidence: row.get(17)?,
        attention: attention.map(|_| json(row, 18)).transpose()?.unwrap_or_default(),
        told: if row.get(19)? { Told::Yes } else { Told::No },
    })
}

fn unknown(column: usize, word: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, format!("there is no {word}").into())
}
