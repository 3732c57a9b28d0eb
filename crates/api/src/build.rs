//! Puts the API together: capabilities, own routes, layers.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use bytes::Bytes;
use mutirao_core::blobs::Blobs;
use mutirao_core::{Clock, Problem};
use mutirao_store::Database;
use mutirao_surface::{BlobGuard, Capability, Rejection};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{Auth, registry};
use crate::layers::access::Access;
use crate::layers::bodies::Room;
use crate::layers::bounds::Bounds;
use crate::layers::front::{self, Front};
use crate::layers::gate::{self, Gate};
use crate::layers::host::Names;
use crate::layers::tally::Tally;
use crate::recorder::{self, Tidying};
use crate::routes::{self, Parts};
use crate::serve::{Answering, serve};
use crate::swift::ShortWay;
use crate::throttle::Throttle;
use crate::{ApiError, Serve, Settings, Ways, openapi};

/// What the API is made of.
pub struct ApiParts {
    /// Made before, because others ask it as well ([`auth_of`]).
    pub auth: Arc<Auth>,
    pub broker: mutirao_broker::Shared,
    pub blobs: Arc<dyn Blobs>,
    pub clock: Arc<dyn Clock>,
    pub capabilities: Vec<Capability>,
    /// How workers reach the broker, besides the link.
    pub ways: Arc<dyn Ways>,
    pub settings: Settings,
    /// Cancelled by whoever runs the process: event streams and links end, and [`Api::serve`] returns.
    pub shutdown: CancellationToken,
}

/// The API, ready to be served.
pub struct Api {
    router: Router,
    short_way: Arc<ShortWay>,
    auth: Arc<Auth>,
    serve: Serve,
    document: Bytes,
    _tidying: Tidying,
    /// Ends with the API.
    _upkeep: JoinSet<()>,
}

impl Api {
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    pub fn auth(&self) -> &Arc<Auth> {
        &self.auth
    }

    /// The OpenAPI document, as it is served.
    pub fn document(&self) -> &Bytes {
        &self.document
    }

    /// Serves until the shutdown, and then until what is open has ended or the drain time is over.
    pub async fn serve(&self, listener: TcpListener) -> Result<(), ApiError> {
        let answering = Answering { router: self.router(), short_way: Some(self.short_way.clone()) };
        serve(listener, answering, self.serve.clone()).await
    }
}

/// Who may come in, by what a database has had [`crate::MIGRATIONS`] or [`crate::POSTGRES_MIGRATIONS`] applied to.
pub fn auth_of(store: &Database, clock: Arc<dyn Clock>) -> Arc<Auth> {
    Arc::new(Auth::new(registry::open(store), clock))
}

pub async fn build(parts: ApiParts) -> Result<Api, ApiError> {
    let ApiParts { auth, broker, blobs, clock, capabilities, ways, settings, shutdown } = parts;
    let gate = Gate {
        auth: auth.clone(),
        rate: Arc::new(Throttle::new(settings.rate, clock.clone())),
        failures: Arc::new(Throttle::new(settings.failures, clock.clone())),
    };
    let metrics = recorder::handle()?;
    recorder::describe(recorder::METERS.iter().chain(capabilities.iter().flat_map(|capability| capability.meters)));
    let (open, open_document) = routes::open().split_for_parts();
    let (closed, closed_document) = routes::closed().split_for_parts();
    let document = openapi::assemble([open_document, closed_document], &capabilities);
    let document = Bytes::from(serde_json::to_vec(&document).expect("the document is plain data"));
    let links = TaskTracker::new();
    let shared = Arc::new(Parts {
        auth: auth.clone(),
        gate: gate.clone(),
        broker,
        blobs,
        guards: guards(&capabilities)?,
        ready: capabilities.iter().map(|capability| (capability.name, capability.ready.clone())).collect(),
        shards: capabilities.iter().filter_map(|capability| capability.shards.clone()).collect(),
        clock: clock.clone(),
        metrics: metrics.clone(),
        shown: capabilities.iter().filter_map(|capability| capability.shown.clone()).collect(),
        document: document.clone(),
        links: links.clone(),
        ways,
        url: settings.url.clone(),
        installation: settings.installation.clone(),
        link_places: Arc::new(Semaphore::new(settings.connections_max)),
        shutdown: shutdown.clone(),
    });

    let offered = capabilities.iter().filter_map(|capability| capability.swift.clone()).collect();
    let front = front(&settings, &clock, &shutdown);
    let short_way = Arc::new(ShortWay { front: front.clone(), gate: gate.clone(), offered });
    let open = capabilities
        .iter()
        .fold(open.with_state(shared.clone()), |router, capability| router.merge(capability.open.clone()));
    // Whatever else a capability brings is behind the gate: a handler that forgets to ask who calls is not open to the world.
    let closed = capabilities
        .into_iter()
        .fold(closed.with_state(shared), |router, capability| router.merge(capability.router))
        .route_layer(from_fn_with_state(gate, gate::pass));
    let router = closed.merge(open).fallback(nowhere).method_not_allowed_fallback(not_like_that);
    let router = router.layer(from_fn_with_state(front, front::pass));

    let serve = Serve {
        clock: clock.clone(),
        shutdown,
        links,
        drain: settings.drain,
        connections_max: settings.connections_max,
        tls: settings.tls,
    };
    let mut upkeep = JoinSet::new();
    upkeep.spawn({
        let (auth, keep) = (auth.clone(), settings.keep);
        async move { auth.keep_tidy(keep).await }
    });
    Ok(Api { router, short_way, auth, serve, document, _tidying: Tidying::start(metrics, clock), _upkeep: upkeep })
}

fn front(settings: &Settings, clock: &Arc<dyn Clock>, shutdown: &CancellationToken) -> Front {
    Front(Arc::new(front::Parts {
        access: Access { clock: clock.clone(), tally: Tally::begin() },
        names: Names::new(&settings.hosts),
        bounds: Bounds {
            clock: clock.clone(),
            requests: Semaphore::new(settings.requests_max),
            timeout: settings.request_timeout,
        },
        room: Room::of(settings.body_bytes_held_max),
        shutdown: shutdown.clone(),
    }))
}

type Guards = Vec<(&'static str, Arc<dyn BlobGuard>)>;

/// The most particular prefix first.
fn guards(capabilities: &[Capability]) -> Result<Guards, ApiError> {
    let mut guards: Guards = capabilities.iter().flat_map(|capability| capability.blob_guards.clone()).collect();
    guards.sort_by_key(|(prefix, _)| (std::cmp::Reverse(prefix.len()), *prefix));
    match guards.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(ApiError::BlobsTwice { prefix: pair[0].0 }),
        None => Ok(guards),
    }
}

async fn nowhere(request: Request) -> Rejection {
    let path: String = request.uri().path().chars().take(200).collect();
    Rejection(Problem::not_found(format!("there is nothing at {path}")).remedy("/v1/openapi.json lists what there is"))
}

async fn not_like_that(request: Request) -> Rejection {
    let path: String = request.uri().path().chars().take(200).collect();
    let detail = format!("{path} does not take {}", request.method());
    Rejection(Problem::new(405, "method-not-allowed", "not like that").detail(detail))
}
