//! Alerts in PostgreSQL.

use async_trait::async_trait;
use mutirao_core::{ShardId, Timestamp};
use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Row, Transaction, text as clean};
use mutirao_store::{Migration, StoreError};

use super::{
    ATTENDED, AlertRow, AlertStore, CHANNEL_CHANGED, CHANNEL_REMOVED, Came, ChannelRow, Delivery, NO_MONITOR, Recorded,
    Waiting, naming,
};
use crate::alerts::channel::ChannelSpec;
use crate::alerts::fate::Told;
use crate::alerts::{AlertEvent, Attention, Raised};
use crate::grid::MonitorKey;
use crate::store::postgres::{PostgresMonitors, json, next_revision, note, text, unreadable};
use crate::store::{By, Settling};

pub const MIGRATION: Migration =
    Migration { component: "alerts", version: 1, sql: include_str!("001_alerts.postgres.sql") };

type Answer<T> = Result<T, StoreError>;

const CHANNEL_COLUMNS: &str = "definition, changed_at, changed_by";
const RAISED_COLUMNS: &str = "a.monitor, a.about, a.event, a.turn, a.channel, a.raised_at, a.detail";

#[async_trait]
impl AlertStore for PostgresMonitors {
    async fn put_channel(&self, channel: ChannelSpec, by: By) -> Answer<()> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let revision = next_revision(&tx).await?;
        let (definition, shown) = (text(&channel)?, text(&channel.shown())?);
        tx.run(
            "INSERT INTO monitor_channels (namespace, name, definition, changed_at, changed_by) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (namespace, name) DO UPDATE SET definition = $3, changed_at = $4, changed_by = $5",
            &[&by.namespace, &channel.name, &definition, &by.at.0, &by.who],
        )
        .await?;
        note(&tx, revision, &by, CHANNEL_CHANGED, NO_MONITOR, Some(&shown)).await?;
        tx.commit().await
    }

    async fn remove_channel(&self, name: String, by: By) -> Answer<bool> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let revision = next_revision(&tx).await?;
        let sql = "DELETE FROM monitor_channels WHERE namespace = $1 AND name = $2";
        if tx.run(sql, &[&by.namespace, &name]).await? == 0 {
            return Ok(false);
        }
        note(&tx, revision, &by, CHANNEL_REMOVED, NO_MONITOR, Some(&text(&name)?)).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn told_by(&self, namespace: String, channel: String) -> Answer<u64> {
        let sql = "SELECT count(*) FROM monitors
                   WHERE namespace = $1 AND removed_at IS NULL AND position($2 in definition) > 0";
        let row = self.0.connection().await?.row(sql, &[&namespace, &naming(&channel)]).await?;
        Ok(row.map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or_default() as u64)
    }

    async fn channels(&self, namespace: String) -> Answer<Vec<ChannelRow>> {
        let sql =
            format!("SELECT {CHANNEL_COLUMNS} FROM monitor_channels WHERE namespace = $1 ORDER BY name COLLATE \"C\"");
        self.0.connection().await?.rows(&sql, &[&namespace]).await?.iter().map(channel).collect()
    }

    async fn channel(&self, namespace: String, name: String) -> Answer<Option<ChannelRow>> {
        let sql = format!("SELECT {CHANNEL_COLUMNS} FROM monitor_channels WHERE namespace = $1 AND name = $2");
        self.0.connection().await?.row(&sql, &[&namespace, &name]).await?.as_ref().map(channel).transpose()
    }

    async fn attend(&self, monitor: MonitorKey, attention: Attention, by: By) -> Answer<()> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let revision = next_revision(&tx).await?;
        let (key, attention) = (monitor.0 as i64, text(&attention)?);
        tx.run(
            "INSERT INTO monitor_attention (monitor, attention) VALUES ($1, $2)
             ON CONFLICT (monitor) DO UPDATE SET attention = $2",
            &[&key, &attention],
        )
        .await?;
        tx.run(
            "UPDATE monitor_alerts SET next_at = $2 WHERE monitor = $1 AND ended IS NULL AND next_at > $2",
            &[&key, &by.at.0],
        )
        .await?;
        note(&tx, revision, &by, ATTENDED, monitor, Some(&attention)).await?;
        tx.commit().await
    }

    async fn attention(&self, monitors: Vec<MonitorKey>) -> Answer<Vec<(MonitorKey, Attention)>> {
        let keys: Vec<i64> = monitors.iter().map(|key| key.0 as i64).collect();
        let sql = "SELECT monitor, attention FROM monitor_attention WHERE monitor = ANY($1)";
        let one = |row: &Row| Ok((MonitorKey(row.try_get::<_, i64>(0)? as u64), json(row, 1)?));
        self.0.connection().await?.rows(sql, &[&keys]).await?.iter().map(one).collect()
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
             WHERE a.shard = $1 AND a.ended IS NULL AND a.next_at <= $2
               AND NOT EXISTS (SELECT 1 FROM monitor_alerts b WHERE b.monitor = a.monitor AND b.channel = a.channel
                               AND b.ended IS NULL AND b.key < a.key)
             ORDER BY a.next_at, a.key LIMIT $3"
        );
        let arguments: &[&(dyn mutirao_store::postgres::ToSql + Sync)] =
            &[&i64::from(shard.0), &now.0, &i64::from(rows)];
        self.0.connection().await?.rows(&sql, arguments).await?.iter().map(waiting).collect()
    }

    async fn record(&self, fence: Fence, records: Vec<Recorded>) -> Answer<Settling> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        if !fence.holds_in_postgres(&tx).await? {
            return Ok(Settling::Fenced);
        }
        let keys: Vec<i64> = records.iter().map(|record| record.key as i64).collect();
        let tries: Vec<i64> = records.iter().map(|record| i64::from(record.tries)).collect();
        let first: Vec<Option<i64>> = records.iter().map(|record| record.first_at.map(|at| at.0)).collect();
        let came = |record: &Recorded| match record.came {
            Came::Later(at) => (at.0, None, None),
            Came::Ended(delivery, at) => (at.0, Some(delivery.word()), Some(at.0)),
        };
        let next: Vec<i64> = records.iter().map(|record| came(record).0).collect();
        let ended: Vec<Option<&str>> = records.iter().map(|record| came(record).1).collect();
        let ended_at: Vec<Option<i64>> = records.iter().map(|record| came(record).2).collect();
        let notes: Vec<Option<String>> =
            records.iter().map(|record| record.note.as_deref().map(|note| clean(note).into_owned())).collect();
        tx.run(
            "UPDATE monitor_alerts a SET tries = r.tries, first_at = r.first_at, next_at = r.next_at, ended = r.ended,
                    ended_at = r.ended_at, note = r.note
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[])
                  AS r (key, tries, first_at, next_at, ended, ended_at, note)
             WHERE a.key = r.key AND a.ended IS NULL",
            &[&keys, &tries, &first, &next, &ended, &ended_at, &notes],
        )
        .await?;
        tx.commit().await?;
        Ok(Settling::Written { new: records.len() as u64 })
    }

    async fn alerts(&self, monitor: MonitorKey, rows: u32) -> Answer<Vec<AlertRow>> {
        let sql = format!(
            "SELECT {RAISED_COLUMNS}, a.tries, a.next_at, a.ended, a.ended_at, a.note FROM monitor_alerts a
             WHERE a.monitor = $1 ORDER BY a.key DESC LIMIT $2"
        );
        let alert = |row: &Row| {
            let ended: Option<String> = row.try_get(9)?;
            let delivery = ended.map(|word| Delivery::of_word(&word).ok_or_else(|| unknown(&word))).transpose()?;
            Ok(AlertRow {
                raised: raised(row)?,
                tries: row.try_get::<_, i64>(7)? as u32,
                next_at: Timestamp(row.try_get(8)?),
                ended: delivery.zip(row.try_get::<_, Option<i64>>(10)?.map(Timestamp)),
                note: row.try_get(11)?,
            })
        };
        let found = self.0.connection().await?.rows(&sql, &[&(monitor.0 as i64), &i64::from(rows)]).await?;
        found.iter().map(alert).collect()
    }

    async fn sweep_alerts(&self, before: Timestamp, rows: u32) -> Answer<u64> {
        let mut connection = self.0.connection().await?;
        let tx = connection.begin().await?;
        let gone = tx
            .run(
                "DELETE FROM monitor_alerts WHERE ctid = ANY(ARRAY(
                     SELECT ctid FROM monitor_alerts WHERE ended IS NOT NULL AND ended_at < $1 LIMIT $2
                     FOR UPDATE SKIP LOCKED))",
                &[&before.0, &i64::from(rows)],
            )
            .await?;
        tx.commit().await?;
        Ok(gone)
    }
}

/// Within the settlement that they follow from.
pub async fn raise(tx: &Transaction<'_>, shard: ShardId, alerts: &[Raised]) -> Answer<()> {
    if alerts.is_empty() {
        return Ok(());
    }
    let monitors: Vec<i64> = alerts.iter().map(|alert| alert.monitor.0 as i64).collect();
    let about: Vec<i64> = alerts.iter().map(|alert| alert.about.0).collect();
    let events: Vec<&str> = alerts.iter().map(|alert| alert.event.word()).collect();
    let turns: Vec<i64> = alerts.iter().map(|alert| i64::from(alert.turn)).collect();
    let channels: Vec<&str> = alerts.iter().map(|alert| alert.to.as_str()).collect();
    let at: Vec<i64> = alerts.iter().map(|alert| alert.at.0).collect();
    let details: Vec<Option<String>> =
        alerts.iter().map(|alert| alert.detail.as_deref().map(|detail| clean(detail).into_owned())).collect();
    // In the order in which they were raised, which is the order of their keys.
    tx.run(
        "INSERT INTO monitor_alerts (shard, monitor, about, event, turn, channel, raised_at, detail, next_at)
         SELECT $1, monitor, about, event, turn, channel, at, detail, at
         FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::text[])
              WITH ORDINALITY AS r (monitor, about, event, turn, channel, at, detail, n) ORDER BY n
         ON CONFLICT DO NOTHING",
        &[&i64::from(shard.0), &monitors, &about, &events, &turns, &channels, &at, &details],
    )
    .await
    .map(drop)
}

fn channel(row: &Row) -> Answer<ChannelRow> {
    Ok(ChannelRow { spec: json(row, 0)?, changed_at: Timestamp(row.try_get(1)?), changed_by: row.try_get(2)? })
}

fn raised(row: &Row) -> Answer<Raised> {
    let word: &str = row.try_get(2)?;
    Ok(Raised {
        monitor: MonitorKey(row.try_get::<_, i64>(0)? as u64),
        about: Timestamp(row.try_get(1)?),
        event: AlertEvent::of_word(word).ok_or_else(|| unknown(word))?,
        turn: row.try_get::<_, i64>(3)? as u32,
        to: row.try_get(4)?,
        at: Timestamp(row.try_get(5)?),
        detail: row.try_get(6)?,
    })
}

fn waiting(row: &Row) -> Answer<Waiting> {
    let channel: Option<&str> = row.try_get(14)?;
    let attention: Option<&str> = row.try_get(18)?;
    Ok(Waiting {
        raised: raised(row)?,
        key: row.try_get::<_, i64>(7)? as u64,
        tries: row.try_get::<_, i64>(8)? as u32,
        first_at: row.try_get::<_, Option<i64>>(9)?.map(Timestamp),
        uuid: row.try_get(10)?,
        namespace: row.try_get(11)?,
        spec: json(row, 12)?,
        removed: row.try_get(13)?,
        channel: channel.map(|_| json(row, 14)).transpose()?,
        since: row.try_get::<_, Option<i64>>(15)?.map(Timestamp),
        closed_at: row.try_get::<_, Option<i64>>(16)?.map(Timestamp),
        evidence: row.try_get(17)?,
        attention: attention.map(|_| json(row, 18)).transpose()?.unwrap_or_default(),
        told: if row.try_get(19)? { Told::Yes } else { Told::No },
    })
}

fn unknown(word: &str) -> StoreError {
    unreadable(format!("there is no {word}"))
}
