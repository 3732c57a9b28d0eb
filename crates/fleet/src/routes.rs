//! The fleet over HTTP: what a resource manager asks ([`protocol`]), and what people do ([`elastic`], [`nodes`],
//! [`workers`]).

mod asker;
mod elastic;
mod nodes;
mod protocol;
mod workers;

use axum::http::{HeaderMap, HeaderValue};
use mutirao_core::ShardId;
use mutirao_surface::{OpenApiRouter, routes};

use crate::service::Fleets;
pub use asker::Asker;

pub fn routes(fleets: Fleets) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(protocol::lease))
        .routes(routes!(protocol::balance))
        .routes(routes!(protocol::create))
        .routes(routes!(protocol::invitation))
        .routes(routes!(protocol::drain))
        .routes(routes!(protocol::record))
        .routes(routes!(protocol::offer))
        .routes(routes!(elastic::status))
        .routes(routes!(elastic::history))
        .routes(routes!(elastic::plan))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::show))
        .routes(routes!(nodes::cordon))
        .routes(routes!(nodes::uncordon))
        .routes(routes!(nodes::drain))
        .routes(routes!(workers::list))
        .routes(routes!(workers::show))
        .routes(routes!(workers::drain))
        .routes(routes!(workers::resume))
        .with_state(fleets)
}

/// Names the shards whose owners did not answer, for whoever counts.
fn unheard(silent: &[ShardId]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !silent.is_empty() {
        let names: Vec<String> = silent.iter().map(ShardId::to_string).collect();
        if let Ok(value) = HeaderValue::from_str(&names.join(", ")) {
            headers.insert("mutirao-unheard", value);
        }
    }
    headers
}
