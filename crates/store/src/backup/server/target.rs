//! A PostgreSQL that is being filled: one transaction, under the lock of those who change tables.

use std::collections::BTreeMap;

use bytes::Bytes;
use deadpool_postgres::{Client, Transaction};
use tokio_postgres::CopyInSink;

use super::Counter;
use crate::backup::{BackupError, JUMP, Present};
use crate::migrate::{known, tables};
use crate::postgres::migrate;
use crate::{Migration, StoreError};

pub(in crate::backup) struct Target<'a> {
    tx: Transaction<'a>,
    /// Steps that come once the rows are there.
    later: Vec<Migration>,
}

/// A column, in the order of the table.
pub(in crate::backup) struct Column {
    pub name: String,
    pub kind: String,
    /// Whether the server numbers its rows.
    pub counts: bool,
}

impl<'a> Target<'a> {
    /// Empty tables of these versions, or why there cannot be.
    pub async fn open(
        client: &'a mut Client,
        address: &str,
        steps: &[Migration],
        schema: &BTreeMap<String, u32>,
        present: Present,
    ) -> Result<Target<'a>, BackupError> {
        let tx = client.transaction().await.map_err(StoreError::from)?;
        migrate::alone(&tx).await.map_err(StoreError::from)?;
        let found = migrate::versions(&tx).await.map_err(StoreError::from)?;
        migrate::refuse_newer(&found, &known(steps)?, address)?;
        let (now, later): (Vec<Migration>, Vec<Migration>) =
            steps.iter().partition(|step| schema.get(step.component).is_some_and(|version| step.version <= *version));
        let target = Target { tx, later };
        if found.is_empty() {
            migrate::steps(&target.tx, now.iter()).await.map_err(StoreError::from)?;
            // The steps put first rows into some, and those come with the backup.
            target.truncate(&tables(&now)).await?;
        } else if &found == schema {
            target.empty(&tables(&now), address, present).await?;
        } else {
            return Err(BackupError::OtherVersion { place: address.into() });
        }
        Ok(target)
    }

    async fn empty(&self, tables: &[&str], address: &str, present: Present) -> Result<(), BackupError> {
        let place = || address.to_owned();
        if present == Present::Replace {
            let others = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'mutirao'
                          AND datname = current_database() AND pid <> pg_backend_pid())";
            let row = self.tx.query_one(others, &[]).await.map_err(StoreError::from)?;
            if row.try_get(0).map_err(StoreError::from)? {
                return Err(BackupError::InUse { place: place() });
            }
            return Ok(self.truncate(tables).await?);
        }
        let filled: Vec<String> =
            tables.iter().map(|table| format!("SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})")).collect();
        let row = self.tx.query_opt(&format!("{} LIMIT 1", filled.join(" UNION ALL ")), &[]).await;
        match row.map_err(StoreError::from)? {
            None => Ok(()),
            Some(row) => {
                let table: String = row.try_get(0).map_err(StoreError::from)?;
                Err(BackupError::NotEmpty { place: place(), what: format!("rows in {table}") })
            }
        }
    }

    async fn truncate(&self, tables: &[&str]) -> Result<(), StoreError> {
        if tables.is_empty() {
            return Ok(());
        }
        Ok(self.tx.batch_execute(&format!("TRUNCATE {}", tables.join(", "))).await?)
    }

    /// Takes lines as COPY writes them.
    pub async fn copy(&self, table: &str, columns: &[String]) -> Result<CopyInSink<Bytes>, StoreError> {
        Ok(self.tx.copy_in(&format!("COPY {table} ({}) FROM STDIN", quoted(columns))).await?)
    }

    pub async fn columns(&self, table: &str) -> Result<Vec<Column>, StoreError> {
        columns(&self.tx, table).await
    }

    /// Past everything that was ever given out, and then some.
    pub async fn go_on_counting(&self, table: &str, counter: &Counter) -> Result<(), StoreError> {
        let Counter { column, last } = counter;
        let column_quoted = quoted(std::slice::from_ref(column));
        let jump = format!(
            "SELECT setval(pg_get_serial_sequence($1, $2),
                           greatest((SELECT coalesce(max({column_quoted}), 0) FROM {table}), $3::bigint) + {JUMP})"
        );
        self.tx.query_one(&jump, &[&table, column, last]).await?;
        Ok(())
    }

    /// The newest tables, with everything in them.
    pub async fn finish(self, after: &str) -> Result<(), StoreError> {
        migrate::steps(&self.tx, self.later.iter()).await?;
        self.tx.batch_execute(after).await?;
        Ok(self.tx.commit().await?)
    }
}

pub(in crate::backup) async fn columns(tx: &Transaction<'_>, table: &str) -> Result<Vec<Column>, StoreError> {
    let ask = "SELECT attname::text, format_type(atttypid, NULL), attidentity <> '' FROM pg_attribute
               WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
               ORDER BY attnum";
    let rows = tx.query(ask, &[&table]).await?;
    let column = |row: &tokio_postgres::Row| {
        Ok(Column { name: row.try_get(0)?, kind: row.try_get(1)?, counts: row.try_get(2)? })
    };
    rows.iter().map(column).collect()
}

pub(super) fn quoted(columns: &[String]) -> String {
    columns.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect::<Vec<_>>().join(", ")
}
