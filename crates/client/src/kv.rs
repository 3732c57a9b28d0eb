//! Entries: small shared state. What is sent and answered as JSON is the caller's to name: those types live with the
//! capability, which this crate does not know.
//!
//! Writes are never repeated behind the caller's back: the answer may have got lost while somebody else wrote, and the old
//! value would come back.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures_util::StreamExt;
use http::HeaderValue;
use mutirao_core::{Problem, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::events::{Change, ChangeStream};
use crate::http::{Call, Client, Repeat};
use crate::target::Target;

/// What must hold for a write to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnlyIf {
    #[default]
    Always,
    /// The key is not there.
    Absent,
    /// The key is at this revision.
    At(u64),
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// That it cannot be lost; where RabbitMQ carries writes it may be applied a little later.
    #[default]
    Durable,
    /// That whoever reads sees it.
    Applied,
}

impl Until {
    fn arg(self) -> Option<u8> {
        (self == Self::Applied).then_some(1)
    }
}

/// A value, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub bytes: Bytes,
    pub content_type: Option<String>,
    pub revision: Option<u64>,
    pub changed_at: Option<Timestamp>,
    /// If it does not last for good.
    pub expires_at: Option<Timestamp>,
}

/// What a read must have seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    pub min_rev: Option<u64>,
    pub write: Option<&'a str>,
    pub wait: Option<&'a str>,
}

impl Client {
    pub async fn put_entry<T: DeserializeOwned>(
        &self,
        key: &str,
        value: Bytes,
        content_type: Option<&str>,
        ttl: Option<&str>,
        only_if: OnlyIf,
        until: Until,
    ) -> Result<T, ClientError> {
        let call = Call::put(entry(key).arg("ttl", ttl).arg("sync", until.arg()), value).once();
        let call = match content_type {
            Some(content_type) => call.header("content-type", sendable(content_type)?),
            None => call,
        };
        self.fetch(conditional(call, only_if)).await
    }

    pub async fn delete_entry<T: DeserializeOwned>(
        &self,
        key: &str,
        only_if: OnlyIf,
        until: Until,
    ) -> Result<T, ClientError> {
        self.fetch(conditional(Call::delete(entry(key).arg("sync", until.arg())).once(), only_if)).await
    }

    pub async fn entry(&self, key: &str, seen: Seen<'_>) -> Result<Read, ClientError> {
        let target = entry(key).arg("min_rev", seen.min_rev).arg("write", seen.write).arg("wait", seen.wait);
        let (headers, bytes) = self.fetch_bytes(Call::get(target)).await?;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Ok(Read {
            bytes,
            content_type: text("content-type").map(str::to_owned),
            revision: text("etag").and_then(|tag| tag.trim_matches('"').parse().ok()),
            changed_at: text("mutirao-changed-at").and_then(moment),
            expires_at: text("mutirao-expires-at").and_then(moment),
        })
    }

    /// A page of keys; with `values`, what they hold.
    pub async fn entries<T: DeserializeOwned>(
        &self,
        prefix: &str,
        values: bool,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<T, ClientError> {
        let target = Target::new("/v1/kv").arg("prefix", Some(prefix)).arg("values", values.then_some(1));
        self.fetch(Call::get(target.arg("limit", limit).arg("cursor", cursor))).await
    }

    /// Several writes at once, each for itself.
    pub async fn write_entries<T: DeserializeOwned>(
        &self,
        batch: &impl Serialize,
        until: Until,
    ) -> Result<T, ClientError> {
        let target = Target::new("/v1/kv").arg("sync", until.arg());
        self.fetch(Call::post(target, Repeat::Never).json(batch)?).await
    }

    /// What became of a write.
    pub async fn entry_write<T: DeserializeOwned>(&self, id: &str, wait: Option<&str>) -> Result<T, ClientError> {
        self.fetch(Call::get(Target::new("/v1/kv/writes").part(id).arg("wait", wait))).await
    }

    /// What changes from now on, or after a cursor.
    pub async fn entry_changes(&self, prefix: &str, cursor: Option<&str>) -> Result<ChangeStream, ClientError> {
        let target = Target::new("/v1/kv").arg("watch", Some(1)).arg("prefix", Some(prefix)).arg("cursor", cursor);
        let events = self.events(Call::get(target)).await?;
        let this = self.clone();
        Ok(Box::pin(events.map(move |event| {
            let event = event?;
            Ok(Change { data: this.read_event(&event)?, what: event.name, id: event.id })
        })))
    }
}

/// A key is a part of the path, but for two: those are steps in it to everything that reads addresses, however they are escaped.
/// One that is empty is none there: in the query the server says what is wrong with it.
fn entry(key: &str) -> Target {
    match key {
        "" | "." | ".." => Target::new("/v1/kv").arg("key", Some(key)),
        key => Target::new("/v1/kv").part(key),
    }
}

/// As the server writes it in a header.
fn moment(text: &str) -> Option<Timestamp> {
    let at = humantime::parse_rfc3339(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp(i64::try_from(at.as_millis()).ok()?))
}

/// What a header cannot carry would be left out, and the value be said to be just bytes.
fn sendable(content_type: &str) -> Result<&str, ClientError> {
    match HeaderValue::from_str(content_type) {
        Ok(_) if content_type.is_ascii() => Ok(content_type),
        _ => Err(Problem::invalid("Content-Type", "it has characters that cannot be sent")
            .remedy("write it in plain ASCII, like text/plain; charset=utf-8")
            .into()),
    }
}

fn conditional(call: Call, only_if: OnlyIf) -> Call {
    match only_if {
        OnlyIf::Always => call,
        OnlyIf::Absent => call.header("if-none-match", "*"),
        OnlyIf::At(revision) => call.header("if-match", &format!("\"{revision}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_cannot_be_sent_is_refused_and_not_left_out() {
        assert_eq!(sendable("text/plain; charset=utf-8").unwrap(), "text/plain; charset=utf-8");
        for bad in ["a\nb", "täxt/plain", "a\0"] {
            let told = sendable(bad).unwrap_err();
            assert!(told.status() == Some(422) && told.to_string().contains("plain ASCII"), "{bad:?}: {told}");
        }
    }

    #[test]
    fn moments_are_read_as_they_were_written() {
        for at in [Timestamp(0), Timestamp(1_795_120_245_678)] {
            assert_eq!(moment(&at.to_string()), Some(at));
        }
        assert_eq!(moment("yesterday"), None);
    }
}
