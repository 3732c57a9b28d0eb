//! Actions that every node can have, under names that begin with `builtin.`:
//!
//! | name | input | output |
//! |---|---|---|
//! | `builtin.http` | `url`, `method`, `headers`, `body` or `json`, `redirects`, `any_status` | `status`, `headers`, `body`, and `json` if it is |
//! | `builtin.cel` | `expression`, `input` | what it comes to |
//! | `builtin.aggregate` | `values`, `field`, `percentiles` | `count`, `sum`, `mean`, `min`, `max`, `p50`, … |
//! | `builtin.kv_get` | `key` | `key`, `found`, `value`, `revision` |
//! | `builtin.kv_put` | `key`, `value`, `ttl`, `revision` (0: only if it is not there) | `key`, and what the API answers |
//! | `builtin.publish` | `to`, `data` | `to`, `bytes` |
//!
//! None of them runs a program. Those that need something of the shell (a client, a way to publish) are there only if it was
//! given.

pub mod aggregate;
mod cel;
mod http;
mod kv;
mod publish;

use std::sync::Arc;

use mutirao_client::Client;
use mutirao_nodes::{ActionName, Namespace, Offer};
use mutirao_probes::Probes;
use serde::de::DeserializeOwned;

pub use publish::Publish;

use crate::table::{Entry, Full, Table};
use crate::{Action, OUTPUT_BYTES_MAX};

/// What built-in actions work with. Without it, those that need it are not there.
#[derive(Clone, Default)]
pub struct Means {
    pub probes: Option<Probes>,
    pub client: Option<Client>,
    pub publish: Option<Arc<dyn Publish>>,
}

impl Means {
    pub fn put_into(self, table: &Table, namespace: &Namespace) -> Result<(), Full> {
        let put = |name: &str, action: Arc<dyn Action>| {
            // The names are ours and good; a namespace is good by its type.
            let Ok(action_name) = ActionName::within(namespace, name) else { return Ok(()) };
            let offer = Offer { action: action_name, version: 0 };
            table.put(Entry { output_bytes_max: OUTPUT_BYTES_MAX, ..Entry::new(offer, action) })
        };
        put("builtin.cel", Arc::new(cel::Cel))?;
        put("builtin.aggregate", Arc::new(aggregate::Aggregate))?;
        if let Some(probes) = self.probes {
            put("builtin.http", Arc::new(http::Http(probes)))?;
        }
        if let Some(client) = self.client {
            put("builtin.kv_get", Arc::new(kv::Get(client.clone())))?;
            put("builtin.kv_put", Arc::new(kv::Put(client)))?;
        }
        if let Some(publish) = self.publish {
            put("builtin.publish", Arc::new(publish::Say { line: publish, namespace: namespace.clone() }))?;
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(data: &str) -> Result<T, String> {
    serde_json::from_str(data).map_err(|error| format!("its input cannot be read: {error}"))
}
