//! The [`Registry`] in SQLite.

use async_trait::async_trait;
use mutirao_core::auth::Duty;
use mutirao_core::{Timestamp, WorkerId};
use mutirao_store::{Migration, Sqlite, StoreError};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::registry::{By, ENROLMENT_KEPT_MS, Enrolling, Newcomer, Registry, Token, Worker};
use super::secret::Digest;

pub const MIGRATIONS: &[Migration] = &[
    Migration { component: "api", version: 1, sql: include_str!("001_auth.sql") },
    Migration { component: "api", version: 2, sql: include_str!("002_elastic.sql") },
    Migration { component: "api", version: 3, sql: include_str!("003_checkers.sql") },
    Migration { component: "api", version: 4, sql: include_str!("004_once.sql") },
    Migration { component: "api", version: 5, sql: include_str!("005_streams.sql") },
];

#[async_trait]
impl Registry for Sqlite {
    async fn add_token(&self, token: Token, by: By) -> Result<(), StoreError> {
        self.write(move |sql| {
            sql.prepare_cached(
                "INSERT INTO api_tokens (id, name, role, namespace, secret_hash, created_at, expires_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                token.id,
                token.name,
                token.role.as_str(),
                token.namespace,
                token.secret.0,
                token.created_at.0,
                token.expires_at.map(|at| at.0),
            ])?;
            audit(sql, &by, "token.create", &format!("{} ({})", token.id, token.role.as_str()))
        })
        .await
    }

    async fn token(&self, id: &str) -> Result<Option<Token>, StoreError> {
        let id = id.to_owned();
        self.read(move |sql| {
            sql.prepare_cached(&format!("SELECT {TOKEN} FROM api_tokens WHERE id = ?1"))?
                .query_row([id], |row| Ok(token(row)?.1))
                .optional()
        })
        .await
    }

    async fn tokens(&self, after: i64, rows: u32) -> Result<Vec<(i64, Token)>, StoreError> {
        self.read(move |sql| {
            sql.prepare_cached(&format!("SELECT {TOKEN} FROM api_tokens WHERE seq > ?1 ORDER BY seq LIMIT ?2"))?
                .query_map(params![after, rows], token)?
                .collect()
        })
        .await
    }

    async fn revoke_token(&self, id: &str, by: By) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(move |sql| {
            let revoked = sql
                .prepare_cached("UPDATE api_tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL")?
                .execute(params![id, by.at.0])?;
            if revoked > 0 {
                audit(sql, &by, "token.revoke", &id)?;
                return Ok(true);
            }
            sql.prepare_cached("SELECT 1 FROM api_tokens WHERE id = ?1")?.exists([id])
        })
        .await
    }

    async fn token_used(&self, id: &str, at: Timestamp) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.write(move |sql| {
            sql.prepare_cached("UPDATE api_tokens SET last_used_at = ?2 WHERE id = ?1")?.execute(params![id, at.0])?;
            Ok(())
        })
        .await
    }

    async fn worker(&self, id: &WorkerId) -> Result<Option<Worker>, StoreError> {
        let id = id.0.clone();
        self.read(move |sql| {
            sql.prepare_cached(&format!("SELECT {WORKER} FROM api_workers WHERE id = ?1"))?
                .query_row([id], |row| Ok(worker(row)?.1))
                .optional()
        })
        .await
    }

    async fn workers(&self, after: i64, rows: u32) -> Result<Vec<(i64, Worker)>, StoreError> {
        self.read(move |sql| {
            sql.prepare_cached(&format!("SELECT {WORKER} FROM api_workers WHERE seq > ?1 ORDER BY seq LIMIT ?2"))?
                .query_map(params![after, rows], worker)?
                .collect()
        })
        .await
    }

    async fn revoke_worker(&self, id: &WorkerId, by: By) -> Result<bool, StoreError> {
        let id = id.0.clone();
        self.write(move |sql| {
            sql.prepare_cached("DELETE FROM api_enrolments WHERE worker = ?1 AND used_at IS NULL")?.execute([&id])?;
            let revoked = sql
                .prepare_cached("UPDATE api_workers SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL")?
                .execute(params![id, by.at.0])?;
            if revoked > 0 {
                audit(sql, &by, "worker.revoke", &id)?;
                return Ok(true);
            }
            sql.prepare_cached("SELECT 1 FROM api_workers WHERE id = ?1")?.exists([id])
        })
        .await
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
        let namespace = namespace.to_owned();
        self.write(move |sql| {
            sql.prepare_cached("DELETE FROM api_enrolments WHERE expires_at < ?1")?
                .execute([by.at.0 - ENROLMENT_KEPT_MS])?;
            let worker = worker.map(|worker| worker.0);
            if let Some(worker) = &worker {
                sql.prepare_cached("DELETE FROM api_enrolments WHERE worker = ?1 AND used_at IS NULL")?
                    .execute([worker])?;
            }
            sql.prepare_cached(
                "INSERT INTO api_enrolments (token_hash, namespace, queue, checks, worker, expires_at, streams)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                token.0,
                namespace,
                duty.queue(),
                checks_text(&duty),
                worker,
                expires_at.0,
                duty.is_streams()
            ])?;
            audit(sql, &by, "enrolment.create", worker.as_deref().unwrap_or(duty.queue()))
        })
        .await
    }

    async fn enrol(&self, token: Digest, newcomer: Newcomer, at: Timestamp) -> Result<Enrolling, StoreError> {
        self.write(move |sql| {
            if let Some(meant) = &newcomer.queue {
                let made_for = sql
                    .prepare_cached(
                        "SELECT queue, checks, streams FROM api_enrolments
                         WHERE token_hash = ?1 AND used_at IS NULL AND expires_at > ?2",
                    )?
                    .query_row(params![token.0, at.0], |row| duty_in(row, 0))
                    .optional()?;
                if let Some(other) = made_for.filter(|duty| *duty != Duty::Tasks(meant.clone())) {
                    return Ok(Enrolling::OtherDuty(other));
                }
            }
            let spent = sql
                .prepare_cached(
                    "UPDATE api_enrolments SET used_at = ?2
                     WHERE token_hash = ?1 AND used_at IS NULL AND expires_at > ?2
                     RETURNING namespace, queue, checks, streams, worker",
                )?
                .query_row(params![token.0, at.0], |row| {
                    Ok((row.get::<_, String>(0)?, duty_in(row, 1)?, row.get::<_, Option<String>>(4)?))
                })
                .optional()?;
            let Some((namespace, duty, worker)) = spent else {
                let before = spent_before(sql, &token, &newcomer, at)?;
                return Ok(before.map_or(Enrolling::Worthless, Enrolling::LetIn));
            };
            let Newcomer { id, public_key, name, .. } = newcomer;
            let id = worker.map_or(id, WorkerId);
            // Only an id that was given out before can be there already.
            let let_in = sql
                .prepare_cached(
                    "INSERT INTO api_workers (id, public_key, name, namespace, queue, checks, streams, enrolled_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                     ON CONFLICT (id) DO UPDATE SET name = excluded.name, enrolled_at = excluded.enrolled_at
                         WHERE revoked_at IS NULL AND public_key = excluded.public_key",
                )?
                .execute(params![
                    id.0,
                    public_key,
                    name,
                    namespace,
                    duty.queue(),
                    checks_text(&duty),
                    duty.is_streams(),
                    at.0
                ])?;
            if let_in == 0 {
                // Whoever is refused has not spent it.
                sql.prepare_cached("UPDATE api_enrolments SET used_at = NULL WHERE token_hash = ?1")?
                    .execute([token.0])?;
                return Ok(Enrolling::Worthless);
            }
            sql.prepare_cached("UPDATE api_enrolments SET used_by = ?2 WHERE token_hash = ?1")?
                .execute(params![token.0, id.0])?;
            audit(sql, &By { who: id.0.clone(), at }, "worker.enrol", duty.queue())?;
            let worker = Worker { id, public_key, name, namespace, duty, enrolled_at: at, revoked_at: None };
            Ok(Enrolling::LetIn(worker))
        })
        .await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.read(|sql| sql.query_row("SELECT 1", [], |_| Ok(()))).await
    }
}

/// The worker that spent this token, if it is the same that asks again.
fn spent_before(
    sql: &Connection,
    token: &Digest,
    newcomer: &Newcomer,
    at: Timestamp,
) -> rusqlite::Result<Option<Worker>> {
    let select = format!(
        "SELECT {WORKER} FROM api_workers WHERE public_key = ?3 AND revoked_at IS NULL
             AND id = (SELECT used_by FROM api_enrolments WHERE token_hash = ?1 AND expires_at > ?2)"
    );
    sql.prepare_cached(&select)?
        .query_row(params![token.0, at.0, newcomer.public_key], |row| Ok(worker(row)?.1))
        .optional()
}

pub(super) fn audit(sql: &Connection, by: &By, what: &str, target: &str) -> rusqlite::Result<()> {
    sql.prepare_cached("INSERT INTO api_audit (at, who, what, target) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![by.at.0, by.who, what, target])?;
    Ok(())
}

const TOKEN: &str = "seq, id, name, role, namespace, secret_hash, created_at, expires_at, revoked_at, last_used_at";

fn token(row: &Row<'_>) -> rusqlite::Result<(i64, Token)> {
    let role: String = row.get(3)?;
    let token = Token {
        id: row.get(1)?,
        name: row.get(2)?,
        role: role.parse().map_err(|error: String| unreadable(3, error.into()))?,
        namespace: row.get(4)?,
        secret: Digest(row.get(5)?),
        created_at: Timestamp(row.get(6)?),
        expires_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
        revoked_at: row.get::<_, Option<i64>>(8)?.map(Timestamp),
        last_used_at: row.get::<_, Option<i64>>(9)?.map(Timestamp),
    };
    Ok((row.get(0)?, token))
}

const WORKER: &str = "seq, id, public_key, name, namespace, queue, checks, streams, enrolled_at, revoked_at";

fn worker(row: &Row<'_>) -> rusqlite::Result<(i64, Worker)> {
    let worker = Worker {
        id: WorkerId(row.get(1)?),
        public_key: row.get(2)?,
        name: row.get(3)?,
        namespace: row.get(4)?,
        duty: duty_in(row, 5)?,
        enrolled_at: Timestamp(row.get(8)?),
        revoked_at: row.get::<_, Option<i64>>(9)?.map(Timestamp),
    };
    Ok((row.get(0)?, worker))
}

/// From the queue and, behind it, the kinds of checks, and whether it is streams.
fn duty_in(row: &Row<'_>, column: usize) -> rusqlite::Result<Duty> {
    if row.get(column + 2)? {
        return Ok(Duty::Streams);
    }
    if let Some(checks) = row.get::<_, Option<String>>(column + 1)? {
        return checks.parse().map(Duty::Checks).map_err(|error: String| unreadable(column + 1, error.into()));
    }
    let text: String = row.get(column)?;
    text.parse().map(Duty::Tasks).map_err(|error| unreadable(column, Box::new(error)))
}

fn checks_text(duty: &Duty) -> Option<String> {
    duty.checks().map(ToString::to_string)
}

fn unreadable(column: usize, error: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error)
}
