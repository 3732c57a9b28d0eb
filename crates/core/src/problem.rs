//! One shape for everything that can be said to a caller about why not: problem details (RFC 9457). Routes answer with
//! it, the client reads it, the CLI prints its one line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a request was not carried out, and what would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, utoipa::ToSchema)]
#[error("{}", self.line())]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// A stable short name, for programs: `not-found`, `invalid`, `conflict`, `unauthenticated`, …
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    /// What exactly was wrong, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The field of the request that was wrong, as a path: `task.timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Seconds after which trying again makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
    /// What else a program may want to know of this kind, by name: extension members, in the words of the RFC.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub members: BTreeMap<String, Value>,
}

impl Problem {
    pub fn new(status: u16, kind: &str, title: &str) -> Self {
        Self {
            status,
            kind: kind.into(),
            title: title.into(),
            detail: None,
            field: None,
            remedy: None,
            retry_after_s: None,
            members: BTreeMap::new(),
        }
    }

    pub fn invalid(field: &str, detail: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(422, "invalid", "the request is not valid").detail(detail) }
    }

    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(400, "malformed", "the request cannot be read").detail(detail)
    }

    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(404, "not-found", "no such thing").detail(what)
    }

    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(409, "conflict", "the request conflicts with what is there").detail(detail)
    }

    pub fn unauthenticated(detail: impl Into<String>) -> Self {
        Self::new(401, "unauthenticated", "who are you?").detail(detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(403, "forbidden", "not allowed").detail(detail)
    }

    pub fn busy(detail: impl Into<String>, retry_after_s: u64) -> Self {
        Self { retry_after_s: Some(retry_after_s), ..Self::new(429, "busy", "too much at once").detail(detail) }
    }

    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self { retry_after_s: Some(1), ..Self::new(503, "unavailable", "not available now").detail(detail) }
    }

    /// Something broke on our side. The cause goes to the log, not to the caller.
    pub fn internal() -> Self {
        Self::new(500, "internal", "something broke on the server").detail("the server's log says what")
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Says one thing more to programs.
    pub fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.into(), value.into());
        self
    }

    /// Puts the field under a parent: `timeout` becomes `task.timeout`.
    pub fn under(mut self, parent: &str) -> Self {
        self.field = Some(match self.field {
            Some(field) if !field.is_empty() => format!("{parent}.{field}"),
            _ => parent.into(),
        });
        self
    }

    /// The whole of it in one line, for terminals and logs.
    pub fn line(&self) -> String {
        let mut line = String::new();
        if let Some(field) = &self.field {
            line += field;
            line += ": ";
        }
        line += self.detail.as_deref().unwrap_or(&self.title);
        if let Some(remedy) = &self.remedy {
            line += "; ";
            line += remedy;
        }
        line
    }
}
