//! Nodes that run actions over HTTP: what people do to them, devices, and what workers poll. The list of nodes itself is
//! the fleet's, who has the others as well.

mod keys;
mod spoken;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use mutirao_core::Problem;
use mutirao_core::job::Page;
use mutirao_core::node::{self, DeviceCreated, DeviceSpec, DeviceView, RubbishView};
use mutirao_surface::{Args, Body, Capability, OpenApiRouter, PageArgs, Part, Rejection, only, paging, routes};

use crate::allowance::Allowance;
use crate::meters;
use crate::names::NodeId;
use crate::switchboard::Switchboard;
use crate::topics::OwnTopics;
use crate::wire::HEALTH_UP;

impl Switchboard {
    pub fn capability(&self) -> Capability {
        let closed = OpenApiRouter::new()
            .routes(routes!(forget))
            .routes(routes!(add_device, devices))
            .routes(routes!(remove_device))
            .routes(routes!(rubbish))
            .routes(routes!(keys::invite))
            .with_state(self.clone());
        let open = OpenApiRouter::new()
            .routes(routes!(health))
            .routes(routes!(keys::enrol))
            .routes(routes!(keys::show))
            .routes(routes!(keys::change))
            .with_state(self.clone());
        let mut capability = Capability::new("nodes", closed).open_to_anybody(open).measuring(meters::METERS);
        // Their paths begin with the namespace, so no document could name them.
        capability.open = capability.open.merge(spoken::routes(self.clone()));
        capability
    }
}

/// Takes out a node that runs actions; what it had is lost. It may register again. Role: operator.
#[utoipa::path(delete, path = "/v1/nodes/{node}", tag = "nodes", params(("node" = String, Path)), responses(
    (status = 204),
    (status = 404, description = "No such node.", body = Problem, content_type = "application/problem+json"),
))]
async fn forget(
    State(board): State<Switchboard>,
    _: only::Operator,
    Part(node): Part<String>,
) -> Result<StatusCode, Rejection> {
    let node: NodeId = node.parse().map_err(|bad: crate::names::BadName| Problem::invalid("node", bad.to_string()))?;
    board.forget(&node).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a device in by a user's name and a password. The answer is the only time the password is seen. Role: admin.
#[utoipa::path(post, path = "/v1/devices", tag = "nodes", request_body = DeviceSpec, responses(
    (status = 201, body = DeviceCreated),
    (status = 409, description = "The name is taken.", body = Problem, content_type = "application/problem+json"),
    (status = 422, body = Problem, content_type = "application/problem+json"),
))]
async fn add_device(
    State(board): State<Switchboard>,
    only::Admin(caller): only::Admin,
    Body(spec): Body<DeviceSpec>,
) -> Result<(StatusCode, Json<DeviceCreated>), Rejection> {
    let node = spec.node.as_deref().unwrap_or(&spec.name);
    let node = node.parse().map_err(|bad: crate::names::BadName| Problem::invalid("node", bad.to_string()))?;
    let topics = OwnTopics::checked(spec.publish, spec.subscribe, board.places().0.as_str())
        .map_err(|bad| Problem::invalid(bad.field, bad.why))?;
    let may = allowance(&board, spec.may)?;
    let (device, password) = board.add_device(&spec.name, node, spec.requests, topics, may, &caller).await?;
    Ok((StatusCode::CREATED, Json(DeviceCreated { device: device.into(), password })))
}

fn allowance(board: &Switchboard, said: node::Allowance) -> Result<Allowance, Problem> {
    Allowance::checked(said, &board.places().0).map_err(|bad| Problem::invalid(bad.field, bad.why))
}

/// Lists devices by name, without their passwords. Role: operator.
#[utoipa::path(get, path = "/v1/devices", tag = "nodes", params(PageArgs), responses((status = 200, body = Page<DeviceView>)))]
async fn devices(
    State(board): State<Switchboard>,
    _: only::Operator,
    Args(page): Args<PageArgs>,
) -> Result<Json<Page<DeviceView>>, Rejection> {
    let (rows, after) = (page.rows()?, page.after::<String>()?.unwrap_or_default());
    let mut found = board.devices(&after, rows + 1).await?;
    let more = found.len() > rows as usize;
    found.truncate(rows as usize);
    let next = found.last().filter(|_| more).map(|device| paging::encode(&device.name));
    Ok(Json(Page { items: found.into_iter().map(DeviceView::from).collect(), next }))
}

/// Keeps a device out, at once. Role: admin.
#[utoipa::path(delete, path = "/v1/devices/{name}", tag = "nodes", params(("name" = String, Path)), responses(
    (status = 204),
    (status = 404, description = "No such device.", body = Problem, content_type = "application/problem+json"),
))]
async fn remove_device(
    State(board): State<Switchboard>,
    only::Admin(caller): only::Admin,
    Part(name): Part<String>,
) -> Result<StatusCode, Rejection> {
    board.remove_device(&name, &caller.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RubbishArgs {
    /// How many, at most 1000; 100 when left out.
    limit: Option<u32>,
}

/// What was received from nodes and could not be worked with, the newest first. Role: operator.
#[utoipa::path(get, path = "/v1/rubbish", tag = "nodes", params(RubbishArgs), responses((status = 200, body = Vec<RubbishView>)))]
async fn rubbish(
    State(board): State<Switchboard>,
    _: only::Operator,
    Args(args): Args<RubbishArgs>,
) -> Result<Json<Vec<RubbishView>>, Rejection> {
    let rows = PageArgs { limit: args.limit, cursor: None }.rows()?;
    Ok(Json(board.rubbish(rows).await?.into_iter().map(RubbishView::from).collect()))
}

/// What workers poll to see a manager come and go: that the process lives, and nothing else.
#[utoipa::path(get, path = "/actuator/health", tag = "health", security(()), responses((status = 200, content_type = "application/json")))]
async fn health() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], HEALTH_UP)
}
