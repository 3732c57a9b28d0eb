//! Versioned steps on PostgreSQL: the same rules as on SQLite ([`crate::migrate`]), with an advisory lock in place of the
//! file's. Several programs of the same version may start at once; the second finds the work done.
//!
//! **Expand and contract.** While managers are upgraded one by one, those of the old version go on with the new tables.
//! So a step only adds what old statements do not mind: tables, indexes, columns with a default. What nobody reads any
//! more goes in a step of a later release. An old program that *starts* on newer tables is refused.

use std::collections::BTreeMap;

use deadpool_postgres::{Client, Transaction};

use super::errors;
use crate::migrate::known;
use crate::{Migration, StoreError};

/// "muti": tells our advisory lock from anybody else's in the same database. Its second half is the schema.
const LOCK: i32 = 0x6d75_7469;
/// For somebody else's steps, which may build an index.
const LOCK_WAIT: &str = "10min";
/// A backup that is brought back is read from a disk that may be slow, in between.
const NEXT_WORD_WAIT: &str = "10min";

const TABLE: &str = "CREATE TABLE IF NOT EXISTS migrations (
    component  text NOT NULL,
    version    integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (component, version)
)";

/// Brings the tables up to the newest version, or refuses them untouched.
pub(super) async fn apply(client: &mut Client, address: &str, migrations: &[Migration]) -> Result<(), StoreError> {
    let known = known(migrations)?;
    let name = |error| errors::while_opening(error, address);
    let tx = client.transaction().await.map_err(name)?;
    alone(&tx).await.map_err(name)?;
    let found = versions(&tx).await.map_err(name)?;
    refuse_newer(&found, &known, address)?;
    let missing = migrations.iter().filter(|step| step.version > version_in(&found, step.component));
    steps(&tx, missing).await.map_err(name)?;
    tx.commit().await.map_err(name)
}

/// Nobody else changes tables until this transaction ends; and there is a table to note steps in.
pub(crate) async fn alone(tx: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    let lock = format!(
        "SET LOCAL lock_timeout = '{LOCK_WAIT}';
         SET LOCAL idle_in_transaction_session_timeout = '{NEXT_WORD_WAIT}';
         SELECT pg_advisory_xact_lock({LOCK}, hashtext(coalesce(current_schema(), '')))"
    );
    tx.batch_execute(&lock).await?;
    if !has_table(tx).await? {
        tx.batch_execute(TABLE).await?;
    }
    Ok(())
}

/// Applies and notes them.
pub(crate) async fn steps(
    tx: &Transaction<'_>,
    steps: impl Iterator<Item = &Migration>,
) -> Result<(), tokio_postgres::Error> {
    for step in steps {
        tx.batch_execute(step.sql).await?;
        let (component, version) = (step.component, step.version as i32);
        tx.execute("INSERT INTO migrations (component, version) VALUES ($1, $2)", &[&component, &version]).await?;
    }
    Ok(())
}

/// Asked first, so that a user who may not create tables can still use those that are there.
pub(crate) async fn has_table(tx: &Transaction<'_>) -> Result<bool, tokio_postgres::Error> {
    tx.query_one("SELECT to_regclass('migrations') IS NOT NULL", &[]).await?.try_get(0)
}

/// The newest version of each component.
pub(crate) async fn versions(tx: &Transaction<'_>) -> Result<BTreeMap<String, u32>, tokio_postgres::Error> {
    let rows = tx.query("SELECT component, max(version) FROM migrations GROUP BY component", &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i32>(1)? as u32))).collect()
}

fn version_in(found: &BTreeMap<String, u32>, component: &str) -> u32 {
    found.get(component).copied().unwrap_or(0)
}

pub(crate) fn refuse_newer(
    found: &BTreeMap<String, u32>,
    known: &BTreeMap<&'static str, u32>,
    address: &str,
) -> Result<(), StoreError> {
    let newer = known.iter().find(|(component, known)| version_in(found, component) > **known);
    newer.map_or(Ok(()), |(component, known)| {
        let (component, path) = (component.to_string(), address.to_owned());
        Err(StoreError::Newer { found: version_in(found, &component), component, path, known: *known })
    })
}
