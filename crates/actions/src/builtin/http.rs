//! `builtin.http`: one request, on a connection that may be reused. Addresses that only mean
//! something to the machine or its cloud are refused by what it is given to ask with, unless somebody allowed them.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::quantity::Bytes;
use mutirao_probes::check::{self, Version};
use mutirao_probes::{Check, Ended, Probes};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Action;

/// The deadline of the action is above this, so that it is told what it was waiting for.
const WITHIN: Duration = Duration::from_secs(25);
/// Of an answer; what is longer is a failure, not half an answer.
const BODY_BYTES_MAX: u64 = 48 << 10;

pub struct Http(pub Probes);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    url: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<String>,
    /// Sent as the body, with its content type.
    #[serde(default)]
    json: Option<Value>,
    #[serde(default)]
    redirects: u8,
    /// Statuses of 400 and above are answers too.
    #[serde(default)]
    any_status: bool,
}

impl Asked {
    fn check(self) -> Result<Check, String> {
        let mut headers = self.headers;
        let body = match (self.body, self.json) {
            (Some(_), Some(_)) => return Err("it has both body and json: give one".into()),
            (Some(body), None) => body,
            (None, Some(json)) => {
                if !headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                    headers.insert("content-type".into(), "application/json".into());
                }
                json.to_string()
            }
            (None, None) => String::new(),
        };
        let usual = if body.is_empty() { "GET" } else { "POST" };
        let check = Check::Http(check::Http {
            url: self.url,
            method: self.method.unwrap_or_else(|| usual.into()),
            headers,
            body,
            redirects: self.redirects,
            body_max: Bytes(BODY_BYTES_MAX),
            version: Version::default(),
            reuse: true,
        });
        check.check().map_err(|problem| problem.line()).map(|()| check)
    }
}

#[async_trait]
impl Action for Http {
    async fn run(&self, data: &str) -> Result<String, String> {
        let asked: Asked = super::read(data)?;
        let any_status = asked.any_status;
        let check = asked.check()?;
        let observed = self.0.run(&check, WITHIN).await;
        match observed.ended {
            Ended::Answered => {}
            Ended::Failed { phase, why } => return Err(format!("{phase}: {why}")),
            Ended::TimedOut { phase } => return Err(format!("{phase} took longer than {}s", WITHIN.as_secs())),
        }
        let seen = observed.seen;
        let status = seen.status.unwrap_or_default();
        if status >= 400 && !any_status {
            return Err(format!("it answered with status {status}"));
        }
        if seen.body_cut {
            return Err(format!("the answer is longer than {BODY_BYTES_MAX} bytes"));
        }
        let body = String::from_utf8_lossy(&seen.body);
        let mut said = json!({"status": status, "headers": seen.headers});
        match serde_json::from_str::<Value>(&body) {
            Ok(read) => said["json"] = read,
            Err(_) => said["body"] = body.into(),
        }
        Ok(said.to_string())
    }
}
