//! A provider whose calls have a limit: what takes longer is given up, and counts as failed.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, WorkerId};
use mutirao_elastic::packing::{Kind, NodeName};

use super::{CALL_MAX, Have, Launch, Provider, ProviderError, Shared};

pub struct Limited {
    inner: Shared,
    clock: Arc<dyn Clock>,
}

impl Limited {
    pub fn new(inner: Shared, clock: Arc<dyn Clock>) -> Self {
        Self { inner, clock }
    }

    async fn within<T: Send>(
        &self,
        call: impl Future<Output = Result<T, ProviderError>> + Send,
    ) -> Result<T, ProviderError> {
        let late = ProviderError::TooLate { limit: CALL_MAX };
        self.clock.timeout(CALL_MAX, call).await.unwrap_or(Err(late))
    }
}

#[async_trait]
impl Provider for Limited {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn list(&self, generation: u64) -> Result<Have, ProviderError> {
        self.within(self.inner.list(generation)).await
    }

    async fn launch(&self, launch: &Launch, generation: u64) -> Result<(), ProviderError> {
        self.within(self.inner.launch(launch, generation)).await
    }

    async fn end(&self, worker: &WorkerId, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        self.within(self.inner.end(worker, node, generation)).await
    }

    async fn kinds(&self) -> Result<Vec<Kind>, ProviderError> {
        self.within(self.inner.kinds()).await
    }

    async fn create_node(&self, node: &NodeName, kind: &str, generation: u64) -> Result<(), ProviderError> {
        self.within(self.inner.create_node(node, kind, generation)).await
    }

    async fn remove_node(&self, node: &NodeName, generation: u64) -> Result<(), ProviderError> {
        self.within(self.inner.remove_node(node, generation)).await
    }
}
