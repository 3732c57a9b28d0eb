//! A look at a server without changing anything, for `doctor`.

use deadpool_postgres::Transaction;
use mutirao_core::Timestamp;

use super::{errors, migrate};
use crate::migrate::{known, tables};
use crate::{Migration, StoreError};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkup {
    /// Without the password.
    pub address: String,
    /// As the server writes it: `15.6 (Debian 15.6-0+deb12u1)`.
    pub version: String,
    /// Steps that the next start of a manager will apply.
    pub steps_missing: usize,
    /// Whether we may make tables, which missing steps need.
    pub may_create: bool,
    /// Tables that are there and that we may not read or write.
    pub forbidden: Vec<String>,
    /// Whether it only follows another server, and takes no writes.
    pub standby: bool,
    pub settings: Settings,
    /// Connections that the server can still take.
    pub connections_free: i64,
    /// The server's clock.
    pub now: Timestamp,
}

/// Settings of the server that matter to us, as they are for our connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether it writes to disk what it confirms.
    pub fsync: bool,
    /// Whether a page that was half written when the power went can be mended.
    pub full_page_writes: bool,
    /// How much of a commit is waited for. Ours never are `off`.
    pub synchronous_commit: String,
    pub autovacuum: bool,
    /// After which it ends a statement; 0 is never.
    pub statement_timeout_ms: i64,
}

/// Connects as [`Postgres::open`](super::Postgres::open) does, and is refused for the same reasons.
pub async fn check(url: &str, migrations: &[Migration]) -> Result<Checkup, StoreError> {
    let known = known(migrations)?;
    let (mut client, address) = super::alone(url).await?;
    let name = |error| errors::while_opening(error, &address);
    let tx = client.transaction().await.map_err(name)?;
    let found = match migrate::has_table(&tx).await.map_err(name)? {
        true => migrate::versions(&tx).await.map_err(name)?,
        false => Default::default(),
    };
    migrate::refuse_newer(&found, &known, &address)?;
    let is_missing = |step: &&Migration| step.version > found.get(step.component).copied().unwrap_or(0);
    let steps_missing = migrations.iter().filter(is_missing).count();
    look(&tx, &address, steps_missing, &tables(migrations)).await.map_err(name)
}

async fn look(
    tx: &Transaction<'_>,
    address: &str,
    steps_missing: usize,
    tables: &[&str],
) -> Result<Checkup, tokio_postgres::Error> {
    let row = tx
        .query_one(
            "SELECT current_setting('server_version'),
                    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
                    pg_is_in_recovery(),
                    current_setting('fsync') = 'on',
                    current_setting('full_page_writes') = 'on',
                    current_setting('synchronous_commit'),
                    current_setting('autovacuum') = 'on',
                    (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'),
                    current_setting('max_connections')::bigint
                      - current_setting('superuser_reserved_connections')::bigint
                      - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
                    (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
            &[],
        )
        .await?;
    let forbidden = tx
        .query(
            "SELECT name FROM unnest($1::text[]) t (name) WHERE to_regclass(name) IS NOT NULL
             AND (SELECT bool_or(NOT has_table_privilege(to_regclass(name), right_to))
                  FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r (right_to))",
            &[&tables],
        )
        .await?;
    Ok(Checkup {
        address: address.into(),
        version: row.try_get(0)?,
        steps_missing,
        may_create: row.try_get(1)?,
        forbidden: forbidden.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?,
        standby: row.try_get(2)?,
        settings: Settings {
            fsync: row.try_get(3)?,
            full_page_writes: row.try_get(4)?,
            synchronous_commit: row.try_get(5)?,
            autovacuum: row.try_get(6)?,
            statement_timeout_ms: row.try_get(7)?,
        },
        connections_free: row.try_get(8)?,
        now: Timestamp(row.try_get(9)?),
    })
}
