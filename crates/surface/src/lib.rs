//! What every HTTP surface shares: how a request is read, how a refusal is said, who the caller is, how lists are
//! paged, and how a capability hands its routes to `api`.
//!
//! What is *not* here: any route, any secret, any layer. Those are the capabilities' and `api`'s. A capability depends
//! on this crate and never on `api`; `api` assembles [`Capability`]s and never knows what they do.
//!
//! ```
//! use axum::Json;
//! use mutirao_core::{Problem, auth::Role};
//! use mutirao_surface::{Body, Caller, Rejection};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Greet { name: String }
//!
//! async fn greet(caller: Caller, Body(greet): Body<Greet>) -> Result<Json<String>, Rejection> {
//!     caller.must_be(Role::Viewer)?;
//!     if greet.name.is_empty() {
//!         return Err(Problem::invalid("name", "is empty").into());
//!     }
//!     Ok(Json(format!("hello {}", greet.name)))
//! }
//! # let _: axum::Router = axum::Router::new().route("/v1/greet", axum::routing::post(greet));
//! ```

mod args;
mod body;
mod caller;
mod capability;
mod headers;
pub mod only;
pub mod paging;
mod rejection;
mod swift;
mod up_to;

pub use args::{Args, Part};
pub use body::Body;
pub use caller::Caller;
pub use capability::{AlwaysReady, BlobGuard, Capability, Ready, Shards};
pub use headers::{IdempotencyKey, TraceId, Wish};
pub use paging::PageArgs;
pub use rejection::{Rejection, keeps_its_name};
pub use swift::Swift;
pub use up_to::UpTo;

/// Routes and their documentation from one definition, so that neither can be there without the other.
pub use utoipa_axum::{router::OpenApiRouter, routes};
