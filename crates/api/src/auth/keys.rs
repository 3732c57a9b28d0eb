//! What must be remembered about resource managers and their keys, as a trait: one implementation for each engine. Each
//! change writes its audit line in the same transaction.

mod postgres;
mod sqlite;

use async_trait::async_trait;
use mutirao_core::Timestamp;
use mutirao_core::auth::{DEFAULT_NAMESPACE, ElasticKeyView, Principal, Role};
use mutirao_store::StoreError;

use super::registry::By;
use super::secret::Digest;

/// Keys of one resource manager that may be good at once: the old and the new one, and room for a rotation that was cut
/// short.
pub const KEYS_GOOD_MAX: u32 = 8;

/// A resource manager's key as it is kept, and as routes find it with a signed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticKey {
    pub id: String,
    /// The first key of the same resource manager.
    pub manager: String,
    pub public_key: [u8; 32],
    pub name: String,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl ElasticKey {
    pub fn principal(&self) -> Principal {
        let (id, name) = (self.id.clone(), self.name.clone());
        Principal { id, name, role: Role::Elastic, namespace: DEFAULT_NAMESPACE.into() }
    }

    pub fn view(&self) -> ElasticKeyView {
        ElasticKeyView {
            key: self.id.clone(),
            manager: self.manager.clone(),
            name: self.name.clone(),
            created_at: self.created_at,
            revoked_at: self.revoked_at,
            last_used_at: self.last_used_at,
        }
    }
}

/// What became of a further key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    Added,
    /// It has that very key, under this id.
    Already(String),
    /// The resource manager has [`KEYS_GOOD_MAX`] good ones already.
    TooMany,
}

#[async_trait]
pub trait ElasticKeys: Send + Sync + 'static {
    async fn add_elastic_enrolment(&self, token: Digest, expires_at: Timestamp, by: By) -> Result<(), StoreError>;

    /// Spends a one-time token on a resource manager's first key, and gives its id: that of the first time, when the same
    /// public key spends it again. None when there is no such token, or it is spent by another or too old.
    async fn enrol_elastic(&self, token: Digest, key: ElasticKey) -> Result<Option<String>, StoreError>;

    /// A further key of the resource manager that `key.manager` names.
    async fn add_elastic_key(&self, key: ElasticKey, by: By) -> Result<Added, StoreError>;

    async fn elastic_key(&self, id: &str) -> Result<Option<ElasticKey>, StoreError>;

    /// In the order in which they were made, with the number that the next page starts after.
    async fn elastic_keys(&self, after: i64, rows: u32) -> Result<Vec<(i64, ElasticKey)>, StoreError>;

    /// Whether there is such a key. Revoking again changes nothing.
    async fn revoke_elastic_key(&self, id: &str, by: By) -> Result<bool, StoreError>;

    /// Not a change worth an audit line.
    async fn elastic_key_used(&self, id: &str, at: Timestamp) -> Result<(), StoreError>;
}
