//! PostgreSQL, table by table, as the server's own COPY writes it, all from one snapshot: the managers go on meanwhile.
//! Brought back in one transaction: all of it is there, or nothing has changed.
//!
//! A table's part begins with a line of JSON ([`Head`]), then has a line for each row. Columns have names, so a table
//! that has grown by some since still takes its rows.

mod target;

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;

use bytes::Bytes;
use deadpool_postgres::Transaction;
use futures_util::{SinkExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::archive::{Reader, Writer};
use super::exchange::Exchange;
use super::{BackupError, Manifest, Onlooker, Place, Present};
use crate::migrate::{known, tables};
use crate::postgres::{alone, migrate};
use crate::{Migration, StoreError};
pub(super) use target::{Target, columns};

/// What a table's part is called, before the table's name.
const TABLE: &str = "table/";
/// A line of JSON with the names of some columns.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The first line of a table's part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub columns: Vec<String>,
    /// The column that counts by itself, and how far it was.
    pub counter: Option<Counter>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Counter {
    pub column: String,
    pub last: i64,
}

/// The file that is written may be on a slow disk, in between; and whoever changes tables is waited for. It locks nothing
/// that anybody else needs.
const PATIENCE: &str = "SET LOCAL idle_in_transaction_session_timeout = '10min'; SET LOCAL lock_timeout = '10min'";

pub(super) async fn pack(
    url: &str,
    steps: &[Migration],
    writer: &mut Writer,
    onlooker: &dyn Onlooker,
) -> Result<BTreeMap<String, u32>, BackupError> {
    let (mut client, address) = alone(url).await?;
    let builder = client.build_transaction().read_only(true);
    let begun = builder.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).start();
    let tx = begun.await.map_err(StoreError::from)?;
    tx.batch_execute(PATIENCE).await.map_err(StoreError::from)?;
    if !migrate::has_table(&tx).await.map_err(StoreError::from)? {
        return Err(BackupError::Nothing { place: address });
    }
    let schema = migrate::versions(&tx).await.map_err(StoreError::from)?;
    migrate::refuse_newer(&schema, &known(steps)?, &address)?;
    let present: Vec<Migration> = up_to(steps, &schema).copied().collect();
    let tables = tables(&present);
    onlooker.begins("packing", size(&tx, &tables).await?);
    for table in tables {
        writer.begin(&format!("{TABLE}{table}"))?;
        pack_table(&tx, table, writer, onlooker).await?;
        writer.end()?;
    }
    Ok(schema)
}

/// The steps that tables of these versions have had.
pub(super) fn up_to<'a>(
    steps: &'a [Migration],
    schema: &'a BTreeMap<String, u32>,
) -> impl Iterator<Item = &'a Migration> {
    steps.iter().filter(|step| schema.get(step.component).is_some_and(|version| step.version <= *version))
}

/// Roughly: what the tables take on disk.
async fn size(tx: &Transaction<'_>, tables: &[&str]) -> Result<u64, StoreError> {
    let sum = "SELECT coalesce(sum(pg_table_size(to_regclass(name))), 0)::bigint FROM unnest($1::text[]) t (name)";
    Ok(tx.query_one(sum, &[&tables]).await?.try_get::<_, i64>(0)? as u64)
}

async fn pack_table(
    tx: &Transaction<'_>,
    table: &str,
    writer: &mut Writer,
    onlooker: &dyn Onlooker,
) -> Result<(), BackupError> {
    let found = columns(tx, table).await?;
    let counter = match found.iter().find(|column| column.counts) {
        Some(column) => {
            let last = "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence($1, $2)::regclass), 0)";
            let row = tx.query_one(last, &[&table, &column.name]).await.map_err(StoreError::from)?;
            Some(Counter { column: column.name.clone(), last: row.try_get(0).map_err(StoreError::from)? })
        }
        None => None,
    };
    let head = Head { columns: found.into_iter().map(|column| column.name).collect(), counter };
    let line = serde_json::to_string(&head).map_err(|error| StoreError::Postgres(error.to_string()))?;
    writer.write(line.as_bytes())?;
    writer.write(b"\n")?;
    let copy = format!("COPY {table} ({}) TO STDOUT", target::quoted(&head.columns));
    let rows = tx.copy_out(&copy).await.map_err(StoreError::from)?;
    let mut rows = pin!(rows);
    while let Some(lines) = rows.try_next().await.map_err(StoreError::from)? {
        writer.write(&lines)?;
        // A line break inside a value is written as two other letters.
        writer.count(lines.iter().filter(|byte| **byte == b'\n').count() as u64);
        onlooker.passed(lines.len() as u64);
    }
    Ok(())
}

pub(super) async fn unpack(
    archive: &Path,
    manifest: &Manifest,
    url: &str,
    into: &Place,
    present: Present,
    onlooker: &dyn Onlooker,
) -> Result<(), BackupError> {
    let exchange = Exchange::begin(archive, into, present)?;
    let (mut client, address) = alone(url).await?;
    let steps = &into.tables.postgres;
    let target = Target::open(&mut client, &address, steps, &manifest.schema, present).await?;
    let mut reader = Reader::open(archive)?;
    onlooker.begins("unpacking", reader.bytes());
    while let Some(part) = reader.next_part()? {
        let Some(table) = part.strip_prefix(TABLE) else { continue };
        // The name goes into a statement, so it must be one that this program knows.
        let Some(table) = tables(steps).into_iter().find(|known| *known == table) else {
            return Err(reader.damaged(&format!("there is no table \"{table}\" in this program")));
        };
        let head = head(&mut reader)?;
        let mut sink = pin!(target.copy(table, &head.columns).await?);
        let rest = Bytes::copy_from_slice(reader.rest());
        sink.send(rest).await.map_err(StoreError::from)?;
        while let Some(lines) = reader.chunk()?.map(Bytes::copy_from_slice) {
            sink.send(lines).await.map_err(StoreError::from)?;
            onlooker.passed(reader.took());
        }
        sink.finish().await.map_err(StoreError::from)?;
        if let Some(counter) = &head.counter {
            target.go_on_counting(table, counter).await?;
        }
    }
    target.finish(&into.tables.after).await?;
    exchange.finish()?;
    Ok(())
}

fn head(reader: &mut Reader) -> Result<Head, BackupError> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while reader.exact(&mut byte)? && byte[0] != b'\n' && line.len() < HEAD_BYTES_MAX {
        line.push(byte[0]);
    }
    serde_json::from_slice(&line).map_err(|_| reader.damaged("a table has no columns"))
}
