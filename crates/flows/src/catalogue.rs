//! Which actions there are: their versions, which nodes offer them, and how each does at them. What is known of health is this
//! process's own: it learned it from the tasks that it sent.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use mutirao_core::Problem;
use mutirao_nodes::switchboard::{NodeInfo, Switchboard};
use mutirao_nodes::{ActionName, Layer};
use mutirao_surface::{Capability, OpenApiRouter, Part, Rejection, only, routes};
use serde::{Deserialize, Serialize};

/// An action, and who offers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ActionView {
    /// As flows call it: what comes after `urn:NAMESPACE:Action:`.
    pub name: String,
    pub urn: String,
    /// Those that some node offers, the newest first; 0 where it has none.
    pub versions: Vec<u32>,
    pub nodes: Vec<OfferView>,
}

/// One node's offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OfferView {
    pub node: String,
    #[schema(value_type = String)]
    pub layer: Layer,
    pub version: u32,
    /// registered, or away: silent for longer than healthy ones are.
    pub presence: String,
    /// ok, warning (it failed), down (it is spared for a while) or recovering (one task will show).
    pub health: String,
}

/// By name.
pub fn of(nodes: Vec<NodeInfo>) -> Vec<ActionView> {
    let mut all: BTreeMap<ActionName, Vec<OfferView>> = BTreeMap::new();
    for NodeInfo { record, presence, health, .. } in nodes {
        for (offer, health) in health {
            all.entry(offer.action).or_default().push(OfferView {
                node: record.node.to_string(),
                layer: record.layer,
                version: offer.version,
                presence: presence.as_str().to_owned(),
                health: health.as_str().to_owned(),
            });
        }
    }
    let view = |(action, nodes): (ActionName, Vec<OfferView>)| {
        let versions: BTreeSet<u32> = nodes.iter().map(|offer| offer.version).collect();
        let (name, urn) = (action.short().to_owned(), action.as_str().to_owned());
        ActionView { name, urn, versions: versions.into_iter().rev().collect(), nodes }
    };
    all.into_iter().map(view).collect()
}

pub fn capability(board: &Switchboard) -> Capability {
    let router = OpenApiRouter::new().routes(routes!(list)).routes(routes!(show));
    Capability::new("actions", router.with_state(board.clone()))
}

/// The actions that nodes offer, by name; those of nodes that are away among them.
#[utoipa::path(get, path = "/v1/actions", tag = "flows",
    responses((status = 200, description = "All of them.", body = Vec<ActionView>)))]
async fn list(State(board): State<Switchboard>, _: only::Viewer) -> Json<Vec<ActionView>> {
    Json(of(board.nodes()))
}

/// One action: by its name, or by its URN.
#[utoipa::path(get, path = "/v1/actions/{name}", tag = "flows", params(("name" = String, Path)),
    responses((status = 200, description = "The action.", body = ActionView),
              (status = 404, body = Problem, description = "No node offers such an action.")))]
async fn show(
    State(board): State<Switchboard>,
    _: only::Viewer,
    Part(name): Part<String>,
) -> Result<Json<ActionView>, Rejection> {
    let found = of(board.nodes()).into_iter().find(|action| action.name == name || action.urn == name);
    let missing = || {
        let name: String = name.chars().take(100).collect();
        Problem::not_found(format!("no node offers an action \"{name}\""))
            .remedy("`mutirao action list` shows those that are there")
    };
    Ok(Json(found.ok_or_else(missing)?))
}
