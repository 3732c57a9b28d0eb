//! An embedded backup into PostgreSQL, for an installation that has outgrown one machine. Tables and columns have the
//! same names in both engines; values are written as the server's COPY wants them. Blobs become rows.
//!
//! Only from the newest tables into the newest: versions of one engine say nothing about those of the other.

mod text;

use std::path::Path;

use bytes::Bytes;
use futures_util::SinkExt;
use rusqlite::{Connection, OptionalExtension};
use tokio_postgres::CopyInSink;

use super::archive::Reader;
use super::embedded::{BLOBS, extract};
use super::exchange::Exchange;
use super::server::{Counter, Target};
use super::{BackupError, Manifest, Onlooker, Place, Present, entries};
use crate::StoreError;
use crate::migrate::{known, tables};
use crate::postgres::{CHUNK_BYTES_MAX, alone};
use crate::sqlite::copy;

/// Bytes of lines that are sent together.
const LINES_BYTES: usize = 256 << 10;

pub(super) async fn unpack(
    archive: &Path,
    manifest: &Manifest,
    url: &str,
    into: &Place,
    present: Present,
    onlooker: &dyn Onlooker,
) -> Result<(), BackupError> {
    let own = known(&into.tables.sqlite)?.into_iter().map(|(component, version)| (component.to_owned(), version));
    if manifest.schema != own.collect() {
        return Err(BackupError::OlderAcross { path: archive.display().to_string() });
    }
    let exchange = Exchange::begin(archive, into, present)?;
    let file = exchange.fresh().join(into.database);
    extract(archive, &file, onlooker)?;
    let embedded = copy::reader(&file)?;

    let (mut client, address) = alone(url).await?;
    let steps = &into.tables.postgres;
    let newest = known(steps)?.into_iter().map(|(component, version)| (component.to_owned(), version)).collect();
    let target = Target::open(&mut client, &address, steps, &newest, present).await?;
    let ours = tables(&into.tables.sqlite);
    for table in tables(steps).into_iter().filter(|table| ours.contains(table)) {
        carry_table(&embedded, &target, table).await?;
    }
    carry_blobs(archive, &target, onlooker).await?;
    target.finish(&into.tables.after).await?;
    exchange.finish()?;
    Ok(())
}

async fn carry_table(embedded: &Connection, target: &Target<'_>, table: &str) -> Result<(), BackupError> {
    let columns = target.columns(table).await?;
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let mut lines = Lines::to(target.copy(table, &names).await?);
    {
        let select = format!("SELECT {} FROM {table}", text::listed(&names));
        let mut asked = embedded.prepare(&select).map_err(StoreError::from)?;
        let mut rows = asked.query([]).map_err(StoreError::from)?;
        while let Some(row) = rows.next().map_err(StoreError::from)? {
            for (n, column) in columns.iter().enumerate() {
                let value = row.get_ref(n).map_err(StoreError::from)?;
                text::put(&mut lines.waiting, n, value, &column.kind);
            }
            lines.end().await?;
        }
    }
    lines.finish().await?;
    if let Some(column) = columns.iter().find(|column| column.counts) {
        let last = last_given(embedded, table).map_err(StoreError::from)?;
        target.go_on_counting(table, &Counter { column: column.name.clone(), last }).await?;
    }
    Ok(())
}

fn last_given(embedded: &Connection, table: &str) -> rusqlite::Result<i64> {
    // There is such a table only where a key must never be used twice.
    if !embedded.table_exists(None, "sqlite_sequence")? {
        return Ok(0);
    }
    let last = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
    Ok(embedded.query_row(last, [table], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// One copy at a time fits through a connection, so the part is read twice: for the blobs, and for what is in them. They
/// are numbered as they come.
async fn carry_blobs(archive: &Path, target: &Target<'_>, onlooker: &dyn Onlooker) -> Result<(), BackupError> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut blobs = Lines::to(target.copy("blobs", &names(&["id", "key", "len"])).await?);
    let (mut reader, mut last) = (Reader::open(archive)?, 0i64);
    reader.go_to(BLOBS)?;
    while let Some(entry) = entries::next(&mut reader)? {
        last += 1;
        blobs.waiting.extend_from_slice(format!("{last}\t{}\t{}", entry.name, entry.bytes).as_bytes());
        blobs.end().await?;
        entries::each_piece(&mut reader, &entry, entries::BUFFER_BYTES, |_| Ok(()))?;
    }
    blobs.finish().await?;
    target.go_on_counting("blobs", &Counter { column: "id".into(), last }).await?;

    let mut chunks = Lines::to(target.copy("blob_chunks", &names(&["blob", "at", "body"])).await?);
    let (mut reader, mut id, mut piece) = (Reader::open(archive)?, 0i64, vec![0; CHUNK_BYTES_MAX]);
    reader.go_to(BLOBS)?;
    while let Some(entry) = entries::next(&mut reader)? {
        id += 1;
        let mut at = 0;
        while at < entry.bytes {
            let now = usize::try_from(entry.bytes - at).unwrap_or(usize::MAX).min(CHUNK_BYTES_MAX);
            if !reader.exact(&mut piece[..now])? {
                return Err(reader.damaged("an entry is cut"));
            }
            chunks.waiting.extend_from_slice(format!("{id}\t{at}\t").as_bytes());
            text::hex(&mut chunks.waiting, &piece[..now]);
            chunks.end().await?;
            at += now as u64;
            onlooker.passed(reader.took());
        }
    }
    Ok(chunks.finish().await?)
}

/// Lines on their way, some at a time.
struct Lines {
    sink: std::pin::Pin<Box<CopyInSink<Bytes>>>,
    waiting: Vec<u8>,
}

impl Lines {
    fn to(sink: CopyInSink<Bytes>) -> Self {
        Self { sink: Box::pin(sink), waiting: Vec::with_capacity(2 * LINES_BYTES) }
    }

    /// The line is whole.
    async fn end(&mut self) -> Result<(), StoreError> {
        self.waiting.push(b'\n');
        if self.waiting.len() >= LINES_BYTES { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<(), StoreError> {
        let lines = Bytes::from(std::mem::replace(&mut self.waiting, Vec::with_capacity(2 * LINES_BYTES)));
        Ok(self.sink.send(lines).await?)
    }

    async fn finish(mut self) -> Result<(), StoreError> {
        self.send().await?;
        self.sink.as_mut().finish().await?;
        Ok(())
    }
}
