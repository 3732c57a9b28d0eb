//! How entries look in Redis, and which of them count.

use std::sync::Arc;

use bytes::Bytes;
use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fold::Entry;
use crate::write::Value;

/// As [`hex`] writes it.
const EPOCH_CHARS: usize = 16;

/// What is kept with a value.
#[derive(Serialize, Deserialize)]
struct Head {
    revision: u64,
    changed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    /// None: there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<Arc<str>>,
}

/// An epoch, or a token, as scripts are given it.
pub(super) fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// As it is kept: the revision so that texts compare as numbers do, the length of the head, the head, the value.
pub(super) fn pack(entry: &Entry) -> Vec<u8> {
    let head = Head {
        revision: entry.revision,
        changed_at: entry.changed_at,
        expires_at: entry.expires_at,
        content_type: entry.value.as_ref().map(|value| value.content_type.clone()),
    };
    let head = serde_json::to_vec(&head).expect("a head is plain data");
    let mut all = format!("{:020}{:08x}", entry.revision, head.len()).into_bytes();
    all.extend_from_slice(&head);
    if let Some(value) = &entry.value {
        all.extend_from_slice(&value.bytes);
    }
    all
}

/// The packed entry of a slot, if it is one of this reign and no lease.
pub(super) fn of_reign(slot: Vec<u8>, epoch: &[u8]) -> Option<Bytes> {
    let counts = epoch.len() == EPOCH_CHARS && slot.strip_prefix(b"E")?.starts_with(epoch);
    counts.then(|| Bytes::from(slot).slice(1 + EPOCH_CHARS..))
}

/// None: it is not one of ours.
pub(super) fn unpack(packed: &Bytes) -> Option<Entry> {
    let length = std::str::from_utf8(packed.get(20..28)?).ok()?;
    let until = 28 + usize::from_str_radix(length, 16).ok()?;
    let head: Head = serde_json::from_slice(packed.get(28..until)?).ok()?;
    let value = head.content_type.map(|content_type| Value { bytes: packed.slice(until..), content_type });
    Some(Entry { revision: head.revision, changed_at: head.changed_at, value, expires_at: head.expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::nothing;

    #[test]
    fn only_an_entry_of_this_very_reign_counts() {
        let entry = Entry { revision: 7, ..nothing() };
        let (ours, other) = (hex(1), hex(2));
        let kept = |letter: &str, epoch: &str| [letter.as_bytes(), epoch.as_bytes(), &pack(&entry)].concat();
        let read = |slot: Vec<u8>, epoch: &str| of_reign(slot, epoch.as_bytes()).and_then(|packed| unpack(&packed));
        assert_eq!(read(kept("E", &ours), &ours), Some(entry.clone()));
        assert_eq!(read(kept("E", &other), &ours), None, "of another");
        assert_eq!(read(kept("L", &ours), &ours), None, "a lease");
        for rubbish in ["", "E", "Eshort"] {
            assert_eq!(read(rubbish.into(), &ours), None);
        }
        assert_eq!(read(kept("E", &ours), ""), None, "no epoch at all");
    }
}
