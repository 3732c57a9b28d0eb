//! What streams ask of others, whom they do not know: who a host is, and the keys and flows of sinks. The binary puts them
//! together.

use async_trait::async_trait;
use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use serde_json::Value;

/// Who was let in as a host.
#[async_trait]
pub trait Roll: Send + Sync + 'static {
    /// Whether a key is that of a host of streams, and good now.
    async fn is_host(&self, id: &str) -> Result<bool, Problem>;
}

/// What one row came to: taken, or refused; what may work later is told apart by its status.
pub type Taken = Result<(), Problem>;

/// Where rows of sinks go that only a manager may hand over.
#[async_trait]
pub trait Receivers: Send + Sync + 'static {
    /// Keeps values under keys, in their order. Durable when answered.
    async fn keep(&self, owner: &Principal, entries: Vec<(String, Value)>) -> Vec<Taken>;

    /// Starts a flow, once for each key, however often it is asked.
    async fn start(&self, owner: &Principal, flow: &str, key: String, input: Value) -> Taken;
}

/// Whether it is worth trying again.
pub fn may_work_later(problem: &Problem) -> bool {
    problem.status == 429 || problem.status >= 500
}
