//! Nodes that come in by a key of their own. What they say needs no credentials but what is in it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use mutirao_core::Problem;
use mutirao_core::node::{Allowance, NodeEnrol, NodeInvited, NodeKeyView, NodePassword};
use mutirao_surface::{Body, Part, Rejection, only};

use crate::names::{BadName, NodeId};
use crate::switchboard::Switchboard;

fn read(node: &str) -> Result<NodeId, Problem> {
    node.parse().map_err(|bad: BadName| Problem::invalid("node", bad.to_string()))
}

/// Lets a node of this id give its key. The answer is the only time the token is seen; it is good for a day, once. Role: admin.
#[utoipa::path(post, path = "/v1/nodes/{node}/invitation", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<Allowance>, responses(
    (status = 201, body = NodeInvited),
    (status = 409, description = "There is a device of this name.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn invite(
    State(board): State<Switchboard>,
    only::Admin(caller): only::Admin,
    Part(node): Part<String>,
    body: Bytes,
) -> Result<(StatusCode, Json<NodeInvited>), Rejection> {
    let said: Allowance = match body.is_empty() {
        true => Allowance::default(),
        false => serde_json::from_slice(&body).map_err(|error| Problem::malformed(error.to_string()))?,
    };
    let may = super::allowance(&board, said)?;
    Ok((StatusCode::CREATED, Json(board.invite_node(&read(&node)?, may, &caller).await?)))
}

/// A node gives its key, with its one-time token.
#[utoipa::path(post, path = "/v1/node-keys", tag = "nodes", security(()), request_body = NodeEnrol, responses(
    (status = 201, body = NodeKeyView),
    (status = 401, description = "The token is worthless.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn enrol(
    State(board): State<Switchboard>,
    Body(enrol): Body<NodeEnrol>,
) -> Result<(StatusCode, Json<NodeKeyView>), Rejection> {
    Ok((StatusCode::CREATED, Json(board.enrol_node(&enrol).await?)))
}

/// How often a node has changed its password; the next change is one more.
#[utoipa::path(get, path = "/v1/node-keys/{node}", tag = "nodes", security(()), params(("node" = String, Path)), responses(
    (status = 200, body = NodeKeyView),
    (status = 404, description = "It has given no key.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn show(State(board): State<Switchboard>, Part(node): Part<String>) -> Result<Json<NodeKeyView>, Rejection> {
    Ok(Json(board.node_key(&read(&node)?).await?))
}

/// A node changes its password, signed with its key.
#[utoipa::path(put, path = "/v1/node-keys/{node}/password", tag = "nodes", security(()), params(("node" = String, Path)),
    request_body = NodePassword, responses(
    (status = 200, body = NodeKeyView),
    (status = 401, description = "Another signed it.", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "This change was made already.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn change(
    State(board): State<Switchboard>,
    Part(node): Part<String>,
    Body(password): Body<NodePassword>,
) -> Result<Json<NodeKeyView>, Rejection> {
    Ok(Json(board.change_password(&read(&node)?, &password).await?))
}
