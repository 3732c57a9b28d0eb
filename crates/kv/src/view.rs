//! How entries and operations look in JSON. A value is text where it can be, else base64.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mutirao_core::{Problem, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fold::{Entry, Event, Kind};
use crate::service::{Listed, WriteView};
use crate::write::{Change, Condition, Key, TTL_MAX, TTL_MIN, Value};

/// A key as it is or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EntryView {
    pub key: String,
    pub revision: u64,
    pub changed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub content_type: String,
    /// Of the value.
    pub bytes: u64,
    /// If it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// If it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Some keys, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EntriesView {
    pub entries: Vec<EntryView>,
    /// To go on, as everything was when the list was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// To watch from the moment that the list shows.
    pub watch: String,
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChangeView {
    pub key: String,
    pub revision: u64,
    pub at: Timestamp,
    /// What it is now, after a put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryView>,
}

/// One operation of a batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    pub key: String,
    /// The value as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The value as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How long it lasts, like `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub delete: bool,
    /// Only if the key is at this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_revision: Option<u64>,
    /// Only if the key is not there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub create: bool,
}

/// What became of one operation: of its write, or why it was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Operated {
    Written(WriteView),
    Refused { problem: Problem },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Operation {
    pub fn read(self) -> Result<(Key, Change, Condition), Problem> {
        let key: Key = self.key.parse()?;
        let condition = match (self.create, self.if_revision) {
            (false, None) => Condition::None,
            (true, None) => Condition::Absent,
            (false, Some(revision)) => Condition::At(revision),
            (true, Some(_)) => return Err(Problem::invalid("create", "a key that is not there has no revision")),
        };
        let bytes = match (self.value, self.base64) {
            (Some(text), None) => Some(Bytes::from(text)),
            (None, Some(base64)) => {
                Some(STANDARD.decode(base64).map_err(|error| Problem::invalid("base64", error.to_string()))?.into())
            }
            (None, None) => None,
            (Some(_), Some(_)) => return Err(Problem::invalid("base64", "there is a value already")),
        };
        let change = match (self.delete, bytes) {
            (true, None) => {
                if condition == Condition::Absent {
                    return Err(Problem::invalid("create", "what is not there cannot be removed"));
                }
                if self.ttl.is_some() {
                    return Err(Problem::invalid("ttl", "what is to be deleted lasts no longer"));
                }
                Change::Delete
            }
            (true, Some(_)) => return Err(Problem::invalid("value", "what is to be deleted gets none")),
            (false, Some(bytes)) => {
                let content_type = self.content_type.as_deref();
                // As in a header, in which whoever reads it is told.
                if content_type.is_some_and(|text| text.chars().any(|c| !matches!(c, ' '..='~'))) {
                    return Err(Problem::invalid("content_type", "it is not plain text"));
                }
                let value = Value::new(bytes, content_type)?;
                Change::Put { value, lasts: self.ttl.as_deref().map(ttl).transpose()? }
            }
            (false, None) => {
                return Err(Problem::invalid("value", "there is none").remedy("give a value, base64, or delete: true"));
            }
        };
        Ok((key, change, condition))
    }
}

/// How long something lasts: `90s`, `2h 30m`.
pub fn ttl(text: &str) -> Result<Duration, Problem> {
    let shown: String = text.chars().take(40).collect();
    let read = humantime::parse_duration(text).map_err(|_| {
        Problem::invalid("ttl", format!("\"{shown}\" is not a time")).remedy("write one like 90s or 2h")
    })?;
    if read < TTL_MIN || read > TTL_MAX {
        return Err(Problem::invalid("ttl", "from 1ms to ten years"));
    }
    Ok(read)
}

/// What is shown of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    Shown,
    LeftOut,
}

impl EntryView {
    pub fn of(key: &Key, entry: &Entry, values: Values) -> Option<Self> {
        let value = entry.value.as_ref()?;
        let text = std::str::from_utf8(&value.bytes).ok().map(str::to_owned);
        let base64 = text.is_none().then(|| STANDARD.encode(&value.bytes));
        let (text, base64) = match values {
            Values::Shown => (text, base64),
            Values::LeftOut => (None, None),
        };
        Some(Self {
            key: key.as_str().into(),
            revision: entry.revision,
            changed_at: entry.changed_at,
            expires_at: entry.expires_at,
            content_type: value.content_type.as_ref().into(),
            bytes: value.bytes.len() as u64,
            value: text,
            base64,
        })
    }

    pub fn listed(listed: &Listed, values: Values) -> Option<Self> {
        Self::of(&listed.key, &listed.entry, values)
    }
}

impl ChangeView {
    pub fn of(event: &Event) -> Self {
        let Event { revision, place, at, value, expires_at, .. } = event;
        let entry = Entry { revision: *revision, changed_at: *at, value: value.clone(), expires_at: *expires_at };
        Self {
            key: place.key.as_str().into(),
            revision: *revision,
            at: *at,
            entry: EntryView::of(&place.key, &entry, Values::Shown),
        }
    }
}

/// The name of an event.
pub fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Put => "put",
        Kind::Delete => "delete",
        Kind::Expire => "expire",
        Kind::Nothing => "nothing",
        Kind::Conflict => "conflict",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<(Key, Change, Condition), Problem> {
        serde_json::from_str::<Operation>(json).map_err(|error| Problem::malformed(error.to_string()))?.read()
    }

    #[test]
    fn operations_say_one_thing() {
        assert!(matches!(read(r#"{"key": "a", "delete": true}"#), Ok((_, Change::Delete, Condition::None))));
        let (_, change, condition) = read(r#"{"key": "a", "base64": "AP8=", "ttl": "2h", "create": true}"#).unwrap();
        let Change::Put { value, lasts } = change else { panic!("{change:?}") };
        assert_eq!(
            (&value.bytes[..], lasts, condition),
            (&[0, 255][..], Some(Duration::from_secs(7_200)), Condition::Absent)
        );
        for bad in [
            r#"{"key": "a"}"#,
            r#"{"key": "", "value": ""}"#,
            r#"{"key": "a", "value": "", "delete": true}"#,
            r#"{"key": "a", "value": "", "base64": ""}"#,
            r#"{"key": "a", "base64": "*"}"#,
            r#"{"key": "a", "value": "", "create": true, "if_revision": 3}"#,
            r#"{"key": "a", "value": "", "ttl": "soon"}"#,
            r#"{"key": "a", "value": "", "ttl": "0s"}"#,
            r#"{"key": "a", "value": "", "ttl": "999us"}"#,
            r#"{"key": "a", "value": "", "content_type": "tä"}"#,
            r#"{"key": "a", "value": "", "content_type": "a\u0000"}"#,
            r#"{"key": "a", "delete": true, "create": true}"#,
            r#"{"key": "a", "delete": true, "ttl": "2h"}"#,
            r#"{"key": "a", "value": "", "vlaue": ""}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
