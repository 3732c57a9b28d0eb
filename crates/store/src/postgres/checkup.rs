//! A look at a server without changing anything, for `doctor`.

use super::{errors, migrate};
use crate::migrate::known;
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
    /// Whether the server itself writes to disk what it confirms.
    pub fsync: bool,
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
    let row = tx.query_one("SELECT current_setting('server_version'), current_setting('fsync') = 'on'", &[]).await;
    let row = row.map_err(name)?;
    Ok(Checkup {
        version: row.try_get(0).map_err(name)?,
        fsync: row.try_get(1).map_err(name)?,
        steps_missing: migrations.iter().filter(is_missing).count(),
        address: address.clone(),
    })
}
