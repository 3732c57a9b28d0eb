//! Who asks. `api` proves it and puts the principal with the request; handlers take it from there.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use mutirao_core::Problem;
use mutirao_core::auth::{Principal, Role};

use crate::Rejection;

/// The proved caller. A request without one is refused with 401.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller(pub Arc<Principal>);

impl Caller {
    pub fn must_be(&self, needed: Role) -> Result<(), Rejection> {
        if self.0.role.may(needed) {
            return Ok(());
        }
        let (have, need) = (self.0.role.as_str(), needed.as_str());
        let problem = Problem::forbidden(format!("this needs the role {need}, and yours is {have}"));
        let remedy = match needed {
            Role::Node => "nodes and workers sign with the key they enrolled".to_owned(),
            Role::Elastic => "a resource manager signs with the key it enrolled".to_owned(),
            Role::Keys => "only a manager's own actions have it".to_owned(),
            _ => format!("ask an admin for a token: mutirao token create --role {need}"),
        };
        Err(problem.remedy(remedy).into())
    }
}

impl Caller {
    /// For what is done with keys: those who may do nothing else may do this.
    pub fn must_be_or_keys(&self, needed: Role) -> Result<(), Rejection> {
        if self.0.role.may(Role::Keys) { Ok(()) } else { self.must_be(needed) }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        parts.extensions.get::<Arc<Principal>>().cloned().map(Self).ok_or_else(|| {
            Problem::unauthenticated("the request carries no token")
                .remedy("send Authorization: Bearer <token>; the first one is in admin.token in the data folder")
                .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lesser_role_is_told_which_it_needs() {
        let ana = Principal { id: "t1".into(), name: "ana".into(), role: Role::Viewer, namespace: "default".into() };
        let caller = Caller(Arc::new(ana));
        assert_eq!(caller.must_be(Role::Viewer), Ok(()));
        let Rejection(problem) = caller.must_be(Role::Operator).unwrap_err();
        assert!(problem.status == 403 && problem.line().contains("operator"), "{problem}");
    }
}
