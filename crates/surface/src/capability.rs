//! What a capability hands to `api`: its routes, their documentation, and the few questions `api` must be able to ask
//! without knowing what the capability does.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_core::meters::Meter;
use mutirao_core::shard::ShardView;
use utoipa_axum::router::OpenApiRouter;

use crate::Swift;

/// Decides over the blobs under one prefix, because only the capability knows whose they are.
#[async_trait]
pub trait BlobGuard: Send + Sync + 'static {
    async fn may_append(&self, caller: &Principal, key: &str) -> Result<(), Problem>;

    /// Bytes that one blob may grow to.
    fn bytes_max(&self) -> u64;

    /// Whoever may write a blob may read it back, unless said otherwise.
    async fn may_read(&self, caller: &Principal, key: &str) -> Result<(), Problem> {
        self.may_append(caller, key).await
    }
}

/// Says whether the capability can do its work now.
#[async_trait]
pub trait Ready: Send + Sync + 'static {
    /// The reason, in one line, when it cannot.
    async fn ready(&self) -> Result<(), String>;
}

/// For a capability with nothing to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysReady;

#[async_trait]
impl Ready for AlwaysReady {
    async fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Who owns what a capability is cut into, as this process sees it.
pub type Shards = Arc<dyn Fn() -> Vec<ShardView> + Send + Sync>;

/// One capability, ready to be served.
#[derive(Clone)]
pub struct Capability {
    pub name: &'static str,
    /// Routes with their full paths, `/v1/…`.
    pub router: axum::Router,
    /// Those of them that answer anybody.
    pub open: axum::Router,
    /// A shorter way to some of those that do not.
    pub swift: Option<Arc<dyn Swift>>,
    pub openapi: utoipa::openapi::OpenApi,
    /// By key prefix, which ends in `/`.
    pub blob_guards: Vec<(&'static str, Arc<dyn BlobGuard>)>,
    pub ready: Arc<dyn Ready>,
    /// None where it is not cut into shards.
    pub shards: Option<Shards>,
    /// What it measures.
    pub meters: &'static [Meter],
    /// What it shows of its own among the metrics, as Prometheus reads it.
    pub shown: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

impl Capability {
    /// A capability that is always ready and has no blobs. `routes` has its state already.
    pub fn new(name: &'static str, routes: OpenApiRouter) -> Self {
        let (router, openapi) = routes.split_for_parts();
        let open = axum::Router::new();
        Self {
            name,
            router,
            open,
            swift: None,
            openapi,
            blob_guards: Vec::new(),
            ready: Arc::new(AlwaysReady),
            shards: None,
            meters: &[],
            shown: None,
        }
    }

    /// Adds routes that are not behind the gate: their handlers must find out by themselves whom to believe.
    pub fn open_to_anybody(mut self, routes: OpenApiRouter) -> Self {
        let (router, document) = routes.split_for_parts();
        self.open = self.open.merge(router);
        self.openapi.merge(document);
        self
    }

    pub fn swiftly(mut self, swift: Arc<dyn Swift>) -> Self {
        self.swift = Some(swift);
        self
    }

    pub fn guard_blobs(mut self, prefix: &'static str, guard: Arc<dyn BlobGuard>) -> Self {
        self.blob_guards.push((prefix, guard));
        self
    }

    pub fn sharded(mut self, shards: impl Fn() -> Vec<ShardView> + Send + Sync + 'static) -> Self {
        self.shards = Some(Arc::new(shards));
        self
    }

    pub fn measuring(mut self, meters: &'static [Meter]) -> Self {
        self.meters = meters;
        self
    }

    /// Series that come and go, which a recorder could not take back.
    pub fn showing(mut self, shown: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.shown = Some(Arc::new(shown));
        self
    }

    pub fn ready_when(mut self, ready: Arc<dyn Ready>) -> Self {
        self.ready = ready;
        self
    }
}
