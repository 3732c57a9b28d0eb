//! Which resource manager asks: who signed, and on whose behalf.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mutirao_surface::Rejection;
use mutirao_surface::only::{self, SignedFor};

/// A resource manager, by the key it signed with. Everybody else is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// What the audit says.
    pub key: String,
    /// Whom leases and their generations belong to: the same for all keys of one resource manager.
    pub manager: String,
}

impl<S: Send + Sync> FromRequestParts<S> for Asker {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        let only::Elastic(caller) = only::Elastic::from_request_parts(parts, state).await?;
        let signed_for = parts.extensions.get::<SignedFor>().map(|SignedFor(manager)| manager.clone());
        Ok(Self { manager: signed_for.unwrap_or_else(|| caller.id.clone()), key: caller.id.clone() })
    }
}
