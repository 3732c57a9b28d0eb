//! The [`Registry`] in PostgreSQL, where several managers share it.

use async_trait::async_trait;
use mutirao_core::auth::Duty;
use mutirao_core::{Timestamp, WorkerId};
use mutirao_store::postgres::{Ask, Row, Transaction, text};
use mutirao_store::{Migration, Postgres, StoreError};

use super::registry::{By, ENROLMENT_KEPT_MS, Enrolling, Newcomer, Registry, Token, Worker};
use super::secret::Digest;

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "api", version: 1, sql: include_str!("001_auth.postgres.sql") },
    Migration { component: "api", version: 2, sql: include_str!("002_elastic.postgres.sql") },
    Migration { component: "api", version: 3, sql: include_str!("003_checkers.postgres.sql") },
    Migration { component: "api", version: 4, sql: include_str!("004_once.postgres.sql") },
    Migration { component: "api", version: 5, sql: include_str!("005_streams.postgres.sql") },
];

#[async_trait]
impl Registry for Postgres {
    async fn add_token(&self, token: Token, by: By) -> Result<(), StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        tx.run(
            "INSERT INTO api_tokens (id, name, role, namespace, secret_hash, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                &token.id,
                &token.name,
                &token.role.as_str(),
                &token.namespace,
                &token.secret.0.as_slice(),
                &token.created_at.0,
                &token.expires_at.map(|at| at.0),
            ],
        )
        .await?;
        audit(&tx, &by, "token.create", &format!("{} ({})", token.id, token.role.as_str())).await?;
        Ok(tx.commit().await?)
    }

    async fn token(&self, id: &str) -> Result<Option<Token>, StoreError> {
        let sql = format!("SELECT {TOKEN} FROM api_tokens WHERE id = $1");
        let row = self.connection().await?.row(&sql, &[&text(id)]).await?;
        row.map(|row| Ok(token(&row)?.1)).transpose()
    }

    async fn tokens(&self, after: i64, rows: u32) -> Result<Vec<(i64, Token)>, StoreError> {
        let sql = format!("SELECT {TOKEN} FROM api_tokens WHERE seq > $1 ORDER BY seq LIMIT $2");
        let rows = self.connection().await?.rows(&sql, &[&after, &i64::from(rows)]).await?;
        rows.iter().map(token).collect()
    }

    async fn revoke_token(&self, id: &str, by: By) -> Result<bool, StoreError> {
        let id = text(id);
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let revoke = "UPDATE api_tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";
        if tx.run(revoke, &[&id, &by.at.0]).await? == 0 {
            return Ok(tx.row("SELECT 1 FROM api_tokens WHERE id = $1", &[&id]).await?.is_some());
        }
        audit(&tx, &by, "token.revoke", &id).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn token_used(&self, id: &str, at: Timestamp) -> Result<(), StoreError> {
        let note = "UPDATE api_tokens SET last_used_at = $2 WHERE id = $1";
        self.connection().await?.run(note, &[&text(id), &at.0]).await?;
        Ok(())
    }

    async fn worker(&self, id: &WorkerId) -> Result<Option<Worker>, StoreError> {
        let sql = format!("SELECT {WORKER} FROM api_workers WHERE id = $1");
        let row = self.connection().await?.row(&sql, &[&text(&id.0)]).await?;
        row.map(|row| Ok(worker(&row)?.1)).transpose()
    }

    async fn workers(&self, after: i64, rows: u32) -> Result<Vec<(i64, Worker)>, StoreError> {
        let sql = format!("SELECT {WORKER} FROM api_workers WHERE seq > $1 ORDER BY seq LIMIT $2");
        let rows = self.connection().await?.rows(&sql, &[&after, &i64::from(rows)]).await?;
        rows.iter().map(worker).collect()
    }

    async fn revoke_worker(&self, id: &WorkerId, by: By) -> Result<bool, StoreError> {
        let id = text(&id.0);
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        tx.run("DELETE FROM api_enrolments WHERE worker = $1 AND used_at IS NULL", &[&id]).await?;
        let revoke = "UPDATE api_workers SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";
        if tx.run(revoke, &[&id, &by.at.0]).await? == 0 {
            let known = tx.row("SELECT 1 FROM api_workers WHERE id = $1", &[&id]).await?.is_some();
            tx.commit().await?;
            return Ok(known);
        }
        audit(&tx, &by, "worker.revoke", &id).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn add_enrolment(
        &self,
        token: Digest,
        duty: Duty,
        worker: Option<WorkerId>,
        namespace: &str,
        expires_at: Timestamp,
        by: By,
    ) -> Result<(), StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        let old = by.at.0 - ENROLMENT_KEPT_MS;
        tx.run("DELETE FROM api_enrolments WHERE expires_at < $1", &[&old]).await?;
        let worker = worker.map(|worker| text(&worker.0).into_owned());
        if let Some(worker) = &worker {
            tx.run("DELETE FROM api_enrolments WHERE worker = $1 AND used_at IS NULL", &[worker]).await?;
        }
        tx.run(
            "INSERT INTO api_enrolments (token_hash, namespace, queue, checks, streams, worker, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                &token.0.as_slice(),
                &namespace,
                &duty.queue(),
                &checks_text(&duty),
                &duty.is_streams(),
                &worker,
                &expires_at.0,
            ],
        )
        .await?;
        audit(&tx, &by, "enrolment.create", worker.as_deref().unwrap_or(duty.queue())).await?;
        Ok(tx.commit().await?)
    }

    async fn enrol(&self, token: Digest, newcomer: Newcomer, at: Timestamp) -> Result<Enrolling, StoreError> {
        let mut connection = self.connection().await?;
        let tx = connection.begin().await?;
        if let Some(meant) = &newcomer.queue {
            let look = "SELECT queue, checks, streams FROM api_enrolments
                        WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2";
            let made_for =
                tx.row(look, &[&token.0.as_slice(), &at.0]).await?.map(|row| duty_in(&row, 0)).transpose()?;
            if let Some(other) = made_for.filter(|duty| *duty != Duty::Tasks(meant.clone())) {
                return Ok(Enrolling::OtherDuty(other));
            }
        }
        // Whoever comes second waits for the row, and finds it used.
        let spent = tx
            .row(
                "UPDATE api_enrolments SET used_at = $2
                 WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2
                 RETURNING namespace, queue, checks, streams, worker",
                &[&token.0.as_slice(), &at.0],
            )
            .await?;
        let Some(spent) = spent else {
            let before = spent_before(&tx, &token, &newcomer, at).await?;
            return Ok(before.map_or(Enrolling::Worthless, Enrolling::LetIn));
        };
        let (namespace, duty): (String, _) = (spent.try_get(0)?, duty_in(&spent, 1)?);
        let Newcomer { id, public_key, name, .. } = newcomer;
        let id = spent.try_get::<_, Option<String>>(4)?.map_or(id, WorkerId);
        // Only an id that was given out before can be there already.
        let let_in = tx
            .run(
                "INSERT INTO api_workers AS w (id, public_key, name, namespace, queue, checks, streams, enrolled_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                 ON CONFLICT (id) DO UPDATE SET name = excluded.name, enrolled_at = excluded.enrolled_at
                     WHERE w.revoked_at IS NULL AND w.public_key = excluded.public_key",
                &[
                    &id.0,
                    &public_key.as_slice(),
                    &name,
                    &namespace,
                    &duty.queue(),
                    &checks_text(&duty),
                    &duty.is_streams(),
                    &at.0,
                ],
            )
            .await?;
        if let_in == 0 {
            return Ok(Enrolling::Worthless);
        }
        let used = "UPDATE api_enrolments SET used_by = $2 WHERE token_hash = $1";
        tx.run(used, &[&token.0.as_slice(), &id.0]).await?;
        audit(&tx, &By { who: id.0.clone(), at }, "worker.enrol", duty.queue()).await?;
        tx.commit().await?;
        Ok(Enrolling::LetIn(Worker { id, public_key, name, namespace, duty, enrolled_at: at, revoked_at: None }))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.connection().await?.row("SELECT 1", &[]).await.map(drop)
    }
}

/// The worker that spent this token, if it is the same that asks again.
async fn spent_before(
    tx: &Transaction<'_>,
    token: &Digest,
    newcomer: &Newcomer,
    at: Timestamp,
) -> Result<Option<Worker>, StoreError> {
    let select = format!(
        "SELECT {WORKER} FROM api_workers WHERE public_key = $3 AND revoked_at IS NULL
             AND id = (SELECT used_by FROM api_enrolments WHERE token_hash = $1 AND expires_at > $2)"
    );
    let row = tx.row(&select, &[&token.0.as_slice(), &at.0, &newcomer.public_key.as_slice()]).await?;
    row.map(|row| Ok(worker(&row)?.1)).transpose()
}

pub(super) async fn audit(tx: &Transaction<'_>, by: &By, what: &str, target: &str) -> Result<(), StoreError> {
    let line = "INSERT INTO api_audit (at, who, what, target) VALUES ($1, $2, $3, $4)";
    tx.run(line, &[&by.at.0, &by.who, &what, &target]).await?;
    Ok(())
}

const TOKEN: &str = "seq, id, name, role, namespace, secret_hash, created_at, expires_at, revoked_at, last_used_at";

fn token(row: &Row) -> Result<(i64, Token), StoreError> {
    let stamp = |at: usize| row.try_get::<_, Option<i64>>(at).map(|at| at.map(Timestamp));
    let token = Token {
        id: row.try_get(1)?,
        name: row.try_get(2)?,
        role: row.try_get::<_, &str>(3)?.parse().map_err(unreadable)?,
        namespace: row.try_get(4)?,
        secret: Digest(bytes(row, 5)?),
        created_at: Timestamp(row.try_get(6)?),
        expires_at: stamp(7)?,
        revoked_at: stamp(8)?,
        last_used_at: stamp(9)?,
    };
    Ok((row.try_get(0)?, token))
}

const WORKER: &str = "seq, id, public_key, name, namespace, queue, checks, streams, enrolled_at, revoked_at";

fn worker(row: &Row) -> Result<(i64, Worker), StoreError> {
    let worker = Worker {
        id: WorkerId(row.try_get(1)?),
        public_key: bytes(row, 2)?,
        name: row.try_get(3)?,
        namespace: row.try_get(4)?,
        duty: duty_in(row, 5)?,
        enrolled_at: Timestamp(row.try_get(8)?),
        revoked_at: row.try_get::<_, Option<i64>>(9)?.map(Timestamp),
    };
    Ok((row.try_get(0)?, worker))
}

/// From the queue and, behind it, the kinds of checks, and whether it is streams.
fn duty_in(row: &Row, column: usize) -> Result<Duty, StoreError> {
    if row.try_get(column + 2)? {
        return Ok(Duty::Streams);
    }
    if let Some(checks) = row.try_get::<_, Option<&str>>(column + 1)? {
        return checks.parse().map(Duty::Checks).map_err(unreadable);
    }
    row.try_get::<_, &str>(column)?.parse().map(Duty::Tasks).map_err(unreadable)
}

fn checks_text(duty: &Duty) -> Option<String> {
    duty.checks().map(ToString::to_string)
}

pub(super) fn bytes(row: &Row, column: usize) -> Result<[u8; 32], StoreError> {
    row.try_get::<_, &[u8]>(column)?.try_into().map_err(unreadable)
}

/// What is written there is not what this program writes.
fn unreadable(why: impl std::fmt::Display) -> StoreError {
    StoreError::Unusable { path: "the database".into(), why: why.to_string() }
}
