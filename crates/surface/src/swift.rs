//! A shorter way for requests that come by the ten thousands. The router, its layers and its handlers cost a request a dozen
//! allocations; these are answered past it. Everything else about them is the same: who may ask, how often, how large, what is
//! noted. Whatever is out of the ordinary (a query, an escape, a body of unknown length) still takes the long way, and gets the
//! same answer there: each is a way to the same route.

use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::Request;
use axum::response::Response;
use mutirao_core::auth::Principal;

#[async_trait]
pub trait Swift: Send + Sync + 'static {
    /// The pattern of the route that this request is for, if it may take the short way. Nothing is believed of it yet.
    fn route(&self, request: &Request) -> Option<&'static str>;

    /// What the route would answer. The caller is proved; what it may do is decided here.
    async fn answer(&self, caller: Arc<Principal>, request: Request) -> Response;
}
