//! `builtin.kv_get` and `builtin.kv_put`: entries, through the API like everybody else.

use async_trait::async_trait;
use mutirao_client::kv::{OnlyIf, Seen, Until};
use mutirao_client::{Client, ClientError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Action;

pub struct Get(pub Client);
pub struct Put(pub Client);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    key: String,
    value: Value,
    #[serde(default)]
    ttl: Option<String>,
    /// It is written only if the key is at this revision; 0: only if it is not there.
    #[serde(default)]
    revision: Option<u64>,
}

#[async_trait]
impl Action for Get {
    async fn run(&self, data: &str) -> Result<String, String> {
        let Key { key } = super::read(data)?;
        match self.0.entry(&key, Seen::default()).await {
            Ok(read) => {
                // What is not JSON is a text.
                let text = || Value::String(String::from_utf8_lossy(&read.bytes).into_owned());
                let value: Value = serde_json::from_slice(&read.bytes).unwrap_or_else(|_| text());
                Ok(json!({"key": key, "found": true, "value": value, "revision": read.revision}).to_string())
            }
            Err(error) if is_missing(&error) => Ok(json!({"key": key, "found": false}).to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_missing(error: &ClientError) -> bool {
    error.status() == Some(404)
}

#[async_trait]
impl Action for Put {
    async fn run(&self, data: &str) -> Result<String, String> {
        let Written { key, value, ttl, revision } = super::read(data)?;
        let only_if = match revision {
            None => OnlyIf::Always,
            Some(0) => OnlyIf::Absent,
            Some(revision) => OnlyIf::At(revision),
        };
        let bytes = value.to_string().into();
        let put = self.0.put_entry(&key, bytes, Some("application/json"), ttl.as_deref(), only_if, Until::Durable);
        let mut said: Value = put.await.map_err(|error| error.to_string())?;
        if let Some(fields) = said.as_object_mut() {
            fields.insert("key".into(), key.into());
        }
        Ok(said.to_string())
    }
}
