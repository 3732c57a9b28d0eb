//! A PostgreSQL server, version 13 or newer: a pool of connections that several managers' processes may each have.
//!
//! **Going away and coming back.** A connection that breaks is thrown away and the next call makes a new one, so a server
//! that was restarted is used again without anybody's help. Calls that were under way get [`StoreError::Unreachable`]; a
//! write among them may or may not have got through, so writes are made to be repeated.
//!
//! **Pipelining.** Statements whose futures are polled together travel together. A transaction is undone when it is
//! dropped without a commit, also when its caller goes away; a connection that still works on what its caller did not
//! wait for is closed.
//!
//! Not here: any table or query but those of blobs. They belong to the capabilities.

mod ask;
mod blobs;
mod checkup;
mod connect;
mod errors;
mod lent;
pub(crate) mod migrate;
mod outage;
mod refusals;
mod tls;

use std::sync::Arc;

use deadpool_postgres::{Client, Pool};
use lent::Ledger;
pub use tokio_postgres::Row;
pub use tokio_postgres::types::ToSql;

use crate::room::Room;
use crate::{Migration, StoreError};
pub use ask::{Ask, text};
pub(crate) use blobs::CHUNK_BYTES_MAX;
pub use blobs::{MIGRATIONS as BLOBS_MIGRATIONS, PgBlobs};
pub use checkup::{Checkup, Settings, check};
pub use connect::{CONNECTIONS_MAX, check_url};
pub use lent::{Connection, Transaction};
use outage::Outage;
use refusals::{ENTRY, Refusals};

/// Calls that hold a connection or wait for one. Past this, [`StoreError::Busy`].
const CALLS_WAITING_MAX: usize = 4_096;

/// A handle on one database; clones share it.
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    pool: Pool,
    room: Room,
    /// Without the password.
    address: String,
    outage: Outage,
    refusals: Arc<Refusals>,
}

impl Postgres {
    /// Connects, looks whether the server will do, and applies the steps that are missing. The URL is that of libpq:
    /// `postgres://user:password@host:5432/database?sslmode=require&sslrootcert=/etc/ca.pem`.
    pub async fn open(url: &str, migrations: &[Migration]) -> Result<Postgres, StoreError> {
        let (pool, mut client, address) = first(url, CONNECTIONS_MAX).await?;
        migrate::apply(&mut client, &address, migrations).await?;
        drop(client);
        Ok(Self::of(pool, address))
    }

    /// Connections of their own, at most so many, to a database that somebody has opened: for calls that must not wait
    /// behind others.
    pub async fn apart(url: &str, connections_max: usize) -> Result<Postgres, StoreError> {
        let (pool, _, address) = first(url, connections_max).await?;
        Ok(Self::of(pool, address))
    }

    fn of(pool: Pool, address: String) -> Postgres {
        let room = Room::for_at_most(CALLS_WAITING_MAX);
        let (outage, refusals) = (Outage::default(), Refusals::at(&address));
        Postgres(Arc::new(Inner { pool, room, address, outage, refusals }))
    }

    /// Waits for a free connection.
    pub async fn connection(&self) -> Result<Connection<'_>, StoreError> {
        let Inner { pool, room, address, outage, refusals } = &*self.0;
        let place = room.enter()?;
        let before = pool.status().size;
        let got = pool.get().await;
        outage.see(&got, address);
        let got = got.map_err(errors::at_run_time);
        // Those who were let in before stay so when a password changes: only a new connection says that it is right again.
        if got.is_err() || pool.status().size > before {
            refusals.see(ENTRY, &got, address);
        }
        Ok(Connection::lend(got?, place, Ledger { refusals, address }))
    }

    /// Lets nobody in any more. What is under way keeps its connection until it is done.
    pub async fn close(&self) {
        self.0.pool.close();
    }

    /// Where it is, without the password.
    pub fn address(&self) -> &str {
        &self.0.address
    }
}

/// A pool, its first connection, and the address without the password; or why the server will not do.
async fn first(url: &str, connections_max: usize) -> Result<(Pool, Client, String), StoreError> {
    let plan = connect::Plan::read(url)?;
    let address = plan.address.clone();
    let pool = plan.pool(connections_max)?;
    let client = pool.get().await.map_err(|error| errors::at_opening(error, &address))?;
    connect::check_version(&client, &address).await?;
    Ok((pool, client, address))
}

/// One connection, for whoever needs no pool, and the address without the password.
pub(crate) async fn alone(url: &str) -> Result<(Client, String), StoreError> {
    let (_, client, address) = first(url, 1).await?;
    Ok((client, address))
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("address", &self.address()).field("pool", &self.0.pool.status()).finish()
    }
}
