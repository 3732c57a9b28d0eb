//! Plans that were compiled lately, by what they were compiled of: runs of one flow share one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use mutirao_core::Problem;
use mutirao_nodes::Namespace;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::definition::check::Catalogue;
use crate::{FlowSpec, Plan};

const LATELY_MAX: usize = 512;

type Print = [u8; 32];

pub struct Plans {
    namespace: Namespace,
    lately: Mutex<Lately>,
}

#[derive(Default)]
struct Lately {
    plans: HashMap<Print, Arc<Plan>>,
    order: VecDeque<Print>,
}

impl Plans {
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, lately: Mutex::default() }
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Whatever actions there are: it was accepted when somebody had them.
    pub async fn of(&self, spec: &FlowSpec) -> Result<Arc<Plan>, Problem> {
        self.written(&serde_json::to_string(spec).map_err(|error| Problem::malformed(error.to_string()))?).await
    }

    /// Of a definition as it is kept.
    pub async fn written(&self, definition: &str) -> Result<Arc<Plan>, Problem> {
        let print: Print = Sha256::digest(definition).into();
        if let Some(plan) = self.lately.lock().plans.get(&print) {
            return Ok(plan.clone());
        }
        let spec: FlowSpec = serde_json::from_str(definition).map_err(|error| Problem::malformed(error.to_string()))?;
        let namespace = self.namespace.clone();
        // Expressions are compiled on a thread of their own, which is waited for.
        let compiled = tokio::task::spawn_blocking(move || spec.plan(&namespace, Catalogue::Unknown)).await;
        let plan = Arc::new(compiled.map_err(|_| Problem::internal())??);
        let mut lately = self.lately.lock();
        if lately.plans.insert(print, plan.clone()).is_none() {
            lately.order.push_back(print);
        }
        while lately.order.len() > LATELY_MAX {
            let oldest = lately.order.pop_front();
            oldest.and_then(|oldest| lately.plans.remove(&oldest));
        }
        Ok(plan)
    }
}
