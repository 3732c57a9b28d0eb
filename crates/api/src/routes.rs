//! The routes that belong to no capability. Each is defined once, with its documentation beside it; [`open`] ones answer
//! anybody, [`closed`] ones only a proved caller.

pub mod blobs;
pub mod elastic;
pub mod health;
pub mod link;
pub mod shards;
pub mod tokens;
pub mod workers;

use std::sync::Arc;

use mutirao_broker::Shared as Broker;
use mutirao_core::blobs::Blobs;
use mutirao_core::job::Page;
use mutirao_core::{Clock, InstallationId};
use mutirao_surface::{BlobGuard, OpenApiRouter, Ready, Shards, paging, routes};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Ways;
use crate::auth::Auth;
use crate::layers::gate::Gate;

/// What the routes work with.
pub struct Parts {
    pub auth: Arc<Auth>,
    pub gate: Gate,
    pub broker: Broker,
    pub blobs: Arc<dyn Blobs>,
    pub guards: Vec<(&'static str, Arc<dyn BlobGuard>)>,
    pub ready: Vec<(&'static str, Arc<dyn Ready>)>,
    pub shards: Vec<Shards>,
    pub clock: Arc<dyn Clock>,
    pub metrics: metrics_exporter_prometheus::PrometheusHandle,
    /// Metrics that capabilities show themselves.
    pub shown: Vec<Arc<dyn Fn() -> String + Send + Sync>>,
    /// The document at `/v1/openapi.json`, as it is sent.
    pub document: bytes::Bytes,
    pub links: TaskTracker,
    pub ways: Arc<dyn Ways>,
    /// Where others reach this server.
    pub url: Option<String>,
    pub installation: Option<InstallationId>,
    pub link_places: Arc<Semaphore>,
    pub shutdown: CancellationToken,
}

pub type SharedParts = Arc<Parts>;

pub fn open() -> OpenApiRouter<SharedParts> {
    OpenApiRouter::new()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::openapi))
        .routes(routes!(workers::enrol))
        .routes(routes!(elastic::enrol))
}

pub fn closed() -> OpenApiRouter<SharedParts> {
    OpenApiRouter::new()
        .routes(routes!(health::metrics))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(workers::create_enrolment))
        .routes(routes!(workers::broker))
        .routes(routes!(workers::keys))
        .routes(routes!(workers::revoke_key))
        .routes(routes!(elastic::invite))
        .routes(routes!(elastic::add_key, elastic::keys))
        .routes(routes!(elastic::revoke_key))
        .routes(routes!(blobs::put, blobs::get))
        .routes(routes!(link::link))
        .routes(routes!(shards::shards))
}

/// A page of at most `rows` of what was found, each with its number. Whoever asks looks for one more than that, which
/// tells whether there is a next page.
fn page_of<T, V>(mut found: Vec<(i64, T)>, rows: u32, view: impl Fn(&T) -> V) -> Page<V> {
    let more = found.len() > rows as usize;
    found.truncate(rows as usize);
    let next = found.last().filter(|_| more).map(|(number, _)| paging::encode(number));
    Page { items: found.iter().map(|(_, item)| view(item)).collect(), next }
}
