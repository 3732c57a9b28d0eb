//! Tokens for people and their programs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use mutirao_core::Problem;
use mutirao_core::auth::{TokenCreated, TokenSpec, TokenView};
use mutirao_core::job::Page;
use mutirao_surface::{Args, Body, PageArgs, Part, Rejection, only};

use super::SharedParts;
use crate::auth::registry::Token;

/// Makes a token. The answer is the only time its secret is seen. Role: admin.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = TokenSpec, responses(
    (status = 201, body = TokenCreated),
    (status = 422, body = Problem, content_type = "application/problem+json"),
))]
pub async fn create(
    State(parts): State<SharedParts>,
    only::Admin(caller): only::Admin,
    Body(spec): Body<TokenSpec>,
) -> Result<(StatusCode, Json<TokenCreated>), Rejection> {
    let created = parts.auth.create_token(&spec, &caller.id).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// Lists tokens in the order in which they were made, revoked ones among them. Role: admin.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", params(PageArgs), responses((status = 200, body = Page<TokenView>)))]
pub async fn list(
    State(parts): State<SharedParts>,
    _: only::Admin,
    Args(page): Args<PageArgs>,
) -> Result<Json<Page<TokenView>>, Rejection> {
    let (rows, after) = (page.rows()?, page.after()?.unwrap_or(0));
    let found = parts.auth.tokens(after, rows + 1).await?;
    Ok(Json(super::page_of(found, rows, Token::view)))
}

/// Ends a token, at once. Role: admin.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tokens", params(("id" = String, Path)), responses(
    (status = 204),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn revoke(
    State(parts): State<SharedParts>,
    only::Admin(caller): only::Admin,
    Part(id): Part<String>,
) -> Result<StatusCode, Rejection> {
    parts.auth.revoke_token(&id, &caller.id).await?;
    Ok(StatusCode::NO_CONTENT)
}
