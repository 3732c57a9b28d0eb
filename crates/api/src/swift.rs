//! The [short way](Swift) past the router, for what capabilities offer it for. It leads through the same front and the same gate.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use mutirao_surface::{Rejection, Swift};

use crate::layers::front::Front;
use crate::layers::gate::{self, Gate};

pub struct ShortWay {
    pub front: Front,
    pub gate: Gate,
    pub offered: Vec<Arc<dyn Swift>>,
}

impl ShortWay {
    /// Who answers this, and for which route; none: it takes the long way.
    pub fn find(&self, request: &Request) -> Option<(Arc<dyn Swift>, &'static str)> {
        gate::token_of(request.headers())?;
        self.offered.iter().find_map(|swift| swift.route(request).map(|route| (swift.clone(), route)))
    }

    pub async fn answer(
        &self,
        (swift, route): (Arc<dyn Swift>, &'static str),
        request: Request,
        peer: SocketAddr,
    ) -> Response {
        let rest = |request: Request| async move {
            let (parts, body) = request.into_parts();
            match self.gate.prove_token(&parts.headers, peer.ip()).await {
                Ok(caller) => swift.answer(caller, Request::from_parts(parts, body)).await,
                Err(problem) => Rejection(problem).into_response(),
            }
        };
        self.front.pass_swiftly(route, request, rest).await
    }
}
