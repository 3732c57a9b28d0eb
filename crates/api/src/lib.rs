//! The HTTP server: who may come in, what every request passes through, the routes that belong to no capability, and the
//! document that describes them all. Capabilities bring their own routes as [`Capability`]s; this crate never knows what
//! they do, and depends on none of them.
//!
//! - [`auth`]: tokens, enrolled workers, signatures. Its tables are this crate's only ones: [`MIGRATIONS`], [`POSTGRES_MIGRATIONS`].
//! - `layers`: what every request passes through. `routes`: the API's own. `openapi`: the document.
//! - `serve`: the socket. `tls`: what comes before HTTP when there is a certificate.

pub mod auth;
mod build;
mod error;
mod layers;
mod openapi;
mod recorder;
mod routes;
mod serve;
mod settings;
mod swift;
mod throttle;
mod tls;
mod ways;

pub use auth::Auth;
pub use auth::postgres::MIGRATIONS as POSTGRES_MIGRATIONS;
pub use auth::sqlite::MIGRATIONS;
pub use build::{Api, ApiParts, auth_of, build};
pub use error::ApiError;
pub use mutirao_surface::Capability;
pub use mutirao_tls::Serving;
pub use recorder::{describe, gather};
pub use serve::Serve;
pub use settings::Settings;
pub use throttle::Rate;
pub use ways::{OnlyLink, Ways};
