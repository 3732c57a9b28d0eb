//! How resource managers get in, change their keys, and are kept out. What they do once they are in is the fleet's.

use axum::extract::State;
use axum::http::{Extensions, StatusCode};
use axum::{Extension, Json};
use mutirao_core::Problem;
use mutirao_core::auth::{ElasticEnrolled, ElasticInvitation, ElasticKeyView, Enrol, NewKey, Role};
use mutirao_core::job::Page;
use mutirao_surface::{Args, Body, Caller, PageArgs, Part, Rejection, only};

use super::{SharedParts, page_of};
use crate::auth::keys::ElasticKey;
use crate::layers::gate::peer_of;

/// Makes a one-time token that lets one resource manager in. Role: admin.
#[utoipa::path(post, path = "/v1/elastic/invitations", tag = "elastic", responses((status = 201, body = ElasticInvitation)))]
pub async fn invite(
    State(parts): State<SharedParts>,
    only::Admin(caller): only::Admin,
) -> Result<(StatusCode, Json<ElasticInvitation>), Rejection> {
    Ok((StatusCode::CREATED, Json(parts.auth.invite_elastic(&caller.id).await?)))
}

/// Makes a resource manager known by its first key. The one-time token in the body is the proof, and is spent.
#[utoipa::path(post, path = "/v1/elastic/enrol", tag = "elastic", security(()), request_body = Enrol, responses(
    (status = 201, body = ElasticEnrolled),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn enrol(
    State(parts): State<SharedParts>,
    extensions: Extensions,
    Body(enrol): Body<Enrol>,
) -> Result<(StatusCode, Json<ElasticEnrolled>), Rejection> {
    match parts.auth.enrol_elastic(&enrol).await {
        Ok(enrolled) => {
            tracing::info!(key = enrolled.key, name = enrol.name, "a resource manager enrolled");
            Ok((StatusCode::CREATED, Json(enrolled)))
        }
        Err(problem) => Err(parts.gate.count_failure(peer_of(&extensions), problem).into()),
    }
}

/// Makes a further key good for the resource manager that signs this. Role: elastic, signed.
#[utoipa::path(post, path = "/v1/elastic/keys", tag = "elastic", request_body = NewKey, responses(
    (status = 201, body = ElasticEnrolled),
    (status = 409, body = Problem, content_type = "application/problem+json"),
    (status = 422, body = Problem, content_type = "application/problem+json"),
))]
pub async fn add_key(
    State(parts): State<SharedParts>,
    _: only::Elastic,
    key: Option<Extension<ElasticKey>>,
    Body(new): Body<NewKey>,
) -> Result<(StatusCode, Json<ElasticEnrolled>), Rejection> {
    let Extension(key) = key.ok_or_else(|| Problem::forbidden("only a resource manager can ask this"))?;
    Ok((StatusCode::CREATED, Json(parts.auth.add_elastic_key(&key, &new).await?)))
}

/// Lists the keys of resource managers, the oldest first, revoked ones among them. Role: admin.
#[utoipa::path(get, path = "/v1/elastic/keys", tag = "elastic", params(PageArgs), responses((status = 200, body = Page<ElasticKeyView>)))]
pub async fn keys(
    State(parts): State<SharedParts>,
    _: only::Admin,
    Args(page): Args<PageArgs>,
) -> Result<Json<Page<ElasticKeyView>>, Rejection> {
    let (rows, after) = (page.rows()?, page.after()?.unwrap_or(0));
    let found = parts.auth.elastic_keys(after, rows + 1).await?;
    Ok(Json(page_of(found, rows, ElasticKey::view)))
}

/// Ends a key. Role: admin, or elastic, signed, for a key of the same resource manager.
#[utoipa::path(delete, path = "/v1/elastic/keys/{id}", tag = "elastic", params(("id" = String, Path)), responses(
    (status = 204),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn revoke_key(
    State(parts): State<SharedParts>,
    caller: Caller,
    own: Option<Extension<ElasticKey>>,
    Part(key): Part<String>,
) -> Result<StatusCode, Rejection> {
    match own {
        Some(Extension(own)) => {
            let theirs = parts.auth.elastic_key(&key).await?;
            if theirs.is_none_or(|key| key.manager != own.manager) {
                let detail = "a resource manager ends its own keys and nobody else's";
                return Err(Problem::forbidden(detail).into());
            }
        }
        None => caller.must_be(Role::Admin)?,
    }
    parts.auth.revoke_elastic_key(&key, &caller.0.id).await?;
    Ok(StatusCode::NO_CONTENT)
}
