//! Who may call, said in a handler's arguments: `only::Operator(caller)`. Put before the body, the role is checked before
//! the body is read, so that nobody is told what is wrong with a request they may not make, and a megabyte sent in vain
//! is not parsed. [`Caller`] is for handlers that decide later.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mutirao_core::auth::{Principal, Role};

use crate::{Caller, Rejection};

macro_rules! only {
    ($($name:ident: $must:ident $role:ident, $who:literal;)*) => { $(
        #[doc = concat!("A caller who is ", $who, ", or may do all that one may; 401 or 403 for everybody else.")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(pub Arc<Principal>);

        impl<S: Send + Sync> FromRequestParts<S> for $name {
            type Rejection = Rejection;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
                let caller = Caller::from_request_parts(parts, state).await?;
                caller.$must(Role::$role)?;
                Ok(Self(caller.0))
            }
        }
    )* };
}
only! {
    Viewer: must_be Viewer, "a viewer";
    Operator: must_be Operator, "an operator";
    Admin: must_be Admin, "an admin";
    Node: must_be Node, "a node";
    Elastic: must_be Elastic, "a resource manager";
    KeysReader: must_be_or_keys Viewer, "a viewer, or has the keys and nothing else";
    KeysWriter: must_be_or_keys Operator, "an operator, or has the keys and nothing else";
}

/// The resource manager whose key signed a request, put with it by `api`. It stays the same when its keys are changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedFor(pub String);
