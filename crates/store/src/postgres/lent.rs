//! Connections as they are lent out. One whose borrower went away in the middle of a question (a limit ran out, a request
//! was dropped) still works on it, and whoever got it next would wait for that; so it is closed instead of going back.
//!
//! What is asked through [`Ask`](super::Ask) and by what stands here is counted, and told when it is refused. What is asked of
//! the client itself is neither.

use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use deadpool_postgres::{Client, Transaction as PoolTransaction};
use futures_util::TryStreamExt;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};

use super::refusals::Refusals;
use crate::StoreError;
use crate::room::Place;

const BEGIN: &str = "BEGIN";
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const COMMIT: &str = "COMMIT";

/// Questions whose answers have not come yet.
#[derive(Default)]
pub(super) struct Unanswered(AtomicUsize);

impl Unanswered {
    /// One that is dropped half way stays unanswered.
    pub async fn until<T>(&self, answered: impl Future<Output = T> + Send) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        let answer = answered.await;
        self.0.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Where it is told what the server refuses.
#[derive(Clone, Copy)]
pub(super) struct Ledger<'a> {
    pub refusals: &'a Refusals,
    pub address: &'a str,
}

impl Ledger<'_> {
    pub fn see<T>(&self, statement: &str, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.refusals.see(statement, &answer, self.address);
        answer
    }
}

/// A connection lent out for one call.
pub struct Connection<'a> {
    /// There until it is dropped.
    client: Option<Client>,
    pub(super) unanswered: Unanswered,
    pub(super) ledger: Ledger<'a>,
    _place: Place<'a>,
}

impl<'a> Connection<'a> {
    pub(super) fn lend(client: Client, place: Place<'a>, ledger: Ledger<'a>) -> Self {
        Self { client: Some(client), unanswered: Unanswered::default(), ledger, _place: place }
    }

    /// Begins a transaction that sees what others commit meanwhile.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, StoreError> {
        let Self { client, unanswered, ledger, .. } = self;
        let begun = unanswered.until(lent_mut(client).transaction()).await;
        let tx = ledger.see(BEGIN, begun.map_err(StoreError::from))?;
        Ok(Transaction { tx, unanswered, ledger: *ledger })
    }

    /// Begins a transaction that only reads, and of which all sees one state.
    pub async fn snapshot(&mut self) -> Result<Transaction<'_>, StoreError> {
        let Self { client, unanswered, ledger, .. } = self;
        let builder = lent_mut(client).build_transaction();
        let start = builder.isolation_level(IsolationLevel::RepeatableRead).read_only(true).start();
        let begun = unanswered.until(start).await;
        let tx = ledger.see(SNAPSHOT, begun.map_err(StoreError::from))?;
        Ok(Transaction { tx, unanswered, ledger: *ledger })
    }
}

fn lent_mut(client: &mut Option<Client>) -> &mut Client {
    client.as_mut().expect("a connection is lent until it is dropped")
}

impl Deref for Connection<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("a connection is lent until it is dropped")
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if !self.unanswered.is_empty()
            && let Some(client) = self.client.take()
        {
            // Out of the pool, and hung up on.
            drop(Client::take(client));
        }
    }
}

/// A transaction on a connection that is lent out. Undone when it is dropped without a commit.
pub struct Transaction<'a> {
    tx: PoolTransaction<'a>,
    pub(super) unanswered: &'a Unanswered,
    pub(super) ledger: Ledger<'a>,
}

impl Transaction<'_> {
    pub async fn commit(self) -> Result<(), StoreError> {
        let committed = self.unanswered.until(self.tx.commit()).await;
        self.ledger.see(COMMIT, committed.map_err(StoreError::from))
    }

    /// A statement without parameters whose rows nobody wants, as settings of this transaction are.
    pub async fn set(&self, sql: &str) -> Result<(), StoreError> {
        let set = self.unanswered.until(self.tx.batch_execute(sql)).await;
        self.ledger.see(sql, set.map_err(StoreError::from))
    }

    /// Rows as they come: there may be more than memory should hold.
    pub async fn each(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
        mut take: impl FnMut(Row) -> Result<(), StoreError> + Send,
    ) -> Result<(), StoreError> {
        let read = async {
            let statement = self.tx.prepare_cached(sql).await?;
            let mut rows = pin!(self.tx.query_raw(&statement, params.iter().copied()).await?);
            while let Some(row) = rows.try_next().await? {
                take(row)?;
            }
            Ok(())
        };
        self.ledger.see(sql, self.unanswered.until(read).await)
    }
}

impl<'a> Deref for Transaction<'a> {
    type Target = PoolTransaction<'a>;

    fn deref(&self) -> &PoolTransaction<'a> {
        &self.tx
    }
}
