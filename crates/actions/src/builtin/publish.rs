//! `builtin.publish`: says something where others listen. What that means, a topic or a queue, is the shell's to know.

use std::sync::Arc;

use async_trait::async_trait;
use mutirao_nodes::Namespace;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Action;

const TO_CHARS_MAX: usize = 200;

/// A way to publish, which the shell gives.
#[async_trait]
pub trait Publish: Send + Sync {
    /// Ok once it is with whoever passes it on. Why not, in a line.
    async fn publish(&self, to: &str, text: String) -> Result<(), String>;
}

pub struct Say {
    pub line: Arc<dyn Publish>,
    pub namespace: Namespace,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    to: String,
    /// A text is sent as it is, anything else as JSON.
    data: Value,
}

#[async_trait]
impl Action for Say {
    async fn run(&self, data: &str) -> Result<String, String> {
        let Asked { to, data } = super::read(data)?;
        if to.is_empty() || to.chars().count() > TO_CHARS_MAX {
            return Err(format!("to: it has 1 to {TO_CHARS_MAX} characters"));
        }
        // By these nodes and managers are known: a flow that could speak there could speak for them.
        if to.starts_with('$') || to.split(['.', '/']).next() == Some(self.namespace.as_str()) {
            return Err(format!("to: places that begin with {} or $ are not for flows", self.namespace));
        }
        let text = match data {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let bytes = text.len();
        self.line.publish(&to, text).await?;
        Ok(json!({"to": to, "bytes": bytes}).to_string())
    }
}
