//! What must be remembered about tokens and workers, as a trait: one implementation for each engine. Each change writes
//! its audit line in the same transaction. The keys of resource managers are in [`keys`](super::keys).

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::auth::{Duty, KeyView, Principal, Role, TokenView};
use mutirao_core::{QueueName, Timestamp, WorkerId};
use mutirao_store::{Database, StoreError};

use super::keys::ElasticKeys;
use super::secret::Digest;
use super::upkeep::Upkeep;

/// Spent and expired one-time tokens are kept this long, for whoever wonders why one was refused.
pub(super) const ENROLMENT_KEPT_MS: i64 = 7 * 86_400_000;

/// The registry in a database that has had the engine's migrations applied.
pub fn open(database: &Database) -> Arc<dyn Registry> {
    match database {
        Database::Sqlite(sqlite) => Arc::new(sqlite.clone()),
        Database::Postgres(postgres) => Arc::new(postgres.clone()),
    }
}

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub namespace: String,
    pub secret: Digest,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl Token {
    pub fn principal(&self) -> Principal {
        Principal { id: self.id.clone(), name: self.name.clone(), role: self.role, namespace: self.namespace.clone() }
    }

    pub fn is_good_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    pub fn view(&self) -> TokenView {
        TokenView {
            id: self.id.clone(),
            name: self.name.clone(),
            role: self.role,
            created_at: self.created_at,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            last_used_at: self.last_used_at,
        }
    }
}

/// An enrolled worker as it is kept, and as routes find it with a signed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub id: WorkerId,
    pub public_key: [u8; 32],
    pub name: String,
    pub namespace: String,
    pub duty: Duty,
    pub enrolled_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

impl Worker {
    pub fn principal(&self) -> Principal {
        Principal {
            id: self.id.0.clone(),
            name: self.name.clone(),
            role: Role::Node,
            namespace: self.namespace.clone(),
        }
    }

    pub fn view(&self) -> KeyView {
        KeyView {
            worker: self.id.clone(),
            name: self.name.clone(),
            queue: self.duty.queue().into(),
            checks: self.duty.checks().cloned(),
            streams: self.duty.is_streams(),
            enrolled_at: self.enrolled_at,
            revoked_at: self.revoked_at,
        }
    }
}

/// What a worker brings to its enrolment; the rest is in the one-time token.
#[derive(Clone, Debug)]
pub struct Newcomer {
    pub id: WorkerId,
    pub public_key: [u8; 32],
    pub name: String,
    /// The queue that it means to work for, when it says so.
    pub queue: Option<QueueName>,
}

/// What came of an enrolment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enrolling {
    LetIn(Worker),
    /// There is no such token, or it is spent or too old, or made for a worker that was revoked meanwhile.
    Worthless,
    /// It was made for this, and the newcomer means another queue. It is not spent.
    OtherDuty(Duty),
}

/// Who changes something, and when: what the audit line says.
#[derive(Clone, Debug)]
pub struct By {
    pub who: String,
    pub at: Timestamp,
}

#[async_trait]
pub trait Registry: ElasticKeys + Upkeep {
    async fn add_token(&self, token: Token, by: By) -> Result<(), StoreError>;

    async fn token(&self, id: &str) -> Result<Option<Token>, StoreError>;

    /// In the order in which they were made, with the number that the next page starts after.
    async fn tokens(&self, after: i64, rows: u32) -> Result<Vec<(i64, Token)>, StoreError>;

    /// Whether there is such a token. Revoking again changes nothing.
    async fn revoke_token(&self, id: &str, by: By) -> Result<bool, StoreError>;

    /// Not a change worth an audit line.
    async fn token_used(&self, id: &str, at: Timestamp) -> Result<(), StoreError>;

    async fn worker(&self, id: &WorkerId) -> Result<Option<Worker>, StoreError>;

    /// In the order in which they enrolled, with the number that the next page starts after.
    async fn workers(&self, after: i64, rows: u32) -> Result<Vec<(i64, Worker)>, StoreError>;

    /// Whether there is such a worker. Revoking again changes nothing. A one-time token made for it is worthless from then
    /// on, also when it never came.
    async fn revoke_worker(&self, id: &WorkerId, by: By) -> Result<bool, StoreError>;

    /// For a worker whose id was given out before, it replaces the one made before.
    async fn add_enrolment(
        &self,
        token: Digest,
        duty: Duty,
        worker: Option<WorkerId>,
        namespace: &str,
        expires_at: Timestamp,
        by: By,
    ) -> Result<(), StoreError>;

    /// Spends a one-time token, unless the newcomer means another queue. The worker has the id that the token was made for, if
    /// any; spent again by the same key, it is the same worker.
    async fn enrol(&self, token: Digest, newcomer: Newcomer, at: Timestamp) -> Result<Enrolling, StoreError>;

    /// Whether the store answers at all.
    async fn ping(&self) -> Result<(), StoreError>;
}
