//! Asking, with statements prepared once for each connection and errors in the store's words. For connections and
//! transactions alike; of those that are lent out it is counted what they have not answered, and told what is refused.

use std::borrow::Cow;
use std::future::Future;

use deadpool_postgres::GenericClient;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::lent::{Connection, Transaction};
use crate::StoreError;

pub trait Ask {
    /// Every row there is: bound it in the statement.
    fn rows(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// The row, if there is one.
    fn row(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Option<Row>, StoreError>> + Send;

    /// How many rows were changed.
    fn run(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

impl<C: GenericClient> Ask for C {
    async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let statement = self.prepare_cached(sql).await?;
        Ok(self.query(&statement, params).await?)
    }

    async fn row(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, StoreError> {
        let statement = self.prepare_cached(sql).await?;
        Ok(self.query_opt(&statement, params).await?)
    }

    async fn run(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64, StoreError> {
        let statement = self.prepare_cached(sql).await?;
        Ok(self.execute(&statement, params).await?)
    }
}

/// Asks the client inside, and keeps count.
macro_rules! asks_counted {
    ($($lent:ident),+) => { $(
        impl Ask for $lent<'_> {
            async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
                self.ledger.see(sql, self.unanswered.until((**self).rows(sql, params)).await)
            }

            async fn row(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, StoreError> {
                self.ledger.see(sql, self.unanswered.until((**self).row(sql, params)).await)
            }

            async fn run(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64, StoreError> {
                self.ledger.see(sql, self.unanswered.until((**self).run(sql, params)).await)
            }
        }
    )+ };
}

asks_counted!(Connection, Transaction);

/// PostgreSQL's texts have no NUL. Whatever comes from outside unchecked (a reason, a session's name) goes through here,
/// or one such byte would make a batch fail for ever.
pub fn text(from_outside: &str) -> Cow<'_, str> {
    if from_outside.contains('\0') {
        Cow::Owned(from_outside.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(from_outside)
    }
}
